"""CTDG-SSM on a real stream: seconds of a training epoch, events per second of a live stream, memory.

The baseline is the same epoch with algorithm 3's matrices as listed, one dense exponential per quadrature node, timed
on the epoch's first batches. Run on one core:
    OMP_NUM_THREADS=1 taskset -c 0 python benchmarks/ctdg_epoch.py uci
"""

from __future__ import annotations

import argparse
import itertools
import tempfile
import time
from pathlib import Path
from unittest.mock import patch

import numpy as np
import torch

from common import machine, require_green
from hopstate.data.readers.read_events import read_events
from hopstate.datasets.registry import load_dataset
from hopstate.methods.config import config_from
from hopstate.methods.ctdg_ssm.method import METHODS, build
from hopstate.methods.method import Context
from hopstate.ops.filters.transition import DenseTransition
from hopstate.sampling.event_batches import event_batches
from hopstate.training.devices import peak_memory_mb
from hopstate.training.tasks.link import LinkTask


def epoch_seconds(task: LinkTask, windows: int | None = None) -> tuple[float, float, int]:
    """Return wall time, CPU time and number of the first windows of a training epoch."""
    optimizer = torch.optim.Adam(task.model.parameters(), 1e-3)
    wall, cpu, count = time.perf_counter(), time.process_time(), 0
    for batch in itertools.islice(task.batches(0), windows):
        optimizer.zero_grad()
        task.loss(batch).backward()
        torch.nn.utils.clip_grad_norm_(task.model.parameters(), 1.0)
        optimizer.step()
        count += 1
    return time.perf_counter() - wall, time.process_time() - cpu, count


def main() -> None:
    """Measure one dataset."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data", help="a name, or a file of events")
    parser.add_argument("--order", type=int, default=1)
    options = parser.parse_args()
    require_green("tests/methods/ctdg_ssm/test_ctdg_ssm.py", "tests/training/tasks/test_memory.py")
    print(machine())
    torch.manual_seed(0)
    stream = read_events(options.data) if Path(options.data).exists() else load_dataset(options.data)
    settings = {"data": options.data, "split.kind": "dyglib", "evaluation.strategies": ["random"]}
    settings |= {"model.static": "random", "model.max_norm": 100.0, "model.order": options.order}
    config = config_from(METHODS["ctdg-ssm"], settings)
    with tempfile.TemporaryDirectory() as folder:
        task = build(stream, config, Context(run=Path(folder), cache=Path(folder)))
    epoch_seconds(task, 3)
    wall, cpu, count = epoch_seconds(task)
    what = f"{options.data}, order {options.order}, d {config.model.dim}, batch {config.batch_size}"
    print(
        f"{what}: {wall:.1f} s an epoch of training ({cpu:.1f} s of processor time), {len(task.split.train):,} events"
    )
    print(f"peak memory {peak_memory_mb():.0f} MB")
    task.model.eval()
    scorer, rows = task.scorer("test"), np.arange(min(len(stream), 30_000))
    start = time.process_time()
    for batch in event_batches(stream, rows, batch_size=config.batch_size):
        scorer.observe(batch)
    print(f"live: {len(rows) / (time.process_time() - start):,.0f} events/s of processor time, look-ups included")
    task.model.train()
    first = 8
    with patch.dict(DenseTransition.__init__.__kwdefaults__, {"exponential_limit": 10**6}):
        slow = epoch_seconds(task, first)[1]
    quick = epoch_seconds(task, first)[1]
    print(f"first {first} windows of {count}: as listed {slow:.2f} s, here {quick:.3f} s: {slow / quick:.1f} times")


if __name__ == "__main__":
    main()
