"""Checkpoints: one safetensors file with named tensors and a JSON header, written atomically and without pickle.

A new file is written next to the old one and replaces it once it is complete and on disk. Therefore the previous
checkpoint survives any failure.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from hopstate.errors import CheckpointError, MissingFileError
from hopstate.io.files import replace_file, replace_files
from hopstate.io.opening import exists, shorten
from hopstate.io.tensors import fill_tensor_file, read_tensors


@dataclass
class Progress:
    """Position of a run in training, stored in each checkpoint."""

    epoch: int = 0  # epochs completed
    step: int = 0  # batches of the current epoch done
    total_steps: int = 0  # batches since the start, with or without labels; the learning rate depends on it
    loss_sum: float = 0.0  # over the current epoch's batches
    learned: int = 0  # of them, those with labels: optimizer steps
    best: float | None = None
    best_loss: float = math.inf  # validation loss of the best epoch, which breaks ties
    best_epoch: int = 0
    seconds: float = 0.0  # training time, evaluation included

    @classmethod
    def of_record(cls, saved: dict[str, Any]) -> Progress:
        """Return the position stored in a checkpoint."""
        found = cls(**saved)
        counts = (found.epoch, found.step, found.total_steps, found.learned, found.best_epoch)
        if not all(type(n) is int and 0 <= n < 2**53 for n in counts) or found.best_epoch > found.epoch:
            raise ValueError(f"invalid progress {saved}")
        numbers = (found.loss_sum, found.best_loss, found.seconds, 0.0 if found.best is None else found.best)
        if not all(type(n) in (int, float) for n in numbers):
            raise ValueError(f"invalid progress {saved}")
        return found


@dataclass(frozen=True)
class FitResult:
    """Outcome of training: whether it was interrupted, its progress, and metrics by split of the best weights."""

    interrupted: bool
    progress: Progress
    metrics: dict[str, dict[str, float]]


FORMAT = 1


@dataclass(kw_only=True)
class Checkpoint:
    """Groups of tensors ("model", "best", "optimizer", "rng", "task") and a JSON-serializable record."""

    tensors: dict[str, dict[str, Tensor]] = field(default_factory=dict)
    record: dict[str, Any] = field(default_factory=dict)


def save_checkpoint(path: Path, checkpoint: Checkpoint) -> None:
    replace_file(path, lambda part: write_checkpoint(part, checkpoint))


def write_checkpoint(path: Path, checkpoint: Checkpoint) -> None:
    """Write a checkpoint directly to path, as a callback of `replace_file`."""
    flat = {f"{group}/{name}": t for group, ts in checkpoint.tensors.items() for name, t in ts.items()}
    fill_tensor_file(path, flat, checkpoint.record, format=str(FORMAT))


def write_result(
    weights: Path, checkpoint: Checkpoint, marker: Path, result: str, extra_files: Mapping[Path, str] | None = None
) -> None:
    """Write the selected weights and extra files, and last the result that marks them as complete."""
    writes: dict[Path, Callable[[Path], object]] = {
        weights: lambda part: write_checkpoint(part, checkpoint),
        **{path: partial(Path.write_text, data=text, encoding="utf-8") for path, text in (extra_files or {}).items()},
        marker: lambda part: part.write_text(result, encoding="utf-8"),
    }
    replace_files(writes, marker=marker)


def load_checkpoint(path: Path) -> Checkpoint:
    """Load a checkpoint onto the CPU."""
    if not exists(path):
        raise MissingFileError(f"no checkpoint at {path}; train a model first, or give the run folder that holds one")
    mend = "use an earlier copy or train again"
    flat, record = read_tensors(path, format=str(FORMAT), what="checkpoint", mend=mend)
    tensors: dict[str, dict[str, Tensor]] = {}
    for key, tensor in flat.items():
        group, slash, name = key.partition("/")
        if not slash:
            raise CheckpointError(f"{path} is not a checkpoint: it holds a tensor named {shorten(key)}; {mend}")
        tensors.setdefault(group, {})[name] = tensor
    return Checkpoint(tensors=tensors, record=record)


def load_weights(model: torch.nn.Module, weights: dict[str, Tensor], where: str) -> None:
    check_weights(model, weights, where)
    try:
        model.load_state_dict(weights)
    except CheckpointError as error:
        raise CheckpointError(f"{where}: {error}") from None


def check_weights(model: torch.nn.Module, weights: dict[str, Tensor], where: str, *, allow_empty: bool = False) -> None:
    """Check that weights match a model."""
    if allow_empty and not weights:
        return
    expected = model.state_dict()
    missing, extra = sorted(expected.keys() - weights.keys()), sorted(weights.keys() - expected.keys())
    wrong = [
        f"{k}: {tuple(weights[k].shape)} in the file, {tuple(expected[k].shape)} in the model"
        for k in sorted(expected.keys() & weights.keys())
        if expected[k].shape != weights[k].shape
    ]
    if missing or extra or wrong:
        parts = [
            f"missing {missing[:3]}" if missing else "",
            f"unknown {extra[:3]}" if extra else "",
            *wrong[:3],
        ]
        raise CheckpointError(
            f"{where} holds another model: {'; '.join(p for p in parts if p)}; use the version of hopstate that "
            f"trained it, or train again"
        )
    bad = [k for k, value in weights.items() if value.is_floating_point() and not bool(value.isfinite().all())]
    kinds = [k for k, value in weights.items() if value.dtype.is_floating_point != expected[k].dtype.is_floating_point]
    if bad or kinds:
        raise CheckpointError(
            f"{where} is damaged: {(bad or kinds)[0]} holds {'NaN or infinities' if bad else 'another dtype'}"
        )


def optimizer_tensors(optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    """Return the optimizer's per-parameter state as tensors named "<parameter number>.<key>"."""
    state = optimizer.state_dict()["state"]
    return {f"{i}.{key}": torch.as_tensor(value) for i, entry in state.items() for key, value in entry.items()}


def load_optimizer(optimizer: torch.optim.Optimizer, tensors: dict[str, Tensor], where: str) -> None:
    """Restore the result of `optimizer_tensors`; the loop sets learning rates."""
    parameters = [p for group in optimizer.param_groups for p in group["params"]]
    state: dict[int, dict[str, Tensor]] = {}
    for name, value in tensors.items():
        number, _, key = name.partition(".")
        place = int(number) if number.isdecimal() and len(number) < 10 else len(parameters)
        if place >= len(parameters) or value.shape not in ((), parameters[place].shape):
            raise CheckpointError(
                f"{where} is damaged: the optimizer's {shorten(name)} matches no parameter; restart the run"
            )
        state.setdefault(place, {})[key] = value
    keys = {frozenset(entry) for entry in state.values()}
    if len(keys) > 1:
        raise CheckpointError(f"{where} is damaged: the optimizer state is incomplete; restart the run")
    optimizer.load_state_dict({"state": state, "param_groups": optimizer.state_dict()["param_groups"]})
