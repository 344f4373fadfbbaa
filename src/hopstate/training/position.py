"""Where a run stands between two steps, and what it ended with."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any


@dataclass
class Progress:
    """Where a run stands; all of it is in the checkpoint."""

    epoch: int = 0  # epochs completed
    step: int = 0  # batches of the current epoch done
    total_steps: int = 0  # optimiser steps since the start
    loss_sum: float = 0.0  # over the current epoch's batches
    learned: int = 0  # of them, those that had something to learn from
    best: float | None = None
    best_loss: float = math.inf  # validation loss of the best epoch, which decides between equal metrics
    best_epoch: int = 0
    seconds: float = 0.0  # training time, evaluation included

    @classmethod
    def of_record(cls, saved: dict[str, Any]) -> Progress:
        """Return the position that a checkpoint tells.

        Raises:
            ValueError: a part is missing or cannot be.
        """
        found = cls(**{"learned": saved["step"], **saved})  # all were, before it was counted
        whole = (found.epoch, found.step, found.total_steps, found.learned, found.best_epoch)
        if not all(type(n) is int and 0 <= n < 2**53 for n in whole) or found.best_epoch > found.epoch:
            raise ValueError(f"it stands at {saved}")
        numbers = (found.loss_sum, found.best_loss, found.seconds, 0.0 if found.best is None else found.best)
        if not all(type(n) in (int, float) for n in numbers):
            raise ValueError(f"it stands at {saved}")
        return found


@dataclass(frozen=True)
class FitResult:
    """What a run ended with: interrupted or not, the best epoch, final metrics by split (of the best weights)."""

    interrupted: bool
    progress: Progress
    metrics: dict[str, dict[str, float]]
