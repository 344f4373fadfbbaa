"""Noise in neighbor queries and streams: its amount, its places, never at or after the query time."""

import sys
from pathlib import Path

import numpy as np
import pytest

from hopstate.data.events import EventStream
from hopstate.data.neighbor_store import NeighborStore

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "benchmarks"))

from robustness import NoisyLookups, noisy_edges


def _stream(kind: type, count: int = 400) -> EventStream:
    rng = np.random.default_rng(0)
    src, dst = rng.integers(0, 12, (2, count))
    return EventStream(src=src, dst=dst, t=np.sort(rng.integers(0, 90, count)).astype(kind), num_nodes=12)


@pytest.mark.parametrize("kind", [np.int64, np.float64])
@pytest.mark.parametrize("sigma", [0.0, 0.1, 0.6, 1.0])
def test_noise_replaces_a_share_of_every_sequence_before_the_query(kind, sigma):
    stream = _stream(kind)
    store = NeighborStore.from_stream(stream)
    nodes, times = np.tile(np.arange(12), 8), np.repeat(np.linspace(-1, 91, 8), 12)
    true, noisy = store.last(nodes, times, 20), NoisyLookups(store, sigma, seed=3).last(nodes, times, 20)
    assert np.array_equal(true.offsets, noisy.offsets)
    for q in range(len(true)):
        made_up = noisy.of(q)[1] < 0
        assert made_up.sum() == round(sigma * true.lengths[q])
        when = noisy.of(q)[2]
        assert (np.diff(when) >= 0).all()
        assert (when < times[q]).all()
        kept = set(zip(*(column[~made_up].tolist() for column in noisy.of(q))))
        assert kept <= set(zip(*(column.tolist() for column in true.of(q))))
    again = NoisyLookups(store, sigma, seed=3).last(nodes, times, 20)
    assert np.array_equal(again.nodes, noisy.nodes)
    assert NoisyLookups(store, sigma).last(nodes[:0], times[:0], 5).offsets.tolist() == [0]


@pytest.mark.parametrize("kind", [np.int64, np.float64])
def test_random_edges_join_the_stream_in_time_order(kind):
    stream = _stream(kind)
    src, dst, t, ids = noisy_edges(stream, 0.25, seed=1)
    assert len(src) == len(dst) == len(t) == 500
    assert (np.diff(t) >= 0).all()
    assert t.dtype == stream.t.dtype
    true = ids >= 0
    assert true.sum() == 400
    assert np.array_equal(src[true], stream.src)
    NeighborStore.from_events(src, dst, t, ids, stream.num_nodes)
    assert len(noisy_edges(stream, 0.0)[0]) == 400
