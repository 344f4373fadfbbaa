"""What a trained model of links must stand above without training: recency and EdgeBank, same negatives."""

from __future__ import annotations

import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from hopstate.data.events import EventStream
from hopstate.methods.heuristics.method import EdgeBankRun, RecencyRun, build
from hopstate.methods.method import Context
from hopstate.methods.shared.floors import Floors
from hopstate.methods.shared.link import JudgedRun
from hopstate.training.tasks.protocols import Task


def heuristic_floors(stream: EventStream, config: JudgedRun, context: Context, task: Task[Any]) -> Floors:
    """Return test metrics of recency and EdgeBank on the run's split and negatives; arguments as in `node_floors`."""
    found: Floors = {}
    runs = {"recency": RecencyRun, "edgebank": EdgeBankRun}
    for name, run in runs.items():
        own = run(data=config.data, read=config.read, split=config.split, evaluation=config.evaluation)
        with tempfile.TemporaryDirectory(prefix="hopstate-") as scratch:
            kept = context.run / "negatives"
            if kept.is_dir():
                (Path(scratch) / "negatives").symlink_to(kept.resolve())
            judge = build(stream, own, replace(context, run=Path(scratch), trained=None))
            with torch.no_grad():
                found[name] = judge.evaluate("test")
    return found
