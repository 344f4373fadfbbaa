"""Ranking metrics of positives among negatives: MRR, Hits@k, NDCG@k and recall@k. Ties count half.

Source: Huang et al. 2023, arXiv:2307.01026 (TGB), the evaluator.
Deviation: a NaN score is an error (in TGB, a NaN positive gets rank 1).
"""

from __future__ import annotations

import numpy as np

from hopstate.errors import DataError
from hopstate.streaming.replay import check_scores

_BLOCK = 1 << 15  # negatives that are compared at a time


def ranks(positive: np.ndarray, negative: np.ndarray, offsets: np.ndarray | None = None) -> np.ndarray:
    """Return the (P,) ranks (#(n > p) + #(n >= p)) / 2 + 1 of each positive among its negatives.

    Args:
        positive: (P,) scores.
        negative: (P, K) scores, or (T,) scores with offsets.
        offsets: (P+1,) offsets of each positive's negatives.

    Raises:
        DataError: there are no positives, or shapes disagree.
        DivergenceError: a score is NaN or infinite.
    """
    positive, negative = check_scores(positive), check_scores(negative)
    if offsets is None:
        if negative.ndim != 2:
            raise DataError(f"negative scores without offsets must be (P, K); got shape {negative.shape}")
        offsets = np.arange(len(negative) + 1) * negative.shape[1]
    negative = negative.reshape(-1)
    if not len(positive) or len(offsets) != len(positive) + 1 or offsets[-1] != len(negative):
        raise DataError(f"{len(positive)} positives, {len(offsets) - 1} rows of negatives, {len(negative)} negatives")
    return _above(positive, negative, np.asarray(offsets, np.int64)) / 2 + 1


def _above(positive: np.ndarray, negative: np.ndarray, offsets: np.ndarray) -> np.ndarray:
    """Return (P,) #(n > p) + #(n >= p), computed in blocks that fit the cache."""
    found, counts = np.zeros(len(positive), np.int64), np.diff(offsets)
    rows = np.flatnonzero(counts)  # an empty segment has no sum to reduce
    starts, positive, counts = offsets[rows], positive[rows], counts[rows]
    first = 0
    while first < len(rows):
        last = max(first + 1, int(np.searchsorted(starts, starts[first] + _BLOCK)))
        begin, end = starts[first], starts[last - 1] + counts[last - 1]
        own, other = np.repeat(positive[first:last], counts[first:last]), negative[begin:end]
        above = (other > own).view(np.int8) + (other >= own).view(np.int8)
        found[rows[first:last]] = np.add.reduceat(above, starts[first:last] - begin, dtype=np.int32)
        first = last
    return found


def mrr(rank: np.ndarray) -> float:
    """Return the mean reciprocal rank of ranks (P,).

    >>> mrr(np.array([1.0, 2.0, 4.0, 4.0]))
    0.5
    """
    return float((1 / rank).mean())


def hits(rank: np.ndarray, k: int) -> float:
    """Return the share of ranks (P,) that are at most k.

    Example:
        >>> hits(np.array([1.0, 2.0, 4.0, 4.0]), 3)
        0.5
    """
    return float((rank <= k).mean())


def ndcg(rank: np.ndarray, k: int) -> np.ndarray:
    """Return (P,) NDCG@k of each positive with one relevant candidate: 1 / log2(1 + rank), or 0 beyond k.

    >>> ndcg(np.array([1.0, 3.0, 11.0]), 10).tolist()
    [1.0, 0.5, 0.0]
    """
    return np.where(rank <= k, 1 / np.log2(1 + rank), 0.0)


def recall_at_k(rank: np.ndarray, k: int, query: np.ndarray) -> np.ndarray:
    """Return (Q,) recall@k of each query: the share of its positives with rank at most k.

    Args:
        rank: (P,) ranks.
        k: cutoff.
        query: (P,) query number 0..Q-1 of each positive.

    >>> recall_at_k(np.array([1.0, 20.0, 2.0]), 10, np.array([0, 0, 1])).tolist()
    [0.5, 1.0]
    """
    return np.bincount(query, rank <= k) / np.bincount(query)
