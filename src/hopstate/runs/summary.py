"""Summarize metrics over runs and test their differences."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from hopstate.evaluation.labels import baseline_label, links_label, negatives_label
from hopstate.evaluation.metrics import FULL_WEIGHT_EVENTS

EVENT_BASELINES = ("recency", "edgebank", "pair-trees")  # baselines of event streams that are methods, too


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

    def interval(self) -> tuple[float, float] | None:
        """Return the 95% confidence interval of the mean by Student's t, or None for a single run."""
        if self.std is None:
            return None
        from scipy.stats import t

        half = float(t.ppf(0.975, self.runs - 1)) * self.std / math.sqrt(self.runs)
        return self.mean - half, self.mean + half


def summary(values: Sequence[float]) -> Summary | None:
    if not values:
        return None
    std = float(np.std(values, ddof=1)) if len(values) > 1 else None
    return Summary(float(np.mean(values)), std, len(values))


@dataclass(frozen=True)
class Paired:
    """Paired difference of two methods over the same splits and seeds.

    Args:
        difference: mean over runs of the first method's metric minus the second's.
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
    from scipy import stats

    differences = np.subtract(first, second)
    mean, error = float(differences.mean()), float(stats.sem(differences))
    if not math.isfinite(mean):
        return None
    if error <= 1e-12 * max(abs(v) for v in (*first, *second)):  # rounding
        return Paired(mean, 0.0, len(first), None)
    return Paired(mean, error, len(first), float(stats.ttest_rel(first, second).pvalue))


# ---- costs -----------------------------------------------------------------------------------------------------------
def megabytes(value: float | None) -> str:
    return "" if value is None else f"{value:.0f} MB"


# ---- remarks on metrics of links -----------------------------------------------------------------------------------
def num_events(metric: str, metrics: Mapping[str, Any]) -> int | None:
    """Return how many events a metric of links is measured on, by the metrics of its split; None if unknown.

    >>> num_events("new_historical_average_precision", {"num_events": 1350, "new_num_events": 11})
    11
    """
    count = metrics.get("new_num_events" if metric.startswith("new_") else "num_events")
    return None if count is None else int(count)


def small_sample_note(events: int | None, of: str) -> str:
    """Return a warning if a metric has few events and so a large sampling error, otherwise "".

    >>> small_sample_note(11, "links with new nodes")
    'Links with new nodes: only 11 events, so expect a sampling error of several points.'
    """
    if events is None or events >= FULL_WEIGHT_EVENTS:
        return ""
    return f"{of[:1].upper()}{of[1:]}: only {events:,} events, so expect a sampling error of several points."


def self_negative_note(metrics: Mapping[str, Any]) -> str:
    """Report kinds of negatives that often equal their positive event; "" if there are none.

    Such a negative has the score of its event. At any threshold, about 1 event is then found with `share` negatives.

    >>> self_negative_note({"average_precision": 0.84, "collision_rate": 0.173})
    'All links: 17% of random negatives are their own event; AP cannot exceed about 85, ROC AUC 91.'
    """
    notes = []
    for name, share in metrics.items():
        if name.endswith("collision_rate"):
            kind = negatives_label(name).removesuffix(", new nodes")
            of = f"{links_label(name)}: {share:.0%} of {kind} negatives are their own event"
            limits = f"AP cannot exceed about {100 / (1 + share):.0f}, ROC AUC {100 - 50 * share:.0f}"
            notes.append(f"{of[:1].upper()}{of[1:]}; {limits}.")
    return " ".join(notes)


def baselines_not_exceeded(values: Mapping[str, float], baselines: Mapping[str, Mapping[str, float]]) -> str:
    """Describe which baselines the link metrics do not exceed, by kind of negatives; "" if none.

    NaN values are skipped. "all" means every one of several kinds.

    >>> recency = {"mrr": 0.8, "new_historical_mrr": 0.8}
    >>> baselines_not_exceeded({"mrr": 0.9, "new_historical_mrr": 0.7}, {"recency": recency})
    'recency on historical, new nodes'
    """
    only_new = all(metric.startswith("new_") for metric in values)
    names = []
    for name, baseline in baselines.items():
        labels = {m: negatives_label(m.removeprefix("new_") if only_new else m) for m in values if m in baseline}
        under = list(dict.fromkeys(label for m, label in labels.items() if values[m] <= baseline[m]))
        exceeds_one = any(values[m] > baseline[m] for m in labels)
        if under:
            kinds = "all" if len(under) > 1 and not exceeds_one else "; ".join(under)
            names.append(f"{baseline_label(name)} on {kinds}")
    return ", ".join(names)


def baselines_not_exceeded_by_method(
    means: Mapping[str, Mapping[str, float]], baselines: Collection[str]
) -> dict[str, str]:
    """Return name → what `baselines_not_exceeded` says of it and the baselines among the names but itself."""
    names_by_method = {}
    for name, metrics in means.items():
        names_by_method[name] = baselines_not_exceeded(
            metrics, {other: means[other] for other in means if other in baselines and other != name}
        )
    return names_by_method
