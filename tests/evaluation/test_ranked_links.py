"""Ranks by kind of pair equal a loop over events; intervals; perfect and useless scorers."""

import math

import numpy as np
import pytest

from hopstate.data.events import EventStream
from hopstate.data.neighbor_store import NeighborStore
from hopstate.data.splits import chronological_split
from hopstate.evaluation.link import KINDS, evaluate_link, pair_kinds, ranking_metrics
from hopstate.methods.heuristics.method import Recency
from hopstate.sampling.negatives import one_against_many


def events(count: int = 300) -> EventStream:
    rng = np.random.default_rng(3)
    src, dst = rng.integers(0, 8, count), 8 + rng.integers(0, 12, count) * np.arange(count) // count
    return EventStream(src=src, dst=dst, t=np.sort(rng.integers(0, 120, count)), num_nodes=20)


def kind(stream: EventStream, u: int, v: int, t: int) -> str:
    past = [(a, b) for a, b, s in zip(stream.src, stream.dst, stream.t) if s < t]
    seen = {node for pair in past for node in pair}
    return "repeat_pairs" if (u, v) in past or (v, u) in past else "new_pairs" if {u, v} <= seen else "new_nodes"


def test_kinds_equal_a_count() -> None:
    stream = events()
    found = pair_kinds(NeighborStore.from_stream(stream), stream.src, stream.dst, stream.t)
    expected = [kind(stream, *row) for row in zip(stream.src.tolist(), stream.dst.tolist(), stream.t.tolist())]
    assert [KINDS[i] for i in found] == expected
    assert set(expected) == set(KINDS)


def test_metrics_equal_a_count() -> None:
    stream = events()
    rows, rng = np.arange(150, 300), np.random.default_rng(1)
    many = one_against_many(stream, chronological_split(stream), "test", num_negatives=6)
    rows = many.rows
    positive, negative = rng.integers(0, 4, len(rows)) / 4, rng.integers(0, 4, len(many.dst)) / 4
    found = ranking_metrics(stream, rows, positive, negative, many.offsets, many.dst)
    rank, known, by_kind, by_query = [], [], {name: [] for name in KINDS}, {}
    for i, row in enumerate(rows.tolist()):
        u, v, t = int(stream.src[row]), int(stream.dst[row]), int(stream.t[row])
        own = range(many.offsets[i], many.offsets[i + 1])

        def place(among: list[int], score: float) -> float:
            return 1 + sum((negative[j] > score) + 0.5 * (negative[j] == score) for j in among)

        rank.append(place(list(own), positive[i]))
        by_kind[kind(stream, u, v, t)].append(1 / rank[-1])
        by_query.setdefault((u, t), []).append(rank[-1] <= 10)
        repeats = [j for j in own if kind(stream, u, int(many.dst[j]), t) == "repeat_pairs"]
        if repeats and kind(stream, u, v, t) == "repeat_pairs":
            known.append(1 / place(repeats, positive[i]))
    assert {name: found[f"num_events_{name}"] for name in KINDS} == {name: len(by_kind[name]) for name in KINDS}
    assert found["num_events_among_repeat_candidates"] == len(known)
    assert found["mrr"] == pytest.approx(np.mean([1 / r for r in rank]))
    assert found["hits@3"] == pytest.approx(np.mean([r <= 3 for r in rank]))
    assert found["ndcg@10"] == pytest.approx(np.mean([1 / math.log2(1 + r) if r <= 10 else 0 for r in rank]))
    assert found["recall@10"] == pytest.approx(np.mean([np.mean(own) for own in by_query.values()]))
    assert found["mrr_among_repeat_candidates"] == pytest.approx(np.mean(known))
    for name, values in by_kind.items():
        assert (f"mrr_{name}" in found) == bool(values)
        if values:
            assert found[f"mrr_{name}"] == pytest.approx(np.mean(values))


def test_every_mean_has_its_interval_on_request() -> None:
    stream = events()
    split = chronological_split(stream)
    scorer = Recency(NeighborStore.from_stream(stream))
    row = evaluate_link(scorer, stream, split, strategies=("ranking",), num_negatives=5, bootstrap=40).rows[0]
    metrics = [
        name
        for name in row
        if name in ("mrr", "ndcg@10", "recall@10", "mrr_among_repeat_candidates", "mrr_repeat_pairs", "mrr_new_pairs")
    ]
    assert len(metrics) >= 5
    for name in metrics:
        assert row[f"{name}_low"] <= row[name] <= row[f"{name}_high"]


def test_a_perfect_scorer_has_rank_one_everywhere() -> None:
    stream = events()
    many = one_against_many(stream, chronological_split(stream), "test", num_negatives="all")
    one, none = np.ones(len(many.rows)), np.zeros(len(many.dst))
    found = ranking_metrics(stream, many.rows, one, none, many.offsets, many.dst, bootstrap=5)
    assert {value for name, value in found.items() if not name.startswith("num_events")} == {1.0}
