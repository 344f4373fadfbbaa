"""Noise for robustness runs: look-ups with made-up events among the true ones, and streams with made-up edges.

Source: DyG-Mamba, arXiv:2408.06966, section 5.5 and appendix D.3: sigma L positions of a sampled sequence get a random
node and a random time. Positions are replaced, so that a sequence keeps its length, and put back in order of time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from hopstate.errors import ConfigError
from hopstate.ops.neighbors import PackedNeighbors
from hopstate.random import named_rng

if TYPE_CHECKING:
    from hopstate.data.events import EventStream
    from hopstate.data.lookup import EventLookup


class NoisyLookups:
    """A store whose look-ups come back with round(sigma L) of their L events replaced by made-up ones.

    A made-up event has a node drawn from all nodes, a time between the sequence's first event and the query, and the
    event id -1 (no features). Nothing at or after the query appears.

    Args:
        store: the true histories.
        sigma: share of events replaced, in [0, 1].
        seed: the n-th look-up of two equal runs is made noisy alike.

    Raises:
        ConfigError: sigma outside [0, 1].
    """

    def __init__(self, store: EventLookup, sigma: float, seed: int = 0) -> None:
        _check(sigma)
        self.store, self.sigma, self._rng = store, sigma, named_rng(seed, 1)
        self.num_nodes, self.time_dtype = store.num_nodes, store.time_dtype

    def last(self, nodes: np.ndarray, times: np.ndarray, k: int) -> PackedNeighbors:
        """Return `NeighborStore.last`, made noisy."""
        found = self.store.last(nodes, times, k)
        row, lengths = found.rows(), found.lengths
        if not len(row):
            return found
        order = np.lexsort((self._rng.random(len(row)), row))  # each sequence's positions, shuffled
        rank = np.empty(len(row), np.int64)
        rank[order] = np.arange(len(row)) - found.offsets[row]
        noisy = rank < np.round(self.sigma * lengths)[row]
        first = np.repeat(found.times[found.offsets[:-1][lengths > 0]], lengths[lengths > 0])
        return self._replace(found, noisy, first, np.asarray(times)[row])

    def _replace(
        self, found: PackedNeighbors, noisy: np.ndarray, first: np.ndarray, query: np.ndarray
    ) -> PackedNeighbors:
        count, when = int(noisy.sum()), found.times.copy()
        share = self._rng.random(count)
        if when.dtype.kind == "f":
            when[noisy] = first[noisy] + share * (query[noisy] - first[noisy])
            when = np.minimum(when, np.nextafter(query, -np.inf))
        else:
            until = query[noisy] if query.dtype.kind == "i" else np.ceil(query[noisy])  # float64 blurs nanoseconds
            when[noisy] = first[noisy] + np.floor(share * (until - first[noisy])).astype(np.int64)
        nodes, ids = found.nodes.copy(), found.event_ids.copy()
        nodes[noisy], ids[noisy] = self._rng.integers(0, self.num_nodes, count), -1
        order = np.lexsort((when, found.rows()))
        return PackedNeighbors(found.offsets, nodes[order], ids[order], when[order])


def noisy_edges(stream: EventStream, sigma: float, seed: int = 0, *, deletions: bool = False) -> tuple[np.ndarray, ...]:
    """Return columns src, dst, t, event_ids of a stream's events and round(sigma E) random ones among them.

    A random event has a source among the sources, a destination among the destinations, a time uniform over the
    stream's, and the event id -1 (no features). Deletions are left out unless asked for.

    Raises:
        ConfigError: sigma outside [0, 1].
    """
    _check(sigma)
    rows = np.arange(len(stream)) if deletions else stream.additions()
    rng, count = named_rng(seed, 2), round(sigma * len(rows))
    src, dst = (rng.choice(np.unique(column), count) for column in (stream.src, stream.dst))
    t = rng.uniform(stream.t[0], stream.t[-1], count).astype(stream.t.dtype) if count else stream.t[:0]
    order = np.argsort(np.concatenate([stream.t[rows], t]), kind="stable")
    ids = np.concatenate([rows + stream.first_id, np.full(count, -1)])
    return (
        np.concatenate([stream.src[rows], src])[order],
        np.concatenate([stream.dst[rows], dst])[order],
        np.concatenate([stream.t[rows], t])[order],
        ids[order],
    )


def _check(sigma: float) -> None:
    if not 0 <= sigma <= 1:
        raise ConfigError(f"a noise level is a share of events in [0, 1]; got {sigma}")
