"""Which tasks several ranks can share, and which checkpoints they can go on from; what cannot says why."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol, runtime_checkable

from torch import nn

from hopstate.errors import CheckpointError, ConfigError
from hopstate.training.ranks import Ranks
from hopstate.training.tasks.protocols import FitsWhole, Task

WHOLE = {  # tasks that are not cut, and why
    "GraphTask": "what a batch of graphs draws is drawn for the batch as a whole",
    "StaticLinkTask": "the pairs beside a batch's links are drawn for the batch as a whole",
}


@runtime_checkable
class Divides(Protocol):
    """A task, or a source of batches, that several ranks can share."""

    def divide(self, ranks: Ranks) -> str:
        """Take this rank's share of every batch from now on; return why that cannot be, or nothing."""
        ...


@runtime_checkable
class SeesWhole(Protocol):
    """A module that has all rows of a batch on every rank, so that its batch normalisation is that of one process."""

    whole_batch: bool


def check_divided(ranks: Ranks, task: Task[Any], method: str) -> None:
    """Have a task take its rank's share.

    Raises:
        ConfigError: it cannot be trained by several processes; the message names the method and says why.
    """
    if ranks.size == 1:
        return
    why = WHOLE.get(type(task).__name__, "its task is not cut")
    if isinstance(task, FitsWhole):
        why = "it is made at once, from all its data"
    elif isinstance(task, Divides):
        why = task.divide(ranks)
    if not why and _norms_rows(task.model):
        why = "its batch normalisation takes means over a whole batch; take another norm, or none"
    if why:
        raise ConfigError(f"{method} cannot be trained by {ranks.size} processes: {why}. Start it without torchrun")


def _norms_rows(model: nn.Module) -> bool:
    whole = {part for m in model.modules() if isinstance(m, SeesWhole) for part in m.modules()}
    return any(isinstance(m, nn.modules.batchnorm._BatchNorm) and m not in whole for m in model.modules())


def check_ranks(record: Mapping[str, Any], ranks: Ranks, where: str) -> None:
    """Check that a checkpoint is of as many ranks as there are now.

    Raises:
        CheckpointError: of others: it would go on with other shares and other draws.
    """
    before = record.get("ranks", 1)
    if before != ranks.size:
        how = f"torchrun --nproc-per-node {before}" if before != 1 else "one process, without torchrun"
        raise CheckpointError(
            f"{where} was trained by {before} process(es), now {ranks.size}: it would not go on as it began; resume it "
            f"with {how}, or choose another --out"
        )
