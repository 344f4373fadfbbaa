"""CPU time of a live run in this process: commits of ten events, and queries of one pair between them.

    python benchmarks/live_processor.py --data PATH/uci/ml_uci.csv --method ctdg-ssm

A method with its defaults and initial weights on the first 20,000 events of a stream; the next events are live, ten per
commit, with two queries after each. Milliseconds are CPU time of the thread, which other work on the machine affects
less than wall time. "prepare" is the work of a service after a commit, when no client waits.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path

import numpy as np
import pandas as pd
import torch

import hopstate
from common import machine, require_green
from hopstate.runs.queries import pair_probabilities
from hopstate.serving.live import LiveRun
from hopstate.streaming.slices import run_to_completion

QUIET = {
    "loop": {"epochs": 0, "progress": False, "logger": "none", "device": "cpu"},
    "evaluation": {"strategies": ["random"]},
}
OWN, BEFORE, GROUP = 20_000, 550, 10
KINDS = ("commit", "prepare", "first pair", "second pair")


def measured(method: str, data: str, commits: int) -> dict[str, list[float]]:
    """Return milliseconds of CPU time of each commit, and of the work between commits."""
    table = pd.read_csv(data)[["u", "i", "ts"]].set_axis(["src", "dst", "t"], axis=1)
    found: dict[str, list[float]] = {kind: [] for kind in KINDS}
    with tempfile.TemporaryDirectory() as home:
        table[:OWN].to_csv(Path(home) / "own.csv", index=False)
        run = hopstate.fit(method, Path(home) / "own.csv", out=Path(home) / "run", config=QUIET)
        rows = table[OWN:].to_dict("records")
        with LiveRun(run.path) as live:
            live.take(rows[:BEFORE])
            run_to_completion(
                pair_probabilities(live.session(), [(rows[0]["src"], rows[0]["dst"])])
            )  # the first one warms up
            for at in range(BEFORE, BEFORE + GROUP * commits, GROUP):
                new, mark = rows[at : at + GROUP], [time.thread_time()]
                live.take(new)
                mark.append(time.thread_time())
                live.prepare()
                mark.append(time.thread_time())
                for event in new[:2]:
                    run_to_completion(pair_probabilities(live.session(), [(event["src"], new[-1]["dst"])]))
                    mark.append(time.thread_time())
                for kind, took in zip(KINDS, np.diff(mark), strict=True):
                    found[kind].append(1e3 * took)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", required=True, help="a table of events with columns u, i, ts")
    parser.add_argument("--method", default="ctdg-ssm")
    parser.add_argument("--commits", type=int, default=300)
    options = parser.parse_args()
    torch.set_num_threads(1)
    require_green("tests/serving/test_serving_live.py", "tests/streaming/test_live.py")
    print(machine())
    for kind, took in measured(options.method, options.data, options.commits).items():
        percentiles = " ".join(
            f"p{q} {v:.2f}" for q, v in zip((50, 90, 99), np.percentile(took, (50, 90, 99)), strict=True)
        )
        print(f"{kind}: mean {np.mean(took):.2f} {percentiles} ms")


if __name__ == "__main__":
    main()
