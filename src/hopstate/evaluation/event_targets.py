"""Several targets of nodes at their events: yes-or-no labels or amounts; what is known, how outputs are judged, shown.

Outputs of labels are chances, those of amounts are in spreads of the training events; what is unknown stands as NaN and
counts in no metric, each cell alone.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from hopstate.data.events import EventStream
from hopstate.data.splits import EventSplit
from hopstate.errors import DataError
from hopstate.evaluation.event_amounts import last_known
from hopstate.evaluation.metrics import label_metrics, value_metrics


@dataclass(frozen=True, eq=False, kw_only=True)
class EventTargets:
    """T targets of each of a stream's events, of its source at its time.

    Args:
        y: (E, T) floats, NaN unknown.
        names: (T,) of the targets.
        metrics_of: names of the metrics; the first chooses the model.
        center, scale: (T,) of the training events' amounts; of labels 0 and 1.
        labels: whether targets are labels of 0 and 1, else amounts.
    """

    y: np.ndarray
    names: tuple[str, ...]
    metrics_of: tuple[str, ...]
    center: tuple[float, ...] = field(default=())
    scale: tuple[float, ...] = field(default=())
    labels: bool = True

    @property
    def metric(self) -> str:
        """What chooses the model."""
        return self.metrics_of[0]

    @property
    def width(self) -> int:
        """Outputs of a model."""
        return len(self.names)

    def values(self, found: np.ndarray) -> np.ndarray:
        """Return outputs (Q,) or (Q, T) as chances, or in the unit of the data: (Q, T) float64."""
        found = np.asarray(found, np.float64).reshape(-1, self.width)
        return found if self.labels else found * np.asarray(self.scale) + np.asarray(self.center)

    def outputs(self, values: np.ndarray) -> np.ndarray:
        """Return what a model that says values (Q, T) would put out."""
        return values if self.labels else (values - np.asarray(self.center)) / np.asarray(self.scale)

    def metrics(self, rows: np.ndarray, found: np.ndarray, *, bootstrap: int = 0, seed: int = 0) -> dict[str, float]:
        """Return the metrics over what is known of events at rows (Q,), means over the targets; NaN where nothing is.

        Args:
            rows: positions in the stream.
            found: (Q, T) outputs.
            bootstrap, seed: of no use to several targets.
        """
        judge = label_metrics if self.labels else value_metrics
        return judge(self.metrics_of, self.y[rows], self.values(found))

    def columns(self, found: np.ndarray) -> dict[str, np.ndarray]:
        """Return columns p_<label> of chances, or prediction_<name> of amounts, of outputs (Q, T)."""
        kind = "p" if self.labels else "prediction"
        return {f"{kind}_{name}": column for name, column in zip(self.names, self.values(found).T, strict=True)}

    def floors(self, stream: EventStream, split: EventSplit, part: str = "test") -> dict[str, dict[str, float]]:
        """Return metrics of a part of the split ("val" or "test") of answers without a model.

        "mean" of each target's training events (of labels their share), of amounts also "median"; and "last": the last
        that is known of the same source from earlier events, the mean without one.

        Args:
            stream, split: the data.
            part: what is evaluated.
        """
        rows, train = split.rows(part), self.y[split.train].astype(np.float64)
        means, medians = (np.array([how(own[~np.isnan(own)]) if not np.isnan(own).all() else 0.0 for own in train.T])
                          for how in (np.mean, np.median))  # fmt: skip
        said = {"mean": np.broadcast_to(means, (len(rows), self.width))}
        if not self.labels:
            said["median"] = np.broadcast_to(medians, said["mean"].shape)
        last = np.stack([last_known(stream, own, rows) for own in self.y.T], 1)
        said["last"] = np.where(np.isnan(last), said["mean"], last)
        return {name: self.metrics(rows, self.outputs(one)) for name, one in said.items()}


def check_targets(y: np.ndarray, names: tuple[str, ...], split: EventSplit, stream: EventStream) -> None:
    """Raise DataError where a target is known of no training event, or none is of any validation event."""
    bare = [name for name, own in zip(names, y[split.train].T, strict=True) if np.isnan(own).all()]
    if bare:
        raise DataError(
            f"{stream.name}: no training event has a label in column {bare[0]!r}; label some, leave the column out of "
            "--read.label_column, or choose another split (--split.kind)"
        )
    if np.isnan(y[split.rows("val")]).all():
        raise DataError(f"{stream.name}: no validation event has a label; label some, or choose another split")


__all__ = ["EventTargets", "check_targets"]
