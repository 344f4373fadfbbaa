"""Means with confidence intervals, and tests of measured against published figures from summary statistics."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from hopstate.runs.reproduce.recipes import Published


@dataclass(frozen=True)
class Summary:
    """Mean and spread of independent runs.

    Args:
        mean: of the values.
        std: with n - 1 in the denominator, or None for a single run.
        runs: n.
    """

    mean: float
    std: float | None
    runs: int

    def interval(self, level: float = 0.95) -> tuple[float, float] | None:
        """Return the confidence interval of the mean by Student's t, or None for a single run."""
        if self.std is None:
            return None
        from scipy.stats import t

        half = float(t.ppf((1 + level) / 2, self.runs - 1)) * self.std / math.sqrt(self.runs)
        return self.mean - half, self.mean + half


@dataclass(frozen=True)
class Difference:
    """Measured minus published.

    Args:
        difference: of the means.
        test: "Welch's t", "one-sample t", or "none".
        p: two-sided p value, or None without a test.
        reason: why there is no test.
    """

    difference: float
    test: str
    p: float | None = None
    reason: str = ""

    def __str__(self) -> str:
        return f"{self.test}, p = {self.p:.2g}" if self.p is not None else f"no test: {self.reason}"


@dataclass(frozen=True)
class Paired:
    """What one method has over another on the same splits and seeds.

    Args:
        difference: mean of the runs' differences, the first method's figure minus the second's.
        error: standard error of that mean.
        runs: pairs.
        p: two-sided p value of Student's paired t test; None where all differences are equal.
    """

    difference: float
    error: float
    runs: int
    p: float | None


def paired(first: Sequence[float], second: Sequence[float]) -> Paired | None:
    """Return how runs of two methods differ pair by pair; None for fewer than two pairs, or unequal or missing ones."""
    if len(first) != len(second) or len(first) < 2:
        return None
    found = summary([a - b for a, b in zip(first, second)])
    assert found is not None
    assert found.std is not None
    if not math.isfinite(found.mean):
        return None
    error = found.std / math.sqrt(found.runs)
    if error <= 1e-12 * max(abs(v) for v in (*first, *second)):  # rounding
        return Paired(found.mean, 0.0, found.runs, None)
    from scipy import stats

    p = 2 * stats.t.sf(abs(found.mean) / error, found.runs - 1)
    return Paired(found.mean, error, found.runs, float(p))


def summary(values: Sequence[float]) -> Summary | None:
    if not values:
        return None
    n, mean = len(values), math.fsum(values) / len(values)
    std = math.sqrt(math.fsum((v - mean) ** 2 for v in values) / (n - 1)) if n > 1 else None
    return Summary(mean, std, n)


def compare(measured: Summary, published: Published) -> Difference:
    """Return whether measured runs differ from a published figure, by the test that its details allow.

    Welch's t test where the published figure states a spread and a number of runs; else Student's one-sample t test
    against the published mean, taken as exact; none for a single run or where nothing has a spread.
    """
    difference = measured.mean - published.mean
    if measured.std is None:
        return Difference(difference, "none", reason="one run")
    both = published.std is not None and published.runs > 1
    if not measured.std and not (both and published.std):
        return Difference(difference, "none", reason="no spread")
    from scipy import stats

    if both:
        found = stats.ttest_ind_from_stats(
            measured.mean, measured.std, measured.runs, published.mean, published.std, published.runs, equal_var=False
        )
        return Difference(difference, "Welch's t", float(found.pvalue))
    t = difference / (measured.std / math.sqrt(measured.runs))
    return Difference(difference, "one-sample t", float(2 * stats.t.sf(abs(t), measured.runs - 1)))
