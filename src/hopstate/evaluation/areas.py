"""Average precision and the area under the ROC curve, from scores of positives and of negatives apart.

Both are means over the positives: of the precision at a positive's score, and of the share of negatives below it, those
level with it counting half. So beside sorted copies of the scores there is little to hold, however many they are. The
area is exact, a quotient of whole numbers; average precision is to rounding.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

STEP = 1 << 20  # positives that are looked up together


def average_precision_of(positive: np.ndarray, negative: np.ndarray) -> float:
    """Return the average precision of scores (P,) and (T,) in any order; NaN without positives.

    >>> average_precision_of(np.array([0.35, 0.8]), np.array([0.1, 0.4]))
    0.8333333333333333
    """
    positive, negative = np.sort(positive), np.sort(negative)
    if not len(positive):
        return float("nan")
    total = 0.0
    for some in _parts(positive):
        hit = len(positive) - np.searchsorted(positive, some)
        total += float((hit / (hit + len(negative) - np.searchsorted(negative, some))).sum())
    return total / len(positive)


def roc_auc_of(positive: np.ndarray, negative: np.ndarray) -> float:
    """Return the area under the ROC curve of scores (P,) and (T,) in any order; NaN where one of them is empty.

    >>> roc_auc_of(np.array([0.35, 0.8]), np.array([0.1, 0.4]))
    0.75
    """
    positive, negative = np.sort(positive), np.sort(negative)
    if not len(positive) or not len(negative):
        return float("nan")
    twice = 0
    for some in _parts(positive):
        for side in ("left", "right"):
            twice += int(np.searchsorted(negative, some, side=side).sum())
    return twice / (2 * len(positive) * len(negative))


def _parts(values: np.ndarray) -> Iterator[np.ndarray]:
    for first in range(0, len(values), STEP):
        yield values[first : first + STEP]


__all__ = ["average_precision_of", "roc_auc_of"]
