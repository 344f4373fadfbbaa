"""Pair features: the compiled loop equals the reference; events at or after the query time are ignored."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from pair_features_naive import pair_features_naive

from hopstate.data.dates import Clock
from hopstate.data.events import ADD, DELETE, EventStream
from hopstate.data.neighbor_store import NeighborStore
from hopstate.data.stream_state import StreamState
from hopstate.errors import DataError, ShapeError
from hopstate.testing.conformance import F32_LAST
from hopstate.tokens.pair_features import GROWING, NAMES, PairFeatures, feature_names, varied_columns

NONE = np.empty(0, np.int64)
PATHS, MOVES = len(NAMES) - 10, len(NAMES) - 3  # the first features of paths and of moves
STREAM = np.flatnonzero([name.startswith("all events since") for name in NAMES])


def events(count: int = 400, nodes: int = 9, *, seed: int = 0, floats: bool = False, **more: Any) -> EventStream:
    """Return events with ties, repeated pairs, replies, self pairs, a busy pair and a node without partners."""
    rng = np.random.default_rng(seed)
    src, dst = rng.integers(0, nodes - 1, (2, count))
    src[: count // 2], dst[: count // 2] = rng.integers(0, 3, (2, count // 2))
    t = np.sort(rng.integers(0, 1 + count // 3, count))
    return EventStream(src=src, dst=dst, t=t * 0.5 if floats else t * 7, num_nodes=nodes, **more)


def queries(stream: EventStream, count: int = 120, seed: int = 1) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return queries at event times, before and after all events, with self pairs and one without history."""
    rng = np.random.default_rng(seed)
    u, v = rng.integers(0, stream.num_nodes, (2, count))
    t = stream.t[rng.integers(0, len(stream), count)]
    t[:4], t[4:9] = stream.t[0], stream.t[-1] + 3
    v[9:14] = u[9:14]
    u[0] = v[0] = stream.num_nodes - 1
    return u, v, t


def features(stream: EventStream, rows: np.ndarray | None = None, columns: np.ndarray = NONE) -> PairFeatures:
    return PairFeatures(NeighborStore.from_stream(stream, rows), stream, Clock(unit=3.0), columns)


@pytest.mark.parametrize(
    ("count", "floats"), [(0, False), (1, True), (2, False), (40, True), (400, False), (1500, True)]
)
def test_pair_features_equal_the_reference(count: int, floats: bool) -> None:
    stream = events(max(count, 1), floats=floats)
    if count == 0:
        stream = stream.slice(0, 0)
    query = queries(events(max(count, 400), floats=floats))
    expected = pair_features_naive(stream, Clock(unit=3.0), *query)
    found = features(stream).pairs(*query)
    assert found.shape == (120, len(NAMES))
    for i, name in enumerate(NAMES):
        np.testing.assert_allclose(found[:, i], expected[:, i], rtol=F32_LAST, atol=0, err_msg=name)
    if count == 1500:
        known = ~np.isnan(expected)
        assert (known.any(0) & (np.nanmax(expected, 0) > np.nanmin(expected, 0))).all(), "a constant feature"


def test_features_of_a_part_of_the_stream() -> None:
    """As in training: the store holds part of the stream."""
    stream, rows = events(), np.arange(0, 300, 2)
    query = queries(stream)
    expected = pair_features_naive(stream, Clock(unit=3.0), *query, rows=rows)
    np.testing.assert_allclose(features(stream, rows).pairs(*query), expected, rtol=F32_LAST)


@pytest.mark.parametrize("two_kinds", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_path_features_among_many_nodes(two_kinds: bool) -> None:
    """More partners and events than paths use; all candidates of a source in one call or single."""
    rng, stream = np.random.default_rng(3), events(1500, 60, seed=2)
    stream = stream.with_(src=rng.integers(0, 59, 1500) // 2, dst=30 + rng.integers(0, 58, 1500) // 2)
    if not two_kinds:
        stream = stream.with_(dst=rng.integers(0, 59, 1500))
    u, v, t = (np.concatenate([a, b]) for a, b in zip(queries(stream), queries(stream)))
    u[120:180], t[120:180], v[120:180] = 3, stream.t[900], np.arange(60)
    u[180:], t[180:] = np.sort(u[180:]), stream.t[700]
    computed = features(stream)
    found = computed.pairs(u, v, t)
    expected = pair_features_naive(stream, Clock(unit=3.0), u, v, t)
    np.testing.assert_allclose(found[:, PATHS:], expected[:, PATHS:], rtol=F32_LAST)
    assert (np.nanmax(expected[:, PATHS:], 0) > np.nanmin(expected[:, PATHS:], 0)).all()
    assert expected[:, PATHS + 3].max() == 8
    for i in (0, 150, 200):
        np.testing.assert_allclose(
            computed.pairs(u[i : i + 1], v[i : i + 1], t[i : i + 1]), found[i : i + 1], rtol=1e-5, atol=1e-6
        )


def test_one_pair_and_many_use_the_same_compiled_loops() -> None:
    """A query of one pair after many triggers no compilation."""
    from hopstate.tokens.kernels import write_path_features

    stream = events()
    u, v, t = queries(stream)
    features(stream).pairs(u, v, t)
    compiled = len(write_path_features.signatures)
    features(stream).pairs(u[:1], v[:1], t[:1])
    assert len(write_path_features.signatures) == compiled


def test_moves_count_the_next_events_of_others() -> None:
    """Manually: two of three others moved from 9 to 4, the third via 5; the source itself once of two."""
    walks = ([9, 4], [9, 4], [9, 5, 4], [9, 4, 9, 6, 9])  # of sources 0, 1, 2 and 3
    src, dst = np.repeat(np.arange(4), [len(walk) for walk in walks]), np.concatenate(walks)
    stream = EventStream(src=src, dst=dst, t=np.arange(len(src)), num_nodes=10)
    u, v, t = np.full(4, 3), np.array([4, 5, 6, 9]), np.full(4, len(src))
    found = features(stream).pairs(u, v, t)[:, MOVES:]
    expected = [[1 / 2, 2 / 3, 1.0], [0.0, 1 / 3, 1 / 3], [1 / 2, 0.0, 0.0], [0.0, 0.0, 0.0]]
    np.testing.assert_allclose(found, expected, rtol=F32_LAST)
    at_once = features(stream.with_(t=np.zeros(len(src), np.int64))).pairs(u, v, t)[:, MOVES:]
    assert np.isnan(at_once).all()  # simultaneous events are not moves
    assert np.isnan(features(stream).pairs(np.array([8]), np.array([4]), t[:1])[:, MOVES:]).all()


def test_moves_do_not_depend_on_the_order_of_ties() -> None:
    """If a source has one latest partner and others have one next, the order of ties does not matter."""
    rng = np.random.default_rng(11)
    src = np.concatenate([rng.permutation(12) for _ in range(40)])  # each node once per time
    stream = EventStream(src=src, dst=12 + rng.integers(0, 6, 480), t=np.repeat(np.arange(40), 12), num_nodes=18)
    order = np.lexsort((rng.random(480), stream.t))
    u, v = rng.integers(0, 12, 200), 12 + rng.integers(0, 6, 200)
    t = np.full(200, 3)  # few events per partner: the limit does not separate ties
    found, other = (
        features(some).pairs(u, v, t)[:, MOVES:]
        for some in (stream, stream.with_(src=stream.src[order], dst=stream.dst[order]))
    )
    np.testing.assert_allclose(found, other, rtol=1e-5, atol=1e-6)
    assert len(np.unique(found[:, 2])) > 3


def test_growing_features_are_known_by_name() -> None:
    assert sorted(NAMES[i] for i in GROWING) == sorted(
        what
        for end in ("source", "target")
        for what in (
            f"{end}'s events",
            f"{end}'s events since the pair's last event",
            f"time since {end}'s first event",
        )
    )


def test_simultaneous_events_count_in_any_order() -> None:
    stream, query = events(), queries(events())
    order = np.lexsort((np.random.default_rng(8).random(400), stream.t))
    other = stream.with_(src=stream.src[order], dst=stream.dst[order])
    found, expected = (features(some).pairs(*query)[:, STREAM] for some in (other, stream))
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)
    assert len(np.unique(found[:, 0])) > 10


def test_deletions_are_not_interactions() -> None:
    kind = np.where(np.random.default_rng(2).random(400) < 0.3, DELETE, ADD).astype(np.int8)
    stream = events(kind=kind, from_start=False)
    query = queries(stream)
    added = stream.additions()
    bare = EventStream(src=stream.src[added], dst=stream.dst[added], t=stream.t[added], num_nodes=stream.num_nodes)
    np.testing.assert_allclose(features(stream).pairs(*query), features(bare).pairs(*query), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(
        features(stream).pairs(*query), pair_features_naive(stream, Clock(unit=3.0), *query), rtol=F32_LAST
    )


def test_events_at_or_after_the_query_time_are_ignored() -> None:
    """An event sees neither itself nor simultaneous events."""
    stream = events(edge_attr=np.random.default_rng(3).normal(size=(400, 2)).astype(np.float32))
    columns = np.arange(2)
    rng = np.random.default_rng(4)
    for row in (1, 150, 301, 399):
        t = stream.t[row]
        at = int(np.searchsorted(stream.t, t))
        u, v = np.append(rng.integers(0, 9, 20), stream.src[row]), np.append(rng.integers(0, 9, 20), stream.dst[row])
        when = np.full(21, t)
        before = features(stream, columns=columns).pairs(u, v, when)
        changed = {"src": stream.src.copy(), "dst": stream.dst.copy(), "edge_attr": stream.edge_attr.copy()}
        changed["src"][at:], changed["dst"][at:] = rng.integers(0, 9, (2, 400 - at))
        changed["edge_attr"][at:] = 9.0
        for other in (stream.with_(**changed), stream.slice(0, at)):
            np.testing.assert_allclose(features(other, columns=columns).pairs(u, v, when), before, rtol=1e-5, atol=1e-6)


def test_features_do_not_depend_on_the_batch_or_its_order() -> None:
    stream = events()
    query, computed = queries(stream), features(stream)
    whole = computed.pairs(*query)
    order = np.random.default_rng(5).permutation(120)
    np.testing.assert_allclose(computed.pairs(*(column[order] for column in query)), whole[order], rtol=1e-5, atol=1e-6)
    for i in (0, 7, 60):
        np.testing.assert_allclose(
            computed.pairs(*(column[i : i + 1] for column in query)), whole[i : i + 1], rtol=1e-5, atol=1e-6
        )


@pytest.mark.parametrize("unit", ["ms", "us", "ns"])
def test_the_time_unit_does_not_matter(unit: str) -> None:
    many = {"ms": 10**3, "us": 10**6, "ns": 10**9}[unit]
    late = events().with_(t=events().t * 86_399 + 1_650_000_000, time_unit="s")  # ns, inexact in float64
    fine = late.with_(t=late.t * many, time_unit=unit)
    query = queries(late)
    clocks = [Clock.fit(stream.t, stream.time_unit) for stream in (late, fine)]
    computed = [
        PairFeatures(NeighborStore.from_stream(stream), stream, clock, NONE)
        for stream, clock in ((late, clocks[0]), (fine, clocks[1]), (fine, clocks[0]))
    ]
    expected = computed[0].pairs(*query)
    for other in computed[1:]:
        found = other.pairs(*query[:2], query[2] * many)
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


def test_values_of_the_latest_events() -> None:
    attr = np.random.default_rng(6).normal(size=(400, 12)).astype(np.float32) * np.arange(12)
    stream, query = events(edge_attr=attr.astype(np.float32)), queries(events())
    columns = varied_columns(stream, np.arange(400), 3)
    assert columns.tolist() == [9, 10, 11]
    found = features(stream, columns=columns).pairs(*query)[:, len(NAMES) :]
    assert len(feature_names(columns)) == len(NAMES) + 9
    for q, (u, v, t) in enumerate(zip(*(column.tolist() for column in query))):
        for place, keep in enumerate(
            (
                ((stream.src == u) & (stream.dst == v)) | ((stream.src == v) & (stream.dst == u)),
                (stream.src == u) | (stream.dst == u),
                (stream.src == v) | (stream.dst == v),
            )
        ):
            rows = np.flatnonzero(keep & (stream.t < t))
            expected = stream.edge_attr[rows[-1], columns] if len(rows) else np.full(3, np.nan)
            np.testing.assert_allclose(found[q, 3 * place : 3 * place + 3], expected, rtol=1e-5, atol=1e-6)


def in_parts(stream: EventStream, size: int) -> StreamState:
    """Return the state of a stream whose events were appended `size` at a time."""
    past = StreamState()
    for a in range(0, len(stream), size):
        names = ("src", "dst", "t", *(["edge_attr"] if stream.edge_attr is not None else []))
        part = {name: getattr(stream, name)[a : a + size].copy() for name in names}
        past = past.joined(replace(stream, **part), allow_duplicates=True)[1]
    return past


@pytest.mark.parametrize(
    ("count", "size", "floats"), [(200, 1, False), (400, 37, True), (400, 400, False), (2000, 211, True)]
)
def test_features_over_a_history_in_parts(count: int, size: int, floats: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Queries of a live run equal those of one store of all events, for any parts and calls; new nodes included.

    Times tie across parts, and with 2,000 events a node has more than are read one by one.
    """
    attr = np.random.default_rng(7).normal(size=(count, 2)).astype(np.float32)
    stream = events(count, edge_attr=attr, floats=floats)
    query, columns = queries(stream), np.arange(2)
    computed = features(stream, columns=columns)
    live = computed.over(in_parts(stream, size))
    expected = computed.pairs(*query)
    np.testing.assert_allclose(live.pairs(*query), expected, rtol=1e-6)
    np.testing.assert_allclose(live.pairs(*(c[3:4] for c in query)), expected[3:4], rtol=1e-6)
    monkeypatch.setattr("hopstate.tokens.pair_features._BATCH", 50)
    for some in (live, computed):
        rows, last = some.read(*query)
        np.testing.assert_allclose(rows, expected, rtol=1e-6)
        assert all(np.array_equal(*found) for found in zip(last, computed.read(*query)[1], strict=True))


def test_last_events_of_pairs_and_of_their_endpoints() -> None:
    stream = events(1500)
    u, v, t = queries(stream)
    for some in (features(stream), features(stream).over(in_parts(stream, 211))):
        last = some.read(u, v, t)[1]
        when, met = some.store.last_meeting(u, v, t)
        assert np.array_equal(last.times[:, 0], when)
        assert np.array_equal(last.ids[:, 0] >= 0, met)
        for place, nodes in ((1, u), (2, v)):
            found = some.store.last(nodes, t, 1)
            there = found.lengths > 0
            assert np.array_equal(last.ids[:, place] >= 0, there)
            assert np.array_equal(last.ids[there, place], found.event_ids)
            assert np.array_equal(last.times[there, place], found.times)


def test_invalid_queries_are_named() -> None:
    computed = features(events())
    with pytest.raises(DataError, match="99"):
        computed.pairs(np.array([1]), np.array([99]), np.array([5]))
    with pytest.raises(ShapeError):
        computed.pairs(np.array([1, 2]), np.array([1]), np.array([5]))
    with pytest.raises(DataError, match=r"(?i)nan"):
        computed.pairs(np.array([1]), np.array([1]), np.array([np.nan]))


def test_as_measured_returns_times_in_the_streams_unit_and_counts() -> None:
    stream = EventStream.from_arrays([0, 1, 0, 2], [1, 0, 1, 3], [10, 40, 100, 130])
    some = PairFeatures(NeighborStore.from_stream(stream, None), stream, Clock(unit=30.0), NONE)
    query = np.array([0]), np.array([1]), np.array([160])
    shown = dict(zip(NAMES, some.as_measured(some.pairs(*query))[0].tolist(), strict=True))
    expected = {
        "time since the pair's last event": 60,
        "time since target sent to source": 120,
        "events of the pair": 3,
        "events from source to target": 2,
        "source's events": 3,
        "all events since the pair's last event": 1,
        "the pair's share of the shorter history": 1,
        "position of target in source's latest 32": 0,
    }
    assert {name: shown[name] for name in expected} == pytest.approx(expected, rel=F32_LAST)
