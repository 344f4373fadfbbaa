"""What a trained model of links must stand above without training: recency and EdgeBank, same negatives."""

from __future__ import annotations

import tempfile
from dataclasses import replace
from pathlib import Path

import torch

from hopstate.data.events import EventStream
from hopstate.methods.heuristics.method import METHODS
from hopstate.methods.method import Context
from hopstate.methods.shared.floors import Floors
from hopstate.methods.shared.link import JudgedRun
from hopstate.training.tasks.protocols import Task


def heuristic_floors(stream: EventStream, config: JudgedRun, context: Context, task: Task) -> Floors:
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
