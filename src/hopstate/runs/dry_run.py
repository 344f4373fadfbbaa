"""`hopstate fit METHOD --dry-run`: what a run would cost, from a few measured steps, without training it."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from hopstate.io.files import cache_folder
from hopstate.methods.method import Context
from hopstate.random import random_state_kept
from hopstate.runs.data import data_metrics, load_data, preprocess
from hopstate.training.devices import peak_memory_mb
from hopstate.training.run_folder import RunFolder
from hopstate.training.trainer import Trainer

if TYPE_CHECKING:
    from hopstate.methods.method import Method, Record, RunConfig


@dataclass(frozen=True)
class DryRun:
    """What a run would cost.

    Args:
        parameters: trainable numbers of the model.
        steps: optimizer steps of an epoch; 0 for a method that is not trained by steps.
        epochs: the most epochs that the run would train.
        seconds: of an epoch's steps, validation excluded; None for a method that is not trained by steps.
        memory_mb: largest resident memory of this process so far, data included, in 10^6 bytes; None if the system
            does not report it.
        device: that was measured.
        device_memory_mb: largest memory that torch allocated on a GPU, in 10^6 bytes; None on a CPU.
    """

    parameters: int
    steps: int
    epochs: int
    seconds: float | None
    memory_mb: float | None
    device: str
    device_memory_mb: float | None


def dry_run(method: Method, config: RunConfig, record: Record | None = None) -> DryRun:
    """Prepare data and model as `fit` does, measure a few training steps, and leave nothing."""
    record = load_data(config.data, config.read, method.data) if record is None else record
    with random_state_kept(config.loop.seed), tempfile.TemporaryDirectory(prefix="hopstate-") as folder:
        context = Context(run=Path(folder), cache=cache_folder(), metrics=data_metrics(config.data))
        ready, _ = preprocess(record, config, context, edges=method.reads_edges(config))
        task = method.task(ready, config, context)
        trainer = Trainer(task, config.loop, RunFolder(folder), method=method.name)
        seconds, steps = trainer.measured_epoch()
        device = trainer.fabric.device
        on_gpu = torch.cuda.max_memory_allocated(device) / 1e6 if device.type == "cuda" else None
        size = sum(p.numel() for p in task.model.parameters() if p.requires_grad)
        return DryRun(size, steps, config.loop.epochs, seconds, peak_memory_mb(), str(device), on_gpu)
