"""Summaries and tests against scipy's own on raw values, and against closed forms."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from hopstate.runs.reproduce import Published, compare
from hopstate.runs.summary import Summary, paired, summary


def published(mean: float, std: float | None, runs: int) -> Published:
    return Published(metric="accuracy", mean=mean, std=std, runs=runs, source="Table 1")


def test_summary_is_mean_and_sample_standard_deviation() -> None:
    values = [0.1, 0.4, 0.7, 0.2]
    found = summary(values)
    assert found is not None
    assert (found.mean, found.std) == pytest.approx((np.mean(values), np.std(values, ddof=1)))
    assert summary([]) is None
    assert summary([0.5]) == Summary(0.5, None, 1)


def test_the_interval_is_students_t() -> None:
    values = [0.1, 0.4, 0.7, 0.2]
    found = summary(values)
    assert found is not None
    sem = stats.sem(values)
    assert found.interval() == pytest.approx(stats.t.interval(0.95, 3, loc=np.mean(values), scale=sem))
    assert Summary(0.5, None, 1).interval() is None


def test_the_paired_test_equals_scipys() -> None:
    rng = np.random.default_rng(3)
    first = rng.normal(0.8, 0.1, 10)
    second = first - rng.normal(0.02, 0.03, 10)
    found = paired(first.tolist(), second.tolist())
    assert found is not None
    assert found.difference == pytest.approx((first - second).mean())
    assert found.error == pytest.approx(stats.sem(first - second))
    assert found.p == pytest.approx(stats.ttest_rel(first, second).pvalue)
    back = paired(second.tolist(), first.tolist())
    assert back is not None
    assert (back.difference, back.error, back.p) == pytest.approx((-found.difference, found.error, found.p))
    shuffled = paired(first[::-1].tolist(), second[::-1].tolist())
    assert shuffled is not None
    assert shuffled.p == pytest.approx(found.p)


def test_pairs_without_a_spread_have_no_test() -> None:
    assert paired([0.5], [0.4]) is None
    assert paired([0.5, 0.6], [0.4]) is None
    assert paired([0.5, math.nan], [0.4, 0.3]) is None
    same = paired([0.5, 0.75], [0.25, 0.5])
    assert same is not None
    assert (same.difference, same.error, same.p) == (0.25, 0.0, None)


def test_welch_equals_the_test_on_raw_values() -> None:
    rng = np.random.default_rng(0)
    ours, theirs = rng.normal(0.9, 0.02, 5), rng.normal(0.88, 0.05, 10)
    mine = summary(ours.tolist())
    assert mine is not None
    _, p = compare(mine, published(float(theirs.mean()), float(theirs.std(ddof=1)), 10))
    assert p == pytest.approx(stats.ttest_ind(ours, theirs, equal_var=False).pvalue)


@pytest.mark.parametrize(("std", "runs"), [(None, 10), (None, 0), (0.01, 0), (0.01, 1)])
def test_without_the_papers_spread_or_number_the_test_is_one_sample(std: float | None, runs: int) -> None:
    values = [0.90, 0.91, 0.93]
    mine = summary(values)
    assert mine is not None
    _, p = compare(mine, published(0.88, std, runs))
    assert p == pytest.approx(stats.ttest_1samp(values, 0.88).pvalue)


def test_no_test_without_enough_runs_or_spread() -> None:
    assert compare(Summary(0.9, None, 1), published(0.8, 0.1, 10))[1] is None
    assert compare(Summary(0.9, 0.0, 3), published(0.9, None, 1))[1] is None
    assert compare(Summary(1.0, 0.0, 3), published(1.0, 0.0, 5))[1] is None
    assert compare(Summary(1.0, 0.0, 3), published(0.98, 0.01, 5))[1] is not None
