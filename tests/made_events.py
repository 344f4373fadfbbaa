"""Small synthetic events and runs for tests of several packages."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from hopstate.data.events import ADD, DELETE, EventStream, check_deletes
from hopstate.runs.run import Run, fit

LOOP: dict[str, Any] = {"loop": {"epochs": 1, "progress": False, "logger": "none", "device": "cpu"}}
RANDOM: dict[str, Any] = {"evaluation.strategies": ["random"]}
SMALL: dict[str, dict[str, Any]] = {  # small settings of each link method
    "recency": {},
    "edgebank": {},
    "pair-trees": {"model.num_trees": 20, "model.min_leaf": 5},
    "graphmixer": {"model.num_links": 4},
    "dygformer": {"model.channel_dim": 4, "model.time_dim": 8, "model.max_length": 6},
    "dyg-mamba": {"model.channel_dim": 4, "model.time_dim": 8, "model.out_dim": 12, "history.max_length": 6},
    "ctdg-ssm": {"model.dim": 6, "model.time_dim": 4, "model.hidden": 8},
}


def table(first: int, count: int, *, seed: int = 11, people: int = 10, amount: bool = False) -> pd.DataFrame:
    """Return events of buyers and goods from time `first` on, with ties."""
    rng = np.random.default_rng([seed, first])
    src, dst = rng.integers(0, people, count), rng.integers(0, 8, count)
    t = first + np.arange(count) * 2 // 3
    found = pd.DataFrame({"src": [f"u{i}" for i in src], "dst": [f"v{i}" for i in dst], "t": t})
    return found.assign(amount=rng.normal(size=count).round(3)) if amount else found


def repeating(count: int = 400) -> EventStream:
    """Return events of 20 nodes with two features, half of which repeat the pair five events before, with ties."""
    rng = np.random.default_rng(0)
    src, dst = rng.integers(0, 10, count), 10 + rng.integers(0, 10, count)
    for i in range(20, count):
        if rng.random() < 0.5:
            src[i], dst[i] = src[i - 5], dst[i - 5]
    attr = rng.standard_normal((count, 2)).astype(np.float32)
    return EventStream(src=src, dst=dst, t=np.sort(rng.integers(0, count, count)), num_nodes=20, edge_attr=attr)


def named(stream: EventStream) -> pd.DataFrame:
    """Return the events of a stream as a table, with names for nodes."""
    return pd.DataFrame({"src": [f"u{i}" for i in stream.src], "dst": [f"v{i}" for i in stream.dst], "t": stream.t})


def cut(events: EventStream, start: int, stop: int) -> EventStream:
    """Return a range of events with features as a separate stream."""
    return replace(events, **{k: getattr(events, k)[start:stop].copy() for k in ("src", "dst", "t", "edge_attr")})


def small_run(method: str, home: Path, events: pd.DataFrame | None = None, **settings: Any) -> Run:
    """Train for an epoch on 160 events, or the given ones, below `home`."""
    own = home / "own.csv"
    if not own.exists():
        (table(0, 160) if events is None else events).to_csv(own, index=False)
    return fit(method, own, out=home / method, config={**LOOP, **RANDOM, **SMALL.get(method, {}), **settings})


def train_shared(method: str, home: Path) -> Run:
    """Train `home`/method, with its calibration, on 160 events with an amount; see the fixture `trained`."""
    own = home / f"{method}.csv"
    table(0, 160, seed=7, amount=True).to_csv(own, index=False)
    extra = {"read.edge_columns": ["amount"], "evaluation.batch_size": 16}
    run = fit(method, own, out=home / method, config={**LOOP, **RANDOM, **SMALL[method], **extra})
    run.score([("u1", "v2")])
    return run


def additions_and_deletions(
    count: int, seed: int, *, people: int, goods: int, last: int, features: bool = False
) -> EventStream:
    """Return a stream of additions and deletions, nearly half of each, with ties."""
    rng, present = np.random.default_rng(seed), []
    rows = []
    for _ in range(count):
        if present and rng.random() < 0.45:
            rows.append((*present.pop(rng.integers(len(present))), DELETE))
        else:
            present.append((int(rng.integers(0, people)), int(rng.integers(people, people + goods))))
            rows.append((*present[-1], ADD))
    src, dst, kind = np.array(rows).T
    attr = rng.normal(size=(count, 2)).astype(np.float32) if features else None
    t = np.sort(rng.integers(0, last, count))
    given = {"kind": kind.astype(np.int8), "edge_attr": attr, "num_nodes": people + goods}
    stream = EventStream(src=src, dst=dst, t=t, **given)
    check_deletes(stream)
    return stream
