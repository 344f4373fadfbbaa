"""The baselines of a run on links: recency, EdgeBank and pair-trees, each with its own default settings."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from hopstate.data.events import EventStream
from hopstate.methods.heuristics.floors import heuristic_floors
from hopstate.methods.method import Context
from hopstate.methods.pair_trees.method import PairTreesRun, build
from hopstate.methods.shared.floors import Floors
from hopstate.methods.shared.link import JudgedRun
from hopstate.training.tasks.protocols import Task

FEWEST = 1_000  # training events for which trees are trained: few say little, and a small fit stays quick


def link_floors(stream: EventStream, config: JudgedRun, context: Context, task: Task[Any]) -> Floors:
    """Return test metrics of recency, EdgeBank and, of a stream that is not too short, pair-trees.

    Args:
        stream: the data.
        config: the run's, of which the data, split, evaluation and seed are taken.
        context, task: as in `node_floors`.
    """
    found = heuristic_floors(stream, config, context, task)
    if len(stream.additions(config.split.of(stream).train)) >= FEWEST:
        found["pair-trees"] = tree_floor(stream, config, context)
    return found


def tree_floor(stream: EventStream, config: JudgedRun, context: Context) -> dict[str, float]:
    """Return test metrics of pair-trees and its validation metric; arguments as in `link_floors`."""
    shared = {name: getattr(config, name) for name in ("data", "read", "split", "evaluation")}
    own = PairTreesRun(**shared)
    own = replace(own, loop=replace(own.loop, seed=config.loop.seed, progress=False))
    trees = build(stream, own, replace(context, trained=None))
    trees.folder = None  # the run's folder has no table of the baseline's importances
    rows, _ = trees.fit_whole()
    key = f"val_{trees.metric}"
    return trees.evaluate("test") | {name: value for name, value in rows[0].items() if name == key}
