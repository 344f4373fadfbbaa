"""Settings of CTDG-SSM that suit a stream, where a user gives none: what its memory is made of, from the gaps in time.

Source: benchmarks/results/2026-11-21-ctdg-ssm.md, and 2026-11-26-moves.md beside it for the number of epochs (chosen on
the validation splits of UCI and Enron).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Protocol, cast

import numpy as np

from hopstate.data.clock import Clock, GapUnit
from hopstate.data.events import EventStream
from hopstate.data.neighbor_store import NeighborStore
from hopstate.methods.shared.suit_events import SCHEDULE, PairsRun, StreamRun, suit_epochs, suit_pairs

BUDGET = 1_040_000  # training events of links, times epochs, that one core does in some minutes: 30 of UCI, 14 of Enron
NODES = 500_000  # of nodes
LOOKED_AT = 100_000  # latest training events whose gaps are looked at
MEMORY = (
    "batch_size",
    "model.dim",
    "model.max_norm",
    "model.read_norm",
    "model.static",
    "model.filter_start",
    "model.slowest",
    "model.fastest",
    *SCHEDULE,
)
LEAST, MOST = 1.0, 8.0  # of the highest frequency


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


def suit_memory(
    stream: EventStream, config: MemoryRun, metrics: tuple[str, ...], *, pairs: bool = True
) -> Mapping[str, Any]:
    """Return settings of CTDG-SSM that suit a stream.

    The filter starts at 1: at its critical start, made for paths, a dense graph's memory runs into its bound. Static
    vectors are random, one of the paper's four kinds. The norm before the decoder is left open by the paper.

    Args:
        stream, config, metrics: see `Method.suit`.
        pairs: pairs are scored, not nodes.
    """
    train = config.split.of(stream).train
    count = len(stream.additions(train))
    chosen: dict[str, Any] = {
        "model.dim": 64,
        "model.max_norm": 10.0,
        "model.read_norm": True,
        "model.static": "random",
        "batch_size": int(np.clip(count // 600, 16, 64)) if count < 200_000 else 200,
        "loop.optim.lr": 2e-3,
        **suit_epochs(count, BUDGET if pairs else NODES),
    }
    if config.model.order:
        chosen["model.filter_start"] = 1.0
    if pairs:
        chosen |= suit_pairs(stream, cast("PairsRun", config), metrics)
    if config.model.time_dim:
        slowest, fastest = frequencies(stream, train, config)
        chosen |= {"model.slowest": slowest, "model.fastest": fastest}
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


__all__ = ["MEMORY", "frequencies", "suit_memory"]
