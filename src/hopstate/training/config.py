"""How long and how a run trains."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from hopstate.errors import ConfigError, check_range
from hopstate.training.loggers import logger_names
from hopstate.training.optim import OptimConfig

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
        tensorboard: "yes" adds TensorBoard to `logger`, "no" takes it out of "auto".
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
    tensorboard: Literal["auto", "yes", "no"] = "auto"

    @property
    def float_type(self) -> type[np.floating]:
        """Numpy's type of numbers that are read as exactly as the model computes."""
        return np.float64 if self.precision == "64" else np.float32

    def __post_init__(self) -> None:
        logger_names(self.logger, self.tensorboard)
        check_range("loop.", least=0, epochs=self.epochs, seed=self.seed, checkpoint_seconds=self.checkpoint_seconds)
        check_range("loop.", least=1, eval_every=self.eval_every)
        if self.patience is not None and self.patience < 1:
            raise ConfigError(f"loop.patience must be at least 1, or null for no early stop; got {self.patience}")
        check_range("loop.", above=0, grad_clip=self.grad_clip)
