"""What is asked of the histories of nodes, whoever keeps them: one store, the layers of a past, or one made noisy."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from hopstate.ops.neighbors import PackedNeighbors

if TYPE_CHECKING:
    from hopstate.data.neighbor_store import NeighborStore


class Rows(Protocol):
    """Rows of features, or kinds, by the numbers (q,) of nodes or events: an array, or what a past keeps of them."""

    def __getitem__(self, numbers: np.ndarray, /) -> np.ndarray:
        """Return the rows (q, ...) of numbers (q,)."""


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

    def histories(self, nodes: np.ndarray) -> NeighborStore:
        """Return one store that holds the whole histories of nodes (q,), and maybe others."""
