"""Figures of a stream taken in stretches: those of whole columns, whatever the stretches and the parts of pairs."""

from collections.abc import Iterator
from itertools import pairwise

import numpy as np
import pytest

from hopstate.data.cards import median, stream_figures
from hopstate.data.cards.plots import _activity, _gaps
from hopstate.data.events import EventStream


@pytest.fixture(params=[(7, 16), (1 << 20, 1 << 24)], ids=str)
def small_stretches(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    chunk, pairs = request.param
    monkeypatch.setattr(stream_figures, "_CHUNK", chunk)
    monkeypatch.setattr(stream_figures, "_PAIRS", pairs)


def streams() -> Iterator[EventStream]:
    """Ties, loops, answers and copies; whole times and fractions; nodes without events; one event and none."""
    rng = np.random.default_rng(0)
    for count, nodes in ((400, 12), (400, 90), (1, 3), (0, 2), (130, 1)):
        src, dst = rng.integers(0, nodes, (2, count))
        t = np.cumsum(rng.integers(0, 3, count) * rng.integers(0, 40, count)) - 50
        copied = rng.random(count) < 0.1
        for column in (src, dst, t):
            column[1:][copied[1:]] = column[:-1][copied[1:]]
        t = np.maximum.accumulate(t)
        for times in (t, t / 7, t.astype(float), t * 10**14):
            yield EventStream(src=src, dst=dst, t=times, num_nodes=nodes + 2)


def node_gaps(stream: EventStream) -> np.ndarray:
    times = [stream.t[(stream.src == node)] for node in range(stream.num_nodes)]
    more = [stream.t[(stream.dst == node)] for node in range(stream.num_nodes)]
    return np.concatenate([np.diff(np.sort(np.concatenate(both))) for both in zip(times, more, strict=True)])


@pytest.mark.usefixtures("small_stretches")
def test_counts_are_those_of_whole_columns() -> None:
    for stream in streams():
        src, dst, t = stream.src, stream.dst, stream.t
        found, nodes = stream_figures.stream_figures(stream), np.arange(stream.num_nodes)
        assert found.degree.tolist() == [int(((src == v) | (dst == v)).sum()) for v in nodes]
        assert np.array_equal(found.sends, np.isin(nodes, src))
        assert np.array_equal(found.receives, np.isin(nodes, dst))
        gaps = np.diff(t)
        assert (found.loops, found.ties) == (int((src == dst).sum()), int((gaps == 0).sum()))
        assert found.copies == int(((gaps == 0) & (np.diff(src) == 0) & (np.diff(dst) == 0)).sum())
        assert found.longest == gaps.max(initial=0)
        assert found.longest_after == (int(gaps.argmax()) if gaps.any() else 0)
        assert found.whole == bool((t == np.floor(t)).all())


@pytest.mark.usefixtures("small_stretches")
@pytest.mark.parametrize("parts", [5])
def test_repetition_is_that_of_pairs_met_one_by_one(parts: int) -> None:
    for stream in streams():
        met: set[tuple[int, int]] = set()
        first, answers = np.zeros(len(stream), int), 0
        for i, (u, v) in enumerate(zip(stream.src.tolist(), stream.dst.tolist(), strict=True)):
            first[i] = (u, v) not in met
            answers += u != v and (v, u) in met
            met.add((u, v))
        cuts = np.linspace(0, len(stream), parts + 1).astype(int)
        found, answered = stream_figures.repetition(stream, cuts)
        assert found.tolist() == [int(first[a:b].sum()) for a, b in pairwise(cuts)]
        assert answered == answers


@pytest.mark.usefixtures("small_stretches")
def test_gaps_are_those_of_sorted_columns() -> None:
    for stream in streams():
        for parts, whole in (
            (stream_figures.event_gaps(stream), np.diff(stream.t)),
            (stream_figures.node_gaps(stream), node_gaps(stream)),
        ):
            found = np.concatenate([*parts, np.empty(0, stream.t.dtype)])
            assert np.array_equal(np.sort(found), np.sort(whole))


@pytest.mark.usefixtures("small_stretches")
def test_drawn_counts_are_those_of_numpys_histograms() -> None:
    for stream in streams():
        if len(stream):
            counts, edges = _activity(stream.t)
            assert np.array_equal(counts, np.histogram(stream.t, edges)[0])
            assert counts.sum() == len(stream)
        gaps = node_gaps(stream)
        counts, edges = _gaps(stream)
        assert counts.sum() == (gaps > 0).sum()
        assert not len(counts) or np.array_equal(counts, np.histogram(gaps[gaps > 0], edges)[0])


def test_kinds_are_counted() -> None:
    kind = np.random.default_rng(0).integers(0, 4, 200).astype(np.int8)
    assert stream_figures.kind_counts(kind).tolist() == [int((kind == k).sum()) for k in range(4)]
    assert stream_figures.kind_counts(kind[:0]).tolist() == [0, 0, 0, 0]


NUMBERS = {
    "whole": lambda rng, n: rng.integers(0, 1000, n),
    "one value": lambda rng, n: np.full(n, 7),
    "two far apart": lambda rng, n: np.where(np.arange(n) < n // 2, 3, 2**62),
    "beyond float64": lambda rng, n: 2**60 + rng.integers(0, 3000, n),
    "about where float64 ends": lambda rng, n: 2**53 + rng.integers(-50, 50, n),
    "heavy tail": lambda rng, n: np.exp(rng.normal(20, 8, n)).astype(np.int64),
    "zeros": lambda rng, n: rng.random(n) * (rng.random(n) < 0.4),
    "no negative zeros": lambda rng, n: -np.zeros(n),
    "fractions": lambda rng, n: rng.random(n),
    "tiny": lambda rng, n: rng.random(n) * 1e-310,
    "huge": lambda rng, n: rng.random(n) * 1e300,
    "of both signs": lambda rng, n: rng.normal(size=n) * 10.0 ** rng.integers(-300, 300, n),
    "negative": lambda rng, n: -rng.random(n),
    "one below and one above": lambda rng, n: np.where(np.arange(n) < n // 2, -1e307, 1e307),
    "close": lambda rng, n: 1 + rng.integers(0, 5, n) * 2.0**-52,
}


@pytest.mark.parametrize("held", [3, 1 << 22])
def test_the_median_is_numpys(held: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(median, "_HELD", held)
    monkeypatch.setattr(median, "_BITS", 4)
    for name, make in NUMBERS.items():
        for count in (1, 2, 64, 101):
            numbers = make(np.random.default_rng(count), count)
            parts = np.array_split(numbers, 4)
            found = median.median_and_largest(lambda parts=parts: iter(parts))
            assert found == (np.median(numbers), numbers.max()), (name, count)
    assert median.median_and_largest(lambda: iter([numbers[:0]])) is None
