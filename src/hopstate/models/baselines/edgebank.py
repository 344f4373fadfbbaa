"""EdgeBank: a pair is predicted where it stands in a memory of observed events.

Source: Poursafaei et al. 2022, arXiv:2207.10128; variants as in DyGLib (Yu et al. 2023, arXiv:2303.13047).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from hopstate.data.events import EventBatch
from hopstate.data.neighbor_store import NeighborStore
from hopstate.errors import ConfigError


class EdgeBank:
    """Score 1 for a directed pair in the memory, else 0.

    Args:
        num_nodes: N.
        config: which events are remembered.
    """

    @dataclass(frozen=True, kw_only=True)
    class Config:
        """Settings of `EdgeBank`.

        Args:
            memory: "unlimited"; "window", the pairs of the latest events; "threshold", the pairs that met at least
                as often as the mean pair.
            window: "proportion": the window begins at a quantile of the observed times; "repeat": it is as long as
                the mean time between meetings of a pair, averaged over all pairs (0 for one that met once).
            proportion: share of the observed events that the window "proportion" holds.
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

    def __init__(self, num_nodes: int, config: Config | None = None) -> None:
        self.config = config or self.Config()
        self._num_nodes = num_nodes
        self.reset()

    def reset(self) -> None:
        """Forget every event."""
        self._store: NeighborStore | None = None
        self._times = np.empty(0)
        self._meetings: dict[int, tuple[float, float, int]] = {}  # pair: first time, last time, count
        self._sum_of_means = 0.0

    def score(self, src: np.ndarray, dst: np.ndarray, t: np.ndarray) -> np.ndarray:
        """Return (Q,) 1 or 0 for pairs src (Q,), dst (Q,); the times t (Q,) do not matter, only what was observed."""
        store, ever = self._store, np.full(len(src), np.inf)
        if store is None:
            return np.zeros(len(src))
        if self.config.memory == "threshold":
            count = store.count_meetings(src, dst, ever, directed=True)
            return (count >= store.num_events / len(self._meetings)).astype(np.float64)
        last, met = store.last_meeting(src, dst, ever, directed=True)
        if self.config.memory == "window":
            met &= last >= self._window_start(store)
        return met.astype(np.float64)

    def observe(self, batch: EventBatch) -> None:
        """Put events into the memory."""
        if self._store is None:
            self._store = NeighborStore(self._num_nodes, time_dtype=batch.t.dtype)
        c = self.config
        if c.memory == "threshold" or (c.memory, c.window) == ("window", "repeat"):
            self._count(batch)
        elif c.memory == "window":
            self._keep_times(batch.t)
        self._store.append(batch.src, batch.dst, batch.t)

    def _keep_times(self, t: np.ndarray) -> None:
        count = self._store.num_events if self._store is not None else 0
        if count + len(t) > len(self._times):
            grown = np.empty(2 * (count + len(t)), t.dtype)
            grown[:count] = self._times[:count]
            self._times = grown
        self._times[count : count + len(t)] = t

    def _count(self, batch: EventBatch) -> None:
        """Keep each pair's first and last time and count, and the sum of (last - first) / (count - 1)."""
        pairs = (batch.src * self._num_nodes + batch.dst).tolist()
        for pair, t in zip(pairs, batch.t.tolist(), strict=True):
            first, last, count = self._meetings.get(pair, (t, t, 0))
            before = (last - first) / (count - 1) if count > 1 else 0.0
            after = (t - first) / count if count else 0.0
            self._sum_of_means += after - before
            self._meetings[pair] = (first, t, count + 1)

    def _window_start(self, store: NeighborStore) -> float:
        """Return the time from which pairs are remembered."""
        if self.config.window == "repeat":
            assert store.last_time is not None
            return store.last_time - self._sum_of_means / len(self._meetings)
        place = (store.num_events - 1) * (1 - self.config.proportion)  # as numpy.quantile; the times are sorted
        low = int(place)
        high = min(low + 1, store.num_events - 1)
        return float(self._times[low] + (place - low) * (self._times[high] - self._times[low]))
