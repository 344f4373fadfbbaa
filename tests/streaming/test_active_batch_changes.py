"""The effect of a batch of additions and deletions on CTDG-SSM's graph, compared with a loop over events."""

from collections import Counter

import numpy as np
import pytest
import torch

from hopstate.data.events import ADD, EventStream
from hopstate.data.neighbor_store import NeighborStore
from hopstate.methods.ctdg_ssm.model import CTDGSSM
from hopstate.streaming.active_batch import ActiveBatch
from hopstate.streaming.memory_scorer import ActiveEvents
from made_events import additions_and_deletions

Edges = list[tuple[int, int]]


def events(count: int = 160, seed: int = 0) -> EventStream:
    return additions_and_deletions(count, seed, people=5, goods=4, last=100)


def inputs_of(stream: EventStream, neighbors: int = 3, order: int = 1) -> ActiveEvents:
    model = CTDGSSM(CTDGSSM.Config(static="random", order=order, dim=4, time_dim=4))
    return ActiveEvents(model, stream, NeighborStore.from_stream(stream), num_neighbors=neighbors)


def edges_of(batch: ActiveBatch) -> tuple[Counter, Counter]:
    pairs = (batch.nodes[found].sort(0).values.T.tolist() for found in (batch.after, batch.before))
    after, before = (Counter(map(tuple, found)) for found in pairs)
    return after, before


def naive(stream: EventStream, first: int, stop: int, k: int) -> tuple[Counter, Counter]:
    """Return edges after and before events first..stop-1: k active ones of each endpoint, new ones, ended ones."""
    begun: dict[tuple[int, int], list[int]] = {}
    ended: dict[int, int] = {}
    for e in range(stop):
        pair = (int(stream.src[e]), int(stream.dst[e]))
        if stream.kind[e] == ADD:
            begun.setdefault(pair, []).append(e)
        else:
            ended[begun[pair].pop(0)] = e
    start = stream.t[first]
    active = [e for e in range(stop) if stream.kind[e] == ADD and e not in ended]
    around = {int(n) for e in range(first, stop) for n in (stream.src[e], stream.dst[e])}
    context = set()
    for node in around:
        mine = [e for e in active if stream.t[e] < start and node in (stream.src[e], stream.dst[e])]
        context.update(mine[-k:])

    def pairs(which: object) -> Counter:
        return Counter(tuple(sorted((int(stream.src[e]), int(stream.dst[e])))) for e in which)

    new = [e for e in range(first, stop) if e in active]
    gone = [e for e, end in ended.items() if e < first <= end]
    return pairs(context) + pairs(new), pairs(context) + pairs(gone)


@pytest.mark.parametrize("size", [1, 4, 15, 60])
@pytest.mark.parametrize("neighbors", [1, 3, 50])
def test_both_graphs_of_a_batch_equal_their_definition(size: int, neighbors: int) -> None:
    stream = events()
    inputs = inputs_of(stream, neighbors)
    short = 0
    for first in range(0, len(stream), size):
        rows = np.arange(first, min(first + size, len(stream)))
        batch = inputs.batch(stream.take(rows))
        expected = naive(stream, first, int(rows[-1]) + 1, neighbors)
        assert edges_of(batch) == expected
        assert len(batch) == len(stream.additions(rows))  # additions deleted in the batch included
        short += len(batch) - (sum(expected[0].values()) - sum((expected[0] & expected[1]).values()))
    assert size == 1 or short > 0


def test_an_edge_added_and_deleted_in_one_batch_is_in_neither_graph() -> None:
    stream = EventStream(
        src=np.array([0, 0, 2, 0]), dst=np.array([1, 1, 3, 1]), t=np.arange(4), kind=np.array([0, 1, 0, 0], np.int8)
    )
    inputs = inputs_of(stream)
    assert edges_of(inputs.batch(stream.take(np.arange(3)))) == (Counter({(2, 3): 1}), Counter())
    assert edges_of(inputs.batch(stream.take(np.array([3])))) == (Counter({(0, 1): 1}), Counter())


def test_deletions_and_deleted_edges_do_not_count_as_neighbors() -> None:
    """Node 0 has edges with 1 and 2, then 3 is added and deleted five times; the neighbors are still 1 and 2."""
    src, dst = np.zeros(13, int), np.array([1, 2, *[3] * 10, 4])
    kind = np.array([0, 0, *[0, 1] * 5, 0], np.int8)
    stream = EventStream(src=src, dst=dst, t=np.arange(13), kind=kind, num_nodes=5)
    after, before = edges_of(inputs_of(stream, 2).batch(stream.take(np.array([12]))))
    assert before == Counter({(0, 1): 1, (0, 2): 1})
    assert after == before + Counter({(0, 4): 1})


def test_paths_do_not_run_over_deleted_edges() -> None:
    """0-1 is deleted, so 1-2 is out of reach from 0 within two hops; a second edge 0-1 would lead there."""
    columns = {"src": [0, 1, 0, 0, 0], "dst": [1, 2, 1, 3, 4], "kind": [0, 0, 1, 0, 0]}
    stream = EventStream(
        **{k: np.array(v, np.int8 if k == "kind" else np.int64) for k, v in columns.items()}, t=np.arange(5)
    )
    _, before = edges_of(inputs_of(stream, 5, order=2).batch(stream.take(np.array([4]))))
    assert before == Counter({(0, 3): 1})
    back = stream.with_(kind=None)
    _, before = edges_of(inputs_of(back, 5, order=2).batch(back.take(np.array([4]))))
    assert before == Counter({(0, 1): 2, (0, 3): 1, (1, 2): 1})


def test_later_deletions_end_no_edge_now() -> None:
    """The memory after a batch does not depend on later deletions."""
    stream = events()
    cut = stream.slice(0, 100)
    early = EventStream(**{k: getattr(cut, k).copy() for k in ("src", "dst", "t", "kind")}, num_nodes=9)
    states = []
    for data in (stream, early):
        torch.manual_seed(0)
        inputs = inputs_of(data)
        state = inputs.model.initial_state(9)
        with torch.no_grad():
            for first in range(0, 100, 10):
                state = inputs.model.update(state, inputs.batch(data.take(np.arange(first, first + 10))))
        assert torch.isfinite(state.memory).all()
        states.append(state.memory)
    assert torch.equal(*states)
