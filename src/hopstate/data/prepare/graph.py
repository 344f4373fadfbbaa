"""A graph's store of staged edges: CSR in the order and with the duplicates that `Graph.from_edges` leaves."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from hopstate.data.prepare.engine import Engine
from hopstate.data.prepare.nodes import NodeTables, placed
from hopstate.data.prepare.write import (
    Batch,
    Npy,
    Writing,
    mapped_pieces,
    numbered,
    plain,
    put_pieces,
    write_vocabulary,
)
from hopstate.data.store import codes_of, lines_of
from hopstate.errors import DataError
from hopstate.io.files import save_array, sync_file


def write_graph(
    w: Writing, engine: Engine, nodes: NodeTables, build: Mapping[str, Any]
) -> tuple[dict[str, str], dict[str, Any]]:
    """Write the arrays of a graph; return their check sums by name, and the facts that follow from them.

    Args:
        w: the staged edges, and where to.
        engine: numbers ids and sorts.
        nodes: what stands beside the edges.
        build: undirected, duplicates and self_loops of `Graph.from_edges`.
    """
    import pyarrow.parquet as pq

    sums: dict[str, str] = {}
    vocabulary = numbered(w, engine)
    fields: dict[str, Any] = {}
    places = None
    if nodes.alone:
        count = write_vocabulary(w, vocabulary, sums)
        if not w.settled.text and (least := pq.ParquetFile(vocabulary).read_row_group(0, ["id"])["id"][0].as_py()) < 0:
            raise DataError(f"{w.source}: negative id {least}; ids are at least 0, or texts")
    else:
        met = pq.read_table(vocabulary, columns=["id"])["id"].to_numpy()
        met = met.astype(str if w.settled.text else np.int64)
        places, names, count, own = placed(nodes, met, w.source)
        fields = {} if nodes.labels is None else nodes.labels.fields(own, count)
        _save(w, sums, "node_ids", None if names is None else names.ids)
    classes = fields.pop("class_names", None)
    for name, mask in fields.pop("masks", {}).items():
        _save(w, sums, f"mask_{name}", mask)
    _save(w, sums, "y", fields.get("y"))
    facts = {"num_nodes": count, "class_names": None if classes is None else list(map(str, classes))}
    facts |= _features(w, nodes, sums)
    notes = _entries(w, engine, places, count, build, sums)
    width = len(w.columns.features)
    facts |= {"edge_columns": list(w.columns.features) or None, "edge_texts": [] if width else None}
    return {key: sums[key] for key in sorted(sums)}, facts | {"notes": [*nodes.notes, *notes]}


def _features(w: Writing, nodes: NodeTables, sums: dict[str, str]) -> dict[str, Any]:
    table = nodes.features
    if table is None:
        return {"columns": None, "texts": None}
    w.say("writing the features of nodes")
    _save(w, sums, "x", table.plain())
    _save(w, sums, "table", table.values)
    _save(w, sums, "texts", codes_of(table))
    return {"columns": list(table.columns), "texts": lines_of(table)}


def _save(w: Writing, sums: dict[str, str], name: str, array: np.ndarray | None) -> None:
    if array is None:
        return
    path = w.out / f"{name}.npy"
    save_array(path, array)
    sync_file(path)
    with path.open("rb") as file:
        sums[name] = hashlib.file_digest(file, "sha256").hexdigest()


def _entries(
    w: Writing, engine: Engine, places: np.ndarray | None, nodes: int, build: Mapping[str, Any], sums: dict[str, str]
) -> list[str]:
    """Write indptr, indices and what edges carry; return notes on what was left out."""
    undirected, unique, loops = build["undirected"], build["duplicates"] == "drop", build["self_loops"] == "keep"
    width, exact = len(w.columns.features), all(fact["exact"] for fact in w.facts)
    w.say("sorting the edges")
    pieces = put_pieces(w, _placed(w, places))
    most = sum(fact["count"] for fact in w.facts) * (2 if undirected else 1)
    arrays = {"indices": Npy(w.out / "indices.npy", (most,), np.int64)}
    if width:
        arrays["edge_attr"] = Npy(w.out / "edge_attr.npy", (most, width), np.float32)
        arrays["edge_table"] = Npy(w.out / "edge_table.npy", (most, width), np.float32 if exact else np.float64)
    starts = np.zeros(nodes + 1, np.int64)
    seen = kept = 0
    last = (-1, -1)
    for batch in map(plain, engine.entries(pieces, undirected, loops)):
        source, target = batch["src"], batch["dst"]
        if not len(source):
            continue
        first = np.ones(len(source), bool)
        if unique:
            first[1:] = (source[1:] != source[:-1]) | (target[1:] != target[:-1])
            first[0] = (int(source[0]), int(target[0])) != last
        last = int(source[-1]), int(target[-1])
        low = int(source[0])
        added = np.bincount(source[first] - low)
        starts[low + 1 : low + 1 + len(added)] += added
        seen, kept = seen + len(source), kept + int(first.sum())
        arrays["indices"].add(target[first])
        if width:
            values = np.stack([batch[f"f{i}"][first] for i in range(width)], 1)
            arrays["edge_table"].add(values)
            arrays["edge_attr"].add(np.clip(values, -_LARGEST, _LARGEST))
    sums |= {name: array.close_at(kept) for name, array in arrays.items()}
    _save(w, sums, "indptr", np.cumsum(starts))
    said = ["every edge is stored in both directions (--read.undirected false keeps one)"] if undirected else []
    if kept < seen:
        said.append(f"{seen - kept:,} of {seen:,} stored edges stood there already and were merged into the first")
    return said


def _placed(w: Writing, places: np.ndarray | None) -> Iterator[Batch]:
    """Return pieces with the rows of nodes for the numbers of their ids."""
    for batch in mapped_pieces(w):
        yield batch if places is None else batch | {name: places[batch[name]] for name in ("src", "dst")}


_LARGEST = float(np.finfo(np.float32).max)
