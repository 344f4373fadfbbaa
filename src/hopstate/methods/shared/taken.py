"""What a run says of how many events of a large stream it takes, before it works on them and in data.json."""

from __future__ import annotations

from typing import Protocol

import numpy as np

from hopstate.data.events import EventStream
from hopstate.data.splits import EventSplit
from hopstate.methods.method import Context
from hopstate.sampling.judged import epoch_batches, judged
from hopstate.training.config import LoopConfig
from hopstate.training.progress import note
from hopstate.training.tasks.link import LinkEvaluation


class JudgedLoop(Protocol):
    """A configuration of what is judged by links."""

    @property
    def loop(self) -> LoopConfig:
        """What is told."""
        ...

    @property
    def evaluation(self) -> LinkEvaluation:
        """How many are judged."""
        ...


class EpochLoop(Protocol):
    """A configuration of what is trained in epochs of some events."""

    @property
    def loop(self) -> LoopConfig:
        """What is told, and the seed."""
        ...

    @property
    def batch_size(self) -> int: ...

    @property
    def most(self) -> int | None: ...


def tell_epoch(count: int, config: EpochLoop, context: Context) -> None:
    """Tell how many of count training events an epoch takes where it is not all."""
    batches = len(epoch_batches(count, config.most, config.batch_size, config.loop.seed, 0))
    if batches * config.batch_size < count:
        taken = batches * config.batch_size
        context.noted["epoch_events"] = [taken, count]
        _tell(config.loop, context, f"an epoch takes {taken:,} of {count:,} training events, drawn anew for each", "")


def tell_judged(stream: EventStream, splits: EventSplit, config: JudgedLoop, context: Context) -> None:
    """Tell how many events of each split are judged where it is not all."""
    sizes = {name: len(stream.additions(splits.rows(name))) for name in ("val", "new_val", "test", "new_test")}
    some = {name: len(judged(np.arange(size), config.evaluation.most)) for name, size in sizes.items()}
    some = {name: count for name, count in some.items() if count < sizes[name]}
    if some:
        context.noted["judged_events"] = {name: [count, sizes[name]] for name, count in some.items()}
        told = ", ".join(f"{count:,} of {sizes[name]:,} of {name}" for name, count in some.items())
        _tell(config.loop, context, f"judged are {told}, spread over each", "evaluation.")


def _tell(loop: LoopConfig, context: Context, told: str, group: str) -> None:
    """Say once a run what it takes, and which setting takes all."""
    verb = "judges" if group else "takes"
    if not (context.run / "negatives").is_dir():
        note(loop, f"note: {told} ({group}max_events=all {verb} every event)")


__all__ = ["tell_epoch", "tell_judged"]
