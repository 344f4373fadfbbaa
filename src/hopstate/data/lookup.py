"""What is asked of the histories of nodes, whoever keeps them: one store, the layers of a past, or one made noisy."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np

from hopstate.data.event_times import EventTimes
from hopstate.ops.neighbors import PackedNeighbors


class Rows(Protocol):
    """Rows of features, or kinds, by the numbers (q,) of nodes or events: an array, or what a past keeps of them."""

    def __getitem__(self, numbers: np.ndarray, /) -> np.ndarray:
        """Return the rows (q, ...) of numbers (q,)."""


class Part(NamedTuple):
    """Histories of consecutive events, as compiled loops read them.

    Args:
        nodes: (n,) int64 rising, those that it numbers 0..n-1; empty where its numbers are all nodes'.
        arrays: of a `NeighborStore` under its numbers, with the ids that events have among all.
        path: the file that it lies in, or None.
    """

    nodes: np.ndarray
    arrays: dict[str, np.ndarray]
    path: Path | None = None


class EventLookup(Protocol):
    """The latest events of nodes before a time; num_nodes rows are known, times are of time_dtype."""

    @property
    def num_nodes(self) -> int:
        """N, over all nodes that may be asked for."""

    @property
    def time_dtype(self) -> np.dtype[Any]:
        """Type of the times that are returned, int64 or float64."""

    def last(self, nodes: np.ndarray, times: np.ndarray, k: int) -> PackedNeighbors:
        """Return the last k events of each node strictly before its time; see `NeighborStore.last`."""


class Histories(EventLookup, Protocol):
    """All that models and scorers ask of what was seen."""

    def last_hops(self, nodes: np.ndarray, times: np.ndarray, k: int, num_hops: int) -> list[PackedNeighbors]:
        """Return the last events of nodes, of their neighbours, and so on; see `NeighborStore.last_hops`."""

    def last_meeting(
        self, src: np.ndarray, dst: np.ndarray, times: np.ndarray, directed: bool = False
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return when each pair last met, and whether; see `NeighborStore.last_meeting`."""

    def count_meetings(self, src: np.ndarray, dst: np.ndarray, times: np.ndarray, directed: bool = False) -> np.ndarray:
        """Return how often each pair met; see `NeighborStore.count_meetings`."""

    def parts(self, nodes: np.ndarray) -> Sequence[Part]:
        """Return consecutive parts, oldest first, with all that nodes (q,) did, and maybe others."""

    def event_times(self) -> EventTimes:
        """Return the times of all events that are looked up."""

    def checked(self, src: np.ndarray, dst: np.ndarray, times: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return pairs and times as compiled loops take them; errors: as `NeighborStore.last_meeting`."""
