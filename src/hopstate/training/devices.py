"""Devices, precision, memory limits and distributed data-parallel training.

torchrun starts the processes. Rank r of n uses every n-th batch of an epoch, starting at batch r. The gradients of a
step are averaged over the ranks that have a batch. Rank 0 evaluates and writes files.
"""

from __future__ import annotations

import atexit
import logging
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, fields, is_dataclass, replace
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import torch
from lightning_fabric.plugins.precision.double import DoublePrecision
from lightning_fabric.strategies import DDPStrategy
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from hopstate.errors import CheckpointError, ConfigError, RanksError
from hopstate.random import named_rng
from hopstate.training.checkpoint import Progress
from hopstate.training.config import LoopConfig, MatmulPrecision, Precision

if TYPE_CHECKING:  # slow to import and needed for training only
    from lightning_fabric import Fabric

    from hopstate.training.tasks.task import Task


_SIZED = (torch.empty, torch.zeros, torch.ones, torch.rand, torch.randn)
_SPARE = 1 << 30  # bytes that building a model may use in addition to weights and data


class _AllocationLimit(TorchFunctionMode):
    """Raise CheckpointError before a new tensor if all new ones together would exceed a limit in bytes."""

    def __init__(self, limit: int, known: int, where: object) -> None:
        super().__init__()
        self.limit, self.known, self.where, self.total = limit, known, where, 0

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func in _SIZED or func is torch.full:
            size = kwargs.get("size", args[0] if args else ())
            shape = tuple(size) if isinstance(size, (tuple, list, torch.Size)) else args
            if all(isinstance(n, int) for n in shape):
                width = (kwargs.get("dtype") or torch.get_default_dtype()).itemsize
                self.total += max(0, width * int(torch.Size(shape).numel()))
                if self.total > self.limit:
                    raise CheckpointError(
                        f"the settings of this run ask for a tensor of shape {shape} and {self.total:,} bytes in all, "
                        f"but its weights ({self.where}) take {self.known:,}; its config.json has been changed"
                    )
        return func(*args, **kwargs)


def within_weights(weights: Mapping[str, Tensor], where: object, data: object) -> TorchFunctionMode:
    """Return a context that raises CheckpointError if a model is too large for its saved weights and data."""
    known = sum(t.numel() * t.element_size() for t in weights.values())
    record = sum(v.nbytes for v in vars(data).values() if isinstance(v, np.ndarray)) if is_dataclass(data) else _SPARE
    return _AllocationLimit(_SPARE + 16 * known + 64 * record, known, where)


def peak_memory_mb() -> float | None:
    """Return the peak resident memory of this process in MB (10^6 bytes), or None if unknown."""
    try:
        import resource
    except ImportError:
        return None

    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return round(peak * (1 if sys.platform == "darwin" else 1024) / 1e6, 1)


T = TypeVar("T")
TIMEOUT = timedelta(hours=24)  # rank 0 may preprocess for hours; a rank that has ended closes its connection


@dataclass(frozen=True)
class Ranks:
    """Rank and number of the processes that train one model."""

    rank: int = 0
    size: int = 1

    @property
    def is_first(self) -> bool:
        """Whether this process writes the run folder."""
        return self.rank == 0

    def broadcast(self, make: Callable[[], T]) -> T:
        """Return rank 0's result of make; other ranks do not call it."""
        if self.size == 1:
            return make()
        result = [make() if self.is_first else None]
        with named_errors():
            torch.distributed.broadcast_object_list(result, 0)
        return result[0]  # type: ignore[return-value]

    def gather(self, value: T) -> list[T]:
        """Return the values of all ranks in rank order."""
        found: list[Any] = [value] * self.size
        if self.size > 1:
            with named_errors():
                torch.distributed.all_gather_object(found, value)
        return found

    def barrier(self) -> None:
        """Wait for all ranks."""
        self.gather(None)

    def check_same(self, what: str, value: object, mend: str) -> None:
        """Raise ConfigError if the ranks differ in a value, with its name `what` and the remedy `mend`."""
        found = self.gather(value)
        other = next((rank for rank, theirs in enumerate(found) if theirs != found[0]), None)
        if other is not None:
            both = f" ({found[other]}, {found[0]})" if isinstance(value, str) else ""
            raise ConfigError(f"rank {other} has a different {what} from rank 0{both}; {mend}")


def current_ranks() -> Ranks:
    """Return this process's rank under torchrun."""
    size = int(os.environ.get("WORLD_SIZE", "1")) if "TORCHELASTIC_RUN_ID" in os.environ else 1
    return Ranks(int(os.environ["RANK"]), size) if size > 1 else Ranks()


@contextmanager
def named_errors() -> Iterator[None]:
    """Raise RanksError if another rank has closed its connection."""
    try:
        yield
    except RuntimeError as error:  # all errors of torch.distributed are
        raise RanksError(f"another rank of this run has ended ({str(error).splitlines()[0][:200]})") from error


def step_seed(seed: int, ranks: Ranks, step: int) -> int:
    """Return a step's dropout seed from seed, rank and step, so that a resumed run draws the same."""
    return int(named_rng(seed, "ranks", ranks.size, ranks.rank, step).integers(2**62))


def average_gradients(model: nn.Module, loss: Tensor | None, stop: bool) -> tuple[Tensor | None, bool]:
    """Average gradients and batch-norm statistics in place over the ranks that have a loss.

    Parameters without a gradient on any rank keep None, as in single-process training.

    Args:
        model: the trained model.
        loss: loss of this rank's batch, or None.
        stop: whether this rank got a signal to stop.

    Returns:
        The mean loss, or None if no rank has one, and whether any rank got one.
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
            f"{where} was trained by {before} process(es), now {ranks.size}: results would differ; resume it "
            f"with {how}, or choose another --out"
        )


def ended(error: RanksError, progress: Progress, run: Path, ranks: Ranks) -> RanksError:
    return RanksError(
        f"{error}, in epoch {progress.epoch + 1} by step {progress.step + 1}. Resume the checkpoint in {run} with "
        f"the same command under torchrun with {ranks.size} ranks and --resume --out {run}"
    )


def first_to_report(message: str) -> bool:
    """Return whether this rank should print why a torchrun job ended, so that each message appears once."""
    host, port = os.environ.get("MASTER_ADDR"), os.environ.get("MASTER_PORT")
    if current_ranks().size == 1 or host is None or port is None:
        return True
    if os.environ.get("TORCHELASTIC_USE_AGENT_STORE") != "True":
        return True
    key = f"hopstate/said/{os.environ.get('TORCHELASTIC_RESTART_COUNT', '0')}"
    try:
        store = torch.distributed.TCPStore(host, int(port), is_master=False, timeout=timedelta(seconds=5))
        reported = store.compare_set(key, "", message).decode("utf-8", "replace")
    except (RuntimeError, ValueError):
        return current_ranks().is_first  # torchrun has exited
    return reported == message and store.add(f"{key}/times", 1) == 1


class Double(DoublePrecision):
    """Double precision for weights and inputs, including inputs in frozen dataclasses."""

    def convert_input(self, data: Any) -> Any:
        """Return a model's input with all floats in float64."""
        if is_dataclass(data) and not isinstance(data, type):
            return replace(data, **{f.name: self.convert_input(getattr(data, f.name)) for f in fields(data)})
        if isinstance(data, tuple):
            values = [self.convert_input(value) for value in data]
            return type(data)(*values) if hasattr(data, "_fields") else tuple(values)
        if isinstance(data, dict):
            return {key: self.convert_input(value) for key, value in data.items()}
        return super().convert_input(data)


class DataParallel(DDPStrategy):
    """DDP connections without gradient averaging, which `average_gradients` does because ranks may lack a batch."""

    def setup_module(self, module: nn.Module) -> nn.Module:
        return module


def _rank_devices(accelerator: str, number: str) -> dict[str, Any]:
    """Return Fabric's arguments for this machine's ranks: gloo on CPUs, nccl on GPUs."""
    here, size = int(os.environ["LOCAL_WORLD_SIZE"]), int(os.environ["WORLD_SIZE"])
    if number or accelerator == "mps":
        raise ConfigError(f"{here} ranks use one device each; under torchrun, --device must be auto, cpu or cuda")
    seen = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if accelerator == "gpu" and seen < here:
        raise ConfigError(
            f"{here} ranks on this machine, but torch sees {seen} GPU(s); give torchrun --nproc-per-node {seen}, or "
            "--device cpu"
        )
    on_gpu = accelerator == "gpu" or (accelerator == "auto" and seen >= here)
    backend = "cpu:gloo,cuda:nccl" if on_gpu else "gloo"  # CPU tensors are gathered with gloo
    return {
        "accelerator": "gpu" if on_gpu else "cpu",
        "devices": here,
        "num_nodes": size // here,
        "strategy": DataParallel(process_group_backend=backend, timeout=TIMEOUT),
    }


def make_fabric(device: str, precision: Precision) -> Fabric:
    """Return a Fabric for a device and precision; under torchrun it connects the ranks."""
    name, _, number = device.partition(":")
    from lightning_fabric import Fabric

    how: dict[str, Any] = {"precision": {"32": "32-true"}.get(precision, precision)}
    if precision == "64":
        how = {"plugins": Double()}
    accelerator = {"cuda": "gpu", "gpu": "gpu"}.get(name, name)
    if accelerator not in ("auto", "cpu", "gpu", "mps") or (":" in device and not _numbered(accelerator, number)):
        raise ConfigError(f"unknown device {device!r}; use auto, cpu, cuda, cuda:N or mps (--device, loop.device)")
    if accelerator == "gpu" and not torch.cuda.is_available():
        raise ConfigError(f"device {device}: torch sees no CUDA device here; use auto or cpu (--device, loop.device)")
    if accelerator == "mps" and not torch.backends.mps.is_available():
        raise ConfigError(f"device {device}: torch sees no Apple GPU here; use auto or cpu (--device, loop.device)")
    if current_ranks().size > 1:
        for name in ("lightning_fabric", "lightning.fabric"):  # it logs each rank
            logging.getLogger(name).setLevel(logging.WARNING)
        fabric = Fabric(**_rank_devices(accelerator, number), **how)
        fabric.launch()
        atexit.unregister(_leave)  # once a process, however often it trains
        atexit.register(_leave)
        return fabric
    devices: Any = [int(number)] if number else 1
    if number and int(number) >= torch.cuda.device_count():
        raise ConfigError(f"device {device}: torch sees {torch.cuda.device_count()} here, counted from 0")
    fabric = Fabric(accelerator=accelerator, devices=devices, **how)
    fabric.__dict__.pop("run", None)  # a wrapped method that refers to the object: a cycle, which keeps the model
    return fabric


def _leave() -> None:
    """Disconnect from the other ranks, because gloo threads that are still alive at exit can abort the process."""
    if torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()


def _numbered(accelerator: str, number: str) -> bool:
    return accelerator == "gpu" and number.isascii() and number.isdigit()


def bare(model: nn.Module) -> nn.Module:
    """Return the model without Fabric's wrapper; it shares the weights."""
    from lightning_fabric.wrappers import is_wrapped

    return model.module if is_wrapped(model) else model  # type: ignore[return-value]


@contextmanager
def matmul_precision(exactness: MatmulPrecision) -> Iterator[None]:
    """Set torch's float32 matmul precision inside the block; the setting is global to the process.

    oneDNN, which multiplies in bfloat16 on a CPU, caches up to 1024 shapes of megabytes each. Batch shapes here rarely
    repeat, so the cache is limited before its first use.
    """
    if exactness != "highest":
        os.environ.setdefault("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "16")
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision(exactness)
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)


@dataclass(frozen=True)
class Computation:
    """Device, precision and other settings by which a run computes."""

    fabric: Fabric
    loop: LoopConfig

    @contextmanager
    def precision(self) -> Iterator[None]:
        """Use the training precision for matmul and autocast inside the block."""
        with matmul_precision(self.loop.matmul_precision), self.fabric.autocast():
            yield
