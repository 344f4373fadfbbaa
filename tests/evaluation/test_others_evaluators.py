"""torch-geometric's metrics and TGB's evaluators agree with ours."""

import numpy as np
import pytest
import torch
from torch_geometric.metrics import LinkPredHitRatio, LinkPredMRR, LinkPredNDCG, LinkPredRecall

from hopstate.evaluation.link import LinkScores
from hopstate.evaluation.ranking import hits, mrr, ndcg, ranks
from hopstate.runs.load import load_run
from hopstate.runs.run import fit
from hopstate.sampling.event_batches import batch_boundaries, event_batches
from hopstate.sampling.negatives import one_against_many
from hopstate.streaming.replay import replay
from hopstate.testing.conformance import COARSE, F32_TIGHT
from made_events import LOOP, SMALL, repeating

METHODS = ["graphmixer", *(pytest.param(name, marks=pytest.mark.slow) for name in ("recency", "ctdg-ssm"))]


@pytest.fixture(scope="module", params=METHODS)
def run(request, tmp_path_factory):
    """Return a run of a model that ranks each test event among every destination."""
    many = {"evaluation.strategies": ["ranking"], "evaluation.num_negatives": "all"}
    return fit(
        request.param,
        repeating(),
        out=tmp_path_factory.mktemp("runs") / request.param,
        config={**LOOP, **SMALL[request.param], **many},
    )


@pytest.fixture(scope="module")
def evaluation(run):
    """Return its report."""
    with load_run(run.path) as (_, task):
        return task.report("test")


def lists(scored: LinkScores):
    """Return the scores of each positive and its candidates, the positive first."""
    parts = zip(scored.offsets, scored.offsets[1:])
    return [np.append(own, scored.negative[a:b]) for own, (a, b) in zip(scored.positive, parts, strict=True)]


def test_torch_geometric_gives_the_same_ranks_without_ties(evaluation):
    scored = evaluation.scores["test", "ranking"]
    untied = [row for row in lists(scored) if not (row[1:] == row[0]).any()]
    rank = np.array([(row[1:] > row[0]).sum() + 1 for row in untied])
    if not len(untied):
        pytest.skip("every event is tied with another candidate")
    wide = max(map(len, untied))
    order = torch.full((len(untied), wide), 10**6)
    for i, row in enumerate(untied):
        order[i, : len(row)] = torch.from_numpy(np.argsort(-row, kind="stable").copy())
    truth = torch.stack([torch.arange(len(untied)), torch.zeros(len(untied), dtype=torch.long)])
    bounds = np.concatenate([[0], np.cumsum([len(row) - 1 for row in untied])])
    own = ranks(np.array([row[0] for row in untied]), np.concatenate([row[1:] for row in untied]), bounds)
    assert np.array_equal(own, rank)
    expected = {
        LinkPredMRR(wide): mrr(own),
        LinkPredHitRatio(3): hits(own, 3),
        LinkPredRecall(3): hits(own, 3),  # each has one relevant candidate
        LinkPredNDCG(10): ndcg(own, 10).mean(),
    }
    for metric, value in expected.items():
        metric.update(order[:, : metric.k], truth)
        assert float(metric.compute()) == pytest.approx(value, abs=F32_TIGHT), type(metric).__name__


def test_tgbs_evaluator_gives_the_same_mrr_and_hits(evaluation):
    evaluate = pytest.importorskip("tgb.linkproppred.evaluate", reason="py-tgb is not installed")
    evaluator = evaluate.Evaluator(name="tgbl-wiki", k_value=10)
    found = [
        evaluator.eval({"y_pred_pos": row[:1], "y_pred_neg": row[1:], "eval_metric": ["mrr"]})
        for row in lists(evaluation.scores["test", "ranking"])
    ]
    for name in ("mrr", "hits@10"):
        assert evaluation.value(name, "ranking") == pytest.approx(np.mean([one[name] for one in found]), abs=F32_TIGHT)


def test_batched_scores_equal_scores_of_one_event_at_a_time(run, evaluation):
    """A call of the model for each event and its negatives, all between the same batches."""
    with load_run(run.path) as (_, task):
        stream, rows, scorer = task.stream, task.split.rows("test"), task.scorer("test")
        drawn = one_against_many(stream, task.split, "test", num_negatives="all")
        one_by_one = np.zeros(len(rows))

        def score(mine):
            for i in mine:
                dst = np.append(stream.dst[rows[i]], drawn.dst[drawn.offsets[i] : drawn.offsets[i + 1]])
                found = np.asarray(
                    scorer.score(np.full(len(dst), stream.src[rows[i]]), dst, stream.t[[rows[i]] * len(dst)])
                )
                one_by_one[i] = ranks(found[:1].astype(np.float64), found[None, 1:].astype(np.float64))[0]
            return one_by_one[mine]

        replay(
            scorer, score, stream, np.arange(len(rows)), rows=rows,
            boundaries=batch_boundaries(stream.t[rows], task.evaluation.batch_size),
            history=event_batches(stream, np.arange(rows[0]), batch_size=task.evaluation.batch_size),
        )  # fmt: skip
    scored = evaluation.scores["test", "ranking"]
    batched = ranks(scored.positive, scored.negative, scored.offsets)
    assert (batched == one_by_one).mean() > 0.98  # rounding in another batch may break ties
    assert evaluation.value("mrr", "ranking") == pytest.approx(mrr(one_by_one), abs=COARSE)
