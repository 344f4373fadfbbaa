"""Training of trees: negatives of both kinds, excluded columns, any number of threads."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from threadpoolctl import threadpool_limits

from hopstate.data.events import EventStream
from hopstate.data.splits import chronological_split
from hopstate.errors import ConfigError
from hopstate.methods.pair_trees import method
from hopstate.methods.pair_trees.method import fit_trees, training_table
from hopstate.methods.pair_trees.trees import PairTrees
from hopstate.testing.conformance import F64
from hopstate.tokens.pair_features import varied_columns

SMALL = PairTrees.Config(num_trees=10, min_leaf=10)


class Ends:
    """Its features are the pair and the query time."""

    store = None

    def pairs(self, u: np.ndarray, v: np.ndarray, t: np.ndarray) -> np.ndarray:
        return np.stack([u, v, t], 1).astype(np.float32)


def events(count: int = 400) -> EventStream:
    rng = np.random.default_rng(0)
    src, dst = rng.integers(0, 8, count), 8 + rng.integers(0, 8, count)
    return EventStream(src=src, dst=dst, t=np.arange(count), num_nodes=16)


def table(rows: int = 1500) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(1)
    x = rng.normal(size=(rows, 5)).astype(np.float32)
    y = (x[:, 0] + 0.5 * rng.normal(size=rows) > 0).astype(int)
    x[rng.random(rows) < 0.2, 1] = np.nan
    return x, y


def fitted(x: np.ndarray, y: np.ndarray, **how: Any) -> PairTrees:
    model = PairTrees(SMALL, x.shape[1], np.empty(0, np.int64))
    fit_trees(model, x, y, seed=0, **how)
    return model


def test_the_table_has_the_latest_events_and_negatives_of_both_kinds() -> None:
    stream = events()
    split = chronological_split(stream)
    x, y = training_table(stream, split, Ends(), seed=0, max_events=100, random=2, historical=1)
    assert (len(x), y.sum()) == (400, 100)
    rows = split.train[-100:]
    np.testing.assert_array_equal(x[:100], np.stack([stream.src[rows], stream.dst[rows], stream.t[rows]], 1))
    np.testing.assert_array_equal(x[:, 2], np.tile(stream.t[rows], 4))  # negatives at the events' own times
    first, second, historical = x[100:200], x[200:300], x[300:]
    assert (first[:, 1] != second[:, 1]).mean() > 0.5  # each has its own negatives
    began = {(u, v): t for u, v, t in zip(stream.src[::-1], stream.dst[::-1], stream.t[::-1], strict=True)}
    assert np.mean([began.get((u, v), np.inf) < t for u, v, t in historical.tolist()]) > 0.7


def test_pairs_are_drawn_before_features_are_computed(monkeypatch: pytest.MonkeyPatch) -> None:
    """For a large mapped stream, either needs gigabytes."""
    calls: list[str] = []
    draw, read = method.draw_negatives, Ends.pairs
    monkeypatch.setattr(method, "draw_negatives", lambda *a, **k: (calls.append("draw"), draw(*a, **k))[1])
    monkeypatch.setattr(Ends, "pairs", lambda *a: (calls.append("read"), read(*a))[1])
    stream = events()
    training_table(stream, chronological_split(stream), Ends(), seed=0, max_events=50, random=2, historical=2)
    assert calls == ["draw"] * 4 + ["read"] * 5


def test_without_repeat_pairs_only_random_negatives_remain() -> None:
    stream = EventStream(src=np.zeros(60, np.int64), dst=np.ones(60, np.int64), t=np.arange(60), num_nodes=3)
    split = chronological_split(stream)
    x, y = training_table(stream, split, Ends(), seed=0, max_events=100, random=2, historical=1)
    assert len(x) == 3 * y.sum()
    empty = replace(split, train=np.empty(0, np.int64))
    with pytest.raises(ConfigError, match="training split"):
        training_table(stream, empty, Ends(), seed=0, max_events=100, random=1, historical=0)


def test_scores_are_log_odds_against_one_negative() -> None:
    """For any number of negatives per event."""
    x = np.random.default_rng(2).normal(size=(1200, 1)).astype(np.float32)
    model = fitted(x, np.repeat([1, 0], [200, 1000]))
    assert abs(model.forest.scores(x).mean()) < 0.4  # ln 5 = 1.6 otherwise


def test_no_tree_uses_an_excluded_or_missing_column() -> None:
    x, y = table()
    x[:, 3] = np.nan
    share = fitted(x, y, excluded=(0,)).importances()
    assert share[[0, 3]].tolist() == [0, 0]
    assert share.sum() == pytest.approx(1)
    lost = np.full((60, 2), np.nan, np.float32)
    assert not fitted(lost, np.repeat([1, 0], 30)).importances().any()


def test_threads_do_not_change_trees() -> None:
    x, y = table()
    found = []
    for count in (1, 2):
        with threadpool_limits(limits=count):
            found.append(fitted(x, y).forest.scores(x))
    np.testing.assert_allclose(found[0], found[1], rtol=F64)


def test_only_the_first_standardised_features_are_used() -> None:
    """The selection must not depend on rounding of their deviations, which differs between training splits."""
    x = np.random.default_rng(0).gamma(1.0, size=(5000, 12))
    x = ((x - x.mean(0)) / x.std(0)).astype(np.float32)
    x[:, 9] *= 2
    node = np.zeros(5000, np.int64)
    stream = EventStream(src=node, dst=node + 1, t=np.arange(5000), num_nodes=2, edge_attr=x)
    assert varied_columns(stream, np.arange(5000), 4).tolist() == [0, 1, 2, 9]
