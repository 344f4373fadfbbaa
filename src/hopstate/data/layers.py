"""The past of a live run in layers: consecutive events, look-ups over them, and what they made of node memories.

A layer never changes. New events make a new one, which costs what it holds; few large ones are made of many small
ones now and then, so that each event is written again a number of times that grows as the logarithm of their number.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path

import numpy as np

from hopstate.data.events import ADD, GONE, EventStream
from hopstate.data.neighbor_store import NeighborStore
from hopstate.errors import DataError
from hopstate.ops.neighbors import PackedNeighbors

LARGEST = 1 << 18  # events of a layer that is not merged any more, which bounds what one call may have to write


@dataclass(frozen=True, eq=False, kw_only=True)
class Memories:
    """What a model remembers of n nodes.

    Args:
        nodes: (n,) int64, rising.
        memory: (n, K, d), one memory a layer of the model.
        output: (n, d).
        last_time: (n,) float64.
    """

    nodes: np.ndarray
    memory: np.ndarray
    output: np.ndarray
    last_time: np.ndarray

    def find(self, nodes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return which of nodes (q,) are here, and the rows of those."""
        place = np.minimum(np.searchsorted(self.nodes, nodes), max(len(self.nodes) - 1, 0))
        here = self.nodes[place] == nodes if len(self.nodes) else np.zeros(len(nodes), bool)
        return here, place[here]

    @classmethod
    def newest(cls, parts: Sequence[Memories]) -> Memories:
        """Return the memories of all nodes in parts, oldest part first, each from its newest part."""
        nodes = np.unique(np.concatenate([part.nodes for part in parts]))
        like = parts[0]
        found = cls(
            nodes=nodes,
            memory=np.empty((len(nodes), *like.memory.shape[1:]), like.memory.dtype),
            output=np.empty((len(nodes), *like.output.shape[1:]), like.output.dtype),
            last_time=np.empty(len(nodes)),
        )
        for part in parts:
            at = np.searchsorted(nodes, part.nodes)
            found.memory[at], found.output[at], found.last_time[at] = part.memory, part.output, part.last_time
        return found


@dataclass(frozen=True, eq=False, kw_only=True)
class Layer:
    """Events first .. first + E - 1 of a past.

    Args:
        first: id of the first event.
        src, dst, t, kind: see `EventStream`; kind is None where nothing is deleted.
        edge_attr: (E - s, D) float32 features of all but the first s events, or None; a memory model needs them of
            events that have not moved the memory yet, others of all.
        nodes: (n,) int64, rising: those that the events touch.
        index: arrays of a `NeighborStore` of edges added and deleted, under the numbers 0..n-1, with a node n that has
            no events.
        added: the same of added edges alone, None where nothing is deleted.
        ended: (2, k) int64 ids of edges that this layer's events end, rising, and of the events that do; None as above.
        gone: (2, g) int64 nodes that are deleted, rising, and the ids of the events that do it; None as above.
        memories: of the nodes that changed while these events were taken, or None.
        ids: the user's ids of nodes that came with these events, or None where ids are rows.
        path: the file that it was read from, or None.
    """

    first: int
    src: np.ndarray
    dst: np.ndarray
    t: np.ndarray
    kind: np.ndarray | None = None
    edge_attr: np.ndarray | None = None
    nodes: np.ndarray
    index: dict[str, np.ndarray]
    added: dict[str, np.ndarray] | None = None
    ended: np.ndarray | None = None
    gone: np.ndarray | None = None
    memories: Memories | None = None
    ids: np.ndarray | None = None
    path: Path | None = field(default=None, repr=False)

    @classmethod
    def of(
        cls,
        events: EventStream,
        *,
        skip: int = 0,
        memories: Memories | None = None,
        ids: np.ndarray | None = None,
        ended: np.ndarray | None = None,
    ) -> Layer:
        """Return the layer of some events under their ids.

        Args:
            events: bare, or with the features of events.
            skip: features of so many events are left out.
            memories, ids, ended: see `Layer`.
        """
        nodes, rows = np.unique(np.concatenate([events.src, events.dst]), return_inverse=True)
        rows.flags.writeable = False
        src, dst = rows[: len(events)], rows[len(events) :]

        def index(at: np.ndarray | slice) -> dict[str, np.ndarray]:
            columns = (src[at], dst[at], events.t[at], events.event_ids[at])
            return NeighborStore.from_events(*columns, len(nodes) + 1).arrays()

        deletes = events.has_deletes
        columns = {"src": events.src, "dst": events.dst, "t": events.t, "kind": events.kind if deletes else None}
        columns["edge_attr"] = None if events.edge_attr is None else events.edge_attr[skip:]
        return cls(
            first=events.first_id,
            **columns,  # type: ignore[arg-type]
            nodes=nodes,
            index=index(events.edge_rows() if deletes else slice(None)),
            added=index(events.additions()) if deletes else None,
            gone=_gone(events) if deletes else None,
            memories=memories,
            ids=ids,
            ended=ended,
        )

    def __len__(self) -> int:
        return len(self.src)

    @property
    def last(self) -> int:
        """One more than the id of the last event."""
        return self.first + len(self.src)

    @cached_property
    def store(self) -> NeighborStore:
        """Histories under the numbers of `nodes`."""
        return NeighborStore.of_arrays(self.index, len(self))

    @cached_property
    def added_store(self) -> NeighborStore:
        """The same of added edges alone."""
        return self.store if self.added is None else NeighborStore.of_arrays(self.added, len(self))

    @cached_property
    def ends(self) -> tuple[np.ndarray, np.ndarray]:
        """Rising nodes that edges are added from, and to."""
        return self.ends_of(slice(None))

    def ends_of(self, some: slice) -> tuple[np.ndarray, np.ndarray]:
        """Return what `ends` is of some of the events alone."""
        rows = some if self.kind is None else np.flatnonzero(self.kind[some] == ADD)
        found = []
        for column in (self.src[rows], self.dst[rows]):
            marks = np.zeros(int(self.nodes[-1]) + 1 if len(self.nodes) else 0, bool)  # quicker than sorting events
            marks[column] = True
            found.append(np.flatnonzero(marks))
        return found[0], found[1]

    def local(self, nodes: np.ndarray, *, added: bool = False) -> np.ndarray:
        """Return the numbers of nodes (q,) in `store`, those not here as the node without events.

        Args:
            nodes: (q,) int64.
            added: as the index of added edges has them, of `added_store`.

        Raises:
            DataError: the histories of one do not lie where the index says; the file is damaged.
        """
        if not len(self.nodes):
            return np.zeros(len(nodes), np.int64)
        place = np.searchsorted(self.nodes, nodes)
        here = self.nodes[np.minimum(place, len(self.nodes) - 1)] == nodes
        local = np.where(here, place, len(self.nodes))
        if self.path is not None:  # compiled loops do not look before they read
            index = self.index if self.added is None or not added else self.added
            start, length = index["start"][local], index["length"][local]
            room = len(index["codes"]) - start  # a sum of the two may overflow
            if ((start < 0) | (length < 0) | (length > room)).any():
                raise DataError(f"{self.path} is damaged: its histories do not lie where its index says")
        return local

    def check_found(self, found: PackedNeighbors) -> None:
        """Check that what look-ups found are nodes and events of this layer.

        Raises:
            DataError: they are not; the file is damaged.
        """
        if self.path is None or not len(found.nodes):
            return
        nodes, ids = found.nodes, found.event_ids
        if (
            not 0 <= nodes.min() <= nodes.max() < len(self.nodes)
            or not self.first <= ids.min() <= ids.max() < self.last
        ):
            raise DataError(f"{self.path} is damaged: its index names nodes or events that it does not hold")
        named = self.nodes[nodes]  # rising, and of those in between only what is read was looked at
        if not self.nodes[0] <= named.min() <= named.max() <= self.nodes[-1]:
            raise DataError(f"{self.path} is damaged: its nodes do not rise")

    def features(self, ids: np.ndarray) -> np.ndarray:
        """Return (q, D) features of events by id.

        Raises:
            DataError: they were not kept.
        """
        assert self.edge_attr is not None
        rows = ids - (self.last - len(self.edge_attr))
        if len(rows) and rows.min() < 0:
            raise DataError("the features of earlier events were not kept; start from the end of the run's own data")
        return self.edge_attr[rows]


def _gone(events: EventStream) -> np.ndarray:
    rows = np.flatnonzero(events.kind == GONE)
    rows = rows[np.argsort(events.src[rows], kind="stable")]
    return np.stack([events.src[rows], rows + events.first_id])


def merged(layers: Sequence[Layer], needed: int) -> Layer:
    """Return one layer of consecutive ones, with the features of events from id needed on."""
    first, last = layers[0].first, layers[-1].last
    t = np.concatenate([layer.t for layer in layers])
    kinds = None
    if any(layer.kind is not None for layer in layers):
        kinds = np.concatenate([np.zeros(len(x), np.int8) if x.kind is None else x.kind for x in layers])
    attr = None
    if all(layer.edge_attr is not None for layer in layers):
        ids = np.arange(max(first, needed), max(last, needed))
        attr = np.concatenate([x.features(ids[(ids >= x.first) & (ids < x.last)]) for x in layers])
    events = EventStream(
        src=np.concatenate([layer.src for layer in layers]),
        dst=np.concatenate([layer.dst for layer in layers]),
        t=t,
        kind=kinds,
        first_id=first,
    )
    ended = [layer.ended for layer in layers if layer.ended is not None]
    if ended:
        ended = [np.concatenate(ended, 1)]
        ended = [ended[0][:, np.argsort(ended[0][0])]]
    memories = [layer.memories for layer in layers if layer.memories is not None]
    names = [layer.ids for layer in layers if layer.ids is not None]
    made = Layer.of(
        events,
        memories=Memories.newest(memories) if memories else None,
        ids=np.concatenate(names) if names else None,
        ended=ended[0] if ended else None,
    )
    return replace(made, edge_attr=attr)


def compacted(layers: Sequence[Layer], needed: int) -> tuple[Layer, ...]:
    """Return layers of which none holds at most as many events as all after it, but for those that are full.

    Args:
        layers: consecutive.
        needed: features of events before this id may go.
    """
    start = max(len(layers) - 1, 0)
    after = sum(len(layer) for layer in layers[start:])
    while start and len(layers[start - 1]) <= min(after, LARGEST - after):
        start -= 1
        after += len(layers[start])
    return (*layers[:start], merged(layers[start:], needed)) if start < len(layers) - 1 else tuple(layers)
