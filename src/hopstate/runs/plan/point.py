"""One measured point: a made graph or stream of a size, and the processor time and memory of a method's stages on it.

Run as a process of its own (`python -m hopstate.runs.plan.point JSON`), so that the memory of one point is not that of
another; the last line of its output is the point as JSON.
"""

from __future__ import annotations

import contextlib
import json
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from hopstate.data.events import EventStream
from hopstate.data.graph import Graph
from hopstate.methods import get_method
from hopstate.methods.method import Context
from hopstate.methods.settings import config_from
from hopstate.random import named_rng
from hopstate.runs.plan.stages import JUDGED, PLANS
from hopstate.runs.prepare import prepared
from hopstate.sampling.judged import judged
from hopstate.training.tasks.link import LinkTask
from hopstate.training.tasks.protocols import Task, parts_of

BATCHES = 3  # of an epoch at most that are timed, from its middle on, where batches are alike
OF_EVENTS = 10  # the same of a stream, whose batches are shorter
OF_JUDGED = 2_000  # validation's events that are judged, where few are
READS = 5  # times that a record is made: the least counts, as other programs, and pages first touched, only add
EPOCH = 3  # which is timed: TOP makes its basis anew before epochs 0, 1, 2 and 4
WARM = (2000, 8000)  # nodes and edges
STATUS, RESET = Path("/proc/self/status"), Path("/proc/self/clear_refs")


def made_graph(nodes: int, edges: int, features: int) -> Graph:
    """Return a graph without order: uniform ends, normal features, 8 classes; edges count both directions."""
    rng = named_rng(0)
    x = rng.standard_normal((nodes, features), np.float32)
    return Graph.from_edges(rng.integers(0, nodes, (edges // 2, 2)), nodes, x=x, y=rng.integers(0, 8, nodes))


def made_stream(nodes: int, events: int, features: int) -> EventStream:
    """Return events between half of the nodes and the other half, each source with few targets."""
    rng = named_rng(0)
    half = max(1, nodes // 2)
    src = rng.integers(0, half, events)
    dst = half + (src * 7 + rng.integers(0, 5, events)) % max(1, nodes - half)
    attr = rng.standard_normal((events, features), np.float32) if features else None
    return EventStream.from_arrays(src, dst, np.cumsum(rng.integers(1, 60, events)), edge_attr=attr, num_nodes=nodes)


class Stages:
    """Processor seconds and peak resident bytes by stage."""

    def __init__(self) -> None:
        self.found: dict[str, dict[str, float]] = {}

    @contextlib.contextmanager
    def stage(self, name: str) -> Iterator[dict[str, float]]:
        """Measure what is done within; the yielded "share" is which part of the stage that is.

        Of a stage that is done again the least seconds and the most memory count.
        """
        with contextlib.suppress(OSError):
            RESET.write_text("5")
        told: dict[str, float] = {"share": 1.0}
        begin = time.process_time()
        yield told
        seconds = (time.process_time() - begin) / told["share"]
        before = self.found.get(name, {"seconds": seconds, "memory": 0.0})
        self.found[name] = {
            "seconds": round(min(seconds, before["seconds"]), 4),
            "memory": max(_peak(), before["memory"]),
        }


def _peak() -> float:
    """Return the most bytes that were resident since the last reset; 0 where the system does not tell."""
    with contextlib.suppress(OSError):
        for line in STATUS.read_text().splitlines():
            if line.startswith("VmHWM"):
                return float(line.split()[1]) * 1024
    return 0.0


def measured(method: str, nodes: int, edges: int, features: int) -> dict[str, dict[str, float]]:
    """Return seconds and memory by stage; edges are events for a method of events."""
    import torch

    torch.set_num_threads(1)
    plan, chosen, stages = PLANS[method], get_method(method), Stages()
    with tempfile.TemporaryDirectory(prefix="hopstate-") as scratch:
        run = Path(scratch)
        record: Any = None
        for _ in range(READS):
            record = None  # one of them at a time is in memory
            with stages.stage("read"):
                record = (made_stream if plan.events else made_graph)(nodes, edges, features)
        config = config_from(chosen, {"data": "made", **plan.at(nodes)})
        config = replace(config, loop=replace(config.loop, progress=False))
        context = Context(run=run, cache=run / "cache", metrics=())
        with stages.stage("prepare"):
            ready, _ = prepared(record, config, context)
            task: Any = chosen.build(ready, config, context)
        if plan.whole:
            with stages.stage("epoch"):
                task.fit_whole()
        else:
            _epoch(task, stages, 10_000 if plan.batches else OF_EVENTS if plan.events else BATCHES)
        task.model.eval()
        share = _judge_few(task) if plan.few else JUDGED if plan.tokens else 1.0  # tokens are read of those asked for
        with stages.stage("inference") as told, torch.no_grad():
            told["share"] = share
            task.evaluate("val")
    return stages.found


def _judge_few(task: LinkTask) -> float:
    """Let few of validation's events be judged, and return which part of it they are."""
    task.evaluation = replace(task.evaluation, max_events=OF_JUDGED)
    task.negatives = {key: drawn.take(judged(drawn.rows, OF_JUDGED)) for key, drawn in task.negatives.items()}
    return min(1.0, OF_JUDGED / len(task.split.val))


def _epoch(task: Task[Any], stages: Stages, most: int) -> None:
    import torch

    optimizer = torch.optim.Adam([p for p in task.model.parameters() if p.requires_grad])
    task.model.train()

    def step(batch: Any) -> None:
        optimizer.zero_grad(set_to_none=True)
        for part, _ in parts_of(batch):
            loss = task.loss(part)
            if loss is not None:
                loss.backward()
        optimizer.step()

    step(next(task.batches(0, 0)))
    count = task.num_batches(EPOCH)
    start = max(0, min(count // 2, count - most))
    with stages.stage("epoch") as told:
        done = 0
        for batch in islice(task.batches(EPOCH, start), most):
            step(batch)
            done += 1
        told["share"] = done / count


def main(argv: list[str]) -> None:
    """Print the point that a JSON text asks for."""
    asked = json.loads(argv[0])
    measured(asked["method"], *WARM, asked["features"])  # imports and compiles what the method needs
    print(json.dumps(asked | {"stages": measured(**asked)}))


if __name__ == "__main__":
    main(sys.argv[1:])
