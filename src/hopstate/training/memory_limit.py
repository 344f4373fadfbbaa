"""Refuses tensors that settings ask for before they are made, where no machine or no such run can hold them."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import is_dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from hopstate.errors import CheckpointError, ConfigError
from hopstate.io.scratch import machine_memory

_SIZED = (torch.empty, torch.zeros, torch.ones, torch.rand, torch.randn)
_SPARE = 1 << 30  # bytes that building may take beside weights and data


class _Watched(TorchFunctionMode):
    """Calls check(bytes of the tensor, bytes so far, its shape) before a tensor is made."""

    def __init__(self, check: Callable[[int, int, tuple[int, ...]], None]) -> None:
        super().__init__()
        self.check, self.total = check, 0

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func in _SIZED or func is torch.full:
            size = kwargs.get("size", args[0] if args else ())
            shape = tuple(size) if isinstance(size, (tuple, list, torch.Size)) else args
            if all(isinstance(n, int) for n in shape):
                width = (kwargs.get("dtype") or torch.get_default_dtype()).itemsize
                wanted = width * int(torch.Size(shape).numel())
                self.total += max(0, wanted)
                self.check(wanted, self.total, shape)
        return func(*args, **kwargs)


@contextmanager
def within_memory() -> Iterator[None]:
    """Within it a single tensor that is larger than the machine's memory is a ConfigError."""
    memory = machine_memory()

    def check(wanted: int, total: int, shape: tuple[int, ...]) -> None:
        if wanted > memory:
            raise ConfigError(
                f"these settings ask for a tensor of shape {shape}, {wanted / 2**30:,.1f} GiB, and this machine has "
                f"{memory / 2**30:,.1f}; lower the sizes of the model"
            )

    with _Watched(check):
        yield


@contextmanager
def within_weights(weights: Mapping[str, Tensor], where: object, data: object) -> Iterator[None]:
    """Within it a model must stay in proportion to its saved weights, which the file `where` holds, and its data."""
    known = sum(t.numel() * t.element_size() for t in weights.values())
    record = sum(v.nbytes for v in vars(data).values() if isinstance(v, np.ndarray)) if is_dataclass(data) else _SPARE
    limit = _SPARE + 16 * known + 64 * record

    def check(wanted: int, total: int, shape: tuple[int, ...]) -> None:
        if total > limit:
            raise CheckpointError(
                f"the settings of this run ask for a tensor of shape {shape} and {total:,} bytes in all, but its "
                f"weights ({where}) take {known:,}; its config.json has been changed"
            )

    with _Watched(check):
        yield


def peak_memory_mb() -> float | None:
    """Return the largest resident memory of this process so far, in MB (10^6 bytes), or None."""
    try:
        import resource
    except ImportError:
        return None

    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return round(peak * (1 if sys.platform == "darwin" else 1024) / 1e6, 1)
