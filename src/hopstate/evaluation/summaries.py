"""Compact data for reliability diagrams, stored in a run's curves.json."""

from __future__ import annotations

from typing import Any

import numpy as np

from hopstate.evaluation.calibration import Calibration, IsotonicCurve, calibration, evenly_spaced, fit_isotonic
from hopstate.evaluation.link import LinkReport, LinkScores
from hopstate.sampling.negatives import STRATEGIES, Negatives

CALIBRATIONS = TRAINED, FITTED = ("as trained", "calibrated on validation")


def reliability(calibration: Calibration, target: str, method: str) -> dict[str, Any]:
    """Return the non-empty bins of a reliability diagram (scikit-learn's `calibration_curve`), ECE and Brier score."""
    filled = calibration.count > 0
    return {
        "target": target,
        "calibration": method,
        "prob_pred": calibration.mean_probability[filled].tolist(),
        "prob_true": calibration.positive_share[filled].tolist(),
        "count": calibration.count[filled].tolist(),
        "ece": calibration.ece,
        "brier": calibration.brier,
    }


def class_reliability(probabilities: np.ndarray, y: np.ndarray) -> dict[str, Any] | None:
    """Return the reliability of the predicted class for classes y (n,), -1 if missing; None if no class is known."""
    known = y >= 0
    if not known.any():
        return None
    top = probabilities[known].max(1)
    right = probabilities[known].argmax(1) == y[known]
    return reliability(calibration(right, np.clip(top, 0, 1)), "the likeliest class", TRAINED)


KEY = ("val", "random")  # of the pairs that probabilities are among


def validation_curve(scored: LinkScores) -> IsotonicCurve | None:
    """Fit a calibration curve on validation events and their random negatives; None without negatives."""
    scored = scored.without_collisions()
    which = np.zeros(len(scored.rows), bool)
    which[evenly_spaced(len(scored.rows))] = True
    at = np.flatnonzero(np.concatenate([which, np.repeat(which, np.diff(scored.offsets))]))
    labels, values = scored.pooled()
    y, scores = labels[at].astype(np.float64), values[at]
    return None if len(y) == y.sum() else fit_isotonic(scores, y, KEY[1])


def calibration_negatives(drawn: Negatives) -> Negatives:
    """Return the negatives of the events that a calibration curve is fitted to."""
    return drawn.take(drawn.rows[evenly_spaced(len(drawn.rows))])


def pair_reliability(
    scores: np.ndarray,
    y: np.ndarray,
    of: str,
    curve: IsotonicCurve | None,
    raw: np.ndarray | None,
) -> list[dict[str, Any]]:
    """Return the reliability of raw probabilities (Q,), if given, and of calibrated scores (Q,)."""
    curves = [] if raw is None else [reliability(calibration(y, raw), of, TRAINED)]
    return curves + ([] if curve is None else [reliability(calibration(y, curve(scores)), of, FITTED)])


def link_curves(report: LinkReport, split: str, curve: IsotonicCurve | None) -> dict[str, Any]:
    """Return the reliability curves of a split."""
    bins = []
    for (name, strategy), scored in report.scores.items():
        if name != split:
            continue
        if (name, strategy) in report.reliability:
            bins.append(reliability(report.reliability[name, strategy], STRATEGIES[strategy].label, TRAINED))
        if curve is not None and strategy == curve.strategy:
            y, scores = scored.without_collisions().pooled()
            bins += pair_reliability(scores, y, STRATEGIES[strategy].label, curve, None)
    return {"reliability": bins}
