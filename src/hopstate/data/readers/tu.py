"""Graph sets of the TU collections: the folder of NAME_A.txt and its tables, and the text file of DGCNN and GIN.

The folder, a row a line:

    NAME_A.txt                     source, target of an edge; nodes are counted from 1 over all graphs
    NAME_graph_indicator.txt       the graph of a node, from 1; nodes of a graph are adjacent
    NAME_graph_labels.txt          class of a graph, a whole number
    NAME_graph_attributes.txt      targets of a graph, "nan" if one is unknown
    NAME_node_labels.txt           categories of a node, whole numbers: a column of 0 and 1 for each
    NAME_node_attributes.txt       numbers of a node
    NAME_edge_labels.txt, NAME_edge_attributes.txt   the same of edges, in the order of NAME_A.txt

The text file: the number of graphs; then for each graph a line "n label", and for each node a line "tag degree
neighbor neighbor ... [attribute ...]", neighbors counted from 0 within the graph. Tags become one-hot features.

Source: Morris et al. 2020, arXiv:2007.08663 (TUDataset); Zhang et al. 2018, github.com/muhanzhang/pytorch_DGCNN.
"""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np

from hopstate.data.graph import Graph, Keep
from hopstate.data.graph_set import GraphSet, folds
from hopstate.data.preprocessing import TAG, FeatureTable
from hopstate.data.readers.notes import notes_of_list
from hopstate.errors import FormatError, MissingFileError
from hopstate.io.opening import check_size, exists, is_file, open_regular, read_text


def read_tu(
    path: str | Path,
    *,
    fold_folder: str | Path | None = None,
    num_folds: int = 10,
    undirected: bool = True,
    duplicates: Keep = "drop",
    self_loops: Keep = "keep",
    table: bool = False,
) -> GraphSet:
    """Return the graphs of a TU text file.

    Args:
        path: the file, NAME.txt.
        fold_folder: folder with NAME-train_idx-K.txt and NAME-test_idx-K.txt, K = 1..num_folds; by default "10fold"
            beside the file where it is there.
        num_folds: folds to read.
        undirected: store every edge in both directions, whichever of its ends lists the other.
        duplicates, self_loops: see `Graph.from_edges`.
        table: keep the features' names ("tag 3", "attribute 0") with them, so that they are scaled, and matched by name
            where other graphs are read for a trained model.
    """
    path = Path(path)
    lines = read_text(path).split("\n")
    where, at, first = str(path), 1, 0
    graphs = _whole(lines, 0, where)
    if len(graphs) != 1 or graphs[0] < 1:
        raise FormatError(f"{where}, line 1: expected the number of graphs, got {lines[0][:60]!r}")
    sizes: list[int] = []
    labels, tags, attributes, edges = [], [], [], []
    for _ in range(graphs[0]):
        head = _whole(lines, at, where)
        if len(head) != 2 or head[0] < 1:
            raise FormatError(f"{where}, line {at + 1}: expected 'nodes label' of a graph, got {lines[at][:60]!r}")
        size = head[0]
        for v in range(size):
            tag, neighbours, rest = _node(lines, at + 1 + v, size, where)
            tags.append(tag)
            attributes.append(rest)
            edges += [(first + v, first + u) for u in neighbours]
        sizes.append(size)
        labels.append(head[1])
        at, first = at + size + 1, first + size
    left = next((number for number in range(at, len(lines)) if lines[number].strip()), None)
    if left is not None:
        raise FormatError(
            f"{where}, line 1 says {graphs[0]} graphs, but line {left + 1} goes on with {lines[left][:60]!r}; correct "
            "the number or remove what is left over"
        )
    names, y = np.unique(np.array(labels, np.int64), return_inverse=True)
    build: dict[str, Any] = {"undirected": undirected, "duplicates": duplicates, "self_loops": self_loops}
    columns, x = _features(np.array(tags, np.int64), attributes, where)
    pairs = np.array(edges, np.int64).reshape(-1, 2)
    union = Graph.from_edges(
        pairs, sum(sizes), **build, name=path.stem, source=where, x=x,
        table=FeatureTable(columns, x) if table else None,
        notes=notes_of_list(pairs, sum(sizes), build),
    )  # fmt: skip
    offsets = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
    masks = read_folds(path, fold_folder, num_folds, len(sizes))
    class_names = tuple(str(n) for n in names)
    return GraphSet(union=union, offsets=offsets, y=y.astype(np.int64), masks=masks, class_names=class_names)


def is_tu_text(path: str | Path) -> bool:
    """Return whether a text file begins as one of these does: a line of one whole number, then one of two."""
    if not is_file(path):
        return False
    with open_regular(path) as file:
        lines = file.read(200).decode(errors="replace").split("\n")
    return len(lines) > 2 and all(len(_ints(line)) == n for line, n in zip(lines, (1, 2), strict=False))


def _ints(line: str) -> list[str]:
    words = line.split()
    return words if all(word.lstrip("+-").isdecimal() for word in words) else []


def _node(lines: list[str], number: int, size: int, where: str) -> tuple[int, list[int], list[float]]:
    """Return (tag, neighbours, attributes) of a node of a graph of some size."""
    words = _words(lines, number, where)
    try:
        tag, degree = _int(words[0]), _int(words[1])
        neighbours = [_int(word) for word in words[2 : 2 + max(0, degree)]]
        if not 0 <= degree <= len(words) - 2 or any(not 0 <= u < size for u in neighbours):
            raise ValueError
    except (IndexError, ValueError, OverflowError):
        raise FormatError(
            f"{where}, line {number + 1}: not 'tag degree neighbours', whole numbers, neighbours within 0..{size - 1}: "
            f"{lines[number][:60]!r}"
        ) from None
    try:
        rest = [float(word) for word in words[2 + degree :]]
    except ValueError:
        raise FormatError(
            f"{where}, line {number + 1}: attributes that are no numbers: {words[2 + degree :][:5]}"
        ) from None
    return tag, neighbours, rest


def _int(word: str) -> int:
    """Return a whole number, also one that is written 3.0 or 1e2; raise ValueError for any other."""
    if len(word) <= 18 and word.lstrip("+-").isdecimal():
        return int(word)
    number = float(word)
    if number != int(number) or abs(number) >= 2**53:
        raise ValueError
    return int(number)


def _whole(lines: list[str], number: int, where: str) -> list[int]:
    words = _words(lines, number, where)
    try:
        return [_int(word) for word in words]
    except (ValueError, OverflowError):
        raise FormatError(f"{where}, line {number + 1}: expected whole numbers, got {lines[number][:60]!r}") from None


def _words(lines: list[str], number: int, where: str) -> list[str]:
    if number >= len(lines) or not lines[number].strip():
        raise FormatError(f"{where} ends at line {number + 1}, in the middle of a graph; it is truncated")
    return lines[number].split()


def _features(tags: np.ndarray, attributes: list[list[float]], where: str) -> tuple[tuple[str, ...], np.ndarray]:
    """Return names and (N, F) float32 of features: a column a tag, then the attributes."""
    widths = {len(row) for row in attributes}
    if len(widths) > 1:
        raise FormatError(f"{where}: nodes have different numbers of attributes, {sorted(widths)}")
    kinds, place = np.unique(tags, return_inverse=True)
    check_size(where, 4 * len(tags) * (len(kinds) + max(widths)), what=f"one column for each of {len(kinds):,} tags")
    onehot = np.eye(len(kinds), dtype=np.float32)[place]
    names = (*(f"{TAG}{kind}" for kind in kinds.tolist()), *(f"attribute {i}" for i in range(max(widths))))
    return names, np.concatenate([onehot, np.array(attributes, np.float32)], 1) if widths != {0} else onehot


def read_folds(path: Path, folder: str | Path | None, num_folds: int, num_graphs: int) -> dict[str, np.ndarray]:
    """Return the masks of the folds of a set; none where there is no folder of them.

    Args:
        path: folder/NAME.txt.
        folder: as `fold_folder` of `read_tu`.
        num_folds: that are read.
        num_graphs: of the set.
    """
    chosen = path.parent / "10fold" if folder is None else Path(folder)
    if folder is None and not exists(chosen / f"{path.stem}-test_idx-1.txt"):
        return {}
    parts: dict[str, list[np.ndarray]] = {"train": [], "test": []}
    tested = np.zeros(num_graphs, np.int64)  # fold that tests each graph, 0 for none
    for k in range(1, num_folds + 1):
        for name, found in parts.items():
            file = chosen / f"{path.stem}-{name}_idx-{k}.txt"
            if not exists(file):
                raise MissingFileError(f"fold {k} of {path.stem} is missing: no file {file}")
            found.append(_fold(file, num_graphs))
        train, test = parts["train"][-1], parts["test"][-1]
        both = np.intersect1d(train, test)
        if len(both):
            raise FormatError(
                f"{file}: graph {both[0]} is also among those that fold {k} trains on ({len(both)} such graphs); "
                "make the folds again"
            )
        again = test[tested[test] > 0]
        if len(again):
            raise FormatError(
                f"{file}: fold {tested[again[0]]} tests graph {again[0]} too ({len(again)} such graphs); each graph is "
                "tested in one fold"
            )
        tested[test] = k
    return folds(parts["train"], parts["test"], num_graphs)


def _fold(file: Path, num_graphs: int) -> np.ndarray:
    words = read_text(file).split()
    try:
        numbers = np.array([_int(word) for word in words], np.int64)
    except (ValueError, OverflowError):
        raise FormatError(f"{file} holds something else than numbers of graphs") from None
    if not len(numbers):
        raise FormatError(f"{file} names no graph")
    if numbers.min() < 0 or numbers.max() >= num_graphs:
        raise FormatError(f"{file} names graphs outside 0..{num_graphs - 1}")
    if len(np.unique(numbers)) < len(numbers):
        raise FormatError(f"{file} names a graph twice")
    return numbers


EDGES = "_A.txt"


def is_tu_folder(path: str | Path) -> bool:
    path = Path(path)
    try:
        return str(path).endswith(EDGES) or (path.is_dir() and bool(_edge_files(path)))
    except (OSError, ValueError):  # a name that no file can have
        return False


def read_tu_folder(
    path: str | Path,
    *,
    undirected: bool = True,
    duplicates: Keep = "drop",
    self_loops: Keep = "keep",
) -> GraphSet:
    """Return the graphs of a folder of a TU collection.

    Without labels and attributes of nodes the profile of their degrees stands in. Where graphs have both labels and
    attributes, the labels are what is learned, and a note says so. Folds are read as `read_tu` reads them.

    Args:
        path: the folder, or the NAME_A.txt in it.
        undirected: store every edge in both directions, whichever of them are listed.
        duplicates, self_loops: see `Graph.from_edges`.
    """
    stem = _stem(Path(path))
    file = _file(stem, "graph_indicator")
    indicator = _integers(_numbers(stem, "graph_indicator", width=1), file)[:, 0]
    offsets = _offsets(indicator, file)
    nodes, graphs = len(indicator), len(offsets) - 1
    edges = _edges(stem, indicator)
    notes: list[str] = []
    y, names = _targets(stem, graphs, notes)
    build: dict[str, Any] = {"undirected": undirected, "duplicates": duplicates, "self_loops": self_loops}
    x, of_edges = (_table(stem, kind, rows) for kind, rows in (("node", nodes), ("edge", len(edges))))
    fields = {"x": _profile(edges, nodes, notes)} if x is None else {"x": x.plain(), "table": x}
    attr = None if of_edges is None else of_edges.plain()
    union = Graph.from_edges(
        edges, nodes, **build, **fields, name=stem.name, source=str(stem.parent), edge_table=of_edges,
        notes=(*notes_of_list(edges, nodes, {**build, "edge_attr": attr}), *notes),
    )  # fmt: skip
    masks = read_folds(stem.with_name(f"{stem.name}.txt"), None, 10, graphs)
    return GraphSet(union=union, offsets=offsets, y=y, masks=masks, class_names=names)


# ---- files ---------------------------------------------------------------------------------------------------------
def _edge_files(folder: Path) -> list[Path]:
    return sorted(file for place in (folder, folder / "raw") if place.is_dir() for file in place.glob(f"*{EDGES}"))


def _stem(path: Path) -> Path:
    if str(path).endswith(EDGES):
        return path.with_name(path.name.removesuffix(EDGES))
    found = _edge_files(path)
    if len(found) != 1:
        listed = ", ".join(file.name for file in found[:5])
        raise MissingFileError(
            f"{path} holds the edges of {len(found)} sets of graphs ({listed}); give one of these files"
            if found else f"{path} holds no NAME{EDGES}, the edges of a TU collection"
        )  # fmt: skip
    return found[0].with_name(found[0].name.removesuffix(EDGES))


def _file(stem: Path, what: str) -> Path:
    return stem.with_name(f"{stem.name}_{what}.txt")


def _numbers(stem: Path, what: str, *, rows: int | None = None, of: str = "", width: int | None = None) -> np.ndarray:
    """Return (R, C) float64 of a file of numbers, commas between those of a line."""
    file = _file(stem, what)
    text = read_text(file).rstrip()
    if not text:
        raise FormatError(f"{file} is empty")
    raw = np.frombuffer(text.encode(), np.uint8)
    ends = np.append(np.flatnonzero(raw == ord("\n")), len(raw))
    per_line = 1 + np.diff(np.searchsorted(np.flatnonzero(raw == ord(",")), ends), prepend=0)
    width = int(per_line[0]) if width is None else width
    uneven = np.flatnonzero(per_line != width)
    if len(uneven):
        raise FormatError(f"{file}, line {uneven[0] + 1}: {per_line[uneven[0]]} numbers where {width} belong")
    values = _parsed(text)
    if len(values) != width * len(ends):
        raise FormatError(_first_bad(file, text))
    if rows is not None and len(ends) != rows:
        raise FormatError(
            f"{file} has {len(ends):,} lines for {rows:,} {of}; one of the files is cut off or of another set"
        )
    return values.reshape(-1, width)


def _parsed(text: str) -> np.ndarray:
    """Return the numbers of a text; none if it holds something else."""
    import pandas as pd

    options: dict[str, Any] = {"header": None, "keep_default_na": False, "na_values": ["nan", "NaN", "NAN", "-nan"]}
    try:
        frame = pd.read_csv(io.StringIO(text), dtype=np.float64, skipinitialspace=True, **options)
    except ValueError:
        return np.zeros(0)
    return frame.to_numpy().reshape(-1)


def _first_bad(file: Path, text: str) -> str:
    for number, line in enumerate(text.split("\n"), 1):
        try:
            [float(word) for word in line.split(",")]
        except ValueError:
            return f"{file}, line {number}: expected numbers with commas between them, got {line[:60]!r}"
    return f"{file} holds something else than numbers"


def _integers(values: np.ndarray, file: Path, hint: str = "") -> np.ndarray:
    """Return int64 of whole numbers (R, C)."""
    bad = np.flatnonzero(((values != np.floor(values)) | ~(np.abs(values) < 2.0**53)).any(1))
    if len(bad):
        shown = ", ".join(f"{value:g}" for value in values[bad[0]])
        raise FormatError(f"{file}, line {bad[0] + 1}: {shown} where whole numbers belong{hint}")
    return values.astype(np.int64)


# ---- what they hold -------------------------------------------------------------------------------------------------
def _offsets(indicator: np.ndarray, file: Path) -> np.ndarray:
    """Return (G+1,) bounds of the graphs' nodes."""
    step = np.diff(indicator, prepend=0)
    wrong = np.flatnonzero((step < 0) | (step > 1))
    if len(wrong):
        line, graph = int(wrong[0]), int(indicator[wrong[0]])
        before = int(indicator[line - 1]) if line else 0
        why = f"graph {graph} follows graph {before}; graphs are counted from 1, and each has nodes"
        if 1 <= graph < before:
            why = f"graph {graph} goes on after graph {before}; nodes of a graph stand together"
        raise FormatError(f"{file}, line {line + 1}: {why}")
    if indicator[0] != 1:
        raise FormatError(f"{file}, line 1: graph {indicator[0]}; graphs are counted from 1")
    return np.concatenate([np.flatnonzero(step), [len(indicator)]]).astype(np.int64)


def _edges(stem: Path, indicator: np.ndarray) -> np.ndarray:
    """Return (E, 2) int64 of rows 0..N-1."""
    file = _file(stem, "A")
    if not read_text(file).strip():
        return np.zeros((0, 2), np.int64)
    ends = _integers(_numbers(stem, "A", width=2), file)
    outside = np.flatnonzero(((ends < 1) | (ends > len(indicator))).any(1))
    if len(outside):
        raise FormatError(
            f"{file}, line {outside[0] + 1}: nodes {ends[outside[0]].tolist()}; nodes are counted from 1 to "
            f"{len(indicator)}, the lines of {stem.name}_graph_indicator.txt"
        )
    graph = indicator[ends - 1]
    across = np.flatnonzero(graph[:, 0] != graph[:, 1])
    if len(across):
        a, b = graph[across[0]]
        raise FormatError(
            f"{file}, line {across[0] + 1}: an edge joins node {ends[across[0], 0]} of graph {a} and node "
            f"{ends[across[0], 1]} of graph {b}"
        )
    return ends - 1


def _targets(stem: Path, graphs: int, notes: list[str]) -> tuple[np.ndarray | None, tuple[str, ...] | None]:
    attributes = None
    if exists(_file(stem, "graph_attributes")):
        found = _numbers(stem, "graph_attributes", rows=graphs, of="graphs")
        with np.errstate(over="ignore"):
            attributes = found.astype(np.float32)
        attributes[np.isinf(attributes)] = np.nan
    if not exists(_file(stem, "graph_labels")):
        return (None if attributes is None else attributes[:, 0] if attributes.shape[1] == 1 else attributes), None
    hint = f"; amounts to predict go into {stem.name}_graph_attributes.txt"
    labels = _numbers(stem, "graph_labels", rows=graphs, of="graphs", width=1)
    names, y = np.unique(_integers(labels, _file(stem, "graph_labels"), hint)[:, 0], return_inverse=True)
    if attributes is not None:
        notes.append(
            f"classes of {stem.name}_graph_labels.txt are learned; the {attributes.shape[1]} attributes of graphs are "
            f"left out (without that file they are the targets)"
        )
    return y.astype(np.int64), tuple(str(name) for name in names)


def _table(stem: Path, kind: str, rows: int) -> FeatureTable | None:
    """Return the features of nodes or edges: columns of their labels, then attributes; None where there are none."""
    columns: list[str] = []
    parts: list[np.ndarray] = []
    file = _file(stem, f"{kind}_labels")
    if exists(file) and rows:
        labels = _integers(_numbers(stem, f"{kind}_labels", rows=rows, of=f"{kind}s"), file)
        for number, column in enumerate(labels.T):
            kinds, place = np.unique(column, return_inverse=True)
            check_size(file, 4 * rows * len(kinds), what=f"one column for each of {len(kinds):,} labels")
            parts.append(np.eye(len(kinds), dtype=np.float32)[place])
            columns += [f"{TAG}{name}" if not number else f"{TAG}{number}: {name}" for name in kinds.tolist()]
    if exists(_file(stem, f"{kind}_attributes")) and rows:
        parts.append(_numbers(stem, f"{kind}_attributes", rows=rows, of=f"{kind}s"))
        columns += [f"attribute {i}" for i in range(parts[-1].shape[1])]
    return FeatureTable.of(tuple(columns), np.concatenate(parts, 1)) if parts else None


def _profile(edges: np.ndarray, nodes: int, notes: list[str]) -> np.ndarray:
    from hopstate.data.readers.pyg import degree_profile

    notes.append("nodes have neither labels nor attributes: the profile of their degrees stands in for features")
    return degree_profile(edges.T, nodes)


__all__ = ["is_tu_folder", "read_tu_folder"]
