"""Ranks, MRR and Hits@k: the published check cases, ties, packed rows; py-tgb's evaluator if it is installed."""

import numpy as np
import pytest

from hopstate.errors import DataError
from hopstate.evaluation import ranking
from hopstate.evaluation.ranking import hits, mrr, ranks
from hopstate.testing.conformance import F32_TIGHT


def test_ranks_of_hand_written_cases():
    one = ranks(np.array([0.5]), np.array([[0.1, 0.5, 0.9]]))
    assert (one.tolist(), mrr(one)) == ([2.5], 0.4)
    tied = ranks(np.array([0.3]), np.full((1, 20), 0.3))
    assert tied.tolist() == [11]
    assert round(mrr(tied), 4) == 0.0909
    assert mrr(ranks(np.array([0.5, 0.2]), np.array([[0.1, 0.6], [0.1, 0.15]]))) == 0.75
    assert hits(np.array([1, 10, 10.5]), 10) == pytest.approx(2 / 3)


@pytest.mark.parametrize("block", [1, 3, 17, 1 << 15])
def test_packed_rows_equal_single_rows(block, monkeypatch):
    monkeypatch.setattr(ranking, "_BLOCK", block)  # blocks end between rows, and longer rows are blocks of their own
    rng = np.random.default_rng(0)
    positive, counts = rng.integers(0, 5, 50), rng.integers(0, 9, 50)
    offsets = np.concatenate([[0], np.cumsum(counts)])
    negative = rng.integers(0, 5, offsets[-1])
    packed = ranks(positive, negative, offsets)
    for i in range(50):
        own = negative[offsets[i] : offsets[i + 1]]
        assert packed[i] == ((own > positive[i]).sum() + (own >= positive[i]).sum()) / 2 + 1
    assert packed[counts == 0].tolist() == [1] * int((counts == 0).sum())


def test_nan_and_wrong_shapes_are_errors():
    with pytest.raises(DataError, match=r"(?i)nan"):
        ranks(np.array([np.nan]), np.ones((1, 2)))
    with pytest.raises(DataError, match=r"(?i)nan"):
        ranks(np.ones(1), np.array([[1, np.nan]]))
    with pytest.raises(DataError, match="positives"):
        ranks(np.ones(2), np.ones((1, 2)))
    with pytest.raises(DataError, match="positives"):
        ranks(np.ones(0), np.ones((0, 2)))


@pytest.mark.slow
def test_equals_the_evaluator_of_tgb():
    evaluate = pytest.importorskip("tgb.linkproppred.evaluate", reason="py-tgb is not installed")
    rng = np.random.default_rng(0)
    evaluator = evaluate.Evaluator(name="tgbl-wiki", k_value=10)
    for _ in range(10_000):
        negative = rng.integers(0, 6, rng.integers(1, 20)) / 7
        positive = rng.integers(0, 6, 1) / 7
        theirs = evaluator.eval({"y_pred_pos": positive, "y_pred_neg": negative, "eval_metric": ["mrr"]})["mrr"]
        assert mrr(ranks(positive, negative[None])) == pytest.approx(theirs, abs=F32_TIGHT)
