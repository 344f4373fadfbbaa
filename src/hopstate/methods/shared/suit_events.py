"""Settings that suit a stream of events, where a user gives none: rate, epochs, batches, and what CTDG-SSM is made of.

They follow from the training events alone: how many edges they add, and the gaps in time between them. What pairs are
learned from does not follow from the stream: a quarter of historical pairs, the pair's history in the head, and
validation over all kinds of pairs.

Source: benchmarks/results/2026-11-21-ctdg-ssm.md (chosen on the validation splits of UCI and Enron),
benchmarks/results/2026-11-21-dyg-mamba.md and benchmarks/results/2026-11-22-pair-history.md; the recipes keep the
papers' settings.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Protocol, cast

import numpy as np

from hopstate.data.clock import Clock, GapUnit
from hopstate.data.event_splits import EventSplit
from hopstate.data.events import EventStream
from hopstate.data.neighbor_store import NeighborStore
from hopstate.sampling.mixture import TrainingNegatives
from hopstate.training.tasks.link import LinkEvaluation

# training events, times epochs, that one core does in some minutes
BUDGET = {"ctdg-ssm": 500_000, "dyg-mamba": 200_000, "dygformer": 300_000, "graphmixer": 600_000}
ENOUGH = 40  # epochs of a small stream
LOOKED_AT = 100_000  # latest training events whose gaps are looked at
LEAST, MOST = 1.0, 8.0  # of the highest frequency
HISTORICAL = 0.25  # share of training pairs that met before


def _epochs(events: int, budget: int) -> dict[str, Any]:
    """Return a schedule that ends when it ends: no patience, the rate falls to 0."""
    return {
        "loop.epochs": int(np.clip(budget // max(events, 1), 2, ENOUGH)),
        "loop.patience": None,
        "loop.optim.schedule": "cosine",
        "loop.optim.warmup": 0.05,
    }


class MemorySizes(Protocol):
    """What suits a memory's sizes."""

    @property
    def order(self) -> int:
        """Hops that its filter reaches."""
        ...

    @property
    def time_dim(self) -> int:
        """Frequencies of a gap's encoding."""
        ...

    @property
    def never(self) -> float:
        """What stands for the gap of a pair that never met."""
        ...


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


class MemoryRun(StreamRun, Protocol):
    """A configuration of a model with a memory, of links or of nodes."""

    @property
    def gap_unit(self) -> GapUnit:
        """What a gap of 1 is."""
        ...

    @property
    def model(self) -> MemorySizes:
        """The model's own."""
        ...


def suit_judged(stream: EventStream, config: JudgedRun, metrics: tuple[str, ...]) -> Mapping[str, Any]:
    """Return by what validation chooses: the mean over kinds of pairs, where there are several."""
    kinds = [name for name in config.evaluation.strategies if name != "many"]
    return {"evaluation.choose": "mean"} if len(kinds) > 1 else {}


def suit_pairs(stream: EventStream, config: PairsRun, metrics: tuple[str, ...]) -> Mapping[str, Any]:
    """Return what a model learns pairs from and is chosen by; a user's own kinds of pairs stay as they are."""
    mixed = {"negatives.mixture.historical": HISTORICAL} if config.negatives == TrainingNegatives() else {}
    return {"model.pair_history": True, **mixed, **suit_judged(stream, config, metrics)}


def suit_history(stream: EventStream, config: PairsRun, metrics: tuple[str, ...], *, budget: int) -> Mapping[str, Any]:
    """Return settings of a model fed from histories that suit a stream."""
    events = len(stream.additions(config.split.of(stream).train))
    batch = int(np.clip(events // 50, 20, 200))
    own = suit_pairs(stream, config, metrics)
    return {"batch_size": batch, "loop.optim.lr": 3e-4, **own, **_epochs(events, budget)}


def suit_memory(
    stream: EventStream, config: MemoryRun, metrics: tuple[str, ...], *, pairs: bool = True
) -> Mapping[str, Any]:
    """Return settings of CTDG-SSM that suit a stream.

    The filter starts at 1: at its critical start, made for paths, a dense graph's memory runs into its bound.

    Args:
        stream, config, metrics: see `Method.suit`.
        pairs: pairs are scored, not nodes.
    """
    train = config.split.of(stream).train
    count = len(stream.additions(train))
    chosen: dict[str, Any] = {
        "model.dim": 64,
        "model.hidden": 64,
        "model.max_norm": 10.0,
        "model.read_norm": True,
        "model.static": "random",
        "batch_size": int(np.clip(count // 600, 16, 64)) if count < 200_000 else 200,
        "loop.optim.lr": 2e-3,
        **_epochs(count, BUDGET["ctdg-ssm"]),
    }
    if config.model.order:
        chosen["model.filter_start"] = 1.0
    if pairs:
        chosen |= {"model.pair_dim": 64, **suit_pairs(stream, cast("PairsRun", config), metrics)}
    if config.model.time_dim:
        slowest, fastest = frequencies(stream, train, config)
        chosen |= {"model.slowest": slowest, "model.fastest": fastest}
        chosen |= {"model.node_gaps": True} if pairs else {}
    return chosen


def frequencies(stream: EventStream, train: np.ndarray, config: MemoryRun) -> tuple[float, float]:
    """Return the lowest and highest frequency of encodings of ln(1 + gap) that tell a stream's gaps apart.

    Over half a turn of the lowest lie all gaps, "never" included; over two turns of the highest the middle 80% of the
    gaps between two meetings of a pair.

    Args:
        train: (P,) positions of the training events.
        config: with gap_unit and model.never.
    """
    clock = Clock.fit(stream.t[train], stream.time_unit, config.gap_unit)
    recent = stream.additions(train)[-LOOKED_AT:]
    store = NeighborStore.from_stream(stream, train)
    src, dst, t = stream.src[recent], stream.dst[recent], stream.t[recent]
    last, met = store.last_meeting(src, dst, t)
    gaps = clock.log_gaps(t[met], last[met], config.model.never)
    spread = float(np.subtract(*np.quantile(gaps, (0.9, 0.1)))) if len(gaps) else 0.0
    fastest = float(np.clip(4 * math.pi / max(spread, 1e-9), LEAST, MOST))
    return _short(min(math.pi / config.model.never, fastest)), _short(fastest)


def _short(value: float) -> float:
    return float(f"{value:.3g}")


__all__ = ["BUDGET", "frequencies", "suit_history", "suit_judged", "suit_memory", "suit_pairs"]
