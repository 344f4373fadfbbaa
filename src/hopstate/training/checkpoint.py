"""Checkpoints: one safetensors file, tensors by name, everything else as JSON in its header; written atomically.

No pickle anywhere. A file is written beside the old one and renamed over it once it is complete and on disk, so
whatever goes wrong (disk full, a killed process), the previous checkpoint survives.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from hopstate.data.files import replace_file
from hopstate.errors import CheckpointError, MissingFileError

FORMAT = 1


@dataclass(kw_only=True)
class Checkpoint:
    """Named groups of tensors ("model", "best", "optimizer", "rng", "task") and a JSON-able record."""

    tensors: dict[str, dict[str, Tensor]] = field(default_factory=dict)
    record: dict[str, Any] = field(default_factory=dict)


def save_checkpoint(path: Path, checkpoint: Checkpoint) -> None:
    """Write a checkpoint atomically.

    Raises:
        StorageError: it could not be written; an earlier file of that name is untouched.
    """
    replace_file(path, lambda part: write_checkpoint(part, checkpoint))


def write_checkpoint(path: Path, checkpoint: Checkpoint) -> None:
    """Write a checkpoint straight to path, for `replace_file` and the like."""
    flat = {
        f"{group}/{name}": t.detach().cpu().contiguous()
        for group, ts in checkpoint.tensors.items()
        for name, t in ts.items()
    }
    flat = {name: t.clone() for name, t in flat.items()}  # safetensors refuses tensors that share memory
    header = {"format": str(FORMAT), "record": json.dumps(checkpoint.record)}
    save_file(flat, path, metadata=header)


def load_checkpoint(path: Path) -> Checkpoint:
    """Read a checkpoint onto the CPU.

    Raises:
        MissingFileError: there is no such file.
        CheckpointError: the file is damaged, is no hopstate checkpoint, or is of a newer format.
    """
    if not path.is_file():
        raise MissingFileError(f"no checkpoint at {path}; train a model first, or give the run folder that holds one")
    tensors: dict[str, dict[str, Tensor]] = {}
    try:
        with safe_open(path, framework="pt", device="cpu") as file:
            header = file.metadata() or {}
            for key in file.keys():  # noqa: SIM118
                group, name = key.split("/", 1)
                tensors.setdefault(group, {})[name] = file.get_tensor(key)
    except (SafetensorError, OSError, ValueError) as error:
        raise CheckpointError(
            f"{path} is damaged or no checkpoint ({error}); use an earlier copy or train again"
        ) from error
    if "record" not in header:
        raise CheckpointError(f"{path} was not written by hopstate: its header holds no record")
    if int(header.get("format", 0)) > FORMAT:
        raise CheckpointError(
            f"{path} has format {header['format']}, this version reads up to {FORMAT}; upgrade hopstate"
        )
    return Checkpoint(tensors=tensors, record=json.loads(header["record"]))


def load_weights(model: torch.nn.Module, weights: dict[str, Tensor], where: str) -> None:
    """Copy weights into model.

    Raises:
        CheckpointError: names or shapes differ; the first differences are listed.
    """
    own = model.state_dict()
    missing, extra = sorted(own.keys() - weights.keys()), sorted(weights.keys() - own.keys())
    wrong = [
        f"{k}: {tuple(weights[k].shape)} in the file, {tuple(own[k].shape)} in the model"
        for k in sorted(own.keys() & weights.keys())
        if own[k].shape != weights[k].shape
    ]
    if missing or extra or wrong:
        parts = [
            f"missing {missing[:3]}" if missing else "",
            f"unknown {extra[:3]}" if extra else "",
            *wrong[:3],
        ]
        raise CheckpointError(
            f"{where} holds another model: {'; '.join(p for p in parts if p)}; if an earlier version of hopstate "
            f"trained it, that version reads it: use it there, or train again"
        )
    model.load_state_dict(weights)


def optimizer_tensors(optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    """Return an optimiser's per-parameter state as tensors named "<parameter number>.<key>"."""
    state = optimizer.state_dict()["state"]
    return {f"{i}.{key}": torch.as_tensor(value) for i, entry in state.items() for key, value in entry.items()}


def load_optimizer(optimizer: torch.optim.Optimizer, tensors: dict[str, Tensor]) -> None:
    """Take back what `optimizer_tensors` returned; learning rates are set by the loop."""
    state: dict[int, dict[str, Tensor]] = {}
    for name, value in tensors.items():
        number, key = name.split(".", 1)
        state.setdefault(int(number), {})[key] = value
    optimizer.load_state_dict({"state": state, "param_groups": optimizer.state_dict()["param_groups"]})
