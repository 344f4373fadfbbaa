"""Where a run computes, and how exactly."""

from __future__ import annotations

import atexit
import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import fields, is_dataclass, replace
from typing import TYPE_CHECKING, Any

import torch
from lightning_fabric.plugins.precision.double import DoublePrecision
from lightning_fabric.strategies import DDPStrategy
from torch import nn

from hopstate.errors import ConfigError
from hopstate.training.config import MatmulPrecision, Precision
from hopstate.training.ranks import TIMEOUT, current_ranks

if TYPE_CHECKING:  # lightning takes as long to import as torch does, and nothing but training needs it
    from lightning_fabric import Fabric


class Double(DoublePrecision):
    """Weights and inputs in float64, inputs that are frozen records too."""

    def convert_input(self, data: Any) -> Any:
        """Return a model's input with float64 in place of narrower numbers."""
        if is_dataclass(data) and not isinstance(data, type):
            return replace(data, **{f.name: self.convert_input(getattr(data, f.name)) for f in fields(data)})
        if isinstance(data, tuple):
            values = [self.convert_input(value) for value in data]
            return type(data)(*values) if hasattr(data, "_fields") else tuple(values)
        if isinstance(data, dict):
            return {key: self.convert_input(value) for key, value in data.items()}
        return super().convert_input(data)


class DataParallel(DDPStrategy):
    """Connects ranks; `ranks.average_gradients` averages their gradients, as a rank may have no batch in a step."""

    def setup_module(self, module: nn.Module) -> nn.Module:
        return module


def _rank_devices(accelerator: str, number: str) -> dict[str, Any]:
    """Return what Fabric needs to know of this machine's ranks: gloo between processors, nccl between GPUs.

    Args:
        accelerator: "auto", "cpu", "gpu" or "mps".
        number: of the device that was asked for, or nothing.
    """
    here, size = int(os.environ["LOCAL_WORLD_SIZE"]), int(os.environ["WORLD_SIZE"])
    if number or accelerator == "mps":
        raise ConfigError(
            f"{here} ranks take a device each; --device is auto, cpu or cuda under torchrun, which numbers them"
        )
    seen = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if accelerator == "gpu" and seen < here:
        raise ConfigError(
            f"{here} ranks on this machine, but torch sees {seen} GPU(s); give torchrun --nproc-per-node {seen}, or "
            "--device cpu"
        )
    on_gpu = accelerator == "gpu" or (accelerator == "auto" and seen >= here)
    backend = "cpu:gloo,cuda:nccl" if on_gpu else "gloo"  # what is read on the CPU is gathered there
    return {
        "accelerator": "gpu" if on_gpu else "cpu",
        "devices": here,
        "num_nodes": size // here,
        "strategy": DataParallel(process_group_backend=backend, timeout=TIMEOUT),
    }


def make_fabric(device: str, precision: Precision) -> Fabric:
    """Return what moves a run's tensors to its device and scales its losses; under torchrun it connects the ranks."""
    name, _, number = device.partition(":")
    told = {"32": "32-true"}.get(precision, precision)
    from lightning_fabric import Fabric

    how: dict[str, Any] = {"precision": told}
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
        for name in ("lightning_fabric", "lightning.fabric"):  # it counts the ranks aloud
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
    """Part from the other ranks; gloo's threads, still there as the process ends, now and then abort it."""
    if torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()


def _numbered(accelerator: str, number: str) -> bool:
    return accelerator == "gpu" and number.isascii() and number.isdigit()


def bare(model: nn.Module) -> nn.Module:
    """Return a model as it was before the loop wrapped it; its weights are the same."""
    from lightning_fabric.wrappers import is_wrapped

    return model.module if is_wrapped(model) else model  # type: ignore[return-value]


@contextmanager
def matmul_precision(exactness: MatmulPrecision) -> Iterator[None]:
    """Multiply float32 matrices as exactly as told within it; torch keeps one setting for the whole process.

    For each new shape oneDNN, which multiplies in bfloat16 on a CPU, keeps megabytes: by default of 1024 shapes.
    Batches here seldom have the same shape twice, so it is told to keep few before it is first used.
    """
    if exactness != "highest":
        os.environ.setdefault("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "16")
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision(exactness)
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)
