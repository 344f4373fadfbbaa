"""Deletions in the past of a live run: which edges stand, found from the histories of the nodes concerned alone."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from hopstate.data.deletions import LASTS, edge_ends, expansion, stated, taken
from hopstate.data.event_build import check_deletes
from hopstate.data.events import ADD, DELETE, GONE, IMPLIED, EventStream
from hopstate.data.layered_store import LayeredStore
from hopstate.data.layers import Layer


class PastEnds:
    """Which event of a past ends an added edge; called with ids (q,), `LASTS` where none does."""

    def __init__(self, layers: Sequence[Layer]) -> None:
        self.parts = [layer.ended for layer in layers if layer.ended is not None]

    def __call__(self, ids: np.ndarray) -> np.ndarray:
        """Return (q,) ids of the events that end edges (q,)."""
        found = np.full(len(ids), LASTS)
        for known, by in self.parts:
            place = np.minimum(np.searchsorted(known, ids), max(len(known) - 1, 0))
            here = known[place] == ids if len(known) else np.zeros(len(ids), bool)
            found[here] = by[place[here]]
        return found


def resolved(layers: Sequence[Layer], added: EventStream) -> tuple[EventStream, np.ndarray | None]:
    """Return new events with the edges of deleted nodes deleted, and what they end; see `Layer.ended`.

    Args:
        layers: of the past.
        part: in the past's rows and under ids that follow.

    Raises:
        DataError: a deletion of what does not stand; see `check_deletes`.
    """
    added = stated(added)
    if not added.has_deletes or added.kind is None:
        return added, None
    left = np.unique(added.src[added.kind == GONE])
    edges = added.kind == DELETE
    ids, src, dst = _standing(layers, added.num_nodes, added.src[edges], added.dst[edges], left)
    front = len(ids)
    src, dst = np.concatenate([src, added.src]), np.concatenate([dst, added.dst])
    kind = np.concatenate([np.zeros(front, np.int8), added.kind])
    rows, place = expansion(src, dst, kind, added.num_nodes)
    src, dst, kind = src[rows], dst[rows], np.where(rows == place, kind[rows], IMPLIED).astype(np.int8)
    if len(rows) > front + len(added):
        shift = np.maximum(rows[front:] - front, -1)
        shift[rows[front:] != place[front:]] = -1
        added = taken(added, shift, place[front:] - front, src=src[front:], dst=dst[front:])
    whole = {"src": src, "dst": dst, "kind": kind, "t": np.zeros(len(src), np.int64)}
    bare = EventStream(**whole, num_nodes=added.num_nodes, node_ids=added.node_ids, name=added.name, from_start=False)
    check_deletes(bare, alive=_alive(layers, added.num_nodes, left), before=front)
    ends = edge_ends(src, dst, kind, added.num_nodes)
    known = np.concatenate([ids, added.event_ids])
    gone = np.flatnonzero((kind == ADD) & (ends < LASTS))
    ended = np.stack([known[gone], known[ends[gone]]])
    return added, ended[:, np.argsort(ended[0])]


def gone_nodes(layers: Sequence[Layer], nodes: np.ndarray) -> np.ndarray:
    """Return (q,) the id of the event that deleted each of nodes (q,) last, -1 where none did."""
    last = np.full(len(nodes), -1)
    for layer in layers:
        if layer.gone is not None and layer.gone.size:
            names, ids = layer.gone
            place = np.searchsorted(names, nodes, side="right") - 1
            here = (place >= 0) & (names[np.maximum(place, 0)] == nodes)
            last[here] = ids[place[here]]
    return last


def still_gone(layers: Sequence[Layer], num_nodes: int, nodes: np.ndarray) -> np.ndarray:
    """Return (q,) whether nodes (q,) were deleted and have met nobody since."""
    return _last_met(layers, num_nodes, nodes) < gone_nodes(layers, nodes)


def _alive(layers: Sequence[Layer], num_nodes: int, nodes: np.ndarray) -> np.ndarray:
    """Return those of nodes (q,) that stand: they met somebody, and since they were deleted."""
    return nodes[_last_met(layers, num_nodes, nodes) > gone_nodes(layers, nodes)]


def _last_met(layers: Sequence[Layer], num_nodes: int, nodes: np.ndarray) -> np.ndarray:
    """Return (q,) the id of the last edge that nodes (q,) were given, -1 where none was."""
    store = LayeredStore(layers, num_nodes)
    end = np.iinfo(np.int64).max if store.time_dtype == np.int64 else np.inf
    found = store.last(nodes, np.full(len(nodes), end, store.time_dtype), 1)
    last = np.full(len(nodes), -1)
    last[found.lengths > 0] = found.event_ids
    return last


def _standing(
    layers: Sequence[Layer], num_nodes: int, src: np.ndarray, dst: np.ndarray, nodes: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return ids (k,), sources and destinations of the edges that stand, of pairs and of nodes, in order of id.

    Costs the histories of the nodes, and of the less busy end of each pair.
    """
    store = LayeredStore(layers, num_nodes)
    quiet = np.where(store.degrees_of(src) <= store.degrees_of(dst), src, dst)
    ids = np.unique(store.all_of(np.unique(np.concatenate([quiet, nodes]))).event_ids)
    ids = ids[PastEnds(layers)(ids) == LASTS]
    starts = np.array([layer.first for layer in layers], np.int64)
    u, v = np.empty(len(ids), np.int64), np.empty(len(ids), np.int64)
    of = np.searchsorted(starts, ids, side="right") - 1
    for i in np.unique(of):
        mine, rows = of == i, ids[of == i] - starts[i]
        u[mine], v[mine] = layers[i].src[rows], layers[i].dst[rows]
    asked = np.isin(u * num_nodes + v, src * num_nodes + dst) | np.isin(u, nodes) | np.isin(v, nodes)
    return ids[asked], u[asked], v[asked]
