"""One seed for everything: global seeding, named generators, and the state that a checkpoint keeps."""

from __future__ import annotations

import random
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import numpy as np
import torch
from torch import Tensor


def seed_everything(seed: int) -> None:
    """Seed python, numpy's legacy state (other libraries draw from it) and torch on all devices."""
    random.seed(seed)
    np.random.seed(seed % 2**32)  # noqa: NPY002
    torch.manual_seed(seed)


def named_rng(seed: int, *names: int | str) -> np.random.Generator:
    """Return the generator of a seed and names: equal names, equal draws.

    An example is `named_rng(0, "batches", epoch)`. Without names it is numpy's own of that seed. A 0 at the end is to
    numpy as no name at all: what draws with and without a number needs another name beside it.
    """
    keys = [zlib.crc32(n.encode()) if isinstance(n, str) else int(n) for n in names]
    return np.random.default_rng([seed, *keys])


def torch_rng(seed: int) -> torch.Generator:
    """Return torch's generator of a seed on the CPU; torch's own state is left as it is."""
    return torch.Generator().manual_seed(seed)


@contextmanager
def random_state_kept(seed: int | None = None) -> Iterator[None]:
    """Restore the global states of python, numpy and torch on exit, so that no call changes what its caller draws.

    Python's matters too: `torch_geometric.nn.Sequential` names its generated code by a number drawn from it, so a seed
    that stays behind gives a second one the layers' wiring of the first.

    Args:
        seed: of all states on entry; None leaves them as they are.
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
    """Within it torch draws from a seed; afterwards its state is what it was.

    Args:
        seed: of the draws.
        devices: CUDA devices whose states are put back beside the CPU's; None for all.
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
    """Take back what `rng_state` returned; devices that are not here are passed over."""
    torch.set_rng_state(states["cpu"])
    for i in range(torch.cuda.device_count() if torch.cuda.is_available() else 0):
        if f"cuda{i}" in states:
            torch.cuda.set_rng_state(states[f"cuda{i}"], i)
