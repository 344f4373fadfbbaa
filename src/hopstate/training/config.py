"""Settings of the optimizer and of the training loop."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

import numpy as np
import torch
from torch import nn

from hopstate.errors import ConfigError, check_range

Schedule: TypeAlias = Literal["constant", "linear", "cosine"]


@dataclass(frozen=True, kw_only=True)
class OptimConfig:
    """Optimizer and learning-rate schedule.

    Args:
        name: "adamw" (decoupled weight decay) or "adam" (weight decay added to the gradient).
        lr: peak learning rate.
        weight_decay: weight decay coefficient.
        schedule: decay of lr after the warm-up: "constant", or "linear" or "cosine" to 0 at the last step.
        warmup: fraction of all steps in which lr rises linearly from 0, in [0, 1).
        hold: fraction of all steps at the peak between warm-up and decay.
    """

    name: Literal["adamw", "adam"] = "adamw"
    lr: float = 1e-3
    weight_decay: float = 1e-5
    schedule: Schedule = "constant"
    warmup: float = 0.0
    hold: float = 0.0

    def __post_init__(self) -> None:
        check_range("optim.", above=0, lr=self.lr)
        check_range("optim.", minimum=0, weight_decay=self.weight_decay)
        if not 0 <= self.warmup < 1:
            raise ConfigError(f"optim.warmup must be a fraction of all steps in [0, 1); got {self.warmup}")
        if not 0 <= self.hold <= 1 - self.warmup:
            raise ConfigError(
                f"optim.hold must be a fraction of all steps in [0, 1 - warmup={self.warmup}]; got {self.hold}"
            )
        if self.hold and self.schedule == "constant":
            raise ConfigError("optim.hold delays the decay of lr, but optim.schedule=constant has none")


def make_optimizer(config: OptimConfig, parameters: Iterable[nn.Parameter]) -> torch.optim.Optimizer:
    kind = torch.optim.AdamW if config.name == "adamw" else torch.optim.Adam
    return kind(parameters, lr=config.lr, weight_decay=config.weight_decay)


def set_rate(optimizer: torch.optim.Optimizer, config: OptimConfig, step: int, total: int) -> None:
    """Set the learning rate for step (from 0) of total steps."""
    for group in optimizer.param_groups:
        group["lr"] = lr_at(config, step, total)


def lr_at(config: OptimConfig, step: int, total: int) -> float:
    """Return the learning rate of step (from 0) of total steps."""
    rise = int(config.warmup * total)
    if step < rise:
        return config.lr * (step + 1) / rise
    peak = rise + round(config.hold * total)
    if config.schedule == "constant" or step < peak:
        return config.lr
    done = min(1.0, (step - peak) / max(1, total - 1 - peak))
    return config.lr * (1 - done if config.schedule == "linear" else (1 + math.cos(math.pi * done)) / 2)


Precision = Literal["32", "64", "bf16-mixed", "16-mixed"]
MatmulPrecision = Literal["highest", "high", "medium"]


@dataclass(frozen=True, kw_only=True)
class LoopConfig:
    """Settings of the training loop.

    Args:
        epochs: maximum number of epochs.
        patience: stop after this many epochs (at least eval_every) without a better validation metric. null disables
            early stopping.
        eval_every: validate every this many epochs.
        optim: optimizer and learning-rate schedule.
        grad_clip: maximum global gradient norm. null disables clipping.
        precision: "32", "64", or mixed "bf16-mixed", "16-mixed".
        matmul_precision: precision of float32 matrix products: "highest", or the faster "high" (TF32 on a GPU) or
            "medium" (bfloat16 where supported).
        device: "auto" (a GPU if available), "cpu", "cuda", "cuda:1", "mps".
        seed: seed of weights, batch order, dropout and negatives.
        checkpoint_seconds: minimum seconds between checkpoints. 0 writes one every epoch.
        progress: show a progress bar, or occasional lines if the output is not a terminal.
        logger: extra metric loggers: "tensorboard", "mlflow", "wandb", several separated by commas, "none", or "auto"
            (TensorBoard if installed).
    """

    epochs: int = 200
    patience: int | None = 50
    eval_every: int = 1
    optim: OptimConfig = field(default_factory=OptimConfig)
    grad_clip: float | None = None
    precision: Precision = "32"
    matmul_precision: MatmulPrecision = "highest"
    device: str = "auto"
    seed: int = 0
    checkpoint_seconds: float = 30.0
    progress: bool = True
    logger: str = "auto"

    @property
    def float_type(self) -> type[np.floating]:
        """NumPy float type that matches the model's precision."""
        return np.float64 if self.precision == "64" else np.float32

    def __post_init__(self) -> None:
        check_range("loop.", minimum=0, epochs=self.epochs, seed=self.seed, checkpoint_seconds=self.checkpoint_seconds)
        check_range("loop.", minimum=1, eval_every=self.eval_every)
        if self.patience is not None and self.patience < 1:
            raise ConfigError(f"loop.patience must be at least 1, or null for no early stop; got {self.patience}")
        check_range("loop.", above=0, grad_clip=self.grad_clip)
