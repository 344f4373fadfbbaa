"""Checks of a read object: its invariants, and a plain table read again cell by cell.

The second reader is simple: Python's csv, integers and decimals. It returns the content of a table of events or edges,
that it should have been rejected, or that it is unsupported (dates, other separators).
"""

from __future__ import annotations

import csv
import gzip
import re
from decimal import Decimal, InvalidOperation
from typing import Any

import numpy as np

WHOLE = re.compile(r"[+-]?\d+(\.0*)?")
NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")
Rows = list[tuple[Any, ...]]


def wrong(record: Any) -> str:
    """Return the invariant that an object breaks, or nothing."""
    from hopstate.data.events import EventStream
    from hopstate.data.graph import Graph
    from hopstate.data.graph_set import GraphSet

    if isinstance(record, EventStream):
        return _wrong_events(record)
    if isinstance(record, Graph):
        return _wrong_graph(record)
    return _wrong_set(record) if isinstance(record, GraphSet) else ""


def _first(checks: dict[str, bool]) -> str:
    return next((name for name, good in checks.items() if not good), "")


def _finite(array: np.ndarray | None) -> bool:
    return array is None or (array.dtype.kind in "biuf" and bool(np.isfinite(np.asarray(array, np.float64)).all()))


def _ids(record: Any) -> bool:
    if record.node_ids is None:
        return True
    names = record.node_ids.ids.tolist()
    return len(names) == record.num_nodes == len(set(names)) and "" not in names


def _wrong_events(s: Any) -> str:
    n, count = s.num_nodes, len(s)
    return _first(
        {
            "no events": count > 0,
            "columns of unequal length": len(s.dst) == len(s.t) == count,
            "rows beyond the nodes": 0 <= min(s.src.min(), s.dst.min()) <= max(s.src.max(), s.dst.max()) < n,
            "times fall": bool((s.t[1:] >= s.t[:-1]).all()),
            "times are not finite": _finite(s.t),
            "the smallest integer as a time": s.t.dtype.kind != "i" or s.t.min() > np.iinfo(np.int64).min,
            "event features are not finite": _finite(s.edge_attr) or s.edge_table is not None,
            "event features of other rows": s.edge_attr is None or len(s.edge_attr) == count,
            "node features are not finite": _finite(s.x),
            "node features of other rows": s.x is None or len(s.x) == n,
            "kinds": s.kind is None or set(np.unique(s.kind).tolist()) <= {0, 1},
            "labels": s.labels is None or (len(s.labels) == count and _finite(s.labels)),
            "ids": _ids(s),
        }
    )


def _wrong_graph(g: Any) -> str:
    n = g.num_nodes
    counted = [mask.sum() > 0 and mask.shape[-1] == n for mask in g.masks.values()]
    return _first(
        {
            "no nodes": n > 0,
            "indptr": g.indptr[0] == 0 and g.indptr[-1] == len(g.indices) and bool((np.diff(g.indptr) >= 0).all()),
            "edges beyond the nodes": not len(g.indices) or 0 <= g.indices.min() <= g.indices.max() < n,
            "features are not finite": _finite(g.x) or g.table is not None,
            "features of other rows": g.x is None or len(g.x) == n,
            "edge features are not finite": _finite(g.edge_attr),
            "weights": g.edge_weight is None or (_finite(g.edge_weight) and g.edge_weight.min(initial=0) >= 0),
            "labels": g.y is None or len(g.y) == n,
            "classes": g.y is None or g.y.dtype.kind != "i" or g.y.min(initial=0) >= -1,
            "masks": all(counted),
            "ids": _ids(g),
        }
    )


def _wrong_set(graphs: Any) -> str:
    offsets = graphs.offsets
    inside = True
    if len(graphs.union.indices):
        rows = np.repeat(np.arange(graphs.union.num_nodes), np.diff(graphs.union.indptr))
        of = np.searchsorted(offsets, np.stack([rows, graphs.union.indices]), side="right")
        inside = bool((of[0] == of[1]).all())
    return _wrong_graph(graphs.union) or _first(
        {
            "offsets": offsets[0] == 0 and offsets[-1] == graphs.union.num_nodes and bool((np.diff(offsets) > 0).all()),
            "an edge between graphs": inside,
            "labels": len(graphs.y) == len(offsets) - 1,
        }
    )


# ---- tables, cell by cell --------------------------------------------------------------------------------------
def cells(data: bytes, wanted: tuple[str, ...]) -> list[dict[str, str]] | str | None:
    """Return the rows of a comma-separated table with a plain header, "refuse: why", or None if it is not one."""
    if data[:2] == b"\x1f\x8b":
        try:
            data = gzip.decompress(data)
        except Exception:
            return "refuse: no gzip"
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError:
        return "refuse: no UTF-8"
    if "\0" in text:
        return "refuse: NUL"
    lines = text.replace("\r\n", "\n").split("\n")
    names = [name.strip() for name in lines[0].split(",")]
    if not set(wanted) <= set(names) or len(set(names)) < len(names) or '"' in text or "\r" in text.replace("\r\n", ""):
        return None
    rows = []
    for line in lines[1:]:
        if not line.strip():
            continue
        cells = next(csv.reader([line]))
        if len(cells) > len(names):
            return "refuse: a line of more fields"
        rows.append(dict(zip(names, [*cells, *[""] * (len(names) - len(cells))])))
    return rows


def same_events(data: bytes, stream: Any, wanted: tuple[str, ...] = ("src", "dst", "t")) -> str:
    """Return how a stream differs from the table of events that it was read from, or nothing."""
    rows = cells(data, wanted)
    if rows is None or isinstance(rows, str):
        return rows or ""
    source, target, time = wanted
    expected = []
    for row in rows:
        if not row[source].strip() or not row[target].strip():
            return "refuse: no id"
        if not NUMBER.fullmatch(row[time].strip()):
            return "" if re.search(r"\d-\d", row[time]) else f"refuse: no time {row[time]!r}"
        expected.append((Decimal(row[time].strip()), row[source].strip(), row[target].strip()))
    expected.sort(key=lambda row: row[0])
    if len(expected) != len(stream):
        return f"{len(stream)} events of {len(expected)} rows"
    names = np.arange(stream.num_nodes) if stream.node_ids is None else stream.node_ids.ids
    at = next((i for i, (row, t) in enumerate(zip(expected, stream.t.tolist())) if not _same_number(row[0], t)), None)
    if at is not None:
        return f"time {expected[at][0]} became {stream.t[at]}"
    ours = [*names[stream.src].tolist(), *names[stream.dst].tolist()]
    return _same_ids([*(row[1] for row in expected), *(row[2] for row in expected)], ours)


def same_edges(data: bytes, graph: Any) -> str:
    """Return how a directed graph differs from the table of edges that it was read from, or nothing."""
    rows = cells(data, ("source", "target"))
    if rows is None or isinstance(rows, str):
        return rows or ""
    pairs = [(row["source"].strip(), row["target"].strip()) for row in rows]
    if any(not part for pair in pairs for part in pair):
        return "refuse: no id"
    if any(row == dict.fromkeys(row) or all(key == value.strip() for key, value in row.items()) for row in rows):
        return "refuse: a header among the rows"
    names = np.arange(graph.num_nodes) if graph.node_ids is None else graph.node_ids.ids
    at = np.repeat(np.arange(graph.num_nodes), np.diff(graph.indptr))
    ours = {(str(a), str(b)) for a, b in zip(names[at].tolist(), names[graph.indices].tolist())}
    text = names.dtype.kind != "i"
    expected = {tuple(part if text else _plain(part) for part in pair) for pair in pairs}
    return "" if ours == expected else f"edges {sorted(ours ^ expected)[:4]}"


def _same_number(expected: Decimal, found: float) -> bool:
    try:
        return Decimal(found) == expected if isinstance(found, int) else float(expected) == found
    except (InvalidOperation, OverflowError):
        return False


def _plain(text: str) -> str:
    return str(int(text.split(".")[0])) if WHOLE.fullmatch(text) else text


def _same_ids(expected: list[str], found: list[Any]) -> str:
    """Return how ids differ from their texts: equal texts, and the same number of distinct ones."""
    for text, own in zip(expected, found):
        if str(own).strip() != text and _plain(text) != str(own):
            return f"id {text!r} became {own!r}"
    apart = dict(zip(expected, found))
    zeros = [text for text in apart if re.fullmatch(r"0\d+", text)]
    if zeros and any(isinstance(own, int) for own in found):
        return f"id {zeros[0]!r} became a number"
    return ""
