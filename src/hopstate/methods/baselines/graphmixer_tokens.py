"""What GraphMixer needs of a batch: each end's most recent links, its features and the mean of its neighbours'.

Ends that several pairs of a batch share (a source and its negatives, at one time) stand once.

Source: Cong et al. 2023, arXiv:2302.11636.
"""

from __future__ import annotations

from copy import copy
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch
from torch import Tensor

from hopstate.errors import ShapeError, check_range
from hopstate.methods.shared.around import AroundTokenizer
from hopstate.ops.rows import segment_sum
from hopstate.tokens.history import Deletions, HistoryConfig, HistoryTokenizer, HistoryTokens

if TYPE_CHECKING:
    from hopstate.data.clock import Clock
    from hopstate.data.events import EventStream
    from hopstate.data.neighbor_store import EventLookup
    from hopstate.data.stream_state import StreamState


class RecentLinks(NamedTuple):
    """S distinct ends and the P pairs made of them.

    Args:
        tokens: the ends' most recent links, one sequence each.
        ends: (2, P) int64 which sequences are the pairs' sources and destinations.
        x: (S, F) float32 features of each end plus the mean over its neighbours', or None where all are zero.
        pair: see `HistoryTokens`.
    """

    tokens: HistoryTokens
    ends: Tensor
    x: Tensor | None
    pair: Tensor | None = None


class RecentLinkTokenizer(AroundTokenizer[HistoryTokenizer]):
    """Queries to their ends' most recent links.

    Args:
        store: histories to look up.
        stream: where features come from.
        num_links: links of a sequence.
        num_neighbors: most recent neighbours whose features are averaged.
        window: only neighbours met at most this long before the query are averaged; None for no limit.
        clock, deletions, dtype: what a gap of 1 is, what becomes of deletions, the type of gaps; see
            `HistoryTokenizer`.

    Raises:
        ConfigError: num_links or num_neighbors under 1, or a window that is not positive.
    """

    def __init__(
        self,
        store: EventLookup,
        stream: EventStream,
        *,
        num_links: int = 20,
        num_neighbors: int = 2000,
        window: float | None = None,
        clock: Clock | None = None,
        deletions: Deletions = "left-out",
        dtype: type[np.floating] = np.float32,
    ) -> None:
        check_range(least=1, num_links=num_links, num_neighbors=num_neighbors)
        recent = HistoryConfig(max_length=num_links, target="none")
        super().__init__(HistoryTokenizer(store, stream, recent, clock, deletions, dtype))
        self.inner.x = None  # a link has no node features
        average = HistoryConfig(max_length=num_neighbors, window=window, target="none")
        self._averaged = HistoryTokenizer(store, stream, average, clock, deletions, dtype)
        self._neighbors = self._averaged if stream.has_node_features else None

    def moved(self, store: EventLookup) -> None:
        """Find the neighbours there, too."""
        if self._neighbors is not None:
            self._neighbors.store = store

    def over(self, past: StreamState) -> RecentLinkTokenizer:
        """Return the same over all events of a past; its features stand for the stream's."""
        made = copy(self)
        made.inner, made._averaged = self.inner.over(past), self._averaged.over(past)
        made.inner.x = None
        made._neighbors = made._averaged if past.x is not None else None
        return made

    def pairs(self, u: np.ndarray, v: np.ndarray, t: np.ndarray) -> RecentLinks:
        """Return what is needed to score pairs u (P,), v (P,) at t (P,).

        Raises:
            ShapeError: u, v and t differ in length.
            DataError: a node that the store does not know, or a NaN time.
        """
        if not len(u) == len(v) == len(t):
            raise ShapeError(f"{len(u)} sources, {len(v)} destinations and {len(t)} times")
        nodes, times = np.concatenate([u, v]), np.concatenate([t, t])
        order = np.lexsort((nodes, times))
        new = np.ones(len(order), bool)
        new[1:] = (np.diff(nodes[order]) != 0) | (np.diff(times[order]) != 0)
        which = np.empty(len(order), np.int64)
        which[order] = np.cumsum(new) - 1
        ends, when = nodes[order[new]], times[order[new]]
        tokens = self.inner.nodes(ends, when)
        return RecentLinks(tokens, torch.from_numpy(which.reshape(2, -1)), self._features(ends, when))

    def _features(self, ends: np.ndarray, when: np.ndarray) -> Tensor | None:
        if self._neighbors is None:
            return None
        near = self._neighbors.nodes(ends, when)
        assert self._neighbors.x is not None
        assert near.x is not None
        mean = segment_sum(near.x, near.offsets)
        return torch.from_numpy(self._neighbors.x[ends]) + mean / near.lengths.clamp_min(1).unsqueeze(-1)
