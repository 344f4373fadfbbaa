"""How long and how a run trains."""

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
    """Optimiser and schedule.

    Args:
        name: "adamw" (decoupled weight decay) or "adam" (weight decay added to the gradient).
        lr: peak learning rate.
        state_lr: that of state spaces' own parameters (A and what step sizes are made of); null takes lr.
        weight_decay: strength of the decay.
        schedule: how lr falls after the warm-up: "constant", "linear" or "cosine" to final_lr at the last step.
        state_schedule: how that of state spaces' own parameters falls, with the same warm-up and hold; null: alike.
        warmup: share of all steps over which lr rises linearly from 0, in [0, 1).
        hold: share of all steps, after the warm-up, at the peak before lr begins to fall.
        final_lr: learning rate of the last step of a falling schedule.
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
            raise ConfigError(f"optim.warmup is a share of all steps in [0, 1); got {self.warmup}")
        if not 0 <= self.hold <= 1 - self.warmup:
            raise ConfigError(f"optim.hold is a share of all steps in [0, 1 - warmup={self.warmup}]; got {self.hold}")
        if self.hold and {self.schedule, self.state_schedule} <= {"constant", None}:
            raise ConfigError("optim.hold says when lr begins to fall; with optim.schedule=constant it never does")
        if not 0 <= self.final_lr <= self.lr:
            raise ConfigError(f"optim.final_lr must lie in [0, lr={self.lr}]; got {self.final_lr}")


def make_optimizer(
    config: OptimConfig, parameters: Iterable[nn.Parameter], states: Iterable[nn.Parameter] = ()
) -> torch.optim.Optimizer:
    """Return the optimiser of config over parameters, state spaces in a group of their own where config asks.

    Args:
        config: optimiser and rates.
        parameters: of the model.
        states: those among them that config.state_lr and config.state_schedule are for.

    Raises:
        ConfigError: one of these is given, and states are none.
    """
    kind = torch.optim.AdamW if config.name == "adamw" else torch.optim.Adam
    own, every = {id(p) for p in states}, list(parameters)
    asked = {"state_lr": config.state_lr, "state_schedule": config.state_schedule}
    given = [f"loop.optim.{name}={value}" for name, value in asked.items() if value is not None]
    if given and not own:
        raise ConfigError(f"{given[0]} does nothing here: the network has no state space")
    if not given:
        own = set()
    mine, rest = ([p for p in every if (id(p) in own) == inside] for inside in (True, False))
    groups = [{"params": rest, "states": False}, {"params": mine, "states": True}]
    return kind([group for group in groups if group["params"]], lr=config.lr, weight_decay=config.weight_decay)


def set_rates(optimizer: torch.optim.Optimizer, config: OptimConfig, step: int, total: int) -> None:
    """Give each group of an optimizer of `make_optimizer` its learning rate of step (from 0) of total steps."""
    for group in optimizer.param_groups:
        group["lr"] = lr_at(config, step, total, states=group["states"])


def lr_at(config: OptimConfig, step: int, total: int, *, states: bool = False) -> float:
    """Return the learning rate of step (from 0) of total steps; states: that of state spaces' own parameters."""
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
    """How long and how to train.

    Args:
        epochs: passes over the training batches at most.
        patience: stop after this many epochs, at least eval_every, without a better validation metric; None never
            stops early.
        eval_every: evaluate on validation every so many epochs.
        optim: optimiser and learning-rate schedule.
        grad_clip: largest global gradient norm, None for no clipping.
        precision: "32", "64", or mixed "bf16-mixed", "16-mixed".
        matmul_precision: how exactly float32 matrices are multiplied: "highest" in full, "high" (TF32 on
            a GPU) or "medium" (bfloat16, on processors and GPUs with matrix units) faster and less so.
        device: "auto" (a GPU if there is one), "cpu", "cuda", "cuda:1", "mps".
        seed: fixes weights, batch order, dropout and negatives.
        checkpoint_seconds: a checkpoint is due after so long, at the next step; 0 writes one every epoch.
        progress: show a progress bar (a line now and then where output is no terminal).
        logger: where figures go besides the run's folder: "tensorboard", "mlflow", "wandb", several with commas
            between, "none", or "auto" (TensorBoard where it is installed).
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
        """Numpy's type of numbers that are read as exactly as the model computes."""
        return np.float64 if self.precision == "64" else np.float32

    def __post_init__(self) -> None:
        check_range("loop.", minimum=0, epochs=self.epochs, seed=self.seed, checkpoint_seconds=self.checkpoint_seconds)
        check_range("loop.", minimum=1, eval_every=self.eval_every)
        if self.patience is not None and self.patience < 1:
            raise ConfigError(f"loop.patience must be at least 1, or null for no early stop; got {self.patience}")
        check_range("loop.", above=0, grad_clip=self.grad_clip)
