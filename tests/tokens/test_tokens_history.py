"""Packed history tokens against their definition, token by token."""

import numpy as np
import pytest
import torch

from hopstate.data.events import EventStream
from hopstate.data.neighbor_store import NeighborStore
from hopstate.errors import ConfigError, DataError, ShapeError
from hopstate.methods.baselines.graphmixer import RecentLinkTokenizer
from hopstate.ops.neighbors import PackedNeighbors, last_naive
from hopstate.testing.conformance import F32_TIGHT
from hopstate.tokens.history import HistoryConfig, HistoryTokenizer, HistoryTokens, pack_tokens

TARGETS = ("none", "first", "last")


def pack_tokens_naive(
    found: PackedNeighbors,
    targets: np.ndarray,
    t: np.ndarray,
    *,
    window: float | None,
    target: str,
    unit: float = 1.0,
) -> tuple[list[int], list[int], list[int], list[float], list[float]]:
    """Reference implementation of `pack_tokens`."""
    offsets, nodes, ids, gaps, spans = [0], [], [], [], []
    for q in range(len(found)):
        events = [
            (n, e, s)
            for n, e, s in zip(*(part.tolist() for part in found.of(q)), strict=True)
            if window is None or t[q] - s <= window
        ]
        tokens = [(n, e, t[q] - s, s) for n, e, s in events]
        if target == "first":
            tokens.insert(0, (int(targets[q]), -1, 0, t[q]))
        elif target == "last":
            tokens.append((int(targets[q]), -1, 0, t[q]))
        for k, (node, event, gap, at) in enumerate(tokens):
            following = tokens[k + 1][3] if k + 1 < len(tokens) else t[q]
            nodes.append(node)
            ids.append(event)
            gaps.append(float(gap) / unit)
            spans.append(float(abs(following - at)) / unit)
        offsets.append(len(nodes))
    return offsets, nodes, ids, gaps, spans


def _stream(num_events: int = 60, num_nodes: int = 7, *, features: bool = False, times: type = np.int64) -> EventStream:
    rng = np.random.default_rng(1)
    extra = {}
    if features:
        extra = {
            "x": rng.normal(size=(num_nodes, 3)).astype(np.float32),
            "edge_attr": rng.normal(size=(num_events, 2)).astype(np.float32),
        }
    t = np.sort(rng.integers(0, 40, num_events)).astype(times)  # many ties
    src, dst = rng.integers(0, num_nodes - 1, (2, num_events))  # the last node has no event
    return EventStream(src=src, dst=dst, t=t, num_nodes=num_nodes, **extra)


def _tokenizer(stream: EventStream, **config: object) -> HistoryTokenizer:
    return HistoryTokenizer(NeighborStore.from_stream(stream), stream, HistoryConfig(**config))


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("window", [None, 3, 7.5, 1e9])
@pytest.mark.parametrize("times", [np.int64, np.float64])
def test_packing_equals_its_definition(target, window, times):
    stream, rng = _stream(times=times), np.random.default_rng(2)
    nodes, t = rng.integers(0, 7, 50), rng.integers(0, 45, 50).astype(times)
    found = last_naive(stream.src, stream.dst, stream.t, nodes, t, 6)
    fast = pack_tokens(found, nodes, t, window=window, target=target)
    naive = pack_tokens_naive(found, nodes, t, window=window, target=target)
    for got, expected in zip(fast, naive, strict=True):
        np.testing.assert_array_equal(got, expected)
    assert fast[3].dtype == fast[4].dtype == np.float32


@pytest.mark.parametrize("target", TARGETS)
def test_spans_add_up_to_the_first_gap(target):
    stream = _stream()
    tokens = _tokenizer(stream, target=target).nodes(np.arange(7), np.full(7, 50))
    for s in range(7):
        rows = slice(*tokens.offsets[s : s + 2].tolist())
        events = tokens.event_ids[rows] >= 0
        gaps, spans = tokens.gaps[rows], tokens.spans[rows]
        assert spans[events].sum() == (gaps[events].max() if events.any() else 0)
        assert (spans >= 0).all()
        assert gaps[~events].sum() == 0
        own = spans[~events].tolist()
        assert own == (
            []
            if target == "none"
            else [0.0 if target == "last" else gaps[events].max().item() if events.any() else 0.0]
        )


def test_differences_are_computed_before_they_are_narrowed():
    start = 1_600_000_000_000  # milliseconds; float32 would be exact to about 2 minutes
    stream = EventStream(src=np.array([0, 0]), dst=np.array([1, 1]), t=np.array([start, start + 7]))
    tokens = _tokenizer(stream, target="none").nodes(np.array([0]), np.array([start + 12]))
    assert tokens.gaps.tolist() == [12.0, 5.0]
    assert tokens.spans.tolist() == [7.0, 5.0]


def test_sequences_of_a_pair_and_their_counts():
    stream = _stream()
    u, v, t = np.array([0, 3, 6, 2]), np.array([1, 3, 4, 6]), np.array([30, 40, 20, 0])
    tokens = _tokenizer(stream, max_length=9).pairs(u, v, t)
    assert tokens.num_sequences == 8
    assert tokens.longest == int(tokens.lengths.max()) == 9
    found = last_naive(stream.src, stream.dst, stream.t, np.r_[u, v], np.r_[t, t], 8)
    for s in range(8):
        rows = slice(*tokens.offsets[s : s + 2].tolist())
        assert tokens.nodes[rows].tolist() == [np.r_[u, v][s], *found.of(s)[0].tolist()]
        assert tokens.event_ids[rows].tolist() == [-1, *found.of(s)[1].tolist()]
        own, other = (tokens.nodes[slice(*tokens.offsets[i : i + 2].tolist())].tolist() for i in (s % 4, s % 4 + 4))
        expected = [[own.count(n), other.count(n)] for n in tokens.nodes[rows].tolist()]
        assert tokens.counts[rows].tolist() == expected
    assert tokens.rows().tolist() == np.repeat(np.arange(8), tokens.lengths).tolist()
    assert tokens.positions().tolist() == [i for n in tokens.lengths.tolist() for i in range(n)]


@pytest.mark.parametrize("target", TARGETS)
def test_concatenated_tokens_are_those_of_all_pairs(target):
    stream = _stream(features=True)
    tokenizer = _tokenizer(stream, target=target, max_length=9)
    u, v, t = np.array([0, 6, 2, 3]), np.array([1, 5, 2, 0]), np.array([30, 40, 12, 0])
    parts = [tokenizer.pairs(u[k : k + 1], v[k : k + 1], t[k : k + 1]) for k in range(len(u))]
    found, expected = HistoryTokens.concatenate(parts), tokenizer.pairs(u, v, t)
    for name, value in expected._asdict().items():
        if value is None or name == "longest":
            assert getattr(found, name) == value
        else:
            torch.testing.assert_close(getattr(found, name), value, rtol=0, atol=0)


def test_length_cap_counts_the_target_and_everything_is_everything():
    stream = _stream(200)
    for target in TARGETS:
        tokens = _tokenizer(stream, max_length=5, target=target).nodes(np.arange(7), np.full(7, 99))
        assert tokens.lengths.tolist() == [5] * 6 + [int(target != "none")]
    whole = _tokenizer(stream, max_length=None, target="none").nodes(np.arange(7), np.full(7, 99))
    loops = np.bincount(stream.src[stream.src == stream.dst], minlength=7)
    degrees = np.bincount(np.r_[stream.src, stream.dst], minlength=7) - loops
    assert whole.lengths.tolist() == degrees.tolist()
    assert whole.longest == degrees.max()


def test_features_are_gathered_by_node_and_event():
    stream = _stream(features=True)
    tokens = _tokenizer(stream, target="last").nodes(np.array([0, 6]), np.array([40, 40]))
    np.testing.assert_array_equal(tokens.x, stream.x[tokens.nodes])
    events = tokens.event_ids >= 0
    np.testing.assert_array_equal(tokens.edge_attr[events], stream.edge_attr[tokens.event_ids[events]])
    assert tokens.edge_attr[~events].abs().sum() == 0
    assert tokens.counts is None


def test_features_of_a_slice_go_by_the_whole_stream_s_ids():
    stream = _stream(features=True).slice(20, 60)
    tokens = HistoryTokenizer(NeighborStore.from_stream(stream), stream, HistoryConfig(target="none")).nodes(
        np.array([0]), np.array([40])
    )
    np.testing.assert_array_equal(tokens.edge_attr, stream.edge_attr[tokens.event_ids - 20])


def test_zero_features_are_not_gathered():
    stream = _stream().with_(x=np.zeros((7, 4), np.float32), edge_attr=np.zeros((60, 2), np.float32))
    tokens = _tokenizer(stream).pairs(np.array([0]), np.array([1]), np.array([30]))
    assert tokens.x is None
    assert tokens.edge_attr is None


@pytest.mark.parametrize("target", TARGETS)
def test_no_queries_and_no_history(target):
    tokenizer = _tokenizer(_stream(), target=target)
    none = tokenizer.pairs(*(np.zeros(0, np.int64),) * 3)
    assert none.num_sequences == 0
    assert none.longest == 0
    assert none.counts.shape == (0, 2)
    new = tokenizer.pairs(np.array([6]), np.array([6]), np.array([5]))  # both endpoints without history
    assert new.lengths.tolist() == [int(target != "none")] * 2
    assert new.counts.tolist() == ([] if target == "none" else [[1, 1], [1, 1]])


def test_mixed_time_types_compare_as_numbers():
    found = PackedNeighbors(np.array([0, 2]), np.array([1, 2]), np.array([0, 1]), np.array([3, 4]))
    gaps = pack_tokens(found, np.array([0]), np.array([4.5]), window=1.0)[3]
    assert gaps.tolist() == [0.5]


def test_bad_queries_and_settings_are_named():
    tokenizer = _tokenizer(_stream())
    with pytest.raises(ShapeError, match="u, v and t"):
        tokenizer.pairs(np.array([0, 1]), np.array([1]), np.array([3, 4]))
    with pytest.raises(DataError, match="7"):
        tokenizer.pairs(np.array([0]), np.array([7]), np.array([3]))
    with pytest.raises(DataError, match=r"(?i)nan"):
        tokenizer.nodes(np.array([0]), np.array([np.nan]))
    for wrong in ({"max_length": 0}, {"window": 0.0}, {"window": float("nan")}, {"target": "middle"}):
        with pytest.raises(ConfigError, match=next(iter(wrong))):
            HistoryConfig(**wrong)


# ---- GraphMixer's ends ---------------------------------------------------------------------------------------------


def test_shared_endpoints_are_stored_once_and_indexed_by_pairs():
    stream = _stream()
    tokenizer = RecentLinkTokenizer(NeighborStore.from_stream(stream), stream, num_links=4)
    u, v, t = np.array([0, 0, 2, 0]), np.array([1, 3, 0, 3]), np.array([30, 30, 30, 31])
    links = tokenizer.pairs(u, v, t)
    assert links.tokens.num_sequences == 6  # (0,30), (1,30), (2,30), (3,30), (0,31), (3,31)
    assert links.x is None
    for side, nodes in enumerate((u, v)):
        store, config = tokenizer.inner.store, HistoryConfig(max_length=4, target="none")
        expected = HistoryTokenizer(store, stream, config).nodes(nodes, t)
        for p in range(4):
            s = int(links.ends[side, p])
            got = links.tokens.event_ids[slice(*links.tokens.offsets[s : s + 2].tolist())]
            assert torch.equal(got, expected.event_ids[slice(*expected.offsets[p : p + 2].tolist())])


def test_neighbor_features_are_averaged_once():
    stream = _stream(features=True)
    store = NeighborStore.from_stream(stream)
    links = RecentLinkTokenizer(store, stream, num_links=4, num_neighbors=5).pairs(
        np.array([0, 6]), np.array([1, 6]), np.array([35, 35])
    )
    for node, s in ((0, links.ends[0, 0]), (6, links.ends[0, 1]), (1, links.ends[1, 0])):
        near = store.last(np.array([node]), np.array([35]), 5).nodes
        mean = stream.x[near].mean(0) if len(near) else 0
        np.testing.assert_allclose(links.x[s], stream.x[node] + mean, rtol=F32_TIGHT)
    assert links.tokens.x is None


def test_recent_links_settings():
    stream = _stream()
    with pytest.raises(ConfigError, match="num_links"):
        RecentLinkTokenizer(NeighborStore.from_stream(stream), stream, num_links=0)
    with pytest.raises(ShapeError, match="destinations"):
        RecentLinkTokenizer(NeighborStore.from_stream(stream), stream).pairs(
            np.array([0]), np.array([0, 1]), np.array([3])
        )


def test_span_ratios_are_fractions_of_the_time_since_the_first_event():
    offsets = torch.tensor([0, 3, 3, 4, 6])
    gaps = torch.tensor([0.0, 8.0, 2.0, 0.0, 5.0, 5.0])  # the last sequence: two simultaneous events
    spans = torch.tensor([8.0, 6.0, 2.0, 0.0, 0.0, 5.0])
    zeros = torch.zeros(6, dtype=torch.int64)
    tokens = HistoryTokens(offsets, zeros, zeros, gaps, spans, None, None, None, 3)
    assert tokens.span_ratios().tolist() == [1.0, 0.75, 0.25, 0.0, 0.0, 1.0]


def test_time_deltas_are_in_seconds_for_every_unit():
    """A stream of dates (int64 nanoseconds) and the same stream in seconds give the same tokens."""
    t = np.array([0, 3, 7, 11]) + 1_700_000_000
    found = []
    for unit, factor in (("s", 1), ("ns", 10**9), ("", 1)):
        stream = EventStream(src=np.zeros(4, int), dst=np.arange(1, 5), t=t * factor, time_unit=unit)
        tokens = HistoryTokenizer(NeighborStore.from_stream(stream), stream, HistoryConfig())
        found.append(tokens.nodes(np.array([0]), t[3:] * factor))
    for other in found[1:]:
        torch.testing.assert_close(other.gaps, found[0].gaps, rtol=1e-5, atol=1e-6)
        torch.testing.assert_close(other.spans, found[0].spans, rtol=1e-5, atol=1e-6)
    assert found[0].gaps.tolist() == [0.0, 11.0, 8.0, 4.0]


def test_a_sequence_without_room_for_an_event_is_rejected():
    with pytest.raises(ConfigError):
        HistoryConfig(max_length=1)
    assert HistoryConfig(max_length=1, target="none").num_events == 1
