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
        state_lr: learning rate of state-space parameters (A and step sizes). null uses lr.
        weight_decay: weight decay coefficient.
        schedule: decay of lr after the warm-up: "constant", or "linear" or "cosine" to final_lr at the last step.
        state_schedule: schedule of state-space parameters, with the same warm-up and hold. null uses schedule.
        warmup: fraction of all steps in which lr rises linearly from 0, in [0, 1).
        hold: fraction of all steps at the peak between warm-up and decay.
        final_lr: learning rate of the last step of a decaying schedule.
    """

    name: Literal["adamw", "adam"] = "adamw"
    lr: float = 1e-3
    state_lr: float | None = None
    weight_decay: float = 1e-5
    schedule: Schedule = "constant"
    state_schedule: Schedule | None = None
    warmup: float = 0.0
    hold: float = 0.0
    final_lr: float = 0.0

    def __post_init__(self) -> None:
        check_range("optim.", above=0, lr=self.lr, state_lr=self.state_lr)
        check_range("optim.", minimum=0, weight_decay=self.weight_decay)
        if not 0 <= self.warmup < 1:
            raise ConfigError(f"optim.warmup must be a fraction of all steps in [0, 1); got {self.warmup}")
        if not 0 <= self.hold <= 1 - self.warmup:
            raise ConfigError(
                f"optim.hold must be a fraction of all steps in [0, 1 - warmup={self.warmup}]; got {self.hold}"
            )
        if self.hold and {self.schedule, self.state_schedule} <= {"constant", None}:
            raise ConfigError("optim.hold delays the decay of lr, but optim.schedule=constant has none")
        if not 0 <= self.final_lr <= self.lr:
            raise ConfigError(f"optim.final_lr must lie in [0, lr={self.lr}]; got {self.final_lr}")


def make_optimizer(
    config: OptimConfig, parameters: Iterable[nn.Parameter], states: Iterable[nn.Parameter] = ()
) -> torch.optim.Optimizer:
    """Return the configured optimizer, with state-space parameters in their own group if configured.

    Args:
        config: optimizer and learning rates.
        parameters: parameters of the model.
        states: state-space parameters among them, for config.state_lr and config.state_schedule.

    Raises:
        ConfigError: one of these settings is given, but states is empty.
    """
    kind = torch.optim.AdamW if config.name == "adamw" else torch.optim.Adam
    state_ids, all_parameters = {id(p) for p in states}, list(parameters)
    settings = {"state_lr": config.state_lr, "state_schedule": config.state_schedule}
    given = [f"loop.optim.{name}={value}" for name, value in settings.items() if value is not None]
    if given and not state_ids:
        raise ConfigError(f"{given[0]} has no effect: the network has no state space")
    if not given:
        state_ids = set()
    state, other = ([p for p in all_parameters if (id(p) in state_ids) == inside] for inside in (True, False))
    groups = [{"params": other, "states": False}, {"params": state, "states": True}]
    return kind([group for group in groups if group["params"]], lr=config.lr, weight_decay=config.weight_decay)


def set_rates(optimizer: torch.optim.Optimizer, config: OptimConfig, step: int, total: int) -> None:
    """Set the learning rate of each group from `make_optimizer` for step (from 0) of total steps."""
    for group in optimizer.param_groups:
        group["lr"] = lr_at(config, step, total, states=group["states"])


def lr_at(config: OptimConfig, step: int, total: int, *, states: bool = False) -> float:
    """Return the learning rate of step (from 0) of total steps; `states` selects state-space parameters."""
    share = (config.state_lr or config.lr) / config.lr if states else 1.0
    schedule = (states and config.state_schedule) or config.schedule
    rise = int(config.warmup * total)
    if step < rise:
        return share * config.lr * (step + 1) / rise
    peak = rise + round(config.hold * total)
    if schedule == "constant" or step < peak:
        return share * config.lr
    done = min(1.0, (step - peak) / max(1, total - 1 - peak))
    left = 1 - done if schedule == "linear" else (1 + math.cos(math.pi * done)) / 2
    return share * (config.final_lr + (config.lr - config.final_lr) * left)


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
