"""Amounts of nodes at their events: what is known of them, how outputs are judged, and how they are written down.

A model answers in spreads of the training events, (value - center) / scale; what is shown is in the unit of the data.
Amounts that are unknown stand as NaN, and count in no metric.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from hopstate.data.events import EventStream
from hopstate.data.splits import EventSplit
from hopstate.errors import DataError
from hopstate.evaluation.metrics import value_metrics


@dataclass(frozen=True, eq=False, kw_only=True)
class EventAmounts:
    """The amounts of a stream's events, of their sources at their times.

    Args:
        y: (E,) float64, NaN unknown.
        metrics_of: names of the metrics; the first chooses the model.
        center, scale: of the training events.
    """

    y: np.ndarray
    metrics_of: tuple[str, ...]
    center: float
    scale: float

    @property
    def metric(self) -> str:
        """What chooses the model."""
        return self.metrics_of[0]

    @property
    def width(self) -> int:
        """Outputs of a model."""
        return 1

    def values(self, found: np.ndarray) -> np.ndarray:
        """Return outputs (Q,) in the unit of the data, float64."""
        return np.asarray(found, np.float64) * self.scale + self.center

    def metrics(self, rows: np.ndarray, found: np.ndarray, *, bootstrap: int = 0, seed: int = 0) -> dict[str, float]:
        """Return the metrics over those of events at rows (Q,) whose amount is known; NaN where none is.

        Args:
            rows: positions in the stream.
            found: (Q,) outputs.
            bootstrap, seed: of no use to amounts.
        """
        return value_metrics(self.metrics_of, self.y[rows][:, None], self.values(found)[:, None])

    def columns(self, found: np.ndarray) -> dict[str, np.ndarray]:
        """Return the column prediction of outputs (Q,), in the unit of the data."""
        return {"prediction": self.values(found)}


def amounts_of(stream: EventStream) -> np.ndarray:
    """Return (E,) float64 amounts of a stream's events, NaN where unknown or where there are none.

    Raises:
        DataError: several columns of labels.
    """
    if stream.labels is None:
        return np.full(len(stream), np.nan)
    if stream.labels.ndim > 1:
        raise DataError(f"{stream.name} has {stream.labels.shape[1]} columns of labels, the run knows one; name one")
    return np.asarray(stream.labels, np.float64)


def check_amounts(y: np.ndarray, splits: EventSplit, stream: EventStream) -> None:
    """Raise DataError where labels are words, or none is known among the training or the validation events."""
    hint = "name their column (--read.label_column)"
    if stream.labels is None:
        raise DataError(f"{stream.name}: amounts of nodes need labels of events, and there are none; {hint}")
    if stream.class_names is not None:
        raise DataError(
            f"{stream.name}: labels such as {stream.class_names[0]!r} are classes, no amounts; leave --read.task out, "
            f"or {hint}"
        )
    for split, said in (("train", "training"), ("val", "validation")):
        if np.isnan(y[splits.rows(split)]).all():
            raise DataError(f"{stream.name}: no {said} event has a label; label some, or choose another split")


def last_known(stream: EventStream, y: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """Return the last amount of each event's source that is known from strictly earlier events, NaN without one.

    Args:
        stream: E events.
        y: (E,) amounts, NaN unknown.
        rows: (Q,) positions in the stream.

    Returns:
        (Q,).
    """
    known = np.flatnonzero(~np.isnan(y))
    times = np.unique(stream.t)
    rank = np.searchsorted(times, stream.t)
    key = stream.src * (len(times) + 1) + rank
    order = known[np.argsort(key[known], kind="stable")]
    at = np.searchsorted(key[order], key[rows]) - 1
    found = order[np.maximum(at, 0)] if len(order) else np.zeros(len(rows), np.int64)
    there = (at >= 0) & (stream.src[found] == stream.src[rows])
    return np.where(there, y[found], np.nan)


__all__ = ["EventAmounts", "amounts_of", "check_amounts", "last_known"]
