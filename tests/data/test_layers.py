"""Layers of a past answer as one store of all events does, wherever they are cut and however they are joined."""

from typing import Any

import numpy as np
import pytest

from hopstate.data.events import EventStream
from hopstate.data.layered_store import LayeredStore
from hopstate.data.layers import LARGEST, Layer, Memories, compacted, merged
from hopstate.data.neighbor_store import NeighborStore
from hopstate.errors import DataError


def events(count: int, nodes: int, seed: int, kind: type = np.int64) -> EventStream:
    rng = np.random.default_rng(seed)
    return EventStream(
        src=rng.integers(0, nodes, count),
        dst=rng.integers(0, nodes, count),
        t=np.sort(rng.integers(0, count // 2, count)).astype(kind),  # with ties
        edge_attr=rng.normal(size=(count, 2)).astype(np.float32),
        num_nodes=nodes,
    )


def cut(stream: EventStream, places: list[int]) -> list[Layer]:
    return [Layer.of(stream.slice(a, b).with_(x=None)) for a, b in zip([0, *places], [*places, len(stream)])]


@pytest.mark.parametrize("kind", [np.int64, np.float64])
@pytest.mark.parametrize("k", [0, 1, 3, 2**62])
def test_look_ups_are_those_of_one_store(kind: type, k: int) -> None:
    stream = events(300, 25, 0, kind)
    whole, rng = NeighborStore.from_stream(stream), np.random.default_rng(1)
    for places in ([], [1], [40, 41, 150, 299]):
        store = LayeredStore(cut(stream, places), stream.num_nodes)
        u, v, t = rng.integers(0, 25, 200), rng.integers(0, 25, 200), rng.integers(-1, 160, 200).astype(kind)
        for mine, theirs in zip(store.last_hops(u, t, min(k, 40), 2), whole.last_hops(u, t, min(k, 40), 2)):
            assert same(mine, theirs)
        assert same(store.last(u, t, k), whole.last(u, t, k))
        for directed in (False, True):
            mine, theirs = store.last_meeting(u, v, t, directed), whole.last_meeting(u, v, t, directed)
            assert mine[0].dtype == theirs[0].dtype
            assert all(np.array_equal(a, b) for a, b in zip(mine, theirs))
            assert np.array_equal(store.count_meetings(u, v, t, directed), whole.count_meetings(u, v, t, directed))
    with pytest.raises(DataError, match="25"):
        store.last(np.array([25]), np.array([1]), 1)


def same(a: Any, b: Any) -> bool:
    return all(np.array_equal(getattr(a, key), getattr(b, key)) for key in ("offsets", "nodes", "event_ids", "times"))


def test_of_nothing_nothing_is_found() -> None:
    store = LayeredStore([], 3)
    assert store.last(np.array([0, 2]), np.array([5.0, 6.0]), 4).offsets.tolist() == [0, 0, 0]
    assert not store.last_meeting(np.array([0]), np.array([1]), np.array([5.0]))[1].any()


def test_joined_layers_are_those_of_their_events() -> None:
    stream = events(120, 9, 2)
    layers = cut(stream, [10, 50, 51])
    one = merged(layers, needed=40)
    again = Layer.of(stream)
    assert all(np.array_equal(one.index[key], again.index[key]) for key in one.index)
    assert one.edge_attr is not None
    assert np.array_equal(one.edge_attr, stream.edge_attr[40:])
    assert np.array_equal(one.features(np.array([40, 119])), stream.edge_attr[[40, 119]])
    with pytest.raises(DataError):
        one.features(np.array([39]))
    assert len(merged(layers, needed=500).edge_attr) == 0


def test_the_newest_memory_counts() -> None:
    def of(nodes: list[int], value: float) -> Memories:
        n = len(nodes)
        full = [np.full(shape, value) for shape in ((n, 2, 3), (n, 3), (n,))]
        return Memories(nodes=np.array(nodes), memory=full[0], output=full[1], last_time=full[2])

    both = Memories.newest([of([1, 4, 7], 1.0), of([0, 4], 2.0)])
    assert both.nodes.tolist() == [0, 1, 4, 7]
    assert both.last_time.tolist() == [2, 1, 2, 1]
    assert both.find(np.array([3, 4, 9]))[0].tolist() == [False, True, False]


def test_events_are_written_again_few_times_and_full_layers_never(monkeypatch: pytest.MonkeyPatch) -> None:
    """A call adds a layer of one event; what joining writes grows as n log n, and the layers as log n."""
    stream = events(512, 9, 3)
    layers: tuple[Layer, ...] = ()
    written = 0
    for i in range(512):
        before = set(map(id, layers))
        layers = compacted((*layers, Layer.of(stream.slice(i, i + 1))), 0)
        written += sum(len(layer) for layer in layers if id(layer) not in before)
    assert len(layers) <= 10
    assert written <= 512 * 10
    assert layers[0].first == 0
    assert sum(map(len, layers)) == 512
    monkeypatch.setattr("hopstate.data.layers.LARGEST", 100)
    kept = compacted(cut(stream, [100, 200, 260]), 0)
    assert [len(layer) for layer in kept] == [100, 100, 60, 252]
    assert LARGEST == 1 << 18
