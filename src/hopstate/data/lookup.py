"""What models and scorers look up in the histories of nodes, whatever holds these."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np

from hopstate.data.neighbor_store import EventTimes
from hopstate.ops.neighbors import PackedNeighbors


class Rows(Protocol):
    """Rows of features, or kinds, by the numbers (q,) of nodes or events: an array, or what a state keeps of them."""

    def __getitem__(self, numbers: np.ndarray, /) -> np.ndarray:
        """Return the rows (q, ...) of numbers (q,)."""


class EventLookup(Protocol):
    """The latest events of nodes before a time; num_nodes rows are known, times are of time_dtype."""

    @property
    def num_nodes(self) -> int:
        """N, over all nodes that may be queried."""

    @property
    def time_dtype(self) -> np.dtype[Any]:
        """Type of the times that are returned, int64 or float64."""

    def last(self, nodes: np.ndarray, times: np.ndarray, k: int) -> PackedNeighbors:
        """Return the last k events of each node strictly before its time; see `NeighborStore.last`."""


class Histories(EventLookup, Protocol):
    """All look-ups of models and scorers."""

    def last_hops(self, nodes: np.ndarray, times: np.ndarray, k: int, num_hops: int) -> list[PackedNeighbors]:
        """Return the last events of nodes, of their neighbors, and so on; see `NeighborStore.last_hops`."""

    def last_active(
        self, nodes: np.ndarray, times: np.ndarray, k: int, ends: np.ndarray, until: int, first_id: int = 0
    ) -> PackedNeighbors:
        """Return the last edges of nodes that no event up to `until` ends; see `NeighborStore.last_active`."""

    def last_meeting(
        self, src: np.ndarray, dst: np.ndarray, times: np.ndarray, directed: bool = False
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return when each pair last met, and whether; see `NeighborStore.last_meeting`."""

    def count_meetings(self, src: np.ndarray, dst: np.ndarray, times: np.ndarray, directed: bool = False) -> np.ndarray:
        """Return how often each pair met; see `NeighborStore.count_meetings`."""

    def arrays_of(self, nodes: np.ndarray) -> dict[str, np.ndarray]:
        """Return start, length, codes, events and times, as compiled loops read them, with the histories of nodes."""

    def event_times(self) -> EventTimes:
        """Return the times of all events that are looked up."""

    def checked(self, src: np.ndarray, dst: np.ndarray, times: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return pairs and times as compiled loops take them; errors: as `NeighborStore.last_meeting`."""
