"""Several processes that train one model: who this one is, its share of a batch, and what all find together.

torchrun starts the processes and numbers them. A share is contiguous: the shares in the order of the ranks are the
batch that one process would have had. A batch's loss is a mean over all its rows, so that a rank's loss counts by the
part of that mean which its rows make up, and the gradients are summed. Nothing of it depends on the number of rows a
rank has; it may have none.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor, nn

from hopstate.errors import ConfigError, RanksError
from hopstate.random import named_rng
from hopstate.training.checkpoint import Progress

T = TypeVar("T")
PATIENCE = timedelta(hours=24)  # rank 0 may be making tokens; a rank that has ended is known by its closed connection


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
        """Whether this is the one that writes."""
        return self.rank == 0

    def own(self, count: int) -> slice:
        """Return this rank's rows of a batch of count.

        >>> [Ranks(rank, 3).own(7) for rank in range(3)]
        [slice(0, 2, None), slice(2, 4, None), slice(4, 7, None)]
        """
        return slice(count * self.rank // self.size, count * (self.rank + 1) // self.size)

    def gathered(self, own: Tensor, count: int) -> Tensor:
        """Return (count, ...) in the order of the ranks, of which each gives its rows.

        Raises:
            RanksError: another rank has ended.
        """
        if self.size == 1:
            return own
        most = -(-count // self.size)
        padded = torch.cat([own, own.new_zeros(most - len(own), *own.shape[1:])]).contiguous()
        parts = [torch.empty_like(padded) for _ in range(self.size)]
        with heard():
            torch.distributed.all_gather(parts, padded)
        widths = (Ranks(rank, self.size).own(count) for rank in range(self.size))
        return torch.cat([part[: width.stop - width.start] for part, width in zip(parts, widths, strict=True)])

    def joined(self, own: Tensor, count: int) -> Tensor:
        """Return what `gathered` does; gradients flow back to the rank that each row came from."""
        if self.size == 1:
            return own
        return _Joined.apply(own, self, count)  # type: ignore[no-untyped-call]

    def shared(self, find: Callable[[np.ndarray], Tensor], rows: np.ndarray) -> Tensor:
        """Return find(rows), a row a row, of which each rank finds its share; too few rows are found by all."""
        if self.size == 1 or len(rows) < self.size:
            return find(rows)
        return self.gathered(find(rows[self.own(len(rows))]), len(rows))

    def told(self, find: Callable[[], T]) -> T:
        """Return what rank 0 finds; the others do not look."""
        if self.size == 1:
            return find()
        said = [find() if self.first else None]
        with heard():
            torch.distributed.broadcast_object_list(said, 0)
        return said[0]  # type: ignore[return-value]

    def in_turn(self, find: Callable[[], T]) -> T:
        """Return what find makes, rank 0 first, which may leave in a folder what the others then take."""
        if not self.first:
            self.wait()
        found = find()
        if self.first:
            self.wait()
        return found

    def wait(self) -> None:
        """Return when all have come here."""
        self.told(lambda: None)
        self.all_of(None)

    def all_of(self, value: T) -> list[T]:
        found: list[Any] = [value] * self.size
        if self.size > 1:
            with heard():
                torch.distributed.all_gather_object(found, value)
        return found

    def check_same(self, what: str, value: object, mend: str) -> None:
        """Check that all ranks have one value.

        Args:
            what: it is of, for the message.
            value: of this rank.
            mend: what to do otherwise.

        Raises:
            ConfigError: they differ.
        """
        found = self.all_of(value)
        other = next((rank for rank, theirs in enumerate(found) if theirs != found[0]), None)
        if other is not None:
            both = f" ({found[other]}, {found[0]})" if isinstance(value, str) else ""
            raise ConfigError(f"rank {other} has other {what} than rank 0{both}; {mend}")


ALONE = Ranks()


def step_seed(seed: int, ranks: Ranks, step: int) -> int:
    """Return what torch draws from in a step: of a run's seed, the rank and the step alone, as a resumed run needs."""
    return int(named_rng(seed, "ranks", ranks.size, ranks.rank, step).integers(2**62))


class _Joined(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, own: Tensor, ranks: Ranks, count: int) -> Tensor:
        ctx.ranks, ctx.count = ranks, count
        return ranks.gathered(own, count)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None]:
        total = gradient.contiguous().clone()
        with heard():
            torch.distributed.all_reduce(total)
        return total[ctx.ranks.own(ctx.count)], None, None


def present() -> Ranks:
    """Return the place that torchrun gave this process."""
    size = int(os.environ.get("WORLD_SIZE", "1")) if "TORCHELASTIC_RUN_ID" in os.environ else 1
    return Ranks(int(os.environ["RANK"]), size) if size > 1 else ALONE


def on_one_machine(ranks: Ranks) -> bool:
    """Return whether torchrun started all ranks here, so that they see each other's memory."""
    return int(os.environ.get("LOCAL_WORLD_SIZE", ranks.size)) == ranks.size


@contextmanager
def heard() -> Iterator[None]:
    """Name the error of a conversation that another rank has left."""
    try:
        yield
    except RuntimeError as error:  # all errors of torch.distributed are
        raise RanksError(f"another rank of this run has ended ({str(error).splitlines()[0][:200]})") from error


def summed_gradients(parameters: Sequence[nn.Parameter], figures: Sequence[float]) -> list[float]:
    """Sum the gradients of all ranks in place; return the sums of some figures.

    A parameter without a gradient on any rank stays without one, as in one process.
    """
    first = parameters[0]
    there = [float(p.grad is not None) for p in parameters]
    values = [torch.zeros_like(p) if p.grad is None else p.grad for p in parameters]
    kind = first.dtype if first.is_floating_point() else torch.float32
    flat = [_real(value).reshape(-1).to(kind) for value in values]
    total = torch.cat([*flat, torch.tensor([*there, *figures], dtype=kind, device=first.device)])
    with heard():
        torch.distributed.all_reduce(total)
    *parts, flags, sums = total.split([len(part) for part in flat] + [len(there), len(figures)])
    for parameter, value, part, known in zip(parameters, values, parts, flags.tolist(), strict=True):
        if known:
            _real(value).copy_(part.view(_real(value).shape))
            parameter.grad = value
    return sums.tolist()


def joined_loss(optimizer: torch.optim.Optimizer, own: Tensor | None, stop: bool) -> tuple[Tensor | None, bool]:
    """Sum the gradients of a step over the ranks; return its loss, None where no rank has one, and whether to stop.

    Args:
        optimizer: of the parameters.
        own: this rank's part of the loss, or None.
        stop: whether this rank was told to; all then do.
    """
    parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    told = (0.0 if own is None else own.item(), float(own is not None), float(stop))
    loss, learned, stopped = summed_gradients(parameters, told)
    return torch.tensor(loss, dtype=torch.float64) if learned else None, stopped > 0


def ended(error: RanksError, progress: Progress, run: Path, ranks: Ranks) -> RanksError:
    return RanksError(
        f"{error}, in epoch {progress.epoch + 1} by step {progress.step + 1}. The checkpoint in {run} goes on: the "
        f"same command under torchrun with {ranks.size} ranks and --resume --out {run}"
    )


def _real(value: Tensor) -> Tensor:
    return torch.view_as_real(value) if value.is_complex() else value


def first_to_say(message: str) -> bool:
    """Return whether this rank is the one that says why a run of torchrun ended; others found the same, or lost it."""
    host, port = os.environ.get("MASTER_ADDR"), os.environ.get("MASTER_PORT")
    if present().size == 1 or host is None or port is None or os.environ.get("TORCHELASTIC_USE_AGENT_STORE") != "True":
        return True
    key = f"hopstate/said/{os.environ.get('TORCHELASTIC_RESTART_COUNT', '0')}"
    try:
        store = torch.distributed.TCPStore(host, int(port), is_master=False, timeout=timedelta(seconds=5))
        said = store.compare_set(key, "", message).decode("utf-8", "replace")
    except (RuntimeError, ValueError):
        return present().first  # torchrun has gone
    return said == message and store.add(f"{key}/times", 1) == 1


__all__ = [
    "ALONE", "Ranks", "ended", "first_to_say", "joined_loss", "on_one_machine", "present", "step_seed",
    "summed_gradients",
]  # fmt: skip
