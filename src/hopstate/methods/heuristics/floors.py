"""What a trained model of links must stand above without training: recency and EdgeBank, same negatives."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch

from hopstate.data.clock import Clock
from hopstate.data.events import EventStream
from hopstate.data.neighbor_store import NeighborStore
from hopstate.data.splits import EventSplit
from hopstate.io.scratch import let_go
from hopstate.methods.heuristics.edgebank import EdgeBank
from hopstate.methods.heuristics.method import RecencyRun
from hopstate.methods.heuristics.recency import Recency
from hopstate.methods.method import Context
from hopstate.methods.shared.event_run import EventRun
from hopstate.methods.shared.floors import Floors
from hopstate.methods.shared.link import JudgedRun, clock_of, kept_negatives
from hopstate.sampling.negative_sets import Negatives
from hopstate.streaming.protocols import LooksUp
from hopstate.training.tasks.events import Untrained
from hopstate.training.tasks.link import LinkTask
from hopstate.training.tasks.task import Task


def heuristic_floors(stream: EventStream, config: JudgedRun, context: Context, task: Task[Any]) -> Floors:
    """Return test metrics of recency and EdgeBank on the run's split and negatives; arguments as in `node_floors`.

    Both look up in one index, and what the run has is taken: of a hundred million events each is most of a gigabyte.
    """
    if isinstance(task, LinkTask):
        split, negatives, store = task.split, task.negatives, task.source.index()
    else:
        split, store = config.split.of(stream), None
        negatives = kept_negatives(stream, split, config, context)
    store = NeighborStore.from_stream(stream) if store is None else store
    clock = _clock(stream, split, config, context, task).over(stream.time_unit)
    scorers: dict[str, LooksUp] = {
        "recency": Recency(store, clock=clock),
        "edgebank": EdgeBank(stream.num_nodes, stream=stream, whole=store),
    }
    found: Floors = {}
    for name, scorer in scorers.items():
        let_go(stream.src, stream.dst, stream.t)  # of a mapped stream: what the run, and the floor before, have read
        store.let_go()
        found[name] = _judged(scorer, stream, split, config, negatives)
    metric = next((name for name in found["recency"] if name.startswith("val_")), "")
    if metric.endswith(("average_precision", "roc_auc")):  # a negative an event
        found["chance"] = {metric: 0.5}
    return found


def _clock(stream: EventStream, split: EventSplit, config: JudgedRun, context: Context, task: Task[Any]) -> Clock:
    usual = RecencyRun(data="").gap_unit
    known = task.clock if isinstance(task, LinkTask) else None
    if known is not None and isinstance(config, EventRun) and config.gap_unit == usual:
        return known
    return clock_of(stream, split, usual, replace(context, trained=None))


def _judged(
    scorer: LooksUp,
    stream: EventStream,
    split: EventSplit,
    config: JudgedRun,
    negatives: dict[tuple[str, str], Negatives],
) -> dict[str, float]:
    judge = LinkTask(Untrained(lambda _: scorer, stream, split), evaluation=config.evaluation, negatives=negatives)
    with torch.no_grad():
        return judge.evaluate("test") | {f"val_{judge.metric}": judge.evaluate("val")[judge.metric]}
