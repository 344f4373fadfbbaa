"""Evaluation of static link prediction: MRR and Hits@k, AP and ROC AUC.

For each end of a held-out link, the other end is ranked among nodes without a link to it in any split (filtered
ranking). The candidates are all such nodes or a fixed random sample, equal for all models and baselines. In directed
graphs only targets are ranked. Ties share the mean rank.

Source: Bordes et al. 2013 (filtered ranks); Hu et al. 2020, arXiv:2005.00687 (OGB's ranking of sampled candidates).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from hopstate.errors import DataError
from hopstate.evaluation.intervals import bootstrap_areas, bootstrap_mean, interval_columns
from hopstate.evaluation.metrics import average_precision, pairwise_loss, roc_auc
from hopstate.evaluation.ranking import hits, mrr, ranks
from hopstate.ops.rows import ranges
from hopstate.random import named_rng
from hopstate.sampling.pair_negatives import NonNeighbors
from hopstate.streaming.replay import check_scores

PairScorer = Callable[[np.ndarray, np.ndarray], np.ndarray]  # rows u (n,), v (n,) → (n,) scores
PAIRS = 1 << 20  # scored at a time
HITS = (1, 3, 10, 50)


@dataclass(frozen=True, eq=False, kw_only=True)
class LinkQueries:
    """Held-out links of a split and their candidates.

    Args:
        pairs: (P, 2) links.
        free: the non-neighbors of each node over all splits.
        directed: rank only targets.
        candidates: number of sampled candidates per node; None ranks all non-neighbors.
        seed: random seed of the candidates.
    """

    pairs: np.ndarray
    free: NonNeighbors
    directed: bool
    candidates: int | None
    seed: int = 0

    def ends(self) -> np.ndarray:
        """Return (Q, 2) pairs of query node and true node; undirected links are queried from both ends."""
        return self.pairs if self.directed else np.concatenate([self.pairs, self.pairs[:, ::-1]])

    def blocks(self) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]]:
        """Yield blocks of queries: (rows of `ends`, query node index, candidates, offsets by query node)."""
        ends = self.ends()
        nodes, source = np.unique(ends[:, 0], return_inverse=True)
        order = np.argsort(source, kind="stable")
        bounds = np.searchsorted(source[order], np.arange(len(nodes) + 1))
        num_candidates = self.free.num_nodes if self.candidates is None else self.candidates
        step = max(1, PAIRS // max(num_candidates, 1))
        for start in range(0, len(nodes), step):
            block = nodes[start : start + step]
            rng = named_rng(self.seed, "candidates", start)
            candidates, candidate_offsets = self.free.sample(block, num_candidates, rng)
            rows = order[bounds[start] : bounds[start + len(block)]]
            yield rows, source[rows] - start, candidates, candidate_offsets

    def negatives(self) -> np.ndarray:
        """Return (P, 2) one negative pair per link, for AP and ROC AUC; the target is -1 if there is none."""
        rng = named_rng(self.seed, "beside")
        ends = self.pairs
        if not self.directed:
            ends = np.where(rng.random(len(ends))[:, None] < 0.5, ends, ends[:, ::-1])
        return np.stack([ends[:, 0], self.free.draw(ends[:, 0], rng)], 1)


def link_ranks(question: LinkQueries, score: PairScorer) -> np.ndarray:
    """Return the (Q,) rank, from 1, of each of `LinkQueries.ends`."""
    ends = question.ends()
    rank = np.empty(len(ends))
    for rows, owner, nodes, cuts in question.blocks():
        counts = np.diff(cuts)
        filtered = np.repeat(np.unique(ends[rows, 0]), counts)
        both = check_scores(
            score(np.concatenate([filtered, ends[rows, 0]]), np.concatenate([nodes, ends[rows, 1]])), "scores of pairs"
        )
        own = both[len(nodes) :]
        step = max(1, 8 * PAIRS // max(int(counts.max(initial=1)), 1))
        for start in range(0, len(rows), step):
            at = owner[start : start + step]
            offsets = np.concatenate([[0], np.cumsum(counts[at])])
            negatives = both[: len(nodes)][ranges(cuts[at], counts[at])]
            rank[rows[start : start + step]] = ranks(own[start : start + step], negatives, offsets)
    return rank


@dataclass(frozen=True, eq=False, kw_only=True)
class LinkPredictions:
    """Ranks and scores of held-out links.

    Args:
        rank: (Q,) rank of each of `LinkQueries.ends`.
        scores: scores of the links, then of the negatives.
        y: 1 for links, 0 for negatives.
        loss: `pairwise_loss` of links and negatives, if scores are logits.
    """

    rank: np.ndarray
    scores: np.ndarray
    y: np.ndarray
    loss: float


def predict_links(question: LinkQueries, score: PairScorer) -> LinkPredictions:
    """Compute ranks of held-out links, and scores of links and negatives."""
    if not len(question.pairs):
        raise DataError("there are no links to rank in this split")
    rank = link_ranks(question, score)
    negatives = question.negatives()
    there = negatives[:, 1] >= 0
    negatives = negatives[there]
    scores = check_scores(score(*np.concatenate([question.pairs, negatives]).T), "scores of pairs")
    positive, negative = np.split(scores, [len(question.pairs)])
    y = np.repeat([1, 0], [len(positive), len(negative)])
    return LinkPredictions(rank=rank, scores=scores, y=y, loss=pairwise_loss(positive[there], negative))


def link_metrics(question: LinkQueries, score: PairScorer, *, bootstrap: int = 0) -> dict[str, float]:
    """Compute "mrr", "hits@1", ..., "average_precision" and "roc_auc" of a scorer."""
    return metrics_of(question, predict_links(question, score), bootstrap=bootstrap)


def metrics_of(question: LinkQueries, answers: LinkPredictions, *, bootstrap: int = 0) -> dict[str, float]:
    """Compute the metrics of `link_metrics` from existing predictions."""
    rank, scores, y = answers.rank, answers.scores, answers.y
    metrics = {"mrr": mrr(rank)} | {f"hits@{k}": hits(rank, k) for k in HITS}
    metrics |= {"average_precision": average_precision(y, scores), "roc_auc": roc_auc(y, scores)}
    if bootstrap:
        each = (1 / rank).reshape(-1, len(question.pairs)).mean(0)
        limits = {"mrr": bootstrap_mean(each, repeats=bootstrap, seed=question.seed)}
        positive, negative = scores[y == 1], scores[y == 0]
        if len(negative):
            limits |= bootstrap_areas(positive, negative, None, repeats=bootstrap, seed=question.seed)
        metrics |= interval_columns(limits)
    return metrics
