"""Bins of features, found before scikit-learn sees them: it then bins what has few values, which is quick.

Its own bins of weighted rows are found a quantile at a time, each with a sort of all rows (1.9 and later), which took
longer than growing the trees; before that it took no weights. These are the bins of 1.9 from one sort a feature, so
that versions from 1.5 on grow the same trees.

Source: weighted quantiles are the averaged inverse of the distribution, Hyndman and Fan 1996,
doi:10.1080/00031305.1996.10473566, as in scikit-learn 1.9.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

MOST = 255  # bins of what is not missing
BINNED = 200_000  # rows that bins are found from at most, drawn by their weights
_FAR = 1e300  # no threshold lies beyond


@dataclass(frozen=True, eq=False)
class Bins:
    """Of each column the upper ends of all bins but the last, rising.

    Args:
        ends: C arrays (b,) float64; value x is in bin i where ends[i-1] < x <= ends[i].
        met: C arrays of the bins in which some row was.
        features: (C,) which features the columns are.
    """

    ends: list[np.ndarray]
    met: list[np.ndarray]
    features: np.ndarray

    @classmethod
    def put(cls, x: np.ndarray, weight: np.ndarray, seed: int, features: np.ndarray | None = None) -> Bins:
        """Return the bins of rows x (n, C), weights (n,), and write into x the number of each value's bin.

        What is missing stays so.

        Args:
            x: columns of features; quick where each lies in one piece.
            weight: of the rows.
            seed: of the rows that bins are found from, where there are many.
            features: (C,) which features the columns are; None for all.
        """
        rows = _drawn(weight, seed) if len(x) > BINNED else None
        ends, met = [], []
        for f in range(x.shape[1]):
            column = x[:, f]
            some, own = (column, weight) if rows is None else (column[rows], np.ones(len(rows)))
            ends.append(bin_ends(some.astype(np.float64), own))
            numbers, known = np.searchsorted(ends[-1], column.astype(np.float64)), ~np.isnan(column)
            column[known] = numbers[known]
            met.append(np.flatnonzero(np.bincount(numbers[known])))
        return cls(ends, met, np.arange(x.shape[1]) if features is None else features)

    def threshold(self, column: int, between: float) -> float:
        """Return up to which value a column goes left, that does so up to a number between those of two bins."""
        if not np.isfinite(between):
            return between  # known from missing
        met = self.met[column]
        return float(self.ends[column][met[np.searchsorted(met, between, side="right") - 1]])


def _drawn(weight: np.ndarray, seed: int) -> np.ndarray:
    """Return the rows that bins are found from, as scikit-learn draws them."""
    own = np.random.RandomState(seed).randint(np.iinfo(np.uint32).max, dtype="u8")
    return np.random.RandomState(own).choice(len(weight), BINNED, p=weight / weight.sum(), replace=True)


def bin_ends(column: np.ndarray, weight: np.ndarray) -> np.ndarray:
    """Return (b,) upper ends of the bins of values (n,): between the values where these are few, else quantiles.

    Args:
        column: float64, NaN where missing.
        weight: (n,) of each; those of weight 0 count as missing.
    """
    here = ~np.isnan(column) & (weight != 0)
    column, weight = column[here], weight[here]
    order = np.argsort(column)
    column, weight = column[order], weight[order]
    values = column[np.append(True, column[1:] != column[:-1])] if len(column) else column
    if len(values) <= MOST:
        found = (values[1:] + values[:-1]) / 2
    else:
        mass = np.cumsum(weight)
        wanted = np.linspace(0, 100, MOST + 1)[1:-1] / 100 * mass[-1]
        at = np.minimum(np.searchsorted(mass, wanted), len(mass) - 1)
        after = np.minimum(at + 1, len(mass) - 1)
        beyond = mass[at] - wanted > np.finfo(np.float64).eps
        found = np.where(beyond, column[at], (column[at] + column[after]) / 2)
    return np.minimum(np.unique(found), _FAR)
