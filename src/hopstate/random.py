"""Seeding: global seeds, named NumPy generators, and the generator states that a checkpoint stores."""

from __future__ import annotations

import random
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import numpy as np
import torch
from torch import Tensor


def seed_everything(seed: int) -> None:
    """Seed Python's `random`, NumPy's legacy global state, and torch on all devices."""
    random.seed(seed)
    np.random.seed(seed % 2**32)  # noqa: NPY002
    torch.manual_seed(seed)


def named_rng(seed: int, *names: int | str) -> np.random.Generator:
    """Return a NumPy generator that depends only on a seed and names.

    Equal arguments give equal draws, for example `named_rng(0, "batches", epoch)`. NumPy ignores a trailing 0.
    Therefore use different names for a generator with a number and one without.
    """
    keys = [zlib.crc32(n.encode()) if isinstance(n, str) else int(n) for n in names]
    return np.random.default_rng([seed, *keys])


def torch_rng(seed: int) -> torch.Generator:
    """Return a seeded CPU generator; torch's global state does not change."""
    return torch.Generator().manual_seed(seed)


@contextmanager
def random_state_kept(seed: int | None = None) -> Iterator[None]:
    """Restore the global random states of Python, NumPy and torch on exit.

    Python's state matters because `torch_geometric.nn.Sequential` draws the name of its generated code from it. After
    a fixed seed, a second `Sequential` would get the same name and run the first one's code.

    Args:
        seed: seed for all states on entry. None leaves them unchanged.
    """
    python, numpy, tensors = random.getstate(), np.random.get_state(), rng_state()  # noqa: NPY002
    try:
        if seed is not None:
            seed_everything(seed)
        yield
    finally:
        random.setstate(python)
        np.random.set_state(numpy)  # noqa: NPY002
        set_rng_state(tensors)


@contextmanager
def torch_seeded(seed: int, devices: Sequence[int] | None = None) -> Iterator[None]:
    """Seed torch inside the block and restore its state afterwards.

    Args:
        seed: seed of torch's generators.
        devices: CUDA devices whose states are restored in addition to the CPU's. None restores all.
    """
    with torch.random.fork_rng(devices):
        torch.manual_seed(seed)
        yield


def rng_state() -> dict[str, Tensor]:
    """Return torch's generator states by device, as byte tensors."""
    states = {"cpu": torch.get_rng_state()}
    if torch.cuda.is_available():
        states |= {f"cuda{i}": s for i, s in enumerate(torch.cuda.get_rng_state_all())}
    return states


def set_rng_state(states: dict[str, Tensor]) -> None:
    """Restore states returned by `rng_state`; states of missing devices are ignored."""
    torch.set_rng_state(states["cpu"])
    for i in range(torch.cuda.device_count() if torch.cuda.is_available() else 0):
        if f"cuda{i}" in states:
            torch.cuda.set_rng_state(states[f"cuda{i}"], i)
