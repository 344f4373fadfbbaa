"""Trees over pairs as a floor: grown in seconds from part of a stream, judged on the run's own split and negatives."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from hopstate.data.events import EventStream
from hopstate.methods.heuristics.floors import heuristic_floors
from hopstate.methods.method import Context
from hopstate.methods.pair_trees.method import PairTreesRun, PairTreesTask, build
from hopstate.methods.pair_trees.trees import PairTrees
from hopstate.methods.shared.floors import Floors
from hopstate.methods.shared.link import JudgedRun
from hopstate.sampling.judged import judged
from hopstate.sampling.negative_sets import Negatives
from hopstate.training.progress import note
from hopstate.training.tasks.protocols import Task

LEAST = 1_000  # training events from which trees are grown at all
GROWN = 30_000  # latest training events that they grow from
JUDGED = 30_000  # events of the test split, evenly spread, that they are judged on
TREES = PairTrees.Config(max_trees=100, learning_rate=0.1)


def tree_floor(stream: EventStream, config: JudgedRun, context: Context) -> tuple[dict[str, float], str] | None:
    """Return test metrics of trees over pairs, and what they were made from; None on a stream that is too small.

    Args:
        stream: the data.
        config: the run's: its data, read, split, evaluation and loop.seed.
        context: its folder has the negatives.
    """
    train = stream.additions(config.split.of(stream).train)
    if len(train) < LEAST:
        return None
    own = PairTreesRun(
        data=config.data,
        read=config.read,
        split=config.split,
        evaluation=config.evaluation,
        loop=replace(PairTreesRun(data="").loop, seed=config.loop.seed),
        model=TREES,
    )
    task = build(stream, replace(own, max_events=GROWN), replace(context, trained=None))
    task.keep_importances = False
    task.fit_whole()
    said = f"grown from {min(len(train), GROWN):,} of {len(train):,} training events"
    asked = len(stream.additions(task.split.test))
    some = _on_some(task)
    if len(some.split.test) < asked:
        said += f", judged on {len(some.split.test):,} of {asked:,} test events"
    return some.evaluate("test"), said


def _on_some(task: PairTreesTask) -> PairTreesTask:
    """Return the task with at most JUDGED of the judged test events, evenly spread, and their negatives."""
    split, most = task.split, task.evaluation.most
    test = _spread(judged(task.stream.additions(split.test), most))
    new = judged(task.stream.additions(split.new_test), most)
    rows = {"test": test, "new_test": new[np.isin(new, test)]}
    task.split = replace(split, test=test, new_test=rows["new_test"])
    task.negatives = {
        key: _of_rows(drawn, rows[key[0]]) if key[0] in rows else drawn for key, drawn in task.negatives.items()
    }
    return task


def _spread(rows: np.ndarray) -> np.ndarray:
    return rows if len(rows) <= JUDGED else rows[np.linspace(0, len(rows) - 1, JUDGED).astype(np.int64)]


def _of_rows(drawn: Negatives, rows: np.ndarray) -> Negatives:
    keep = np.isin(drawn.rows, rows)
    sizes = np.diff(drawn.offsets)
    of = np.repeat(keep, sizes)
    offsets = np.concatenate([np.zeros(1, np.int64), np.cumsum(sizes[keep])])
    return replace(drawn, rows=drawn.rows[keep], offsets=offsets, src=drawn.src[of], dst=drawn.dst[of])


def link_floors(stream: EventStream, config: JudgedRun, context: Context, task: Task[Any]) -> Floors:
    """Return test metrics of recency, EdgeBank and trees over pairs on the run's split and negatives.

    The trees grow from part of a large stream, and are judged on part of a large test split; both are said.

    Args:
        stream: the data.
        config, context, task: as in `node_floors`.
    """
    found = heuristic_floors(stream, config, context, task)
    trees = tree_floor(stream, config, context)
    if trees is not None:
        found["pair-trees"], said = trees
        note(config.loop, f"note: the floor pair-trees was {said}")
    return found
