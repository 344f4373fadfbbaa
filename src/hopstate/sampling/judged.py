"""Which events of a large split are taken: whole batches, one drawn from a seed out of each of as many stretches.

A batch of an evaluation is independent of what else is judged, and the pairs beside its events are those that they have
among all, so that a figure of some is an estimate of the figure of all. An epoch of training takes others every time.
"""

from __future__ import annotations

from typing import Literal

import numpy as np

from hopstate.errors import ConfigError, check_range
from hopstate.random import named_rng

BATCH = 200  # events of a batch, that of the pairs drawn beside them
SEED = 0


def judged_batches(count: int, most: int | None, batch_size: int = BATCH) -> np.ndarray:
    """Return the rising numbers of the batches that are judged; see the top of this file.

    Args:
        count: events of the split.
        most: of them that are judged, at least a batch; None for all.
        batch_size: events of a batch.

    >>> judged_batches(1000, None).tolist(), len(judged_batches(10**9, 10**6))
    ([0, 1, 2, 3, 4], 5000)
    """
    return spread_batches(count, most, batch_size, named_rng(SEED, "judged"))


def epoch_batches(count: int, most: int | None, batch_size: int, seed: int, epoch: int) -> np.ndarray:
    """Return the rising numbers of the batches that an epoch of training takes, drawn from (seed, epoch).

    Args:
        count: training events.
        most, batch_size: as of `judged_batches`.
        seed: of the run.
        epoch: counted from 0; each takes as many.
    """
    return spread_batches(count, most, batch_size, named_rng(seed, "epoch-events", epoch))


def spread_batches(count: int, most: int | None, batch_size: int, rng: np.random.Generator) -> np.ndarray:
    """Return the rising numbers of all batches of count events, or of a sample of them.

    The sample is one batch drawn out of each of as many stretches as `most` events have batches.
    """
    batches = -(-count // batch_size)
    if most is None or count <= most:
        return np.arange(batches)
    bounds = np.linspace(0, batches, max(most // batch_size, 1) + 1).astype(np.int64)
    return rng.integers(bounds[:-1], bounds[1:])


def number_or_all(name: str, value: int | Literal["all"]) -> int | None:
    """Return a setting of the kind "a number, at least 1, or all": None for all.

    Args:
        name: of the setting.
        value: what it is.

    Raises:
        ConfigError: it is neither.
    """
    if value == "all":
        return None
    if isinstance(value, str):
        raise ConfigError(f"{name} is a number, or 'all'; got {value!r}")
    check_range("", least=1, **{name: value})
    return value


def in_batches(rows: np.ndarray, numbers: np.ndarray, batch_size: int = BATCH) -> np.ndarray:
    """Return which rows stand in some batches.

    Args:
        rows: (P,) of all batches.
        numbers: (B,) of the batches, rising.
        batch_size: rows of a batch.
    """
    if len(numbers) and numbers[-1] - numbers[0] == len(numbers) - 1:
        return rows[numbers[0] * batch_size : (numbers[-1] + 1) * batch_size]
    at = (numbers[:, None] * batch_size + np.arange(batch_size)).reshape(-1)
    return rows[at[at < len(rows)]]


def judged(rows: np.ndarray, most: int | None) -> np.ndarray:
    """Return which of a split's events are judged; see `judged_batches`.

    Args:
        rows: (P,) of the split, rising.
        most: of them that are judged, at least a batch; None for all.
    """
    return in_batches(rows, judged_batches(len(rows), most))


__all__ = ["epoch_batches", "in_batches", "judged", "judged_batches", "number_or_all"]
