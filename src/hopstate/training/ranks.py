"""Several processes that train one model (data parallelism under torchrun).

torchrun starts the processes and numbers them. Rank r of n takes every n-th batch of an epoch, from number r on, and
the gradients of a step are averaged over the ranks that have a batch. Rank 0 evaluates and writes.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import torch
from torch import Tensor, nn

from hopstate.errors import CheckpointError, ConfigError, RanksError
from hopstate.random import named_rng
from hopstate.training.checkpoint import Progress

if TYPE_CHECKING:
    from hopstate.training.tasks.task import Task

T = TypeVar("T")
TIMEOUT = timedelta(hours=24)  # rank 0 may be making tokens; a rank that has ended is known by its closed connection


@dataclass(frozen=True)
class Ranks:
    """The place of this process among those that train one model.

    Args:
        rank: 0..size-1.
        size: processes.
    """

    rank: int = 0
    size: int = 1

    @property
    def first(self) -> bool:
        return self.rank == 0

    def broadcast(self, make: Callable[[], T]) -> T:
        """Return what rank 0 makes; the others do not call make."""
        if self.size == 1:
            return make()
        made = [make() if self.first else None]
        with named_errors():
            torch.distributed.broadcast_object_list(made, 0)
        return made[0]  # type: ignore[return-value]

    def gather(self, value: T) -> list[T]:
        """Return the values of all ranks, in order."""
        found: list[Any] = [value] * self.size
        if self.size > 1:
            with named_errors():
                torch.distributed.all_gather_object(found, value)
        return found

    def barrier(self) -> None:
        """Return when all ranks have come here."""
        self.gather(None)

    def check_same(self, what: str, value: object, mend: str) -> None:
        """Raise ConfigError if the ranks differ in a value; `what` it is and what `mend`s it are said."""
        found = self.gather(value)
        other = next((rank for rank, theirs in enumerate(found) if theirs != found[0]), None)
        if other is not None:
            both = f" ({found[other]}, {found[0]})" if isinstance(value, str) else ""
            raise ConfigError(f"rank {other} has other {what} than rank 0{both}; {mend}")


def current_ranks() -> Ranks:
    """Return the place that torchrun gave this process."""
    size = int(os.environ.get("WORLD_SIZE", "1")) if "TORCHELASTIC_RUN_ID" in os.environ else 1
    return Ranks(int(os.environ["RANK"]), size) if size > 1 else Ranks()


@contextmanager
def named_errors() -> Iterator[None]:
    """Raise RanksError where another rank has closed its connection."""
    try:
        yield
    except RuntimeError as error:  # all errors of torch.distributed are
        raise RanksError(f"another rank of this run has ended ({str(error).splitlines()[0][:200]})") from error


def step_seed(seed: int, ranks: Ranks, step: int) -> int:
    """Return the seed of a step's dropout: of seed, rank and step alone, so that a resumed run draws the same."""
    return int(named_rng(seed, "ranks", ranks.size, ranks.rank, step).integers(2**62))


def average_gradients(model: nn.Module, loss: Tensor | None, stop: bool) -> tuple[Tensor | None, bool]:
    """Average gradients and batch-norm statistics over the ranks that have a loss, in place.

    A parameter without a gradient on any rank stays without one, as in one process.

    Args:
        model: whose gradients are averaged.
        loss: of this rank's batch, None without one.
        stop: whether this rank wants to stop.

    Returns:
        The mean loss, None if no rank has one, and whether any rank wants to stop.
    """
    parameters = [p for p in model.parameters() if p.requires_grad]
    gradients = [torch.zeros_like(p) if p.grad is None else p.grad for p in parameters]
    values = [*gradients, *_running_statistics(model)]
    kind = parameters[0].dtype if parameters[0].is_floating_point() else torch.float32
    learned = loss is not None
    flat = [_real(value).reshape(-1).to(kind) * learned for value in values]
    flags = [float(p.grad is not None) for p in parameters]
    counts = [float(learned), 0.0 if loss is None else loss.item(), float(stop)]
    total = torch.cat([*flat, torch.tensor([*flags, *counts], dtype=kind, device=parameters[0].device)])
    with named_errors():
        torch.distributed.all_reduce(total)
    *parts, known, summed = total.split([*(len(part) for part in flat), len(flags), len(counts)])
    count, loss_sum, stopped = summed.tolist()
    if not count:
        return None, stopped > 0
    for value, part in zip(values, parts, strict=True):
        _real(value).copy_((part / count).view(_real(value).shape))
    for parameter, gradient, has_gradient in zip(parameters, gradients, known.tolist(), strict=True):
        parameter.grad = gradient if has_gradient else None
    return torch.tensor(loss_sum / count, dtype=torch.float64), stopped > 0


def _running_statistics(model: nn.Module) -> list[Tensor]:
    norms = [module for module in model.modules() if isinstance(module, nn.modules.batchnorm._BatchNorm)]
    found = [statistic for norm in norms for statistic in (norm.running_mean, norm.running_var)]
    return [statistic for statistic in found if statistic is not None]


def _real(value: Tensor) -> Tensor:
    return torch.view_as_real(value) if value.is_complex() else value


def check_task(ranks: Ranks, task: Task[Any], method: str) -> None:
    if ranks.size > 1 and task.single_process:
        raise ConfigError(
            f"{method} cannot be trained by {ranks.size} processes: {task.single_process}. Start it without torchrun"
        )


def check_ranks(record: Mapping[str, Any], ranks: Ranks, where: str) -> None:
    before = record.get("ranks", 1)
    if before != ranks.size:
        how = f"torchrun --nproc-per-node {before}" if before != 1 else "one process, without torchrun"
        raise CheckpointError(
            f"{where} was trained by {before} process(es), now {ranks.size}: it would not go on as it began; resume it "
            f"with {how}, or choose another --out"
        )


def ended(error: RanksError, progress: Progress, run: Path, ranks: Ranks) -> RanksError:
    return RanksError(
        f"{error}, in epoch {progress.epoch + 1} by step {progress.step + 1}. The checkpoint in {run} goes on: the "
        f"same command under torchrun with {ranks.size} ranks and --resume --out {run}"
    )


def first_to_say(message: str) -> bool:
    """Return whether this rank prints why a run under torchrun ended; others found the same, or lost the connection."""
    host, port = os.environ.get("MASTER_ADDR"), os.environ.get("MASTER_PORT")
    if current_ranks().size == 1 or host is None or port is None:
        return True
    if os.environ.get("TORCHELASTIC_USE_AGENT_STORE") != "True":
        return True
    key = f"hopstate/said/{os.environ.get('TORCHELASTIC_RESTART_COUNT', '0')}"
    try:
        store = torch.distributed.TCPStore(host, int(port), is_master=False, timeout=timedelta(seconds=5))
        said = store.compare_set(key, "", message).decode("utf-8", "replace")
    except (RuntimeError, ValueError):
        return current_ranks().first  # torchrun has gone
    return said == message and store.add(f"{key}/times", 1) == 1
