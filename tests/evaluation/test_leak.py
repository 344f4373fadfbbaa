"""The leak check accepts models that read strictly earlier events, and detects planted leaks."""

import numpy as np
import pytest

from hopstate.data.events import EventStream
from hopstate.data.neighbor_store import NeighborStore
from hopstate.errors import DataError, LeakError
from hopstate.evaluation.leak import check_leak
from hopstate.methods.heuristics.edgebank import EdgeBank
from hopstate.methods.heuristics.method import Recency


def made_stream(span: int = 150, num_events: int = 600) -> EventStream:
    rng = np.random.default_rng(0)
    src, dst = rng.integers(0, 12, (2, num_events))
    return EventStream(
        src=src,
        dst=dst,
        t=np.sort(rng.integers(0, span, num_events)),
        labels=rng.integers(0, 2, num_events),
        edge_attr=rng.normal(size=(num_events, 2)).astype(np.float32),
    )


def recency(stream, **options) -> Recency:
    return Recency(NeighborStore.from_stream(stream), **options)


@pytest.mark.parametrize(("span", "batch_size"), [(150, 1), (5, 40), (10_000, 40)])
def test_recency_and_edgebank_do_not_leak(span, batch_size):
    stream = made_stream(span, num_events=200)
    report = check_leak(recency, stream, batch_size=batch_size, times=2)
    assert report.scores == 2 * 6 * 64
    for memory in ("unlimited", "window", "threshold"):
        check_leak(
            lambda s, m=memory: EdgeBank(s.num_nodes, EdgeBank.Config(memory=m)),
            stream,
            batch_size=batch_size,
            times=2,
        )


class Inclusive(Recency):
    """Reads events up to and including the query time."""

    def score(self, src, dst, t):
        return super().score(src, dst, t + 1)


class Future(Recency):
    """Knows the final degree of each node."""

    def score(self, src, dst, t):
        return self.store.degrees_of(dst).astype(float)


class Inside(EdgeBank):
    """Observes the full stream at the start."""

    def __init__(self, stream):
        super().__init__(stream.num_nodes)
        self._stream = stream

    def reset(self):
        super().reset()
        if hasattr(self, "_stream"):
            self.observe(self._stream.take(np.arange(len(self._stream))))

    def observe(self, batch):
        if not self.memory.store.num_events:
            super().observe(batch)


class OwnFeatures(Recency):
    """Reads the features of the event that it scores."""

    def __init__(self, stream):
        super().__init__(NeighborStore.from_stream(stream))
        self._stream = stream

    def score(self, src, dst, t):
        row = np.minimum(np.searchsorted(self._stream.t, t), len(self._stream) - 1)
        return self._stream.edge_attr[row, 0]


@pytest.mark.parametrize(
    "build",
    [
        lambda s: Inclusive(NeighborStore.from_stream(s)),
        lambda s: Future(NeighborStore.from_stream(s)),
        Inside,
        OwnFeatures,
    ],
    ids=["inclusive", "future", "inside", "own features"],
)
def test_planted_leaks_are_detected(build):
    with pytest.raises(LeakError):
        check_leak(build, made_stream())


def test_a_leak_only_through_ties_is_detected():
    with pytest.raises(LeakError):
        check_leak(lambda s: Inclusive(NeighborStore.from_stream(s)), made_stream(span=4))


class LastLabel:
    """Scores a node by its label at its last event before t; `lead` reads that much into the future."""

    def __init__(self, stream, lead=0):
        self._stream, self._store, self._lead = stream, NeighborStore.from_stream(stream), lead

    def reset(self):
        pass

    def observe(self, batch):
        pass

    def score_nodes(self, nodes, t):
        found = self._store.last(nodes, t + self._lead, 1)
        scores = np.zeros(len(nodes))
        scores[found.lengths > 0] = self._stream.labels[found.event_ids]
        return scores


def test_leaks_in_node_scores_are_detected_too():
    def score(model, src, dst, t):
        return model.score_nodes(src, t)

    check_leak(LastLabel, made_stream(), score=score)
    with pytest.raises(LeakError):
        check_leak(lambda s: LastLabel(s, lead=1), made_stream(), score=score)


def test_a_stream_of_one_time_cannot_be_checked():
    stream = EventStream(src=np.zeros(3, int), dst=np.ones(3, int), t=np.zeros(3))
    with pytest.raises(DataError):
        check_leak(recency, stream)
