"""CPU time of evaluation compared with a training epoch, for every temporal method.

    python benchmarks/evaluation_cost.py [--data ml_uci.csv] [--methods graphmixer,dygformer] [--events 12000]

Settings are those of a plain fit. Evaluation scores validation with all three kinds of negatives, for all events and
for those with new nodes, as the loop does: one replay from the first event. An epoch is the loop's training steps:
neighbor queries, forward, backward, optimiser. Trees have no epochs; theirs is the full fit. --events uses only the
stream's first events, --steps only an epoch's first training steps, and extrapolates.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from pathlib import Path
from typing import Any

import torch

from common import machine, require_green
from dygformer_step import UCI, load
from hopstate.data.events import EventStream
from hopstate.methods import get_method
from hopstate.methods.config import config_from
from hopstate.methods.method import Context
from hopstate.training.devices import matmul_precision
from hopstate.training.tasks.task import Microbatches

METHODS = "graphmixer,dygformer,dyg-mamba,ctdg-ssm,pair-trees"


def epoch_seconds(task: Any, steps: int | None) -> tuple[float, int]:
    """Return the CPU time of an epoch's first training steps, and their number."""
    task.model.train()
    optimizer, done, begin = torch.optim.AdamW(task.model.parameters(), 1e-4), 0, time.process_time()
    for batch in task.batches(0):
        if done == steps:
            break
        optimizer.zero_grad()
        for part in batch if isinstance(batch, Microbatches) else (batch,):
            loss = task.loss(part)
            if loss is not None:
                loss.backward()
        optimizer.step()
        done += 1
    return time.process_time() - begin, done


def measured(name: str, stream: EventStream, steps: int | None, folder: Path) -> dict[str, Any]:
    """Return a row: the time of an epoch and of the evaluation of validation."""
    method = get_method(name)
    given = {"data": "uci", "loop.device": "cpu", "evaluation.select_by": "mean"}
    config = config_from(method, given)
    if method.auto_config is not None:
        config = config_from(method, {**method.auto_config(stream, config, ()), **given})
    task = method.build(stream, config, Context(run=folder, cache=folder))
    begin = time.process_time()
    if task.fit_without_gradients() is not None:
        epoch, batches, count = time.process_time() - begin, 1, 1
    else:
        epoch_seconds(task, 2)  # kernels are compiled
        epoch, count = epoch_seconds(task, steps)
        batches = task.num_batches(0)
    task.model.eval()
    with torch.no_grad():
        task.evaluate("val")  # kernels are compiled
        begin = time.process_time()
        task.evaluate("val")
        evaluation = time.process_time() - begin
    whole = epoch * batches / count
    row = {"method": name, "events": len(stream), "epoch_s": round(whole, 2), "evaluation_s": round(evaluation, 2)}
    return row | {"ratio": round(evaluation / whole, 3), "steps_timed": count, "steps": batches}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=UCI)
    parser.add_argument("--methods", default=METHODS)
    parser.add_argument("--events", type=int, default=None, help="of the stream's first; all by default")
    parser.add_argument("--steps", type=int, default=None, help="training steps that are timed; all by default")
    o = parser.parse_args()
    require_green("tests/evaluation/test_link.py")
    torch.set_num_threads(1)
    print(machine())
    stream = load(o.data)
    if o.events is not None:
        rows = slice(0, o.events)
        stream = EventStream(src=stream.src[rows], dst=stream.dst[rows], t=stream.t[rows], name=stream.name)
    for name in o.methods.split(","):
        torch.manual_seed(0)
        with tempfile.TemporaryDirectory() as folder, matmul_precision("highest"):
            print(json.dumps(measured(name, stream, o.steps, Path(folder))), flush=True)


if __name__ == "__main__":
    main()
