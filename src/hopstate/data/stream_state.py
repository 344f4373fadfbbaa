"""What a trained temporal model has seen: the events, and what a model with a memory remembers after them.

States share one log of events. Taking in new events appends them to the log, which costs what they hold, and returns
the next state. A state reads only the events below its own number of events, so it never changes. If a second state
follows the same one, the log is copied first.

The state follows from the events only, not from how they came. Events are cut into batches by their positions. The
last batches stay open, because events to come may still belong to them or be scored before them: their events are
known to look-ups and have not updated the memory.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np

from hopstate.data.dates import UNITS, format_time
from hopstate.data.events import (
    ADD,
    DELETE,
    GONE,
    NEVER,
    TYPE_FIELDS,
    EventStream,
    check_deletes,
    edge_ends,
    expand_node_deletions,
    in_known_types,
)
from hopstate.data.neighbor_store import Column, EventRelations, NeighborStore, NeighborView
from hopstate.data.readers.tables import EXACT
from hopstate.data.validate import check_num_nodes
from hopstate.data.vocabulary import Vocabulary
from hopstate.errors import CheckpointError, DataError, TimeOrderError
from hopstate.io.scratch import digest_of

_TYPES = ("relation_names", "node_type", "node_type_names")
_REMEMBERED = ("memory", "output", "last_time")


class Event(NamedTuple):
    """An event of a state: its id, the rows of its source and destination, and its time."""

    id: int
    src: int
    dst: int
    t: int | float


@dataclass(frozen=True, eq=False, kw_only=True)
class Memories:
    """What a model remembers of n nodes.

    Args:
        nodes: (n,) int64, rising.
        memory: (n, K, d), one memory per layer of the model.
        output: (n, d).
        last_time: (n,) float64.
        path: the file that holds them, or None.
    """

    nodes: np.ndarray
    memory: np.ndarray
    output: np.ndarray
    last_time: np.ndarray
    path: Path | None = field(default=None, repr=False)

    def find(self, nodes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return which of nodes (q,) are here, and the rows of those."""
        place = np.minimum(np.searchsorted(self.nodes, nodes), max(len(self.nodes) - 1, 0))
        here = self.nodes[place] == nodes if len(self.nodes) else np.zeros(len(nodes), bool)
        return here, place[here]

    @classmethod
    def newest(cls, parts: Sequence[Memories]) -> Memories:
        """Return the memories of all nodes in parts, oldest part first, each from its newest part."""
        nodes, like = np.unique(np.concatenate([part.nodes for part in parts])), parts[0]
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


class EventColumns:
    """Events in columns that grow, and their look-ups; several states share one and read its first events.

    Nothing that an earlier state reads is ever overwritten with something else that this state could see: an edge that
    a later event ends is ended for those states only that have that event.
    """

    def __init__(self) -> None:
        self.src, self.dst, self.t = Column(), Column(), Column()
        self.kind: Column | None = None  # of all events, from the first deletion on
        self.ends: Column | None = None  # id of the event that ends each edge, from the first deletion on
        self.relation: Column | None = None  # of all events, or of none
        self.additions: Column | None = None  # ids of events that add an edge, from the first deletion on
        self._first = np.empty((2, 0), np.int64)  # id of the first event that each node sends, and receives
        self._first_of: dict[tuple[int, int], np.ndarray] = {}  # by relation and end: rising nodes, ids of first events
        self._stores: dict[bool, NeighborStore] = {}

    def __len__(self) -> int:
        return len(self.src)

    def after(self, size: int, time_dtype: np.dtype[Any]) -> EventColumns:
        """Return the log to append to after its first events: itself, or a copy if it holds more or other times."""
        if size == len(self) and (not size or self.t.rows.dtype == time_dtype):
            return self
        log = EventColumns()
        kind = None if self.kind is None else self.kind.rows[:size]
        ended = None
        if self.ends is not None:
            ends = self.ends.rows[:size]
            ids = np.flatnonzero(ends < size)
            ended = np.stack([ids, ends[ids]])
        relation = None if self.relation is None else self.relation.rows[:size]
        columns = self.src.rows[:size], self.dst.rows[:size], self.t.rows[:size].astype(time_dtype)
        log.append(*columns, kind, ended, relation)
        return log

    def append(
        self,
        src: np.ndarray,
        dst: np.ndarray,
        t: np.ndarray,
        kind: np.ndarray | None,
        ended: np.ndarray | None,
        relation: np.ndarray | None = None,
    ) -> None:
        """Add events.

        Args:
            src, dst, t: (E,), in the log's rows and times.
            kind: (E,) `ADD` or `DELETE`; None if all add an edge.
            ended: (2, k) ids of edges that these events end, and of the events that do; None if all add one.
            relation: (E,), of all events that are ever appended or of none.
        """
        first = len(self)
        if not len(src):
            return
        if self.kind is None and kind is not None and kind.any():
            self.kind, self.additions = Column(np.zeros(first, np.int8)), Column(np.arange(first))
            self.ends = Column(np.full(first, NEVER))
        for column, values in ((self.src, src), (self.dst, dst), (self.t, t)):
            column.append(values)
        if relation is not None:
            self.relation = self.relation or Column()
            self.relation.append(relation)
        ids, added = np.arange(first, len(self)), slice(None)
        if self.kind is not None and self.ends is not None and self.additions is not None:
            kind = np.zeros(len(src), np.int8) if kind is None else kind
            added = np.flatnonzero(kind == ADD)  # type: ignore[assignment]
            self.kind.append(kind)
            self.additions.append(ids[added])
            self.ends.append(np.full(len(src), NEVER))
            if ended is not None:
                self.ends.rows[ended[0]] = ended[1]
        for deletions, store in self._stores.items():
            rows = slice(None) if deletions else added
            store.append(src[rows], dst[rows], t[rows], ids[rows])
        self._note_first(src[added], dst[added], ids[added])
        if relation is not None:
            self._note_relations((src[added], dst[added]), ids[added], relation[added])

    def _note_first(self, src: np.ndarray, dst: np.ndarray, ids: np.ndarray) -> None:
        num_nodes = int(max(src.max(initial=-1), dst.max(initial=-1))) + 1
        if num_nodes > self._first.shape[1]:
            first = np.full((2, max(num_nodes, 2 * self._first.shape[1])), NEVER)
            first[:, : self._first.shape[1]] = self._first
            self._first = first
        for first, nodes in zip(self._first, (src, dst), strict=True):
            new = np.flatnonzero(first[nodes] == NEVER)[::-1]  # of a node's several events the first is written last
            first[nodes[new]] = ids[new]

    def _note_relations(self, ends: tuple[np.ndarray, np.ndarray], ids: np.ndarray, relation: np.ndarray) -> None:
        order = np.argsort(relation, kind="stable")
        codes, starts = np.unique(relation[order], return_index=True)
        for code, rows in zip(codes.tolist(), np.split(order, starts[1:])):
            for end in (0, 1):
                known, first = self.first_in_relation(code, end)
                left, right = (np.searchsorted(known, ends[end][rows], side) for side in ("left", "right"))
                new = rows[left == right]  # not among the known nodes
                if len(new):
                    nodes, place = np.unique(np.append(known, ends[end][new]), return_index=True)
                    self._first_of[code, end] = np.stack([nodes, np.append(first, ids[new])[place]])

    def first_in_relation(self, relation: int, end: Literal[0, 1]) -> np.ndarray:
        """Return (2, n) the nodes that send (end 0) or receive (1) events of a relation, and ids of the first ones."""
        return self._first_of.get((relation, end), np.empty((2, 0), np.int64))

    def first_events(self, num_nodes: int) -> np.ndarray:
        """Return (2, N) the ids of the first events that each node sends and receives, `NEVER` if there is none."""
        missing = np.full((2, max(num_nodes - self._first.shape[1], 0)), NEVER)
        return np.concatenate([self._first[:, :num_nodes], missing], 1) if missing.size else self._first[:, :num_nodes]

    def store(self, deletions: bool) -> NeighborStore:
        """Return look-ups over all events, with those that delete edges or without."""
        key = deletions and self.kind is not None
        if key not in self._stores:
            src, dst, t, ids = self.src.rows, self.dst.rows, self.t.rows, None
            if not key and self.additions is not None:
                ids = self.additions.rows
                src, dst, t = src[ids], dst[ids], t[ids]
            self._stores[key] = NeighborStore.from_events(src, dst, t, ids)
        return self._stores[key]

    def count_additions(self, size: int) -> int:
        """Return how many of the first events add an edge."""
        return size if self.additions is None else int(np.searchsorted(self.additions.rows, size))


class EventFeatures:
    """Features of events from some id on, indexed by (q,) ids; earlier ones are not kept.

    Args:
        rows: (E - first, D) float32.
        first: id of the first event that has them.
    """

    def __init__(self, rows: Column, first: int) -> None:
        self.rows, self.first = rows, first

    def __getitem__(self, ids: np.ndarray) -> np.ndarray:
        if len(ids) and ids.min() < self.first:
            raise DataError("the features of earlier events were not kept; start from the end of the run's own data")
        return self.rows.rows[ids - self.first]

    def after(self, size: int, needed: int, added: np.ndarray) -> EventFeatures:
        """Return the features once more are added after the first `size` events; those before id `needed` may go."""
        features, first = self.rows, self.first
        if len(features) != size - first:
            features = Column(features.rows[: size - first])
        if 2 * (needed - first) > len(features):
            features, first = Column(features.rows[needed - first :].copy()), needed
        features.append(added)
        return EventFeatures(features, first)


@dataclass(frozen=True, eq=False, kw_only=True)
class StreamState:
    """Events so far, and the memories that those before `settled` have left.

    Args:
        log: the events; a state reads the first `num_events`.
        num_events: how many.
        edge_attr: features of events, None if they have none.
        memory_parts: what is remembered of nodes; a later part replaces an earlier one.
        num_nodes: N.
        node_ids: the user's ids, or None if ids are rows.
        relation_names: names of the events' relations, () without relations.
        node_type: (N,) int16 types of nodes, or None; node_type_names: their names.
        x: (M, F) float32 features of the first M nodes, or None; others have zeros.
        x_path: the file that holds them, or None.
        time_unit: of the events' times, "" if unknown; None takes that of the events to come.
        settled: id of the first event that has not updated the memory.
        clock: time of the last event that has.
        model: fingerprint of the model of this state, "" for any.
        tag: of the memory; see `NodeState`.
        last: hash of the events of the last call, "" if there were none.
        left_out: an event that look-ups do not find, or None; see `without`.
        files: the event files that hold the first events, oldest first.
    """

    log: EventColumns = field(default_factory=EventColumns, repr=False)
    num_events: int = 0
    edge_attr: EventFeatures | None = None
    memory_parts: tuple[Memories, ...] = ()
    num_nodes: int = 0
    node_ids: Vocabulary | None = None
    relation_names: tuple[str, ...] = ()
    node_type: np.ndarray | None = None
    node_type_names: tuple[str, ...] = ()
    x: np.ndarray | None = None
    x_path: Path | None = None
    time_unit: str | None = None
    settled: int = 0
    clock: float = -math.inf
    model: str = ""
    tag: str = ""
    last: str = ""
    left_out: Event | None = None
    files: tuple[EventFile, ...] = ()

    # ---- events ------------------------------------------------------------------------------------------
    def __len__(self) -> int:
        return self.num_events

    @property
    def src(self) -> np.ndarray:
        """(E,) int64 rows of the events' sources."""
        return self.log.src.rows[: self.num_events]

    @property
    def dst(self) -> np.ndarray:
        """(E,) int64 rows of the events' destinations."""
        return self.log.dst.rows[: self.num_events]

    @property
    def t(self) -> np.ndarray:
        """(E,) int64 or float64 times of events."""
        return self.log.t.rows[: self.num_events]

    @property
    def kind(self) -> np.ndarray | None:
        """(E,) int8 `ADD` or `DELETE`; None if all events add an edge."""
        return self.log.kind.rows[: self.num_events] if self.has_deletes and self.log.kind is not None else None

    @property
    def relation(self) -> np.ndarray | None:
        """(E,) int32 relations of the events; None without relations."""
        return None if self.log.relation is None else self.log.relation.rows[: self.num_events]

    @property
    def relations(self) -> EventRelations | None:
        """Relations of the events by id, as look-ups read them; None without relations."""
        return None if self.relation is None else EventRelations(self.relation)

    @property
    def types_of_nodes(self) -> NodeFeatures | None:
        """Types of nodes by their rows, -1 if unknown; None if nodes are untyped."""
        return None if self.node_type is None else NodeFeatures(self.node_type, missing=-1)

    @property
    def edge_ends(self) -> np.ndarray:
        """(E,) ids of the events that end edges; at least E if none of this state does."""
        return np.full(self.num_events, NEVER) if self.log.ends is None else self.log.ends.rows[: self.num_events]

    @property
    def time_dtype(self) -> np.dtype[Any]:
        """Type of times, int64 or float64."""
        return self.log.t.rows.dtype if self.num_events else np.dtype(np.float64)

    @property
    def last_time(self) -> int | float:
        """Time of the last event, -inf before the first."""
        return self.t[-1].item() if self.num_events else -math.inf

    @property
    def has_deletes(self) -> bool:
        """Whether an event deletes an edge."""
        return self.log.count_additions(self.num_events) < self.num_events

    @property
    def needed(self) -> int:
        """Id of the first event with features still in use; node memories replace earlier ones."""
        return self.settled if self.tag else 0

    def event(self, number: int) -> Event:
        """Return the event of an id."""
        return Event(number, int(self.src[number]), int(self.dst[number]), self.t[number].item())

    def ever_active(self, before: int | None = None) -> tuple[np.ndarray, np.ndarray]:
        """Return (N,) which nodes sent an event, and which received one, of this state or of its first ones."""
        stop = self.num_events if before is None else before
        sent, received = self.log.first_events(self.num_nodes) < stop
        return sent, received

    def active_in_relation(self, relation: int, before: int | None = None) -> tuple[np.ndarray, np.ndarray]:
        """Return the sorted nodes that sent, and that received, an event of a relation; before as in `ever_active`."""
        stop = self.num_events if before is None else before
        (senders, first_sent), (receivers, first_received) = (self.log.first_in_relation(relation, k) for k in (0, 1))
        return senders[first_sent < stop], receivers[first_received < stop]

    def events(self, first: int = 0, stop: int | None = None) -> EventStream:
        """Return events first .. stop-1 under their ids, with their features if all were kept, without nodes'."""
        rows = slice(first, self.num_events if stop is None else stop)
        columns: dict[str, Any] = {name: getattr(self, name)[rows] for name in ("src", "dst", "t")}
        if self.kind is not None:
            columns["kind"] = self.kind[rows]
        if self.relation_names:
            columns["relation"] = np.empty(0, np.int32) if self.relation is None else self.relation[rows]
        if self.edge_attr is not None and self.edge_attr.first <= first:
            columns["edge_attr"] = self.edge_attr[np.arange(first, rows.stop)]
        facts: dict[str, Any] = {"num_nodes": self.num_nodes, "node_ids": self.node_ids}
        facts |= {"time_unit": self.time_unit or ""} | {name: getattr(self, name) for name in _TYPES}
        if self.node_type is not None:  # there may be rows for nodes to come
            facts["node_type"] = _widened(self.node_type, self.num_nodes)
        return EventStream(**columns, **facts, first_id=first, name="earlier events", from_start=not first)

    # ---- look-ups ----------------------------------------------------------------------------------------
    def store(self, *, deletions: bool = False) -> NeighborView:
        """Return look-ups over all events but one left out, those that delete edges only if requested.

        Args:
            deletions: see `NeighborStore.from_stream`.
        """
        count = self.num_events if deletions else self.log.count_additions(self.num_events)
        hidden = None if self.left_out is None else (self.left_out.id, self.left_out.t)
        return NeighborView(self.log.store(deletions), self.num_nodes, self.num_events, count, hidden)

    def without(self, event: Event) -> StreamState:
        """Return this state with look-ups that do not find an event, one that adds an edge; its memory stays."""
        return replace(self, left_out=event)

    def memories(self, nodes: np.ndarray) -> Memories | None:
        """Return what is remembered of those of nodes (q,), rising, that were ever active; None if none was."""
        missing, parts = nodes, []
        for part in reversed(self.memory_parts):
            if len(missing):
                here, rows = part.find(missing)
                parts.append(Memories(nodes=missing[here], **{k: getattr(part, k)[rows] for k in _REMEMBERED}))
                missing = missing[~here]
        found = Memories.newest(parts) if parts else None
        if found is not None and not all(np.isfinite(x).all() for x in (found.memory, found.output)):
            where = next((part.path.parent for part in self.memory_parts if part.path is not None), "the state")
            raise CheckpointError(f"{where} is damaged: its memories hold NaN or infinities; use an earlier copy")
        return found

    # ---- what comes --------------------------------------------------------------------------------------
    def settled_at(self, settled: int, *, moved: Memories | None = None, clock: float, tag: str) -> StreamState:
        """Return the state after the events before id `settled` have updated the memory.

        Args:
            settled: id of the first event that has not.
            moved: what is remembered now of the nodes whose memory changed.
            clock, tag: of the memory.
        """
        parts = self.memory_parts if moved is None else _compacted((*self.memory_parts, moved))
        return replace(self, settled=settled, memory_parts=parts, clock=clock, tag=tag)

    def joined(
        self, new: EventStream, *, skip_features: bool = False, allow_duplicates: bool = False
    ) -> tuple[EventStream, StreamState]:
        """Return new events in the rows, ids and times of this state, and the updated state.

        Unseen ids become the next rows; the memory is not updated yet.

        Args:
            new: events with the user's ids.
            skip_features: do not keep features of events.
            allow_duplicates: accept the events of the last call again.

        Raises:
            TimeOrderError: a new event is earlier than the last one so far.
            DataError: the events of the last call again, times of another unit that cannot be converted or
                that the clock so far cannot represent, ids of another kind, or a deletion of an edge that is not
                active; or a relation that no event so far could have.
        """
        new = _in_clock(self, new if self.time_unit is None else in_unit(new, self.time_unit))
        if len(self) and len(new) and new.t[0] < self.last_time:
            raise TimeOrderError(
                f"{new.name} begins at {format_time(new.t[0], new.time_unit, new.dates)}, but the memory has seen "
                f"events up to {format_time(self.last_time, new.time_unit, new.dates)}; give only later events (has "
                "this file been streamed already?)"
            )
        if len(self) or self.num_nodes:
            for field in TYPE_FIELDS:
                new = in_known_types(new, field, getattr(self, f"{field}_names"), needed=field == "relation")
        (src, dst), ids, num_nodes = _rows(self, new)
        rest = {"x": None, "num_nodes": num_nodes, "node_ids": ids, "first_id": len(self), "labels": new.labels}
        types = _types_with(self, new, num_nodes, ids)
        added = new.with_(src=src, dst=dst, **rest, **types)
        # not how many nodes there are
        digest = digest_of(added.src, added.dst, added.t, added.kind, added.edge_attr, added.relation)
        if len(added) and digest == self.last and not allow_duplicates:
            raise DataError(
                f"{new.name} contains the same events as the last call of stream. Give later events, start from "
                "another state (--state) or from the end of the run's data (--ignore-state), or add "
                "--allow-duplicates if they occurred twice"
            )
        added, ended = _resolved(self, added)
        grown: dict[str, Any] = {"num_nodes": num_nodes, "node_ids": ids, "time_unit": added.time_unit}
        grown |= {name: getattr(added, name) for name in _TYPES}
        if not len(added):
            return added, replace(self, **grown)
        log = self.log.after(len(self), added.t.dtype)
        log.append(added.src, added.dst, added.t, added.kind, ended, added.relation)
        attr = None if skip_features or added.edge_attr is None else added.edge_attr
        features = None
        if attr is not None:
            empty = EventFeatures(Column(attr[:0]), len(self))
            features = (self.edge_attr or empty).after(len(self), self.needed, attr)
        return added, replace(self, log=log, num_events=len(log), edge_attr=features, last=digest, **grown)


class EventFile(NamedTuple):
    """A file with events first .. last - 1, and the ids of nodes that came with them.

    Args:
        path, first, last: see above.
        num_nodes: nodes whose ids are in this file and those before it.
    """

    path: Path
    first: int
    last: int
    num_nodes: int


def _compacted(parts: tuple[Memories, ...]) -> tuple[Memories, ...]:
    """Return parts of which none is as small as all after it together, so that a node is rewritten rarely."""
    start, after = len(parts) - 1, len(parts[-1].nodes)
    while start and len(parts[start - 1].nodes) <= after:
        start -= 1
        after += len(parts[start].nodes)
    return (*parts[:start], Memories.newest(parts[start:])) if start < len(parts) - 1 else parts


def _resolved(state: StreamState, added: EventStream) -> tuple[EventStream, np.ndarray | None]:
    """Return new events with the edges of deleted nodes deleted, and (2, k) the edges that end and what ends them."""
    if not added.has_deletes or added.kind is None:
        return added, None
    nodes, edges = np.unique(added.src[added.kind == GONE]), added.kind == DELETE
    ids, src, dst = _active_edges(state, added.num_nodes, added.src[edges], added.dst[edges], nodes)
    earlier = [src, dst]
    if added.relation is not None:
        earlier.append(np.empty(0, np.int32) if state.relation is None else state.relation[ids])
    sent, received = state.log.first_events(added.num_nodes) < len(state)
    added = expand_node_deletions(added, tuple(earlier), sent | received)
    front = len(ids)
    names = ("src", "dst", "relation")
    whole: dict[str, Any] = {
        name: np.concatenate([before, getattr(added, name)]) for name, before in zip(names, earlier)
    }
    kind = np.concatenate(
        [np.zeros(front, np.int8), np.zeros(len(added), np.int8) if added.kind is None else added.kind]
    )
    ends = edge_ends(**whole, kind=kind, num_nodes=added.num_nodes)
    whole |= {"kind": kind, "t": np.zeros(len(kind), np.int64)}
    facts: dict[str, Any] = {"num_nodes": added.num_nodes, "node_ids": added.node_ids, "name": added.name}
    facts["relation_names"] = added.relation_names
    check_deletes(EventStream(**whole, **facts, from_start=False), before=front)
    known = np.concatenate([ids, added.event_ids])
    over = np.flatnonzero((kind == ADD) & (ends < NEVER))
    return added, np.stack([known[over], known[ends[over]]])


def _active_edges(
    state: StreamState, num_nodes: int, src: np.ndarray, dst: np.ndarray, nodes: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return ids (k,), sources and destinations of the active edges of pairs and of nodes, in order of id.

    Costs the histories of the nodes, and of the less busy end of each pair.
    """
    if not len(state):
        return (np.empty(0, np.int64),) * 3
    store = state.log.store(deletions=False)
    store.reserve_nodes(num_nodes)
    quiet = np.where(store.degrees_of(src) <= store.degrees_of(dst), src, dst)
    view = NeighborView(store, num_nodes, len(state), 0)
    ids = np.unique(view.all_of(np.unique(np.concatenate([quiet, nodes]))).event_ids)
    ids = ids[state.edge_ends[ids] >= len(state)] if state.log.ends is not None else ids
    u, v = state.src[ids], state.dst[ids]
    selected = np.isin(u * num_nodes + v, src * num_nodes + dst) | np.isin(u, nodes) | np.isin(v, nodes)
    return ids[selected], u[selected], v[selected]


def _in_clock(state: StreamState, new: EventStream) -> EventStream:
    """Return new events with times of the state's type; fractions after whole numbers stay, if floats hold both."""
    kind = state.time_dtype if len(state) else new.t.dtype
    if kind == new.t.dtype or not len(new):
        return new
    fractional = kind.kind == "i" and bool((new.t != np.floor(new.t)).any())
    times = np.concatenate([new.t, state.t[[0, -1]]]) if fractional else new.t
    exact = np.abs(times) <= EXACT
    if not exact.all():
        raise DataError(
            f"{new.name}: {times[np.argmin(exact)]} is not a time of this run: with fractions, times are "
            "exact up to 2^53. Give times in the form of earlier events"
        )
    return new if fractional else new.with_(t=new.t.astype(kind))


def in_unit(new: EventStream, unit: str) -> EventStream:
    """Return new events with times in a unit, where that loses nothing.

    Raises:
        DataError: a unit is unknown and the other not, or times are finer than the unit.
    """
    if new.time_unit == unit:
        return new
    units = [name or "a unit that nobody named" for name in (new.time_unit, unit)]
    if not {new.time_unit, unit} <= UNITS.keys():
        raise DataError(
            f"{new.name} counts time in {units[0]}, earlier events in {units[1]}; "
            "convert the times, or name their unit if it is the same (--read.time_unit)"
        )
    ours, theirs = UNITS[unit], UNITS[new.time_unit]
    if theirs >= ours:
        return new.with_(t=new.t * (theirs // ours), time_unit=unit)
    if (new.t % (ours // theirs)).any():
        raise DataError(f"{new.name} has times finer than a whole {unit}, in which earlier events count; round them")
    return new.with_(t=new.t // (ours // theirs), time_unit=unit)


def _rows(old: StreamState, new: EventStream) -> tuple[tuple[np.ndarray, np.ndarray], Vocabulary | None, int]:
    """Return new's (src, dst) in the rows of old, the vocabulary of both and the number of nodes."""
    ids = new.node_ids
    if not old.num_nodes and not len(old):  # nothing came before: the new events' own rows
        return (new.src, new.dst), ids, new.num_nodes
    if ids is not None and ids.is_of(old.node_ids):
        return (new.src, new.dst), ids, len(ids)
    names = (new.src, new.dst) if ids is None else (ids.names(new.src), ids.names(new.dst))
    text = names[0].dtype.kind != "i"
    if old.node_ids is None:
        if text:
            raise DataError(
                f"{new.name} names nodes by text ({str(names[0][0])!r}), earlier events by number; use numbers"
            )
        count = max(old.num_nodes, int(np.concatenate(names).max(initial=-1)) + 1)
        if count > old.num_nodes:  # rows are made for every number below the largest
            check_num_nodes(count, len(old) + len(new), new.name, 2 * old.num_nodes)
        return names, None, count
    if old.node_ids.is_text and not text:
        names = names[0].astype(str), names[1].astype(str)
    elif not old.node_ids.is_text and text:
        raise DataError(f"{new.name} names nodes by text ({str(names[0][0])!r}), earlier events by number; use numbers")
    both, rows = old.node_ids.grown(np.stack(names, 1).reshape(-1))
    return (rows[::2], rows[1::2]), both, len(both)


def _types_with(old: StreamState, new: EventStream, num_nodes: int, ids: Vocabulary | None) -> dict[str, Any]:
    """Return the types of the nodes of old and new events, as fields of `EventStream`."""
    if old.node_type is None:
        return {}
    types = _widened(old.node_type, num_nodes)
    if new.node_type is not None:
        rows = _rows_of_nodes(new, ids)
        late = (rows >= len(old.node_type)) & (new.node_type >= 0)  # a node keeps the type that it came with
        types[rows[late]] = new.node_type[late]
    return {"node_type": types, "node_type_names": old.node_type_names}


def _rows_of_nodes(new: EventStream, ids: Vocabulary | None) -> np.ndarray:
    """Return (N,) the rows that new's nodes have in a vocabulary, -1 for nodes without an event."""
    nodes = np.arange(new.num_nodes)
    if ids is None or new.node_ids is ids:
        return nodes
    names = nodes if new.node_ids is None else new.node_ids.names(nodes)
    return ids.rows(names.astype(str) if ids.is_text else names)


def _widened(types: np.ndarray, num_nodes: int) -> np.ndarray:
    """Return a copy of types (M,) with -1 for the nodes from M on."""
    return np.concatenate([types, np.full(num_nodes - len(types), -1, np.int16)])


class NodeFeatures:
    """Features or types of any of a state's nodes, indexed by (q,) nodes.

    Args:
        x: (M, ...) of the first M nodes.
        missing: what the others have.
    """

    def __init__(self, x: np.ndarray, missing: int = 0) -> None:
        self.x, self.missing = x, missing

    def __getitem__(self, nodes: Any) -> Any:
        """Return (q, ...) rows, as a tensor if nodes are one."""
        if not isinstance(nodes, np.ndarray):
            import torch

            return torch.from_numpy(self[nodes.numpy()])
        known = nodes < len(self.x)
        rows = np.full((len(nodes), *self.x.shape[1:]), self.missing, self.x.dtype)
        rows[known] = self.x[nodes[known]]
        return rows
