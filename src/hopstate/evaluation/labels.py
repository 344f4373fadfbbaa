"""Names and values of metrics as people write them."""

from __future__ import annotations

import math

from hopstate.evaluation.metrics import METRICS, label_with_class
from hopstate.sampling.negatives import parse_metric

LABELS = {  # of what a metric of `METRICS` is taken over
    "mean_average_precision": "mean AP",
    "mrr_repeat_pairs": "MRR of repeat pairs",
    "mrr_new_pairs": "MRR of new pairs",
    "mrr_new_nodes": "MRR with new nodes",
    "mrr_among_repeat_candidates": "MRR among repeat candidates",
}


def metric_label(metric: str, positive: str | None = None) -> str:
    """Return a metric's name as people write it: "historical_roc_auc" is "ROC AUC, historical negatives"."""
    name, strategy, new = parse_metric(metric)
    parts = [strategy.label] if strategy.name not in ("random", "ranking") else []
    parts += ["new nodes"] if new else []
    known = METRICS.get(name)
    label = known.label if known is not None else LABELS.get(name, name.replace("_", " "))
    return ", ".join([label_with_class(name, positive, label), *parts])


def baseline_label(name: str) -> str:
    """Return a baseline's name as people write it: "common_neighbors" is "common neighbors"."""
    return name.replace("_", " ")


def negatives_label(metric: str) -> str:
    """Return the kind of negatives of a link metric: "new_mrr" is "ranking, new nodes"."""
    _, strategy, new = parse_metric(metric)
    return f"{strategy.name}, new nodes" if new else strategy.name


def links_label(metric: str) -> str:
    return "links with new nodes" if metric.startswith("new_") else "all links"


def is_error(metric: str) -> bool:
    """Return whether a metric measures an error: in its own unit, the smaller the better; others are shares of 1."""
    known = METRICS.get(parse_metric(metric)[0])
    return known is not None and not known.higher_is_better


def sort_key(metric: str, mean: float) -> float:
    """Return the key that sorts means best first; NaN comes last."""
    return math.inf if math.isnan(mean) else mean if is_error(metric) else -mean


def figure(metric: str, mean: float, std: float | None = None) -> str:
    """Return mean ± std, in percent where the metric is a share of 1."""
    scale, digits = (1, 4) if is_error(metric) else (100, 2)
    deviation = "" if std is None else f" ± {scale * std:.{digits}f}"
    return f"{scale * mean:.{digits}f}{deviation}"


def cell(metric: str, value: float | None) -> str:
    """Return the cell of a metric: counts as whole numbers, shares in percent, "" for None."""
    if value is None:
        return ""
    return f"{value:,}" if isinstance(value, int) else figure(metric, value)
