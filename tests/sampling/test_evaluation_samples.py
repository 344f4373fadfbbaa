"""Large splits are evaluated on a sample of events: which events, which negatives, and what a run reports."""

import json
from pathlib import Path

import numpy as np
import pytest

import hopstate
from hopstate.data.events import EventStream
from hopstate.data.neighbor_store import NeighborStore
from hopstate.data.splits import EventSplit, dyglib_split
from hopstate.errors import ConfigError, DataError
from hopstate.evaluation.link import evaluate_link
from hopstate.methods import get_method
from hopstate.methods.config import config_from
from hopstate.methods.heuristics.method import Recency
from hopstate.sampling.event_batches import rows_of_batches, sample_batches, sample_rows
from hopstate.sampling.negatives import DEFAULT_STRATEGIES, draw_negatives, load_or_draw, one_against_many


def events(count: int = 8000) -> EventStream:
    rng = np.random.default_rng(2)
    src = rng.integers(0, 60, count)
    return EventStream(src=src, dst=60 + (src * 3 + rng.integers(0, 4, count)) % 40, t=np.arange(count) // 2)


@pytest.fixture(scope="module")
def data() -> tuple[EventStream, EventSplit]:
    stream = events()
    return stream, dyglib_split(stream)


@pytest.mark.parametrize(("count", "most"), [(0, 5), (1, 1), (200, 200), (200, None), (401, 401), (10**5, None)])
def test_small_splits_are_evaluated_completely(count: int, most: int | None) -> None:
    rows = np.arange(count) * 3
    np.testing.assert_array_equal(sample_rows(rows, most), rows)


@pytest.mark.parametrize(("count", "most"), [(201, 200), (1999, 400), (2000, 1999), (10_001, 3000), (10**6, 10**5)])
def test_large_splits_are_sampled_by_batches_evenly(count: int, most: int) -> None:
    numbers = sample_batches(count, most)
    batches, kept = -(-count // 200), most // 200
    assert len(numbers) == kept
    assert (np.diff(numbers) > 0).all()
    assert 0 <= numbers[0] <= numbers[-1] < batches
    assert (numbers * kept // batches - np.arange(kept)).__abs__().max() <= 1  # no range is skipped
    rows = sample_rows(np.arange(count), most)
    assert len(rows) <= most
    np.testing.assert_array_equal(np.unique(rows // 200), numbers)
    assert all(len(rows[rows // 200 == b]) == min(200, count - 200 * b) for b in numbers[-3:])
    np.testing.assert_array_equal(numbers, sample_batches(count, most))  # drawn from one seed


def test_rows_of_batches_equal_a_concatenation() -> None:
    rows = np.arange(95) * 2
    for numbers in ([0, 1, 2], [2, 3], [0, 3], [1], [3]):
        expected = np.concatenate([rows[30 * b : 30 * b + 30] for b in numbers])
        np.testing.assert_array_equal(rows_of_batches(rows, np.array(numbers), 30), expected)


@pytest.mark.parametrize("split", ["val", "test", "new_test"])
@pytest.mark.parametrize("strategy", DEFAULT_STRATEGIES)
def test_sampled_events_keep_their_negatives(data, split, strategy) -> None:
    stream, splits = data
    whole = draw_negatives(stream, splits, split, strategy, batch_size=40)
    sample = draw_negatives(stream, splits, split, strategy, batch_size=40, max_events=200)
    np.testing.assert_array_equal(sample.rows, rows_of_batches(whole.rows, sample_batches(len(whole), 200, 40), 40))
    assert 160 < len(sample) <= 200 < len(whole)
    expected = whole.take(sample.rows)
    np.testing.assert_array_equal(sample.src, expected.src)
    np.testing.assert_array_equal(sample.dst, expected.dst)


def test_sampled_events_keep_their_ranking_candidates(data) -> None:
    stream, splits = data
    sample, whole = (one_against_many(stream, splits, "test", num_negatives=7, max_events=most) for most in (400, None))
    assert len(sample) == 400 < len(whole)
    expected = whole.take(sample.rows)
    np.testing.assert_array_equal(sample.offsets, expected.offsets)
    np.testing.assert_array_equal(sample.dst, expected.dst)


class Counter:
    """Scores depend on the number of observed events; queries are counted."""

    def __init__(self) -> None:
        self.queried, self.seen = 0, 0

    def reset(self) -> None:
        self.seen = 0

    def score(self, src, dst, t):
        self.queried += len(src)
        return (src * 31 + dst * 17 + self.seen) % 97 / 97

    def observe(self, batch) -> None:
        self.seen += len(batch)


@pytest.mark.parametrize("protocol", ["pooled", "dyglib"])
def test_sampled_events_keep_their_scores_and_no_others_are_scored(data, protocol) -> None:
    stream, splits = data
    strategies = (*DEFAULT_STRATEGIES, "ranking")
    found, seen = [], []
    for most in (400, None):
        model = Counter()
        own = evaluate_link(
            model, stream, splits, strategies=strategies, protocol=protocol, num_negatives=5, max_events=most
        )
        found.append(own)
        if most:
            positives = np.unique(np.concatenate([scores.rows for scores in own.scores.values()]))
            assert model.queried == len(positives) + sum(len(scores.negative) for scores in own.scores.values())
        seen.append(model.seen)
    assert seen[0] == seen[1]  # the model also observes events that are not evaluated
    sample, whole = found
    for key, sampled in sample.scores.items():
        full = whole.scores[key]
        np.testing.assert_array_equal(sampled.rows, sample_rows(full.rows, 400))
        place = np.searchsorted(full.rows, sampled.rows)
        np.testing.assert_allclose(sampled.positive, full.positive[place], rtol=1e-5, atol=1e-6)
        assert sample.value("num_events", key[1], key[0]) == len(sampled.rows)
        assert len(sampled.rows) < len(full.rows) or key[0] == "new_test"
    random = whole.scores["test", "random"]
    np.testing.assert_allclose(
        sample.scores["test", "random"].negative,
        random.negative[np.searchsorted(random.rows, sample.scores["test", "random"].rows)],
        rtol=1e-5,
        atol=1e-6,
    )


def test_a_sampled_metric_is_close_to_the_full_one(data) -> None:
    stream, splits = data
    model = Recency(NeighborStore.from_stream(stream))
    sample, whole = (evaluate_link(model, stream, splits, max_events=most) for most in (600, None))
    for strategy in DEFAULT_STRATEGIES:
        assert sample.value("average_precision", strategy) == pytest.approx(
            whole.value("average_precision", strategy), abs=0.06
        )


def test_negatives_of_a_full_split_are_rejected_for_a_sample(data, tmp_path: Path) -> None:
    stream, splits = data
    load_or_draw(tmp_path / "a.npz", stream, splits, "test")
    with pytest.raises(DataError):
        load_or_draw(tmp_path / "a.npz", stream, splits, "test", max_events=400)
    drawn = {("test", "random"): draw_negatives(stream, splits, "test")}
    with pytest.raises(DataError):
        evaluate_link(Counter(), stream, splits, strategies=("random",), negatives=drawn, max_events=400)


def test_a_run_reports_how_many_events_it_evaluates(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = {"evaluation.strategies": ["random", "ranking"], "evaluation.max_events": 400}
    run = hopstate.fit("recency", events(), out=tmp_path / "run", config=config)
    assert capsys.readouterr().err.count("400 of 1,200") == 2
    data_json = json.loads((run.path / "data.json").read_text())
    assert data_json["evaluated_events"] == {"val": [400, 1200], "test": [400, 1200]}
    assert run.evaluate() == run.metrics["test"]
    assert "of 1,200" not in capsys.readouterr().err
    whole = hopstate.fit("recency", events(), out=tmp_path / "whole", config={**config, "evaluation.max_events": "all"})
    assert "of 1,200" not in capsys.readouterr().err
    assert "evaluated_events" not in json.loads((whole.path / "data.json").read_text())
    assert whole.metrics["test"] != run.metrics["test"]


@pytest.mark.parametrize("bad", [0, -3, "some"])
def test_an_invalid_sample_size_is_rejected(bad) -> None:
    with pytest.raises(ConfigError, match="max_events"):
        config_from(get_method("recency"), {"data": "x", "evaluation.max_events": bad})
