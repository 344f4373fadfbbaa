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
import re
from pathlib import Path
from typing import Any

import numpy as np

from hopstate.data.graph import Graph
from hopstate.data.graph_set import GraphSet, folds
from hopstate.data.preprocessing import TAG, FeatureTable
from hopstate.data.readers.pyg import degree_profile
from hopstate.errors import FormatError, MissingFileError
from hopstate.io.opening import check_size, exists, first_bytes, is_file, read_text

EDGES = "_A.txt"
NUM_FOLDS = 10


# ---- the text file -------------------------------------------------------------------------------------------------
def is_tu_text(path: str | Path) -> bool:
    """Return whether a text file begins as one of these does: a line of one whole number, then one of two."""
    if not is_file(path):
        return False
    lines = first_bytes(path, 200).decode(errors="replace").split("\n")
    return len(lines) > 2 and all(
        re.fullmatch(rf"\s*[+-]?\d+(\s+[+-]?\d+){{{more}}}\s*", line) for line, more in zip(lines, (0, 1))
    )


def read_tu(path: str | Path, *, table: bool = False, **build: Any) -> GraphSet:
    """Return the graphs of a TU text file NAME.txt, with the folds of a folder "10fold" next to it, if it exists.

    Args:
        path: the file.
        table: keep the features' names ("tag 3", "attribute 0") with them, so that they are scaled, and matched by name
            where other graphs are read for a trained model.
        build: options of `Graph.from_edges`.
    """
    path = Path(path)
    lines = _Lines(path)
    (count,) = lines.integers(width=1)
    if count < 1:
        raise lines.error("the number of graphs, at least 1")
    sizes: list[int] = []
    labels: list[int] = []
    tags: list[int] = []
    attributes: list[list[float]] = []
    edges: list[tuple[int, int]] = []
    for _ in range(count):
        size, label = lines.integers(width=2)
        if size < 1:
            raise lines.error("'nodes label' of a graph with at least one node")
        first = len(tags)
        for node in range(first, first + size):
            tag, neighbors, rest = lines.node(size)
            tags.append(tag)
            attributes.append(rest)
            edges += [(node, first + other) for other in neighbors]
        sizes.append(size)
        labels.append(label)
    lines.check_end(count)
    names, y = np.unique(np.array(labels, np.int64), return_inverse=True)
    columns, x = _features(np.array(tags, np.int64), attributes, path)
    pairs = np.array(edges, np.int64).reshape(-1, 2)
    union = Graph.from_edges(
        pairs, len(tags), **build, noted=True, name=path.stem, source=str(path), x=x,
        table=FeatureTable(columns, x) if table else None,
    )  # fmt: skip
    offsets = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
    masks = _read_folds(path, len(sizes))
    return GraphSet(union=union, offsets=offsets, y=y.astype(np.int64), masks=masks, class_names=_texts(names))


class _Lines:
    def __init__(self, path: Path) -> None:
        self._path, self._lines, self._next = path, read_text(path).split("\n"), 0

    def numbers(self) -> list[float]:
        """Return the numbers of the next line."""
        self._next += 1
        if self._next > len(self._lines) or not self._lines[self._next - 1].strip():
            raise FormatError(f"{self._path} ends at line {self._next}, in the middle of a graph; it is truncated")
        try:
            return [float(word) for word in self._lines[self._next - 1].split()]
        except ValueError:
            raise self.error("numbers") from None

    def integers(self, width: int) -> list[int]:
        """Return the whole numbers of the next line."""
        numbers = self.numbers()
        if len(numbers) != width or not all(map(_is_integer, numbers)):
            raise self.error(f"{width} whole numbers")
        return [int(number) for number in numbers]

    def node(self, size: int) -> tuple[int, list[int], list[float]]:
        """Read the next line as a node of a graph of `size` nodes; return its tag, neighbors and attributes."""
        numbers = self.numbers()
        degree = int(numbers[1]) if len(numbers) > 1 and _is_integer(numbers[1]) else -1
        integers = numbers[: 2 + degree]
        if not 0 <= degree <= len(numbers) - 2 or not all(map(_is_integer, integers)):
            raise self.error("'tag degree neighbors', whole numbers")
        neighbors = [int(number) for number in integers[2:]]
        if any(not 0 <= other < size for other in neighbors):
            raise self.error(f"neighbors within 0..{size - 1}")
        return int(integers[0]), neighbors, numbers[2 + degree :]

    def check_end(self, count: int) -> None:
        left = next((at for at in range(self._next, len(self._lines)) if self._lines[at].strip()), None)
        if left is not None:
            raise FormatError(
                f"{self._path}, line 1 says {count} graphs, but line {left + 1} continues with "
                f"{self._lines[left][:60]!r}; correct the number or remove what is left over"
            )

    def error(self, expected: str) -> FormatError:
        line = self._lines[self._next - 1]
        return FormatError(f"{self._path}, line {self._next}: expected {expected}, got {line[:60]!r}")


def _is_integer(number: float) -> bool:
    return number == number // 1 and abs(number) < 2**53


def _features(tags: np.ndarray, attributes: list[list[float]], path: Path) -> tuple[tuple[str, ...], np.ndarray]:
    """Return names and (N, F) float32 of features: a column a tag, then the attributes."""
    widths = {len(row) for row in attributes}
    if len(widths) > 1:
        raise FormatError(f"{path}: nodes have different numbers of attributes, {sorted(widths)}")
    names, onehot = _onehot(tags, path, TAG)
    (width,) = widths
    names += [f"attribute {i}" for i in range(width)]
    return tuple(names), np.concatenate([onehot, np.array(attributes, np.float32)], 1)


def _onehot(values: np.ndarray, path: Path, prefix: str) -> tuple[list[str], np.ndarray]:
    """Return names and (n, K) float32 of a column for each of K values."""
    kinds, place = np.unique(values, return_inverse=True)
    check_size(path, 4 * len(values) * len(kinds), what=f"one column for each of {len(kinds):,} values")
    return [f"{prefix}{kind}" for kind in kinds.tolist()], np.eye(len(kinds), dtype=np.float32)[place]


def _texts(values: np.ndarray) -> tuple[str, ...]:
    return tuple(map(str, values.tolist()))


# ---- folds ---------------------------------------------------------------------------------------------------------
def _read_folds(path: Path, num_graphs: int) -> dict[str, np.ndarray]:
    """Return the masks of NAME-train_idx-K.txt and NAME-test_idx-K.txt in "10fold"; empty without such a folder."""
    folder = path.parent / "10fold"
    if not exists(folder / f"{path.stem}-test_idx-1.txt"):
        return {}
    parts: dict[str, list[np.ndarray]] = {"train": [], "test": []}
    tested = np.zeros(num_graphs, np.int64)  # fold that tests each graph, 0 for none
    for k in range(1, NUM_FOLDS + 1):
        for name, found in parts.items():
            file = folder / f"{path.stem}-{name}_idx-{k}.txt"
            if not exists(file):
                raise MissingFileError(f"fold {k} of {path.stem} is missing: no file {file}")
            found.append(_fold(file, num_graphs))
        train, test = parts["train"][-1], parts["test"][-1]
        both, again = np.intersect1d(train, test), test[tested[test] > 0]
        if len(both):
            raise FormatError(
                f"{file}: graph {both[0]} is also among those that fold {k} trains on ({len(both)} such graphs); "
                "make the folds again"
            )
        if len(again):
            raise FormatError(
                f"{file}: fold {tested[again[0]]} tests graph {again[0]} too ({len(again)} such graphs); each graph is "
                "tested in one fold"
            )
        tested[test] = k
    return folds(parts["train"], parts["test"], num_graphs)


def _fold(file: Path, num_graphs: int) -> np.ndarray:
    try:
        numbers = np.array(read_text(file).split(), np.float64)
    except ValueError:
        raise FormatError(f"{file} holds something else than numbers of graphs") from None
    fold = _integers(numbers[:, None], file)[:, 0]
    if not len(fold):
        raise FormatError(f"{file} names no graph")
    if fold.min() < 0 or fold.max() >= num_graphs:
        raise FormatError(f"{file} names graphs outside 0..{num_graphs - 1}")
    if len(np.unique(fold)) < len(fold):
        raise FormatError(f"{file} names a graph twice")
    return fold


# ---- the folder ----------------------------------------------------------------------------------------------------
def is_tu_folder(path: str | Path) -> bool:
    path = Path(path)
    try:
        return str(path).endswith(EDGES) or (path.is_dir() and bool(_edge_files(path)))
    except (OSError, ValueError):  # a name that no file can have
        return False


def read_tu_folder(path: str | Path, **build: Any) -> GraphSet:
    """Return the graphs of a folder of a TU collection.

    Without node labels and attributes, degree profiles are the features. Where graphs have both labels and
    attributes, the labels are what is learned, and a note says so. Folds are read as `read_tu` reads them.
    """
    stem = _stem(Path(path))
    file = _file(stem, "graph_indicator")
    indicator = _integers(_numbers(file, width=1), file)[:, 0]
    offsets = _offsets(indicator, file)
    nodes, graphs = len(indicator), len(offsets) - 1
    edges = _edges(stem, indicator)
    notes: list[str] = []
    y, names = _targets(stem, graphs, notes)
    x, of_edges = (_table(stem, kind, rows) for kind, rows in (("node", nodes), ("edge", len(edges))))
    if x is None:
        notes.append("nodes have neither labels nor attributes: the profile of their degrees stands in for features")
    fields = {"x": degree_profile(edges.T, nodes)} if x is None else {"x": x.plain(), "table": x}
    union = Graph.from_edges(
        edges, nodes, **build, **fields, noted=True, name=stem.name, source=str(stem.parent), edge_table=of_edges,
        notes=notes,
    )  # fmt: skip
    masks = _read_folds(stem.with_name(f"{stem.name}.txt"), graphs)
    return GraphSet(union=union, offsets=offsets, y=y, masks=masks, class_names=names)


def _edge_files(folder: Path) -> list[Path]:
    return sorted(file for place in (folder, folder / "raw") if place.is_dir() for file in place.glob(f"*{EDGES}"))


def _stem(path: Path) -> Path:
    """Return the path of a set's files up to the name of the set."""
    files = [path] if str(path).endswith(EDGES) else _edge_files(path)
    if len(files) != 1:
        listed = ", ".join(file.name for file in files[:5]) or f"NAME{EDGES} is missing"
        raise MissingFileError(
            f"{path} holds the edges of {len(files)} sets of graphs ({listed}); give the file of one set"
        )
    return files[0].with_name(files[0].name.removesuffix(EDGES))


def _file(stem: Path, what: str) -> Path:
    return stem.with_name(f"{stem.name}_{what}.txt")


def _numbers(file: Path, *, rows: int | None = None, width: int | None = None) -> np.ndarray:
    """Return (rows, width) float64 numbers of a comma-separated file."""
    text = read_text(file).rstrip()
    if not text:
        raise FormatError(f"{file} is empty")
    gap = re.search(r"\n\s*\n", text)
    if gap:
        raise FormatError(f"{file}, line {text.count(chr(10), 0, gap.start()) + 2}: it is empty")
    try:
        values = np.loadtxt(io.StringIO(text), delimiter=",", ndmin=2, comments=None)
    except ValueError as error:
        place = re.search(r"(.*) at row (\d+)", str(error))
        line, why = ("1", error) if place is None else (place[2], place[1])
        number = int(line) + ("convert" in str(why))  # numpy counts cells from row 0, and lengths from row 1
        raise FormatError(f"{file}, line {number}: expected numbers with commas between them: {why}") from None
    if width is not None and values.shape[1] != width:
        raise FormatError(f"{file}, line 1: {values.shape[1]} numbers; expected {width}")
    if rows is not None and len(values) != rows:
        raise FormatError(
            f"{file} has {len(values):,} lines, but the other files have {rows:,}. One of them is cut off or from "
            "another dataset"
        )
    return values


def _integers(values: np.ndarray, file: Path, hint: str = "") -> np.ndarray:
    bad = np.flatnonzero(((values != np.floor(values)) | ~(np.abs(values) < 2.0**53)).any(1))
    if len(bad):
        listed = ", ".join(f"{value:g}" for value in values[bad[0]])
        raise FormatError(f"{file}, line {bad[0] + 1}: {listed} where whole numbers belong{hint}")
    return values.astype(np.int64)


def _offsets(indicator: np.ndarray, file: Path) -> np.ndarray:
    """Return (G+1,) bounds of the graphs' nodes."""
    step = np.diff(indicator, prepend=0)
    wrong = np.flatnonzero((step < 0) | (step > 1) | ((step == 0) & (indicator == 0)))
    if len(wrong):
        raise FormatError(
            f"{file}, line {wrong[0] + 1}: graph {indicator[wrong[0]]}; graphs are numbered from 1 without gaps, and "
            "nodes of a graph are consecutive"
        )
    return np.concatenate([np.flatnonzero(step), [len(indicator)]]).astype(np.int64)


def _edges(stem: Path, indicator: np.ndarray) -> np.ndarray:
    file = _file(stem, "A")
    if not read_text(file).strip():
        return np.zeros((0, 2), np.int64)
    ends = _integers(_numbers(file, width=2), file)
    outside = np.flatnonzero(((ends < 1) | (ends > len(indicator))).any(1))
    if len(outside):
        raise FormatError(
            f"{file}, line {outside[0] + 1}: nodes {ends[outside[0]].tolist()}; nodes are counted from 1 to "
            f"{len(indicator)}, the lines of {stem.name}_graph_indicator.txt"
        )
    graph = indicator[ends - 1]
    across = np.flatnonzero(graph[:, 0] != graph[:, 1])
    if len(across):
        (u, v), (a, b) = ends[across[0]], graph[across[0]]
        raise FormatError(
            f"{file}, line {across[0] + 1}: an edge joins node {u} of graph {a} and node {v} of graph {b}"
        )
    return ends - 1


def _targets(stem: Path, graphs: int, notes: list[str]) -> tuple[np.ndarray | None, tuple[str, ...] | None]:
    """Return classes and their names, else the targets of regression, NaN if one is unknown."""
    attributes = None
    if exists(_file(stem, "graph_attributes")):
        with np.errstate(over="ignore"):
            attributes = _numbers(_file(stem, "graph_attributes"), rows=graphs).astype(np.float32)
        attributes[np.isinf(attributes)] = np.nan
    file = _file(stem, "graph_labels")
    if not exists(file):
        return attributes[:, 0] if attributes is not None and attributes.shape[1] == 1 else attributes, None
    hint = f"; amounts to predict go into {stem.name}_graph_attributes.txt"
    labels = _integers(_numbers(file, rows=graphs, width=1), file, hint)
    names, y = np.unique(labels[:, 0], return_inverse=True)
    if attributes is not None:
        notes.append(
            f"classes of {file.name} are learned; the {attributes.shape[1]} attributes of graphs are left out (without "
            "that file they are the targets)"
        )
    return y.astype(np.int64), _texts(names)


def _table(stem: Path, kind: str, rows: int) -> FeatureTable | None:
    """Return the features of nodes or edges: columns of their labels, then attributes; None if there are none."""
    columns: list[str] = []
    parts: list[np.ndarray] = []
    file = _file(stem, f"{kind}_labels")
    if exists(file) and rows:
        labels = _integers(_numbers(file, rows=rows), file)
        for number, column in enumerate(labels.T):
            names, onehot = _onehot(column, file, f"{TAG}{number}: " if number else TAG)
            columns += names
            parts.append(onehot)
    file = _file(stem, f"{kind}_attributes")
    if exists(file) and rows:
        parts.append(_numbers(file, rows=rows))
        columns += [f"attribute {i}" for i in range(parts[-1].shape[1])]
    return FeatureTable.of(tuple(columns), np.concatenate(parts, 1)) if parts else None
