"""Throughput of a live run: events per second into the log and the model, and milliseconds of one event and one pair.

    python benchmarks/serve.py --data PATH/uci/ml_uci.csv

Each method has its defaults and initial weights, with the stream's first 20,000 events as its data. It then accepts the
rest in commits of 500 and 200 events one by one, and the commits once more in a new log, unscored. For comparison: the
bare log with the same commits, and the bare model, which scores and observes them (or only observes) without JSON,
checks or a log. "of the lesser" is the rate as a fraction of the slower of the two, in CPU time. All measurements
alternate in rounds; results are medians, and for fractions also minimum and maximum.
A run waits for the disk before each commit, and then finds cold caches; the bare model does not. So the model is
measured again with the bare log written between its commits, whose time is excluded ("model, waiting").
Seconds are wall time, because a commit waits for the disk, and in brackets CPU time, which other work on the machine
affects less; without HTTP.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch

import hopstate
from common import machine, require_green
from hopstate.runs.queries import score_session
from hopstate.serving.live import LiveRun
from hopstate.serving.log import Entry, SqliteLog
from hopstate.streaming.live import continue_stream

QUIET = {"loop": {"epochs": 0, "progress": False, "logger": "none", "device": "cpu"}}
OWN, LONE = 20_000, 200
METHODS = ("recency", "pair-trees", "ctdg-ssm", "graphmixer", "dyg-mamba")


class Rate:
    """Events a second of the clock and of the processor, of what is done within it."""

    def __init__(self, count: int) -> None:
        self.count = count

    def __enter__(self) -> Rate:
        self._begin = time.perf_counter(), time.process_time()
        return self

    def __exit__(self, *error: object) -> None:
        self.clock, self.cpu = (
            self.count / (now - then) for now, then in zip((time.perf_counter(), time.process_time()), self._begin)
        )

    @classmethod
    def of(cls, parts: Sequence[Rate]) -> Rate:
        """Return the rate of parts, one after the other."""
        found = cls(sum(part.count for part in parts))
        found.clock, found.cpu = (
            found.count / sum(part.count / getattr(part, name) for part in parts) for name in ("clock", "cpu")
        )
        return found

    def __str__(self) -> str:
        return f"{self.clock:,.0f} ({self.cpu:,.0f})"


def bare(events: pd.DataFrame, size: int) -> Rate:
    """Return the rate of the bare log."""
    rows = [Entry(json.dumps(row)) for row in events.to_dict("records")]
    with tempfile.TemporaryDirectory() as folder:
        log = SqliteLog(folder)
        with Rate(len(rows)) as found:
            for i in range(0, len(rows), size):
                log.append(rows[i : i + size])
        log.close()
    return found


def bare_model(live: LiveRun, rows: list[dict[str, Any]], size: int, *, score: bool, waits: bool = False) -> Rate:
    """Return the rate of the bare model, optionally with a log written between commits."""
    past, batches = live.past, []
    for i in range(0, len(rows), size):
        some = rows[i : i + size]
        columns, _ = live._parser.in_order(some, past, range(len(some)))
        batches.append((live._parser.stream(columns, past), [Entry(text) for text in columns.texts()]))
    with tempfile.TemporaryDirectory() as folder, torch.no_grad():
        log, parts = SqliteLog(folder), []
        for new, entries in batches:
            if waits:
                log.append(entries)
            with Rate(len(entries)) as part:
                past = continue_stream(live.task, past, new, score=score)[1]
            parts.append(part)
        log.close()
    return Rate.of(parts)


def measure(name: str, events: pd.DataFrame, size: int, own_events: int, repeats: int) -> dict[str, str]:
    """Return what a method takes."""
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        events[:own_events].to_csv(home / "own.csv", index=False)
        settings = {**QUIET, "evaluation": {"strategies": ["random"]}}
        run = hopstate.fit(name, home / "own.csv", out=home / "run", config=settings)
        many, few = events[own_events:-LONE].to_dict("records"), events[-LONE:].to_dict("records")
        with LiveRun(run.path, folder=home / "first") as live:
            live.take(many[:size])  # compiles
        rounds = [in_turn(run.path, home / str(k), events[own_events:-LONE], many, size) for k in range(repeats)]
        return {"method": name, **shown(rounds), **few_by_few(run.path, home / "0" / "scored", few)}


def in_turn(run: Path, home: Path, events: pd.DataFrame, many: list[dict[str, Any]], size: int) -> dict[str, Rate]:
    """Return the rates of one round: the log, the model and the live run, scored and only stored."""
    found = {"log": bare(events, size)}
    for kind, score in (("scored", True), ("stored", False)):
        with LiveRun(run, folder=home / kind) as live:
            live.take(many[:size], score=score)
            for name, waits in (("model", False), ("waiting", True)):
                found[f"{kind} {name}"] = bare_model(live, many[size:], size, score=score, waits=waits)
            with Rate(len(many) - size) as found[kind]:
                for i in range(size, len(many), size):
                    live.take(many[i : i + size], score=score)
    return found


def shown(rounds: Sequence[dict[str, Rate]]) -> dict[str, str]:
    """Return medians over the rounds, and the least and the largest share of the lesser."""
    ratios = {
        name: " ({:,.0f})".join(("{:,.0f}", "")).format(
            *(np.median([getattr(found[name], by) for found in rounds]) for by in ("clock", "cpu"))
        )
        for name in rounds[0]
    }
    for kind in ("scored", "stored"):
        for name in ("model", "waiting"):
            own = f"{kind} {name}"
            shares = [found[kind].cpu / min(found["log"].cpu, found[own].cpu) for found in rounds]
            key = f"{kind}, of the lesser{', waiting' * (name == 'waiting')}"
            ratios[key] = f"{np.median(shares):.2f} ({min(shares):.2f} to {max(shares):.2f})"
    return ratios


def few_by_few(run: Path, folder: Path, few: Sequence[dict[str, Any]]) -> dict[str, str]:
    """Return milliseconds of one event and of one pair, and seconds of a start."""
    spent: dict[str, list[float]] = {"event": [], "pair": []}
    begin = time.perf_counter()
    with LiveRun(run, folder=folder) as live:
        restart = time.perf_counter() - begin
        score_session(live.session(), [(few[0]["src"], few[0]["dst"])])
        for row in few:
            start = time.perf_counter()
            score_session(live.session(), [(row["src"], row["dst"])])
            spent["pair"].append(time.perf_counter() - start)
            start = time.perf_counter()
            live.take([row])
            spent["event"].append(time.perf_counter() - start)
    ms = {f"{k} ms p50/p99": "/".join(f"{q:.1f}" for q in np.quantile(v, [0.5, 0.99]) * 1e3) for k, v in spent.items()}
    return ms | {"start s": f"{restart:.2f}"}


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", required=True, help="DyGLib's table of a stream: u, i, ts")
    parser.add_argument("--methods", nargs="+", default=METHODS)
    parser.add_argument("--commit", type=int, default=500)
    parser.add_argument("--own", type=int, default=OWN, help="events of the run itself; the others come live")
    parser.add_argument("--repeats", type=int, default=5, help="rounds of log, model and live run, one after the other")
    options = parser.parse_args()
    require_green("tests/serving")
    print(machine())
    warnings.simplefilter("ignore")
    table = pd.read_csv(options.data)
    events = pd.DataFrame({"src": table["u"], "dst": table["i"], "t": table["ts"].astype(np.int64)})
    for name in options.methods:
        print(measure(name, events, options.commit, options.own, options.repeats), flush=True)


if __name__ == "__main__":
    main()
