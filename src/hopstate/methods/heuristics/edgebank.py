"""EdgeBank: predict pairs that are in a memory of observed events.

Source: Poursafaei et al. 2022, arXiv:2207.10128; variants as in DyGLib (Yu et al. 2023, arXiv:2303.13047).
"""

from __future__ import annotations

from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from hopstate.data.events import ADD, EventBatch, EventStream
from hopstate.data.neighbor_store import Column, EventRelations, NeighborStore, folder_of
from hopstate.data.stream_state import StreamState
from hopstate.errors import ConfigError


class ObservedPrefix:
    """The first num_events events of a stream without deletions, without a copy.

    Args:
        stream: a stream whose event ids start at 0.
        index: neighbor index of the full stream.
    """

    def __init__(self, stream: EventStream, index: NeighborStore) -> None:
        self._stream, self._index = stream, index
        self.num_events = 0

    def __deepcopy__(self, memo: dict[int, Any]) -> ObservedPrefix:
        """Return an independent copy that shares the events."""
        copy = ObservedPrefix(self._stream, self._index)
        copy.num_events = self.num_events
        return copy

    def extend(self, batch: EventBatch) -> bool:
        """Advance over a batch. Return False if it is not the next part of the stream."""
        ids, first = batch.event_ids, self.num_events
        if not len(ids) or ids[0] != first or ids[-1] != first + len(ids) - 1 or (np.diff(ids) != 1).any():
            return not len(ids)
        self.num_events = first + len(ids)
        return True

    def to_store(self) -> tuple[NeighborStore, np.ndarray]:
        """Return a store with a copy of the events, and their times."""
        store, count = NeighborStore(self._index.num_nodes, time_dtype=np.int64), self.num_events
        src, dst, t = (np.array(column[:count]) for column in (self._stream.src, self._stream.dst, self._stream.t))
        store.append(src, dst, np.arange(count))
        return store, t

    def contains(self, src: np.ndarray, dst: np.ndarray) -> np.ndarray:
        """Return (Q,) whether each source has an observed event with its target."""
        from hopstate.ops.neighbors.kernels import last_meeting_kernel

        arrays, count = self._index.arrays(), len(src)
        src, dst, _ = self._index.checked(src, dst, np.zeros(count, self._index.time_dtype))
        last, found = np.empty(count, np.int64), np.empty(count, bool)
        entries = (arrays["start"], arrays["length"], arrays["codes"], arrays["events"])
        last_meeting_kernel(src, dst, np.full(count, self.num_events), True, *entries, last, found)
        return found


class EdgeBank:
    """Score 1 for a directed pair in the memory, else 0. A deletion removes the pair.

    If events have relations, the score of a pair in the memory without an event of the query's relation is 1/2.

    Args:
        num_nodes: N.
        config: which events are remembered.
        stream: memory-mapped stream that is observed from its start, to avoid a copy.
        index: its neighbor index, if one exists.
    """

    @dataclass(frozen=True, kw_only=True)
    class Config:
        """Settings of `EdgeBank`.

        Args:
            memory: "unlimited"; "window" for pairs of the latest events; "threshold" for pairs with at least the mean
                number of events per pair.
            window: start of the window: "proportion", a quantile of the observed times; "repeat", the mean time between
                events of a pair, averaged over pairs (0 for pairs with one event).
            proportion: share of the observed events in the window "proportion".
        """

        memory: Literal["unlimited", "window", "threshold"] = "unlimited"
        window: Literal["proportion", "repeat"] = "proportion"
        proportion: float = 0.15

        def __post_init__(self) -> None:
            if self.memory not in ("unlimited", "window", "threshold"):
                raise ConfigError(f"unknown memory {self.memory!r}; known: unlimited, window, threshold")
            if self.window not in ("proportion", "repeat"):
                raise ConfigError(f"unknown window {self.window!r}; known: proportion, repeat")
            if not 0 < self.proportion <= 1:
                raise ConfigError(f"proportion is {self.proportion}; it must be over 0 and at most 1")

    @dataclass
    class Memory:
        """Observed events.

        Args:
            store: additions, with their index as time.
            times: times of the additions, with spare capacity.
            deleted, deleted_at: deleted pairs, ascending, and the number of additions before each deletion.
            meetings: first time, last time and number of events of each pair.
            sum_of_means: sum over pairs of the mean time between events.
            remembered: number of additions of the pairs in meetings.
            relation: relations of the additions.
        """

        store: NeighborStore | ObservedPrefix
        times: np.ndarray = field(default_factory=lambda: np.empty(0))
        deleted: np.ndarray = field(default_factory=lambda: np.empty(0, np.int64))
        deleted_at: np.ndarray = field(default_factory=lambda: np.empty(0, np.int64))
        meetings: dict[int, tuple[float, float, int]] = field(default_factory=dict)
        sum_of_means: float = 0.0
        remembered: int = 0
        relation: Column = field(default_factory=lambda: Column(np.empty(0, np.int32)))

    def __init__(
        self,
        num_nodes: int,
        config: Config | None = None,
        stream: EventStream | None = None,
        index: NeighborStore | None = None,
    ) -> None:
        self.config = config or self.Config()
        self._num_nodes = num_nodes
        additions_only = (
            stream is not None
            and not (stream.has_deletes or stream.first_id or stream.relation is not None)
            and folder_of(stream) is not None
        )
        self._mapped = stream if additions_only and self.config.memory == "unlimited" else None
        self._index = index
        self.reset()

    def over(self, past: StreamState) -> EdgeBank:
        """Return an EdgeBank with the settled events of a stream state in its memory."""
        edgebank = EdgeBank(past.num_nodes, self.config)
        if past.settled:
            edgebank.observe(past.events(0, past.settled).take(np.arange(past.settled)))
        return edgebank

    def reset(self) -> None:
        """Forget every event."""
        if self._mapped is None:
            self.memory = self.Memory(NeighborStore(self._num_nodes, time_dtype=np.int64))
            return
        self._index = self._index or NeighborStore.from_stream(self._mapped)
        self.memory = self.Memory(ObservedPrefix(self._mapped, self._index))

    def state(self) -> EdgeBank.Memory:
        """Return a copy of the memory."""
        return deepcopy(self.memory)

    def restore(self, state: EdgeBank.Memory) -> None:
        """Restore the memory that `state` returned."""
        self.memory = deepcopy(state)

    def score(self, src: np.ndarray, dst: np.ndarray, t: np.ndarray, relation: np.ndarray | None = None) -> np.ndarray:
        """Return (Q,) scores of pairs src (Q,), dst (Q,). The times t (Q,) are ignored."""
        store, since = self.memory.store, self._forgotten(src, dst)
        if isinstance(store, ObservedPrefix):
            return store.contains(src, dst).astype(np.float64)
        if not store.num_events:
            return np.zeros(len(src))
        now = np.full(len(src), store.num_events)
        last, seen = store.last_meeting(src, dst, now, directed=True)
        scores = self._remembers(src, dst, since, last, seen).astype(np.float64)
        if relation is None or not len(self.memory.relation):
            return scores
        relations = EventRelations(self.memory.relation.rows)
        last, seen = store.last_meeting(src, dst, now, directed=True, relation=relation, relations=relations)
        return (scores + self._remembers(src, dst, since, last, seen)) / 2

    def _remembers(
        self, src: np.ndarray, dst: np.ndarray, since: np.ndarray, last: np.ndarray, remembered: np.ndarray
    ) -> np.ndarray:
        """Return (Q,) whether the last event of each seen pair is in the memory."""
        store = self.memory.store
        assert isinstance(store, NeighborStore)
        remembered = remembered & (last >= since)
        now = np.full(len(src), store.num_events)
        if self.config.memory == "threshold" and self.memory.meetings:
            count = store.count_meetings(src, dst, now, directed=True)
            count -= store.count_meetings(src, dst, since, directed=True)
            remembered &= count >= self.memory.remembered / len(self.memory.meetings)
        if self.config.memory == "window":
            remembered &= self.memory.times[last] >= self._window_start()
        return remembered

    def observe(self, batch: EventBatch) -> None:
        """Add events to the memory."""
        c = self.config
        if isinstance(self.memory.store, ObservedPrefix):
            if self.memory.store.extend(batch):
                return
            self.memory.store, self.memory.times = self.memory.store.to_store()
        if c.memory == "threshold" or (c.memory, c.window) == ("window", "repeat"):
            self._count(batch)
        count = self.memory.store.num_events
        added = batch.additions()
        if len(added) < len(batch):
            self._forget(batch, count)
        self._keep_times(added.t)
        if added.relation is not None:
            self.memory.relation.append(added.relation)
        self.memory.store.append(added.src, added.dst, np.arange(count, count + len(added)))

    def _forget(self, batch: EventBatch, count: int) -> None:
        """Record the last deletion of pairs."""
        deleted = batch.kind != ADD
        pairs = np.concatenate([self.memory.deleted, (batch.src * self._num_nodes + batch.dst)[deleted]])
        at = np.concatenate([self.memory.deleted_at, count + np.cumsum(~deleted)[deleted]])
        self.memory.deleted, last = np.unique(pairs[::-1], return_index=True)
        self.memory.deleted_at = at[::-1][last]

    def _forgotten(self, src: np.ndarray, dst: np.ndarray) -> np.ndarray:
        """Return (Q,) the number of additions before the last deletion of each pair, 0 without deletion."""
        if not len(self.memory.deleted):
            return np.zeros(len(src), np.int64)
        pairs = src * self._num_nodes + dst
        position = np.minimum(np.searchsorted(self.memory.deleted, pairs), len(self.memory.deleted) - 1)
        return np.where(self.memory.deleted[position] == pairs, self.memory.deleted_at[position], 0)

    def _keep_times(self, t: np.ndarray) -> None:
        count = self.memory.store.num_events
        if count + len(t) > len(self.memory.times):
            larger = np.empty(2 * (count + len(t)), t.dtype)
            larger[:count] = self.memory.times[:count]
            self.memory.times = larger
        self.memory.times[count : count + len(t)] = t

    def _count(self, batch: EventBatch) -> None:
        """Update each pair's first and last time and count, and the sum of (last - first) / (count - 1)."""
        pairs = (batch.src * self._num_nodes + batch.dst).tolist()
        deleted = np.zeros(len(batch), bool) if batch.kind is None else batch.kind != ADD
        for pair, t, removed in zip(pairs, batch.t.tolist(), deleted.tolist(), strict=True):
            first, last, count = self.memory.meetings.pop(pair, (t, t, 0))
            before = (last - first) / (count - 1) if count > 1 else 0.0
            if removed:
                self.memory.sum_of_means -= before
                self.memory.remembered -= count
                continue
            self.memory.remembered += 1
            after = (t - first) / count if count else 0.0
            self.memory.sum_of_means += after - before
            self.memory.meetings[pair] = (first, t, count + 1)

    def _window_start(self) -> float:
        count = self.memory.store.num_events
        if self.config.window == "repeat":
            return float(self.memory.times[count - 1] - self.memory.sum_of_means / max(len(self.memory.meetings), 1))
        place = (count - 1) * (1 - self.config.proportion)  # as numpy.quantile; the times are sorted
        low = int(place)
        high = min(low + 1, count - 1)
        return float(self.memory.times[low] + (place - low) * (self.memory.times[high] - self.memory.times[low]))
