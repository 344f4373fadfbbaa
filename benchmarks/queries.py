"""CPU time of ranking all candidates of one source, compared with scoring them one by one.

    python benchmarks/queries.py --data PATH/uci/ml_uci.csv

Each method with its defaults and initial weights (no epoch), on the stream's first 2,000 events; it then
continues over the rest, and one source's candidates are scored at the end. The cost does not depend on the weights.

    python benchmarks/queries.py --run RUN --sources 1000

opens a trained run twice (the start of a process without imports), ranks a dozen of its sources one by one and in one
call, with and without a prefilter, and then `--sources` sources in one call with a prefilter.
"""

from __future__ import annotations

import argparse
import tempfile
import time
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd

import hopstate
from common import machine, require_green
from hopstate.runs.queries import Candidates, QuerySession, open_session, rank_session
from hopstate.runs.query_inputs import QueryNodes, query_times, resolve_nodes
from hopstate.streaming.slices import run_to_completion

QUIET = {"loop": {"epochs": 0, "progress": False, "logger": "none", "device": "cpu"}}
OWN = 2_000  # training events of the run
LONE = 20  # candidates that are scored one by one
SOME = 12  # sources that are ranked one by one
METHODS = ("recency", "pair-trees", "ctdg-ssm", "graphmixer", "dyg-mamba")


def spent(work: Callable[[], object], repeats: int = 3) -> float:
    """Return the minimum CPU time of a call."""
    found = []
    for _ in range(repeats):
        start = time.process_time()
        work()
        found.append(time.process_time() - start)
    return min(found)


def measure(name: str, events: pd.DataFrame, count: int) -> dict[str, float | str]:
    """Return milliseconds of a method: opening, all candidates, a few after a prefilter, one by one."""
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        events[:OWN].to_csv(home / "own.csv", index=False)
        settings = {**QUIET, "evaluation": {"strategies": ["random"]}}
        run = hopstate.fit(name, home / "own.csv", out=home / "run", config=settings)
        start = time.process_time()
        with open_session(run.path, events=[events[OWN:]]) as session:
            opened = time.process_time() - start
            source = resolve_nodes(session.past, events.src.value_counts().index[:1].to_numpy(), "sources")
            t = query_times(session.past, None, 1, "sources")[0]
            pool = Candidates(session, None).of(source, 0, t)

            def score(found: QueryNodes) -> np.ndarray:
                many = source.at(np.zeros(len(found), np.int64))
                return run_to_completion(session.scores(many, found, np.full(len(found), t)))

            score(pool)  # compiles
            first = Candidates(session, None, prefilter=count)
            seconds_of = {
                "whole": spent(lambda: score(pool)),
                "prefiltered": spent(lambda: score(first.of(source, 0, t))),
                "lone": spent(lambda: [score(pool.at(np.array([i]))) for i in range(LONE)]) / LONE * len(pool),
            }
    return {"method": name, "candidates": len(pool), "open s": f"{opened:.2f}"} | {
        "all ms": f"{seconds_of['whole'] * 1e3:.1f}",
        f"of {count} ms": f"{seconds_of['prefiltered'] * 1e3:.1f}",
        "one by one / all": f"{seconds_of['lone'] / seconds_of['whole']:.1f}",
    }


def many(path: str, sources: int, count: int) -> dict[str, float | str]:
    """Return CPU seconds of a trained run: opening, its sources one by one and in one call."""

    def opening() -> None:
        with open_session(path):
            pass

    opened = [spent(opening, 1) for _ in range(2)]
    with open_session(path) as session:
        rows = np.unique(session.past.src)[:sources]
        ids = rows if session.past.node_ids is None else session.past.node_ids.names(rows)
        some = np.random.default_rng(0).choice(ids, min(SOME, len(ids)), replace=False)
        found: dict[str, float | str] = {"open s, first and again": f"{opened[0]:.2f} {opened[1]:.2f}"}
        for what, most in (("whole", None), ("prefilter", count)):
            rank = partial(rank_all, session, most)
            facts = rank(some[:1]).attrs  # compiles
            lone = sum(spent(partial(rank, [i]), 1) for i in some)
            found[f"{what}, one by one s"] = f"{lone / len(some):.3f}"
            found[f"{what}, {len(some)} in one call, each s"] = f"{spent(partial(rank, some), 1) / len(some):.3f}"
        found["prefilter recall"] = f"{facts['prefilter_recall']:.3f}"
        whole = spent(partial(rank_all, session, count, ids), 1)
    return found | {f"prefilter, {len(ids)} in one call, each s": f"{whole / len(ids):.3f}"}


def rank_all(opened: QuerySession, prefilter: int | None, sources: np.ndarray) -> pd.DataFrame:
    return run_to_completion(rank_session(opened, sources, prefilter=prefilter))


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", help="DyGLib's table of a stream: u, i, ts")
    parser.add_argument("--run", help="a trained run, of whose sources many are ranked")
    parser.add_argument("--sources", type=int, default=1000)
    parser.add_argument("--methods", nargs="+", default=METHODS)
    parser.add_argument("--prefilter", type=int, default=100)
    parser.add_argument("--untested", action="store_true", help="do not run the tests first")
    options = parser.parse_args()
    if not options.untested:
        require_green("tests/runs/test_queries.py")
    print(machine())
    warnings.simplefilter("ignore")
    if options.run is not None:
        print(many(options.run, options.sources, options.prefilter))
        return
    if options.data is None:
        parser.error("give --data, or --run")
    table = pd.read_csv(options.data)
    if len(table) <= OWN:
        parser.error(f"{options.data} holds {len(table)} events: the run itself needs {OWN}, and queries need more")
    events = pd.DataFrame({"src": table["u"], "dst": table["i"], "t": table["ts"].astype(np.int64)})
    for name in options.methods:
        print(measure(name, events, options.prefilter), flush=True)


if __name__ == "__main__":
    main()
