"""A fit on a large store of events: resident memory at steps, and neighbor queries per second of a mapped index.

Run: python benchmarks/large_events.py METHOD --data STORE --steps 200 [--out FOLDER] [--model.dim 8 ...]
     python benchmarks/large_events.py lookups --data STORE [--cold]

The first stops the fit after that number of steps, as Ctrl-C does; further settings go to `hopstate fit`. Twice per
second it samples allocated memory, pages of mapped files, and their sum, which the system calls resident. It prints
them at steps, and whenever the sum grows by a quarter GiB. The second queries the latest 32 events of source and
destination of events at their times, from an index in memory and one in a file, each in a separate process. A store:
benchmarks/prepare.py --million 100.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from resource import RUSAGE_SELF, getrusage

import numpy as np
from torch.optim.optimizer import register_optimizer_step_post_hook

from common import machine, require_green
from hopstate.cli.main import main as hopstate
from hopstate.data.neighbor_store import NeighborStore, folder_of
from hopstate.data.store import load_events
from hopstate.io.scratch import release_pages

_PRINT_STEP = 0.25  # GiB of growth that are printed immediately
_QUERIES, _LOT, _K = 240_000, 600, 32  # queries, queries per call, events per query


def resident() -> tuple[float, float, float]:
    """Return GiB allocated, GiB of mapped files, and the peak of their sum."""
    text = Path("/proc/self/status").read_text()
    lines = dict(line.split(":", 1) for line in text.splitlines() if line.startswith(("Rss", "VmHWM")))
    own, pages, most = (int(lines[name].split()[0]) / 2**20 for name in ("RssAnon", "RssFile", "VmHWM"))
    return own, pages, most


class Watch:
    """Samples memory, prints it at steps, and stops after a number of steps."""

    def __init__(self, steps: int) -> None:
        self.steps, self.done, self.begin = steps, 0, time.monotonic()
        self.most = np.zeros(3)
        threading.Thread(target=self._sample, daemon=True).start()
        register_optimizer_step_post_hook(self._stepped)

    def _sample(self) -> None:
        printed = 0.0
        while True:
            own, pages, _ = resident()
            self.most = np.maximum(self.most, (own, pages, own + pages))
            if own + pages > printed + _PRINT_STEP:
                printed = own + pages
                print(f"after {time.monotonic() - self.begin:.0f} s: {own:.2f} + {pages:.2f} GiB", flush=True)
            time.sleep(0.5)

    def _stepped(self, *_: object) -> None:
        self.done += 1
        tenth = max(1, self.steps // 10)
        if self.done in (1, 10) or self.done % tenth == 0:
            own, pages, peak = resident()
            print(
                f"step {self.done:,}: {time.monotonic() - self.begin:.0f} s of the clock, {time.process_time():.0f} s "
                f"of the processor; GiB: allocated {own:.2f}, mapped {pages:.2f}; most since the last line: "
                f"{self.most[0]:.2f}, {self.most[1]:.2f}, together {self.most[2]:.2f}; VmHWM {peak:.2f}",
                flush=True,
            )
            self.most = np.zeros(3)
        if self.done == self.steps:
            os.kill(os.getpid(), signal.SIGINT)


def lookups(folder: Path, mapped: bool, cold: bool) -> None:
    """Print queries per second of three runs each, for random events and for events in time order.

    The first run starts without mapped pages of the index; with `cold`, without cached files.
    """
    stream = load_events(folder)
    begin = time.process_time()
    columns = (stream.src, stream.dst, stream.t)
    index = NeighborStore.from_events(*columns, None, stream.num_nodes, folder_of(stream) if mapped else None)
    print(f"{'mapped' if mapped else 'in memory'}: built in {time.process_time() - begin:.0f} s of the processor")
    rows = {"at random": np.random.default_rng(0).integers(0, len(stream), _QUERIES // 2)}
    rows["in order"] = np.arange(_QUERIES // 2) + len(stream) // 2
    for kind, some in rows.items():
        queries = [column[some] for column in columns]  # pages of the stream are not measured
        release_pages(*columns)
        index.release_pages()
        if cold:
            os.sync()
            Path("/proc/sys/vm/drop_caches").write_text("1")
        for run in range(3):
            spent = passed = 0.0
            before = getrusage(RUSAGE_SELF)
            for first in range(0, len(some), _LOT // 2):
                src, dst, t = (column[first : first + _LOT // 2] for column in queries)
                nodes, times = np.concatenate([src, dst]), np.tile(t, 2)
                begin, start = time.process_time(), time.perf_counter()
                index.last(nodes, times, _K)
                spent, passed = spent + time.process_time() - begin, passed + time.perf_counter() - start
            after, count = getrusage(RUSAGE_SELF), 2 * len(some) / 1e6
            print(
                f"{kind}, run {run + 1}: {count / spent:.3f} M a second of the processor, {count / passed:.3f} of the "
                f"clock; faults {after.ru_minflt - before.ru_minflt:,} and {after.ru_majflt - before.ru_majflt:,} from "
                f"disk; mapped {resident()[1]:.2f} GiB",
                flush=True,
            )
    print(f"VmHWM {resident()[2]:.2f} GiB", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("method")
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--out", default="")
    parser.add_argument("--index", choices=["memory", "mapped"], help="of neighbor queries: only one of the two")
    parser.add_argument("--cold", action="store_true", help="of look-ups: drop the system's page cache first (root)")
    options, settings = parser.parse_known_args()
    if options.index:
        return lookups(options.data, options.index == "mapped", options.cold)
    require_green("tests/data/test_mapped_histories.py")
    print(machine(), "load", *(f"{load:.0f}" for load in os.getloadavg()), flush=True)
    if options.method == "lookups":
        for index in ("memory", "mapped"):
            command = [sys.executable, __file__, "lookups", "--data", str(options.data), "--index", index]
            command += ["--cold"] if options.cold else []
            subprocess.run(command, check=True)
        return None
    Watch(options.steps)
    where = [f"--out={options.out}"] if options.out else []
    print("status", hopstate(["fit", options.method, f"--data={options.data}", *where, *settings]), flush=True)
    own, pages, peak = resident()
    print(f"at its end: GiB allocated {own:.2f}, mapped {pages:.2f}; VmHWM {peak:.2f}; load {os.getloadavg()[0]:.0f}")
    return None


if __name__ == "__main__":
    main()
