"""Graph sets as the TU collections are downloaded: a folder of NAME_A.txt and what stands beside it, a row a line.

    NAME_A.txt                     source, target of an edge; nodes are counted from 1 over all graphs
    NAME_graph_indicator.txt       the graph of a node, from 1; nodes of a graph stand together
    NAME_graph_labels.txt          class of a graph, a whole number
    NAME_graph_attributes.txt      targets of a graph, "nan" where one is unknown
    NAME_node_labels.txt           categories of a node, whole numbers: a column of 0 and 1 for each
    NAME_node_attributes.txt       numbers of a node
    NAME_edge_labels.txt, NAME_edge_attributes.txt   the same of edges, in the order of NAME_A.txt

Source: Morris et al. 2020, arXiv:2007.08663 (TUDataset), graphlearning.io.
"""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np

from hopstate.data.features import TAG, FeatureTable
from hopstate.data.graph import Graph, Keep
from hopstate.data.graph_set import GraphSet
from hopstate.data.readers.notes import notes_of_list
from hopstate.data.readers.tu import read_folds
from hopstate.errors import FormatError, MissingFileError
from hopstate.io.opening import check_size, exists, read_text

EDGES = "_A.txt"


def is_tu_folder(path: str | Path) -> bool:
    """Return whether a path is a folder of a TU collection, or the NAME_A.txt in one."""
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

    Raises:
        MissingFileError: no such folder, or a file that each such folder has is not there.
        FormatError: the files disagree, or hold what they cannot; the message names file and line.
    """
    stem = _stem(Path(path))
    file = _file(stem, "graph_indicator")
    indicator = _whole(_numbers(stem, "graph_indicator", width=1), file)[:, 0]
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
    """Return folder/NAME."""
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
    """Return (R, C) float64 of a file of numbers, commas between those of a line.

    Args:
        stem: folder/NAME.
        what: which file.
        rows: that it must have; of what, for the message.
        of: see rows.
        width: numbers that a line must have; None takes those of the first.
    """
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


def _whole(values: np.ndarray, file: Path, hint: str = "") -> np.ndarray:
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
    ends = _whole(_numbers(stem, "A", width=2), file)
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
    """Return y of the graphs, and the names of its classes where it holds classes."""
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
    names, y = np.unique(_whole(labels, _file(stem, "graph_labels"), hint)[:, 0], return_inverse=True)
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
        labels = _whole(_numbers(stem, f"{kind}_labels", rows=rows, of=f"{kind}s"), file)
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
    from hopstate.data.readers.pyg_sets import degree_profile

    notes.append("nodes have neither labels nor attributes: the profile of their degrees stands in for features")
    return degree_profile(edges.T, nodes)


__all__ = ["is_tu_folder", "read_tu_folder"]
