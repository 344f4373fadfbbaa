"""What a trained model of links must stand above without training: recency and EdgeBank, same negatives."""

from __future__ import annotations

import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from hopstate.methods.heuristics.method import METHODS
from hopstate.methods.method import Context
from hopstate.methods.shared.floors import Floors


def heuristic_floors(stream: Any, config: Any, context: Context, task: Any) -> Floors:
    """Return test metrics of recency and EdgeBank on the run's split and negatives; arguments as in `node_floors`."""
    found: Floors = {}
    for name, method in METHODS.items():
        own = method.config(data=config.data, read=config.read, split=config.split, evaluation=config.evaluation)
        with tempfile.TemporaryDirectory(prefix="hopstate-") as scratch:
            kept = context.run / "negatives"
            if kept.is_dir():
                (Path(scratch) / "negatives").symlink_to(kept.resolve())
            judge = method.build(stream, own, replace(context, run=Path(scratch), trained=None))
            with torch.no_grad():
                found[name] = judge.evaluate("test")
    return found
