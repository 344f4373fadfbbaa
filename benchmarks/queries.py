"""Processor time of ranking all candidates of one source, against scoring them one by one.

    python benchmarks/queries.py --data PATH/uci/ml_uci.csv

Each method with its defaults but for weights as they are drawn (no epoch), on the stream's first 2,000 events; it then
goes on over the rest, and one source's candidates are scored at the end. What they cost does not depend on the weights.
What a first stage keeps depends on them: `hopstate rank RUN --source X --first-stage 100` tells it of a trained run.
"""

from __future__ import annotations

import argparse
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd

import hopstate
from common import machine, require_green
from hopstate.runs.queries.candidates import Candidates
from hopstate.runs.queries.names import Nodes, nodes_of, times_of
from hopstate.runs.queries.session import session

QUIET = {"loop": {"epochs": 0, "progress": False, "tensorboard": "no", "device": "cpu"}}
OWN = 2_000  # events of the run itself
LONE = 20  # candidates that are scored one by one
METHODS = ("recency", "pair-trees", "ctdg-ssm", "graphmixer", "dyg-mamba")


def spent(work: Callable[[], object], repeats: int = 3) -> float:
    """Return the least processor seconds of a call."""
    found = []
    for _ in range(repeats):
        start = time.process_time()
        work()
        found.append(time.process_time() - start)
    return min(found)


def measure(name: str, events: pd.DataFrame, stage: int) -> dict[str, float | str]:
    """Return milliseconds of a method: opening, all candidates, a few after a first stage, one by one."""
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        events[:OWN].to_csv(home / "own.csv", index=False)
        settings = {**QUIET, "evaluation": {"strategies": ["random"]}}
        run = hopstate.fit(name, home / "own.csv", out=home / "run", config=settings)
        start = time.process_time()
        with session(run.path, events=[events[OWN:]]) as asked:
            opened = time.process_time() - start
            source = nodes_of(asked.past, events.src.value_counts().index[:1].to_numpy(), "sources")
            t = times_of(asked.past, None, 1, "sources")[0]
            pool = Candidates(asked, None).of(source, 0, t)

            def score(found: Nodes) -> np.ndarray:
                many = Nodes(*(np.repeat(getattr(source, k), len(found)) for k in ("names", "rows", "met")))
                return asked.scores(many, found, np.full(len(found), t))

            def some(at: slice) -> Nodes:
                return Nodes(pool.names[at], pool.rows[at], pool.met[at])

            score(pool)  # compiles
            first = Candidates(asked, None, first_stage=stage)
            figures = {
                "whole": spent(lambda: score(pool)),
                "staged": spent(lambda: score(first.of(source, 0, t))),
                "lone": spent(lambda: [score(some(slice(i, i + 1))) for i in range(LONE)]) / LONE * len(pool),
            }
    return {"method": name, "candidates": len(pool), "open s": f"{opened:.2f}"} | {
        "all ms": f"{figures['whole'] * 1e3:.1f}",
        f"of {stage} ms": f"{figures['staged'] * 1e3:.1f}",
        "one by one / all": f"{figures['lone'] / figures['whole']:.1f}",
    }


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", required=True, help="DyGLib's table of a stream: u, i, ts")
    parser.add_argument("--methods", nargs="+", default=METHODS)
    parser.add_argument("--stage", type=int, default=100)
    parser.add_argument("--untested", action="store_true", help="do not run the tests first")
    options = parser.parse_args()
    if not options.untested:
        require_green("tests/runs/test_queries.py")
    print(machine())
    warnings.simplefilter("ignore")
    table = pd.read_csv(options.data)
    if len(table) <= OWN:
        parser.error(
            f"{options.data} holds {len(table)} events: the run itself takes {OWN}, the questions go on over more"
        )
    events = pd.DataFrame({"src": table["u"], "dst": table["i"], "t": table["ts"].astype(np.int64)})
    for name in options.methods:
        print(measure(name, events, options.stage), flush=True)


if __name__ == "__main__":
    main()
