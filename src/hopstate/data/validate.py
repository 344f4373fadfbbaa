"""Checks of what a `Graph` and an `EventStream` promise, made once, when the record is made.

Large arrays are read in blocks, so that a memory-mapped one is never in memory as a whole.
"""

from __future__ import annotations

from itertools import combinations
from typing import TYPE_CHECKING, Any

import numpy as np

from hopstate.data.dates import out_of_range, out_of_range_reason
from hopstate.data.preprocessing import FeatureTable
from hopstate.errors import DataError, TimeOrderError, nearest
from hopstate.io.scratch import release_pages, row_blocks

if TYPE_CHECKING:
    from hopstate.data.events import EventStream
    from hopstate.data.graph import Graph


SPLITS = ("train", "val", "test")


def set_type_names(record: Graph | EventStream) -> None:
    """Name the relations, and the node types of a stream, by their numbers if they have no names."""
    for field in ("relation", "node_type"):
        column, names = getattr(record, field), tuple(map(str, getattr(record, f"{field}_names")))
        if column is not None and not names and (field == "relation" or hasattr(record, "t")):
            names = tuple(map(str, range(int(column.max(initial=-1)) + 1)))
        object.__setattr__(record, f"{field}_names", names)


def _check_types(record: Graph | EventStream, field: str, rows: int, of: str, where: str) -> None:
    """Raise DataError unless a column of types numbers the names that the record has for them."""
    column, names = getattr(record, field), getattr(record, f"{field}_names")
    dtype, least = ("int32", 0) if field == "relation" else ("int16", -1)
    if column is None:
        if names:
            raise DataError(f"{where}: {field}_names are {names[:5]}, but there is no {field}")
        return
    check_rows(column, rows, f"{where}: {field}", 1, of)
    if column.dtype != dtype:
        raise DataError(f"{where}: {field} must be {dtype}: got {column.dtype}")
    if len(set(names)) < len(names):
        raise DataError(f"{where}: {field}_names repeat {max(names, key=names.count)!r}; give each a name of its own")
    for start, block in row_blocks(column):
        bad = start + np.flatnonzero((block < least) | (block >= len(names)))
        if len(bad):
            raise DataError(f"{where}: {field} is {column[bad[0]]} in {_rows(bad)}, but it has {len(names)} names")


def check_graph(graph: Graph) -> None:
    """Raise DataError at the first promise of `Graph` that its arrays break, naming rows."""
    where = graph.source or graph.name
    _check_adjacency(graph, where)
    _check_features(graph.x, graph.table, graph.num_nodes, f"{where}: node features x", "nodes")
    _check_features(graph.edge_attr, graph.edge_table, graph.num_edges, f"{where}: edge features", "stored edges")
    if graph.edge_weight is not None:
        _check_weights(graph, where)
    if graph.y is not None:
        check_rows(graph.y, graph.num_nodes, f"{where}: labels y", (1, 2))
        if graph.y.dtype.kind == "i":
            _check_classes(graph, where)
    _check_node_ids(graph, where)
    _check_types(graph, "relation", graph.num_edges, "stored edges", where)
    if graph.two_sets:
        _check_two_sets(graph, where)
    else:
        _check_types(graph, "node_type", graph.num_nodes, "nodes", where)
    _check_masks(graph, where)


def _check_features(array: np.ndarray | None, table: FeatureTable | None, rows: int, what: str, of: str) -> None:
    if array is not None:
        check_rows(array, rows, what, 2, of)
        check_finite(array, what)
        if array.dtype != np.float32:
            raise DataError(f"{what} must be float32; got {array.dtype}")
    if table is not None and (array is None or len(table) != rows):  # filled gaps add columns to the array
        raise DataError(f"{what}: their table has {len(table)} rows, not one for each of the {rows} {of}")


def _check_node_ids(record: Graph | EventStream, where: str) -> None:
    if record.node_ids is not None and len(record.node_ids) != record.num_nodes:
        raise DataError(f"{where}: {len(record.node_ids)} node ids for {record.num_nodes} nodes")


def _check_two_sets(graph: Graph, where: str) -> None:
    node_type = graph.node_type
    assert node_type is not None
    check_rows(node_type, graph.num_nodes, f"{where}: node_type", 1)
    if node_type.min(initial=0) < -1 or node_type.max(initial=0) > 1:
        raise DataError(f"{where}: node_type is 0 or 1, or -1 for nodes without an edge")
    ends = np.repeat(node_type, graph.degree), node_type[graph.indices]
    bad = np.flatnonzero(ends[0] + ends[1] != 1)
    if len(bad):
        source = int(np.searchsorted(graph.indptr, bad[0], side="right")) - 1
        raise DataError(
            f"{where}: edge ({source}, {graph.indices[bad[0]]}) joins nodes of types {ends[0][bad[0]]} and "
            f"{ends[1][bad[0]]}; edges of two sets join 0 and 1"
        )


def _check_weights(graph: Graph, where: str) -> None:
    """Raise DataError where weights are not one number an edge, finite and at least 0."""
    weight = graph.edge_weight
    assert weight is not None
    check_rows(weight, graph.num_edges, f"{where}: edge weights", 1, "stored edges")
    bad = np.flatnonzero(~(np.isfinite(weight) & (weight >= 0)))
    if len(bad):
        source = int(np.searchsorted(graph.indptr, bad[0], side="right")) - 1
        raise DataError(
            f"{where}: {len(bad)} edge weights are negative, NaN or infinite, the first {weight[bad[0]]} of edge "
            f"({source}, {graph.indices[bad[0]]}); weights are at least 0: shift them, or give them as edge features"
        )


def check_ids(ids: np.ndarray, num_nodes: int, what: str) -> None:
    """Raise DataError naming the first rows of integer ids that are not in 0..num_nodes-1."""
    for start, block in row_blocks(ids):
        if block.min() >= 0 and block.max() < num_nodes:
            continue
        bad = np.flatnonzero((block < 0) | (block >= num_nodes))
        raise DataError(
            f"{what}: id {block[bad[0]]} in {_rows(bad + start)} is not in 0..{num_nodes - 1}; "
            "correct the ids or give the right number of nodes"
        )


def check_num_nodes(num_nodes: int, entries: int, where: str, stated: int | None = None) -> None:
    """Raise DataError where a number of nodes that a file claims is out of all proportion to what it holds."""
    if num_nodes > max(1 << 20, 100 * (entries + 1), stated or 0) or num_nodes < 0:
        raise DataError(
            f"{where}: {num_nodes:,} nodes for {entries:,} edges or events; the number, or an id, seems wrong. Where "
            f"it is right, say so: --read.num_nodes {num_nodes} (num_nodes in Python). Where ids are names rather than "
            "rows, give them as strings"
        )


def dense_array(value: Any, what: str) -> Any:
    """Return an array, a list, a scipy matrix or a tensor (sparse, on a device, of bfloat16) as a dense array.

    None stays None.
    """
    if value is None or not hasattr(value, "detach"):
        return None if value is None else np.asarray(value.toarray() if hasattr(value, "toarray") else value)
    try:
        dense = value.detach().to_dense().cpu()
        return (dense.float() if str(dense.dtype) == "torch.bfloat16" else dense).numpy()
    except (TypeError, RuntimeError):  # quantized, or without data
        raise DataError(f"{what} is a tensor of {value.dtype} on {value.device}: convert it to numbers first") from None


def check_finite(array: np.ndarray, what: str) -> None:
    """Raise DataError naming the first rows that hold NaN or infinities."""
    bad = rows_not_finite(array)
    if len(bad):
        raise DataError(
            f"{what} hold NaN or infinities in {_rows(bad)}; repair them, or fill NaN (--read.missing mean)"
        )


def rows_not_finite(array: np.ndarray) -> np.ndarray:
    """Return the rows of a float array that hold a NaN or an infinity."""
    bad = [
        start + np.flatnonzero(~np.isfinite(block).reshape(len(block), -1).all(1))
        for start, block in row_blocks(array)
        if not np.isfinite(block).all()
    ]
    return np.concatenate(bad) if bad else np.empty(0, np.int64)


def as_float32(value: Any, what: str) -> np.ndarray:
    """Return numbers as float32; complex ones and texts are an error."""
    array = dense_array(value, what)
    if array.dtype.kind not in "biuf":
        raise DataError(f"{what} are {array.dtype}, not numbers")
    return array.astype(np.float32, copy=False)


def finite_features(array: np.ndarray, what: str) -> np.ndarray:
    """Return features as float32; NaN and infinities are an error that names their rows."""
    array = as_float32(array, what)
    check_finite(array, what)
    return array


def features_of_array(array: np.ndarray, missing: str, what: str) -> FeatureTable:
    """Return the features of an array, which stays memory-mapped if it is float32 without a gap.

    Missing values are treated as in tables: "error" names their rows, "auto" names infinities and keeps NaN.
    """
    if array.ndim != 2:
        raise DataError(f"{what} have {array.ndim} axes, shape {array.shape}; expected 2")
    if array.dtype != np.float32:
        as_float32(array[:0], what)
        array = array.astype(np.float64)
    if missing in ("error", "auto") and not all(np.isfinite(block).all() for _, block in row_blocks(array)):
        check_finite(array if missing == "error" else np.where(np.isnan(array), 0, array), what)
    return FeatureTable.of(tuple(f"column {i}" for i in range(array.shape[1])), array)


def check_rows(array: np.ndarray, rows: int, what: str, ndim: int | tuple[int, ...], of: str = "nodes") -> None:
    """Raise DataError where an array has not ndim axes and one row per node (or per `of`)."""
    axes = (ndim,) if isinstance(ndim, int) else ndim
    if array.ndim not in axes:
        raise DataError(f"{what} have {array.ndim} axes, shape {array.shape}; expected {' or '.join(map(str, axes))}")
    if len(array) != rows:
        raise DataError(f"{what} have {len(array)} rows, but there are {rows} {of}; give one row for each")


def _check_adjacency(graph: Graph, where: str) -> None:
    indptr, indices = graph.indptr, graph.indices
    if indptr.ndim != 1 or indices.ndim != 1 or len(indptr) < 1:
        raise DataError(f"{where}: indptr and indices are vectors; got shapes {indptr.shape} and {indices.shape}")
    if len(indptr) < 2:
        raise DataError(f"{where} has no nodes; a graph needs at least one")
    falling = np.flatnonzero(indptr[1:] < indptr[:-1])
    if indptr[0] != 0 or indptr[-1] != len(indices) or len(falling):
        detail = f"it falls at node {falling[0]}" if len(falling) else f"it runs {indptr[0]}..{indptr[-1]}"
        raise DataError(f"{where}: indptr must rise from 0 to the number of stored edges, {len(indices)}; {detail}")
    check_ids(indices, graph.num_nodes, f"{where}: indices")
    for start, block in row_blocks(indices, overlap=1):
        falling = start + 1 + np.flatnonzero(block[1:] < block[:-1])
        if not len(falling):
            continue
        inside = falling[indptr[np.searchsorted(indptr, falling)] != falling]  # at a row's first entry it may fall
        if len(inside):
            row = int(np.searchsorted(indptr, inside[0], "right")) - 1
            raise DataError(f"{where}: the targets of node {row} are not sorted; build graphs with Graph.from_edges")


def _check_classes(graph: Graph, where: str) -> None:
    assert graph.y is not None
    if graph.y.size and graph.y.min() < -1:
        bad = np.unique(np.nonzero(graph.y < -1)[0])
        raise DataError(f"{where}: class {graph.y[bad[0]]} in {_rows(bad)}; classes are 0, 1, ... and -1 is 'unknown'")
    highest = int(graph.y.max(initial=-1))
    if highest > 10 * graph.num_nodes + 1000:
        bad = np.unique(np.nonzero(graph.y == highest)[0])
        raise DataError(
            f"{where}: class {highest} in {_rows(bad)}, for {graph.num_nodes} nodes; classes are numbered 0, 1, ...: "
            "renumber them, or give targets as fractions"
        )
    if graph.class_names is not None and graph.y.max(initial=-1) >= len(graph.class_names):
        bad = np.flatnonzero(graph.y >= len(graph.class_names))
        raise DataError(f"{where}: class {graph.y[bad[0]]} in {_rows(bad)}, but {len(graph.class_names)} class names")


def _check_masks(graph: Graph, where: str) -> None:
    masks = graph.masks
    for name, mask in masks.items():
        if name not in SPLITS:
            raise DataError(f"{where}: unknown mask {name!r}{nearest(name, SPLITS)}; known: {', '.join(SPLITS)}")
        if mask.ndim not in (1, 2) or mask.shape[-1] != graph.num_nodes or mask.size == 0:
            raise DataError(
                f"{where}: the {name} mask has shape {mask.shape}; expected ({graph.num_nodes},) "
                f"or (splits, {graph.num_nodes})"
            )
    if len({mask.shape for mask in masks.values()}) > 1:
        raise DataError(f"{where}: masks differ in shape: { {k: m.shape for k, m in masks.items()} }")
    for name, mask in masks.items():
        empty = np.flatnonzero(~np.atleast_2d(mask).any(1))
        if len(empty):
            raise DataError(f"{where}: the {name} mask of split {empty[0]} is empty; mark nodes or leave the masks out")
    for first, second in combinations(masks, 2):
        both = np.flatnonzero(np.atleast_2d(masks[first] & masks[second]).any(0))
        if len(both):
            raise DataError(f"{where}: {_rows(both)} in both {first} and {second}; a node belongs to one split")
    _check_training_labels(graph, where)


def _check_training_labels(graph: Graph, where: str) -> None:
    if graph.y is None or "train" not in graph.masks or graph.y.dtype.kind == "f":  # missing targets are left out
        return
    train = np.atleast_2d(graph.masks["train"]).any(0)
    unknown = graph.y < 0
    bad = np.flatnonzero(train & (unknown if unknown.ndim == 1 else unknown.all(1)))
    if len(bad):
        which = _rows(bad) if graph.node_ids is None else ", ".join(map(repr, graph.node_ids.names(bad[:5]).tolist()))
        raise DataError(
            f"{where}: no label for {len(bad)} training nodes, {which}; label them or leave them out of train"
        )


def _rows(rows: np.ndarray) -> str:
    """Return "rows 3, 7, 9, 12, 20 (31 in all)"."""
    if len(rows) == 1:
        return f"row {rows[0]}"
    return f"rows {', '.join(map(str, rows[:5].tolist()))} ({len(rows)} in all)"


ROUNDING = 1e-6  # of a column's standard deviation


def as_regression_targets(y: np.ndarray) -> np.ndarray:
    """Return targets (n,) or (n, T), NaN if unknown, as float32, or as float64 if rounding would matter.

    >>> as_regression_targets(np.array([1.5, 2.25])).dtype, as_regression_targets(np.array([1.7e9, 1.7e9 + 60])).dtype
    (dtype('float32'), dtype('float64'))
    """
    if y.dtype == np.float32:
        return y
    y = y.astype(np.float64, copy=False)
    with np.errstate(over="ignore"):
        small = y.astype(np.float32)
    for wide, near in zip(y.reshape(len(y), -1).T, small.reshape(len(y), -1).T):
        known = ~np.isnan(wide)
        exact, rounded = wide[known], near[known].astype(np.float64)
        if not len(exact) or np.array_equal(exact, rounded):
            continue
        if not np.isfinite(rounded).all() or np.abs(exact - rounded).max() > ROUNDING * exact.std():
            return y
    return small


def default_names(count: int) -> tuple[str, ...]:
    return ("value",) if count == 1 else tuple(f"value_{t}" for t in range(count))


def check_labels(labels: np.ndarray, where: str) -> None:
    """Raise DataError unless labels (n,) or (n, T) are numbers, integers within int64, and none infinite."""
    if labels.dtype.kind not in "biuf":
        raise DataError(
            f"{where}: labels are numbers, but these are {labels.dtype}; number the classes, and give class_names"
        )
    if labels.dtype.kind == "f":
        wrong, why = np.isinf(labels), "give a number, or NaN where it is unknown"
    else:
        wrong, why = labels > np.iinfo(np.int64).max, "labels are below 2^63"
    if wrong.any():
        at = tuple(np.argwhere(wrong)[0])
        raise DataError(f"{where}: the label of row {at[0]} is {labels[at]}; {why}")


def check_events(stream: EventStream) -> None:
    """Raise DataError if arrays violate an invariant of `EventStream`; the message names the first event."""
    where = f"{stream.name}{f' ({stream.source})' if stream.source else ''}"
    E = len(stream.src)
    for name, kinds in (("src", ("int64",)), ("dst", ("int64",)), ("t", ("int64", "float64"))):
        column = getattr(stream, name)
        if column.dtype not in kinds or column.shape != (E,):
            raise DataError(f"{where}: {name} must be ({E},) {' or '.join(kinds)}; got {column.shape} {column.dtype}")
    _check_features(stream.x, stream.table, stream.num_nodes, f"{where}: x", "nodes")
    _check_features(stream.edge_attr, stream.edge_table, E, f"{where}: edge_attr", "events")
    _check_node_ids(stream, where)
    if stream.labels is not None:
        check_rows(stream.labels, E, f"{where}: labels", (1, 2), "events")
        _check_event_labels(stream.labels, stream.class_names, where)
    _check_types(stream, "relation", E, "events", where)
    _check_types(stream, "node_type", stream.num_nodes, "nodes", where)
    if stream.kind is not None:
        check_rows(stream.kind, E, f"{where}: kind", 1, "events")
        _check_kinds(stream, stream.kind, where)
    for name, column in (("src", stream.src), ("dst", stream.dst)):
        check_ids(column, stream.num_nodes, f"{where}: {name}")
    for start, block in row_blocks(stream.t, overlap=1):
        _check_times(block, start, where)
    release_pages(stream.src, stream.dst, stream.kind)


def _check_event_labels(labels: np.ndarray, names: tuple[str, ...] | None, where: str) -> None:
    check_labels(labels, where)
    if labels.ndim == 2 and (labels.dtype.kind != "f" or not labels.shape[1]):
        raise DataError(
            f"{where}: several labels of an event are floats, one column each, NaN where one is unknown; got "
            f"{labels.shape} {labels.dtype}"
        )
    if labels.ndim == 2 and names is not None and len(names) != labels.shape[1]:
        raise DataError(f"{where}: {len(names)} names for {labels.shape[1]} columns of labels")
    if labels.dtype.kind in "iu" and names is not None and labels.max(initial=-1) >= len(names):
        raise DataError(f"{where}: a label is {labels.max()}, but {len(names)} classes have names")


def _check_kinds(stream: EventStream, kinds: np.ndarray, where: str) -> None:
    for start, kind in row_blocks(kinds):
        if kind.dtype != np.int8 or np.any((kind < 0) | (kind > 2)):
            raise DataError(f"{where}: kind must be int8, 0 (add), 1 (delete) or 2 (delete the source)")
        part = slice(start, start + len(kind))
        two = start + np.flatnonzero((kind == 2) & (stream.src[part] != stream.dst[part]))
        if len(two):
            ends = stream.src[two[0]], stream.dst[two[0]]
            raise DataError(f"{where}: event {two[0]} deletes node {ends[0]} but names {ends[1]} too; give it twice")


def _check_times(t: np.ndarray, start: int, where: str) -> None:
    missing = ~np.isfinite(t) if t.dtype.kind == "f" else t == np.iinfo(np.int64).min  # NaT as a whole number
    if missing.any():
        row = int(np.argmax(missing))
        raise DataError(f"{where}: the time of event {start + row} is {t[row]}; remove the event or give it a time")
    late = np.flatnonzero(t[1:] < t[:-1])
    if len(late):
        row = int(late[0]) + 1
        raise TimeOrderError(
            f"{where}: event {start + row} has time {t[row]}, before {t[row - 1]} of the event above it; "
            "EventStream.from_arrays sorts"
        )
    if out_of_range(t[[0, -1]]).any():
        row = int(np.argmax(out_of_range(t)))
        raise DataError(f"{where}: the time of event {start + row}, {t[row]}, {out_of_range_reason(t)}")
