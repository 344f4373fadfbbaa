"""Settings that suit a stream of events, where a user gives none: rate, epochs, batches, and what CTDG-SSM is made of.

They follow from the training events alone: how many edges they add, the gaps in time between them, and whether pairs
meet again. If they do, a quarter of the training negatives are historical; if they hardly ever do, none is. Validation
over all kinds of negatives does not follow from the stream. No input and no layer is added that the paper lacks.

Source: benchmarks/results/2026-11-21-ctdg-ssm.md (chosen on the validation splits of UCI and Enron),
2026-11-21-dyg-mamba.md, 2026-11-22-pair-history.md and 2026-11-23-pair-history.md beside it; the recipes keep the
papers' settings.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np

from hopstate.data.events import EventStream, stretch
from hopstate.data.splits import EventSplit
from hopstate.sampling.mixture import TrainingNegatives
from hopstate.training.tasks.link import LinkEvaluation

ENOUGH = 40  # epochs of a small stream
HISTORICAL = 0.25  # share of training pairs that met before
SCHEDULE = ("loop.epochs", "loop.patience", "loop.optim.lr", "loop.optim.schedule", "loop.optim.warmup")
PAIRS = ("negatives.mixture.historical", "evaluation.choose")
SELDOM = 0.05  # share of repeated pairs among training events below which pairs do not meet again


def suit_epochs(events: int, budget: int) -> dict[str, Any]:
    """Return a schedule that ends when it ends: no patience, the rate falls to 0.

    Args:
        events: of training.
        budget: training events, times epochs, that one core does in some minutes.
    """
    return {
        "loop.epochs": int(np.clip(budget // max(events, 1), 2, ENOUGH)),
        "loop.patience": None,
        "loop.optim.schedule": "cosine",
        "loop.optim.warmup": 0.05,
    }


class Splits(Protocol):
    """What shares a stream's events out."""

    def of(self, stream: EventStream) -> EventSplit:
        """Return which are for training, validation and test."""
        ...


class StreamRun(Protocol):
    """A configuration of a model of events."""

    @property
    def split(self) -> Splits:
        """Which events are for training, validation and test."""
        ...


class JudgedRun(StreamRun, Protocol):
    """A configuration of what is judged by links."""

    @property
    def evaluation(self) -> LinkEvaluation:
        """By which kinds of pairs."""
        ...


class PairsRun(JudgedRun, Protocol):
    """A configuration of a model that learns from pairs."""

    @property
    def negatives(self) -> TrainingNegatives:
        """What stands beside the events."""
        ...


def suit_judged(stream: EventStream, config: JudgedRun, metrics: tuple[str, ...]) -> Mapping[str, Any]:
    """Return by what validation chooses: the mean over kinds of pairs, where there are several."""
    kinds = [name for name in config.evaluation.strategies if name != "many"]
    return {"evaluation.choose": "mean"} if len(kinds) > 1 else {}


def suit_pairs(stream: EventStream, config: PairsRun, metrics: tuple[str, ...]) -> Mapping[str, Any]:
    """Return what a model learns pairs from and is chosen by; a user's own kinds of pairs stay as they are."""
    own = config.negatives != TrainingNegatives()
    again = not own and repeated(stream, config.split.of(stream).train) >= SELDOM
    mixed = {"negatives.mixture.historical": HISTORICAL} if again else {}
    return {**mixed, **suit_judged(stream, config, metrics)}


def repeated(stream: EventStream, rows: np.ndarray) -> float:
    """Return the share of the events at rows that add an edge between two nodes that one of them joined before."""
    part = stretch(stream.additions(rows))
    pairs = stream.src[part] * stream.num_nodes
    pairs += stream.dst[part]
    pairs.sort()  # in place: of very many events there is room for no second copy
    return float(np.count_nonzero(pairs[1:] == pairs[:-1])) / max(len(pairs), 1)


class EpochRun(PairsRun, Protocol):
    """A configuration of a model whose epochs need not take all events."""

    @property
    def most(self) -> int | None:
        """Training events of an epoch at most, None for all."""
        ...


def suit_history(stream: EventStream, config: EpochRun, metrics: tuple[str, ...], *, budget: int) -> Mapping[str, Any]:
    """Return settings of a model fed from histories that suit a stream; budget as of `suit_epochs`."""
    events = len(stream.additions(config.split.of(stream).train))
    batch = int(np.clip(events // 50, 20, 200))
    own = suit_pairs(stream, config, metrics)
    an_epoch = events if config.most is None else min(events, config.most)
    return {"batch_size": batch, "loop.optim.lr": 3e-4, **own, **suit_epochs(an_epoch, budget)}


__all__ = [
    "PAIRS",
    "SCHEDULE",
    "PairsRun",
    "StreamRun",
    "repeated",
    "suit_epochs",
    "suit_history",
    "suit_judged",
    "suit_pairs",
]
