"""What of an evaluation is kept to be drawn: Hits@k over k, and how probabilities and outcomes agree.

A few dozen numbers, however many scores there were. Test scores enter with a curve that validation gave; lists of
numbers leave, as a run's curves.json holds them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from hopstate.data.events import EventStream
from hopstate.data.meetings import met_before
from hopstate.evaluation.calibration import Calibration, calibration
from hopstate.evaluation.link import LinkReport
from hopstate.evaluation.link_scores import LinkScores
from hopstate.evaluation.metrics import average_precision
from hopstate.evaluation.orders import Orders, pairs_of
from hopstate.evaluation.probabilities import Curve, Says, evenly, fitted, order_of, raise_of
from hopstate.evaluation.ranking import hits, ranks
from hopstate.sampling.negative_sets import Negatives

PLACES = (1, 2, 3, 5, 10, 20, 30, 50, 100)
WAYS = TRAINED, FITTED, WITHIN = ("as trained", "calibrated on validation", "calibrated in training")


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


def of_classes(probabilities: np.ndarray, y: np.ndarray, *, bins: int = 15) -> dict[str, Any] | None:
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


class ValidationCurve:
    """The curve of a run's probabilities and ranks, from what random pairs beside validation's events were scored.

    Args:
        stream: the events.
        raises: whether pairs that met are raised, and rules beside the model have a say.
        rules: gives those rules, None where there are none; asked for until there are.
    """

    def __init__(self, stream: EventStream, *, raises: bool, rules: Callable[[], Says | None] = lambda: None) -> None:
        self.stream, self.raises, self.rules = stream, raises, rules
        self._asked: tuple[np.ndarray, np.ndarray] | None = None  # the pairs that count, and which of them met
        self._said: np.ndarray | None = None  # of them, by the rules

    def of(self, scored: LinkScores, drawn: Negatives) -> Curve | None:
        """Return the curve, None without other pairs beside events: those that are their own event do not count.

        Args:
            scored: of validation and random pairs; of more than MOST events some are taken.
            drawn: what they are of, the same each time.
        """
        if self._asked is None:
            which = np.zeros(len(drawn.rows), bool)
            which[evenly(len(drawn.rows))] = True
            others = np.repeat(which, np.diff(drawn.offsets)) & ~drawn.own_event(self.stream)
            at = np.flatnonzero(np.concatenate([which, others]))
            met = met_before(self.stream, *pairs_of(self.stream, drawn, at)) if self.raises else np.zeros(len(at), bool)
            self._asked = at, met
        at, met = self._asked
        labels, values = scored.pooled()
        y, scores = labels[at].astype(np.float64), values[at]
        if len(y) == y.sum():
            return None
        if not self.raises:
            return fitted(scores, y, KEY[1])
        rules = self.rules() if self._said is None else None
        if rules is not None:
            self._said = rules(*pairs_of(self.stream, drawn, at))
        if self._said is None:
            return fitted(scores, y, KEY[1], met, raise_of(scores, y, met))
        by, share = order_of(scores, y, met, self._said)
        return fitted(scores, y, KEY[1], met, by, self._said, share)


def some(drawn: Negatives) -> Negatives:
    """Return the pairs beside the events that a curve is made of."""
    return drawn.take(drawn.rows[evenly(len(drawn.rows))])


def with_probabilities(
    report: LinkReport, order: Orders | None, drawn: Mapping[tuple[str, str], Negatives], *, told: bool
) -> LinkReport:
    """Return a report that has the order of random pairs too; where told is True with `probability_ap`.

    That is the average precision of random pairs in the order of their probabilities, those of `hopstate score`. It is
    there where that order is another than that of scores.

    Args:
        report: of an evaluation.
        order: of candidates; None where it is that of scores.
        drawn: what the report is of.
        told: whether the metric is.
    """
    if order is None:
        return report
    rows, orders = [], dict(report.orders)
    for row in report.rows:
        key = row["split"], row["strategy"]
        if key[1] == order.curve.strategy:
            orders[key] = order.of(key, report.scores[key], drawn[key])
            own = {"probability_ap": average_precision(*orders[key].pooled())}
            row = row | (own if told else {})
        rows.append(row)
    return replace(report, rows=rows, orders=orders)


def of_pairs(
    order: np.ndarray,
    y: np.ndarray,
    of: str,
    curve: Curve | None,
    raw: np.ndarray | None,
) -> list[dict[str, Any]]:
    """Return the reliability of raw probabilities (Q,), where there are such, and of an order (Q,) through a curve."""
    found = [] if raw is None else [reliability(calibration(y, raw), of, TRAINED)]
    return found + ([] if curve is None else [reliability(calibration(y, curve.at(order)), of, FITTED)])


def of_links(report: LinkReport, split: str, *, calibrated: bool) -> dict[str, Any]:
    """Return the curves of a split of a stream: of ranks among many, of probabilities by kind of negatives.

    Args:
        report: of the evaluation, with the curve of validation, which is drawn for its own kind of negatives alone.
        split: "test".
        calibrated: whether scores are probabilities that training has calibrated.
    """
    ranking, bins, curve = [], [], report.curve
    for (name, strategy), scored in report.scores.items():
        if name != split:
            continue
        if strategy == "many":
            sizes = np.diff(scored.offsets)
            own = sizes > 0
            if own.any():
                bounds = np.concatenate([[0], np.cumsum(sizes[own])])
                ordered = report.orders.get((name, strategy), scored)
                rank = ranks(ordered.positive[own], ordered.negative, bounds)
                ranking.append(ranking_curve(rank, sizes[own], "other destinations"))
        elif (name, strategy) in report.reliability:
            how = WITHIN if calibrated else TRAINED
            bins.append(reliability(report.reliability[name, strategy], f"{strategy} negatives", how))
        if curve is not None and strategy == curve.strategy:
            y, order = report.orders.get((name, strategy), scored).without_own_event().pooled()
            bins += of_pairs(order, y, f"{strategy} negatives", curve, None)
    return {"ranking": ranking, "reliability": bins}


__all__ = [
    "KEY",
    "ValidationCurve",
    "of_classes",
    "of_links",
    "of_pairs",
    "ranking_curve",
    "reliability",
    "some",
    "with_probabilities",
]
