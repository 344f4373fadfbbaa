"""The cost of `pair-trees`: CPU time of training on a file, pairs scored per second, memory on a synthetic stream.

    python benchmarks/pair_trees.py FILE... [--million 10] [--most 100000] [--threads 1]

FILE is an event file (for example DyGLib's ml_uci.csv), split as in DyGLib. Times are CPU seconds of one thread, so
that other programs on the machine do not count. With --million N, a stream of N million events is made (bipartite,
popular destinations, half of the events between recent pairs), trees are trained on its latest --most training
events, and the largest memory of the process is printed.
"""

from __future__ import annotations

import argparse
import resource
import tempfile
import time
from pathlib import Path

import numpy as np
import torch

from common import machine, median_time, require_green
from hopstate.data.events import EventStream
from hopstate.data.readers.read_events import read_events
from hopstate.methods import get_method
from hopstate.methods.config import config_from
from hopstate.methods.method import Context


def made(events: int, seed: int = 0) -> EventStream:
    """Return a stream with 5 sources and 1 destination per 100 events."""
    rng = np.random.default_rng(seed)
    sources, destinations = max(events // 20, 10), max(events // 100, 10)
    src = rng.integers(0, sources, events)
    dst = sources + (rng.random(events) ** 3 * destinations).astype(np.int64)
    again = np.flatnonzero(rng.random(events) < 0.5)
    back = np.maximum(again - rng.integers(1, 1000, len(again)), 0)
    src[again], dst[again] = src[back], dst[back]
    return EventStream(src=src, dst=dst, t=np.cumsum(rng.integers(0, 3, events)), num_nodes=sources + destinations)


def measure(stream: EventStream, **settings: object) -> None:
    """Print the time of training and the rate of scoring pairs of the test split, features included."""
    method, work = get_method("pair-trees"), time.process_time
    config = config_from(method, {"data": "x", "loop.progress": False, "evaluation.strategies": ["random"], **settings})
    with tempfile.TemporaryDirectory() as folder:
        task = method.build(stream, config, Context(run=Path(folder), cache=Path(folder)))
        begin = work()
        _, kept = task.fit_without_gradients()
        spent = work() - begin
        rows = stream.additions(task.split.test)[:100_000]
        rng, scorer = np.random.default_rng(0), task.scorer("test")
        u, v, t = stream.src[rows], rng.permutation(stream.dst[rows]), stream.t[rows]
        rate = len(rows) / median_time(lambda: scorer.score(u, v, t), clock=work)
        features = len(rows) / median_time(lambda: scorer.features.pairs(u, v, t), clock=work)
    print(
        f"{stream.name}: {len(stream):,} events, trained in {spent:.1f} s of one core ({kept} trees kept); "
        f"{rate:,.0f} pairs/s, only features {features:,.0f} pairs/s",
        flush=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="*")
    parser.add_argument("--million", type=float, default=None)
    parser.add_argument("--most", type=int, default=100_000)
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    require_green("tests/tokens/test_pair_features.py", "tests/methods/pair_trees/test_pair_trees.py")
    torch.set_num_threads(options.threads)
    print(machine())
    measure(made(5000))  # loads compiled code
    for file in options.files:
        measure(read_events(file), **{"split.kind": "dyglib"})
    if options.million is not None:
        measure(made(int(options.million * 10**6)), max_events=options.most)
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
        print(f"largest memory of the process: {peak:.2f} GB; trees from the latest {options.most:,} training events")


if __name__ == "__main__":
    main()
