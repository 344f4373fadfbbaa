"""CPU time and bytes written of a call of `stream`, against the number of earlier events.

    python benchmarks/live_calls.py --past 3000 300000 --calls 20
    python benchmarks/live_calls.py --past 3000 300000 --calls 20 --deletions 0.2

A fixed number of nodes, CTDG-SSM with its defaults, calls of 100 events each through `stream` in one process;
the start of the process does not depend on the history and is excluded. Seconds are CPU time; bytes are those of files
that a call wrote.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path

import numpy as np
import pandas as pd

import hopstate
from common import require_green

FIRST = 2000  # training events of the run


def table(first: int, count: int, nodes: int, seed: int, share: float = 0.0) -> pd.DataFrame:
    """Return events of a stream from `first` on, with skewed popularity; a fraction deletes the previous edge."""
    rng = np.random.default_rng([seed, first])
    ends = (nodes // 2 * rng.random((2, count)) ** 2).astype(int)
    found = pd.DataFrame({"source": ends[0], "target": nodes // 2 + ends[1], "time": first + np.arange(count)})
    if share:
        gone = np.flatnonzero(rng.random(count) < share)
        gone = gone[(gone > 0) & ~np.isin(gone - 1, gone)]
        found.loc[gone, ["source", "target"]] = found.loc[gone - 1, ["source", "target"]].to_numpy()
        found["kind"] = np.where(np.isin(np.arange(count), gone), "delete", "add")
    return found


def files(folder: Path) -> dict[str, int]:
    """Return the files of a folder with their sizes, by name and modification time."""
    found = {}
    for path in folder.iterdir():
        at = path.stat()
        found[f"{path.name} {at.st_mtime_ns}"] = at.st_size
    return found


def measure(past: int, calls: int, nodes: int, share: float) -> tuple[np.ndarray, np.ndarray]:
    """Return CPU seconds and bytes of each call."""
    quiet = {"loop": {"epochs": 0, "progress": False, "logger": "none", "device": "cpu"}}
    with tempfile.TemporaryDirectory() as name:
        home = Path(name)
        table(0, FIRST, nodes, 0, share).to_csv(home / "own.csv", index=False)
        settings = {**quiet, "read": {"num_nodes": nodes}, "evaluation": {"strategies": ["random"]}}
        run = hopstate.fit("ctdg-ssm", home / "own.csv", out=home / "run", config=settings)
        run.stream(table(FIRST, past - FIRST, nodes, 0, share))
        state, seconds, written = home / "run" / "state", [], []
        for call in range(calls):
            new, before = table(past + 100 * call, 100, nodes, 0, share), files(state)
            start = time.process_time()
            run.stream(new)
            seconds.append(time.process_time() - start)
            written.append(sum(size for name, size in files(state).items() if name not in before))
    return np.array(seconds), np.array(written)


def main() -> None:
    """Print a row for each length of the history."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--past", type=int, nargs="+", default=[3000, 300_000])
    parser.add_argument("--calls", type=int, default=20)
    parser.add_argument("--nodes", type=int, default=2000)
    parser.add_argument("--deletions", type=float, default=0.0, help="share of events that delete an edge")
    o = parser.parse_args()
    require_green("tests/streaming/test_live.py")
    if min(o.past) < FIRST:
        parser.error(f"--past {min(o.past)}: the run is trained on {FIRST} events, so a past is no shorter")
    print("past events | median s | largest s | median KB | largest KB | mean KB")
    for past in o.past:
        seconds, written = measure(past, o.calls, o.nodes, o.deletions)
        row = (np.median(seconds), seconds.max(), *(f(written) / 1e3 for f in (np.median, np.max, np.mean)))
        print(f"{past:>11,} | " + " | ".join(f"{x:.3f}" for x in row), flush=True)


if __name__ == "__main__":
    main()
