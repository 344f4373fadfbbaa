"""What of an evaluation is kept to be drawn: Hits@k over k, and how probabilities and outcomes agree.

A few dozen numbers, however many scores there were. Test scores enter with a curve that validation gave; lists of
numbers leave, as a run's curves.json holds them.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from hopstate.evaluation.calibration import Calibration, IsotonicCurve, calibration, evenly_spaced, fit_isotonic
from hopstate.evaluation.link import LinkReport, LinkScores
from hopstate.evaluation.ranking import hits, ranks
from hopstate.sampling.negatives import STRATEGIES, Negatives

PLACES = (1, 2, 3, 5, 10, 20, 30, 50, 100)
WAYS = TRAINED, FITTED = ("as trained", "calibrated on validation")


def ranking_curve(rank: np.ndarray, candidates: np.ndarray, of: str) -> dict[str, Any]:
    """Return Hits@k at PLACES, as far as there are so many to be ranked among.

    Args:
        rank: (P,) ranks, from 1.
        candidates: (P,) how many others each was ranked among.
        of: what they were, in words.
    """
    most = int(candidates.max(initial=0))
    places = [k for k in PLACES if k <= most]
    shares = [hits(rank, k) for k in places]
    return {"of": of, "k": places, "hits": shares, "queries": len(rank), "candidates": float(candidates.mean())}


def reliability(found: Calibration, of: str, how: str) -> dict[str, Any]:
    """Return the bins of probabilities that hold any: mean probability, share of outcomes, count; and the ECE."""
    held = found.count > 0
    return {
        "of": of,
        "how": how,
        "probability": found.mean_probability[held].tolist(),
        "share": found.positive_share[held].tolist(),
        "count": found.count[held].tolist(),
        "ece": found.ece,
        "brier": found.brier,
    }


def class_reliability(probabilities: np.ndarray, y: np.ndarray, *, bins: int = 15) -> dict[str, Any] | None:
    """Return how often the likeliest class is right, by its probability; None where no class is known.

    Args:
        probabilities: (n, C).
        y: (n,) classes, -1 unknown; from C on for those that the model does not know.
    """
    known = y >= 0
    if not known.any():
        return None
    top = probabilities[known].max(1)
    right = probabilities[known].argmax(1) == y[known]
    return reliability(calibration(right, np.clip(top, 0, 1), bins=bins), "the likeliest class", TRAINED)


KEY = ("val", "random")  # of the pairs that probabilities are among


def validation_curve(scored: LinkScores) -> IsotonicCurve | None:
    """Return the curve of probabilities from scores of validation events and random pairs; None without such pairs.

    Args:
        scored: if there are more than MOST events, some of them are taken, spread evenly. Negatives that are the very
            pair of their event do not count.
    """
    scored = scored.without_collisions()
    which = np.zeros(len(scored.rows), bool)
    which[evenly_spaced(len(scored.rows))] = True
    at = np.flatnonzero(np.concatenate([which, np.repeat(which, np.diff(scored.offsets))]))
    labels, values = scored.pooled()
    y, scores = labels[at].astype(np.float64), values[at]
    return None if len(y) == y.sum() else fit_isotonic(scores, y, KEY[1])


def calibration_negatives(drawn: Negatives) -> Negatives:
    """Return the pairs beside the events that a curve is made of."""
    return drawn.take(drawn.rows[evenly_spaced(len(drawn.rows))])


def pair_reliability(
    scores: np.ndarray,
    y: np.ndarray,
    of: str,
    curve: IsotonicCurve | None,
    raw: np.ndarray | None,
) -> list[dict[str, Any]]:
    """Return the reliability of raw probabilities (Q,), if there are any, and of scores (Q,) through a curve."""
    found = [] if raw is None else [reliability(calibration(y, raw), of, TRAINED)]
    return found + ([] if curve is None else [reliability(calibration(y, curve(scores)), of, FITTED)])


def link_curves(report: LinkReport, split: str) -> dict[str, Any]:
    """Return the curves of a split of a stream: of ranks among many, of probabilities by kind of negatives.

    Args:
        report: of the evaluation, with the curve of validation, which is drawn for its own kind of negatives alone.
        split: "test".
    """
    ranking, bins, curve = [], [], report.curve
    for (name, strategy), scored in report.scores.items():
        if name != split:
            continue
        if STRATEGIES[strategy].ranking:
            sizes = np.diff(scored.offsets)
            own = sizes > 0
            if own.any():
                bounds = np.concatenate([[0], np.cumsum(sizes[own])])
                rank = ranks(scored.positive[own], scored.negative, bounds)
                ranking.append(ranking_curve(rank, sizes[own], "other destinations"))
        elif (name, strategy) in report.reliability:
            bins.append(reliability(report.reliability[name, strategy], STRATEGIES[strategy].label, TRAINED))
        if curve is not None and strategy == curve.strategy:
            y, scores = scored.without_collisions().pooled()
            bins += pair_reliability(scores, y, STRATEGIES[strategy].label, curve, None)
    return {"ranking": ranking, "reliability": bins}
