"""The link prediction driver: what a model has observed when it scores, the tables, and published results."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from hopstate.data.events import EventStream
from hopstate.data.neighbor_store import NeighborStore
from hopstate.data.splits import chronological_split, dyglib_split
from hopstate.errors import ConfigError, DataError, HopstateWarning, ShapeError
from hopstate.evaluation.link import evaluate_link, link_negatives, score_split
from hopstate.evaluation.ranking import mrr, ranks
from hopstate.methods.heuristics.edgebank import EdgeBank
from hopstate.methods.heuristics.method import Recency
from hopstate.runs.run import fit
from hopstate.sampling.event_batches import batch_boundaries, event_batches
from hopstate.sampling.negatives import (
    DEFAULT_STRATEGIES,
    Negatives,
    NoOtherPairError,
    draw_negatives,
    one_against_many,
)
from hopstate.streaming.replay import replay, replay_anywhere
from hopstate.testing.conformance import F32_SUM, HALF


def made_stream(num_events: int = 1200, span: int = 300) -> EventStream:
    rng = np.random.default_rng(0)
    src, dst = rng.integers(0, 25, num_events), rng.integers(15, 40, num_events)
    return EventStream(src=src, dst=dst, t=np.sort(rng.integers(0, span, num_events)))


class Recorder:
    """Scores are a hash of observed events; every observed event must be earlier than the query."""

    def __init__(self) -> None:
        self.resets, self.seen, self.queries = 0, [], []

    def reset(self) -> None:
        self.resets += 1
        self.seen = []

    def score(self, src, dst, t):
        self.queries.append((len(src), len(self.seen)))
        assert not self.seen or max(self.seen_t) < t.min()
        return (src * 31 + dst * 17 + len(self.seen)) % 97 / 97

    def observe(self, batch) -> None:
        self.seen.extend(batch.event_ids.tolist())
        self.seen_t = batch.t


def test_a_batch_never_separates_equal_timestamps():
    t = np.array([0, 0, 1, 1, 1, 2, 5])
    assert batch_boundaries(t, 1).tolist() == [0, 2, 5, 6, 7]
    assert batch_boundaries(t, 3).tolist() == [0, 5, 7]
    assert batch_boundaries(t, 3, keep_ties=False).tolist() == [0, 3, 6, 7]
    assert batch_boundaries(t[:0], 3).tolist() == batch_boundaries(t[:0], 3, keep_ties=False).tolist() == [0]
    with pytest.raises(ConfigError):
        batch_boundaries(t, 0)
    stream = made_stream(50)
    assert np.concatenate([b.event_ids for b in event_batches(stream, batch_size=7)]).tolist() == list(range(50))


def test_a_model_observes_every_earlier_event_once_and_none_later():
    stream = made_stream()
    split, model = chronological_split(stream), Recorder()
    evaluate_link(model, stream, split, batch_size=50)
    assert model.resets == 1
    assert model.seen == list(range(len(stream)))
    assert model.queries[0][1] == split.test[0]


def test_scores_are_those_of_the_queried_pairs():
    stream = made_stream()
    split = dyglib_split(stream)
    report = evaluate_link(Recency(NeighborStore.from_stream(stream)), stream, split)
    for (part, strategy), scores in report.scores.items():
        drawn = draw_negatives(stream, split, part, strategy)
        direct = Recency(NeighborStore.from_stream(stream))
        rows = split.rows(part)
        np.testing.assert_array_equal(scores.positive, direct.score(stream.src[rows], stream.dst[rows], stream.t[rows]))
        np.testing.assert_array_equal(scores.negative, direct.score(drawn.src, drawn.dst, stream.t[rows]))
    assert [(r["setting"], r["strategy"]) for r in report.rows[3:]] == [
        ("inductive", "random"),
        ("inductive", "historical"),
        ("inductive", "inductive"),
    ]


def test_intervals_of_one_against_many():
    stream = made_stream()
    split = chronological_split(stream)
    report = evaluate_link(
        Recency(NeighborStore.from_stream(stream)), stream, split, "val", strategies=("random", "ranking"), bootstrap=50
    )
    many = report.rows[1]
    assert many["mrr_low"] < many["mrr"] < many["mrr_high"]
    assert 0 < many["hits@1"] <= many["hits@3"] <= many["hits@10"] <= 1
    assert (
        report.rows[0]["average_precision_low"]
        < report.value("average_precision")
        < report.rows[0]["average_precision_high"]
    )
    assert report.value("mrr", "ranking") == many["mrr"]
    with pytest.raises(ConfigError, match="mrr"):
        report.value("mrr", "random")


def test_a_positive_without_negatives_is_ignored_in_the_mean_rank():
    t = np.arange(60)
    dst = np.where(t < 40, 1, np.where(t % 2, 2, 3))  # node 0 has an event with 1, then with 2 and 3 in turn
    stream = EventStream(src=np.zeros(60, np.int64), dst=dst, t=t, num_nodes=4)
    split = chronological_split(stream)
    scorer = Recency(NeighborStore.from_stream(stream))
    negatives = one_against_many(stream, split, "test", num_negatives=2, seed=0)
    half = np.arange(len(split.test)) % 2 == 0  # every other event loses its negatives
    keep = np.repeat(half, np.diff(negatives.offsets))
    sizes = np.where(half, np.diff(negatives.offsets), 0)
    cut = replace(
        negatives, src=negatives.src[keep], dst=negatives.dst[keep], offsets=np.concatenate([[0], np.cumsum(sizes)])
    )
    whole = evaluate_link(scorer, stream, split, strategies=("ranking",), negatives={("test", "ranking"): negatives})
    with pytest.warns(HopstateWarning):
        part = evaluate_link(scorer, stream, split, strategies=("ranking",), negatives={("test", "ranking"): cut})
    scores = whole.scores["test", "ranking"]
    expected = mrr(ranks(scores.positive, scores.negative, scores.offsets)[half])
    assert part.value("mrr", "ranking") == expected
    assert expected < 1


def test_probabilities_get_a_calibration_and_other_scores_do_not():
    stream = made_stream()
    split = chronological_split(stream)
    bank = evaluate_link(EdgeBank(stream.num_nodes), stream, split)
    assert 0 <= bank.rows[0]["ece"] <= 1
    others = (~bank.scores["test", "random"].collisions).sum()
    assert bank.reliability["test", "random"].count.sum() == len(split.test) + others
    assert not evaluate_link(Recency(NeighborStore.from_stream(stream)), stream, split).reliability


def score_queries(scorer, stream, src, dst, t, *, batch_size):
    """Return scores (Q,) of pairs at any times."""
    return replay_anywhere(scorer, lambda rows: scorer.score(src[rows], dst[rows], t[rows]), stream, t, batch_size)


def test_any_query_is_scored_with_earlier_batches_only():
    stream = made_stream(200, span=40)
    times = np.array([39, -1, 12, 100, 13])
    model = Recorder()
    scores = score_queries(model, stream, np.arange(5), np.arange(5), times, batch_size=16)
    assert len(scores) == 5
    assert model.seen == list(range(200))
    assert model.queries[0] == (1, 0)
    assert sum(count for count, _ in model.queries) == 5
    whole = Recorder()
    score_queries(whole, stream, np.array([0]), np.array([0]), np.array([100]), batch_size=200)
    assert whole.queries == [(1, 200)]  # a full batch is observed


def test_bad_scores_and_settings_are_named():
    stream = made_stream()
    split = chronological_split(stream)

    class Broken(Recorder):
        value = np.nan

        def score(self, src, dst, t):
            return np.full(len(src), self.value)

    class Endless(Broken):
        value = np.inf

    class Wide(Recorder):
        def score(self, src, dst, t):
            return np.zeros((len(src), 1))

    for broken in (Broken(), Endless()):
        with pytest.raises(DataError, match="row 0"):
            evaluate_link(broken, stream, split)
    with pytest.raises(ShapeError):
        evaluate_link(Wide(), stream, split)
    with pytest.raises(ConfigError, match="protocol"):
        evaluate_link(Recorder(), stream, split, protocol="mean")
    with pytest.raises(ConfigError, match="train"):
        evaluate_link(Recorder(), stream, split, "train")
    with pytest.raises(ConfigError, match="hard"):
        evaluate_link(Recorder(), stream, split, strategies=("hard",))
    wrong = {("test", "random"): draw_negatives(stream, split, "val")}
    with pytest.raises(DataError):
        evaluate_link(Recorder(), stream, split, strategies=("random",), negatives=wrong)


PUBLISHED = {  # AP of DyGLib's EdgeBank under its own choice of memory: random, historical, inductive
    "uci": [(0.7620, {}), (0.6550, {"memory": "window"}), (0.5743, {"memory": "window", "window": "repeat"})],
    "enron": [
        (0.8353, {"memory": "window"}),
        (0.7653, {"memory": "window", "window": "repeat"}),
        (0.7389, {"memory": "threshold"}),
    ],
}


def real(shared, name: str) -> EventStream:
    table = pd.read_csv(shared / f"data/temporal/{name}/ml_{name}.csv")
    return EventStream.from_arrays(table.u.to_numpy() - 1, table.i.to_numpy() - 1, table.ts.to_numpy(), name=name)


@pytest.mark.shared
@pytest.mark.parametrize("name", ["uci", "enron"])
def test_edgebank_reproduces_the_published_results(shared, name):
    stream = real(shared, name)
    split = dyglib_split(stream)
    for (published, settings), strategy in zip(PUBLISHED[name], ("random", "historical", "inductive"), strict=True):
        model = EdgeBank(stream.num_nodes, EdgeBank.Config(**settings))
        report = evaluate_link(model, stream, split, strategies=(strategy,), protocol="dyglib")
        ap = report.value("average_precision", strategy)
        if strategy == "random":
            assert round(ap, 4) == published
        assert ap == pytest.approx(published, abs=0.005)


RECENCY = {  # AUC (AP) of random, historical, inductive; transductive, then inductive
    "uci": [0.9060, 0.9070, 0.8007, 0.8932, 0.7475, 0.8445, 0.8957, 0.8967, 0.7619, 0.8586, 0.7618, 0.8586],
    "enron": [0.9133, 0.9002, 0.8440, 0.8814, 0.7927, 0.8247, 0.8956, 0.8789, 0.8229, 0.8574, 0.8229, 0.8574],
}


@pytest.mark.shared
@pytest.mark.parametrize("name", ["uci", "enron"])
def test_recency_reproduces_the_baseline(shared, name):
    stream = real(shared, name)
    split, store = dyglib_split(stream), NeighborStore.from_stream(stream)
    report = evaluate_link(Recency(store), stream, split)
    found = [value for row in report.rows for value in (row["roc_auc"], row["average_precision"])]
    random = [0, 1, 6, 7]
    np.testing.assert_allclose(np.take(found, random), np.take(RECENCY[name], random), atol=F32_SUM)
    # The others are from one draw of other generators: their spread over seeds is up to 0.0015 here.
    np.testing.assert_allclose(found, RECENCY[name], atol=0.005)
    directed = evaluate_link(Recency(store, directed=True), stream, split)
    if name == "uci":
        auc = [row["roc_auc"] for row in directed.rows[:3]]
        np.testing.assert_allclose(auc, [0.8507, 0.6876, 0.6171], atol=HALF)


class Unshown(Recency):
    """Fails if it observes an event."""

    def observe(self, batch) -> None:
        raise AssertionError("a model that only looks up was shown events")


def test_a_stateless_model_observes_no_events():
    stream = made_stream()
    split = chronological_split(stream)
    shown = Recency(NeighborStore.from_stream(stream))
    shown.observes = True
    a, b = (evaluate_link(m, stream, split) for m in (shown, Unshown(NeighborStore.from_stream(stream))))
    assert a.rows == b.rows


@pytest.mark.parametrize("whole_ties", [True, False])
@pytest.mark.parametrize("batch_size", [1, 7, 200, 5000])
def test_sliced_scores_equal_those_of_one_call(batch_size, whole_ties):
    """Compare slices with a replay over all queries in one call: random numbers of negatives, and deletions."""
    rng = np.random.default_rng(1)
    stream = made_stream(500, span=90)
    stream = stream.with_(kind=(rng.random(500) < 0.1).astype(np.int8), from_start=False)
    rows = np.concatenate([np.arange(100, 300), np.arange(310, 400)])
    sets = {}
    for name, share in (("all", 1.0), ("some", 0.3), ("none", 0.0)):
        own = stream.additions(rows)
        own = own[rng.random(len(own)) < share]
        sizes = rng.integers(0, 4, len(own))
        bounds = np.concatenate([[0], np.cumsum(sizes)])
        src, dst = rng.integers(0, 40, (2, bounds[-1]))
        sets["test", name] = Negatives(
            rows=own, offsets=bounds, src=src, dst=dst, strategy="random", seed=0, batch_size=200
        )
    own = stream.additions(rows)
    columns = [(stream.src[own], stream.dst[own], np.searchsorted(rows, own))]
    columns += [(s.src, s.dst, np.repeat(np.searchsorted(rows, s.rows), np.diff(s.offsets))) for s in sets.values()]
    src, dst, place = (np.concatenate(c) for c in zip(*columns, strict=True))
    t, naive, sliced = stream.t[rows][place], Recorder(), Recorder()
    for model in (naive, sliced):
        model.seen_t = stream.t[:1] - 1
        model.score = lambda u, v, t, m=model: (m.queries.append((u, v, t)), (u * 31 + v * 17 + len(m.seen)) % 97 / 97)[
            1
        ]
    edges = batch_boundaries(stream.t[rows], batch_size, keep_ties=whole_ties)
    before = event_batches(stream, np.arange(rows[0]), batch_size=batch_size)
    expected = replay(
        naive,
        lambda at: naive.score(src[at], dst[at], t[at]),
        stream,
        place,
        rows=rows,
        boundaries=edges,
        history=before,
    )
    found = score_split(sliced, stream, rows, sets, batch_size=batch_size, keep_ties=whole_ties)
    assert len(naive.queries) == len(sliced.queries)
    for a, b in zip(naive.queries, sliced.queries, strict=True):
        for one, other in zip(a, b, strict=True):
            np.testing.assert_array_equal(one, other)
    at = len(own)
    for key, drawn in sets.items():
        np.testing.assert_array_equal(found[key].positive, expected[np.searchsorted(own, drawn.rows)])
        np.testing.assert_array_equal(found[key].negative, expected[at : at + len(drawn.src)])
        at += len(drawn.src)


def test_negatives_of_other_events_are_rejected():
    stream = made_stream()
    split, model = chronological_split(stream), Recorder()
    drawn = draw_negatives(stream, split, "val")
    with pytest.raises(DataError):
        score_split(model, stream, split.test, {("val", "random"): drawn})


def test_events_of_new_pairs_only_have_no_separate_table_of_new_pairs(tmp_path: Path) -> None:
    """One new item with a single event has no candidate pairs; the other events are evaluated."""
    rng = np.random.default_rng(0)
    src, dst = rng.integers(0, 6, 300), rng.integers(6, 12, 300)
    dst[-5] = 12
    stream = EventStream(src=src, dst=dst, t=np.arange(300), num_nodes=13)
    split = chronological_split(stream)
    assert len(split.new_test) == 1
    found = link_negatives(stream, split, "test", DEFAULT_STRATEGIES, 5, 0, None, None)
    assert {name for name, _ in found} == {"test", "new_test"}
    assert {strategy for name, strategy in found if name == "test"} == set(DEFAULT_STRATEGIES)
    assert {strategy for name, strategy in found if name == "new_test"} == {"random"}
    run = fit("recency", stream, out=tmp_path / "run", config={"loop.progress": False})
    assert {"historical_average_precision", "new_average_precision"} <= run.metrics["test"].keys()
    assert "new_historical_average_precision" not in run.metrics["test"]
    assert run.evaluate(stream, split="test", cold_start=True) == run.metrics["test"]
    one = EventStream(src=np.zeros(9, np.int64), dst=np.ones(9, np.int64), t=np.arange(9), num_nodes=2)
    with pytest.raises(NoOtherPairError):
        link_negatives(one, chronological_split(one), "test", ("historical",), 5, 0, None, None)
