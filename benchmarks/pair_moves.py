"""What features of moves give where things come in an order: `pair-trees` on two made streams, with and without them.

    python benchmarks/pair_moves.py [--seeds 0]

- courses: 3,000 students come at any time within 80 days and go on through 100 items, mostly in their order, sometimes
  staying, going back a little or jumping;
- records: 500 listeners play 1,000 songs, on through a record of ten three times in five, else one of five records
  that they like, or any song.

Average precision on validation in percent, known nodes / new ones (there are no new listeners); the test part is not
looked at.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

import numpy as np
import torch

from common import machine, require_green
from hopstate.data.events import EventStream
from hopstate.methods import get_method
from hopstate.methods.method import Context
from hopstate.methods.pair_trees.method import build
from hopstate.methods.settings import config_from
from hopstate.random import named_rng
from hopstate.tokens.pair_features import BEFORE_MOVES, NAMES

DAY = 86_400


def courses(students: int = 3_000, items: int = 100, mean: int = 20) -> EventStream:
    """Return a stream in seconds; items after students."""
    rng = named_rng(0, "courses")
    rows: list[tuple[float, int, int]] = []
    for student in range(students):
        now, at = 80 * DAY * rng.random(), int(rng.integers(0, items)) if rng.random() < 0.2 else 0
        for _ in range(rng.geometric(1 / mean)):
            rows.append((now, student, students + at))
            now += rng.lognormal(5, 2) if rng.random() < 0.8 else rng.exponential(2 * DAY)
            way = rng.choice(4, p=[0.6, 0.15, 0.1, 0.15])
            steps = (at + 1) % items, at, max(0, at - int(rng.integers(1, 4))), int(rng.integers(0, items))
            at = steps[way]
    return _stream("courses", rows, students + items)


def records(listeners: int = 500, songs: int = 1_000, plays: int = 120) -> EventStream:
    """Return a stream in seconds; songs after listeners."""
    rng = named_rng(0, "records")
    rows: list[tuple[float, int, int]] = []
    for listener in range(listeners):
        liked = rng.choice(songs // 10, 5, replace=False)
        now, at = 5 * DAY * rng.random(), int(rng.integers(0, songs))
        for _ in range(plays):
            rows.append((now, listener, listeners + at))
            now += rng.exponential(240) if rng.random() < 0.85 else rng.exponential(DAY)
            way = rng.choice(3, p=[0.6, 0.3, 0.1])
            one_liked = 10 * int(rng.choice(liked)) + int(rng.integers(0, 10))
            at = (at // 10 * 10 + (at + 1) % 10, one_liked, int(rng.integers(0, songs)))[way]
    return _stream("records", rows, listeners + songs)


def _stream(name: str, rows: list[tuple[float, int, int]], nodes: int) -> EventStream:
    t, src, dst = (np.array(column).astype(np.int64) for column in zip(*sorted(rows), strict=True))
    return EventStream(src=src, dst=dst, t=t, num_nodes=nodes, time_unit="s", name=name)


def validated(stream: EventStream, known: int, seed: int) -> dict[str, float]:
    """Return the figures on validation of the trees that it chooses, reading the first features."""
    config = config_from(get_method("pair-trees"), {"data": "x", "loop.progress": False, "loop.seed": seed})
    with tempfile.TemporaryDirectory() as folder:
        task = build(stream, config, Context(run=Path(folder), cache=Path(folder)), known)
        rows, kept = task.fit_whole()
    return next(row for row in rows if row["epoch"] == kept)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, nargs="*", default=[0])
    options = parser.parse_args()
    require_green("tests/tokens/test_pair_features.py", "tests/methods/pair_trees/test_pair_trees_method.py")
    torch.set_num_threads(1)
    print(machine())
    for stream in (courses(), records()):
        print(f"{stream.name}: {len(stream):,} events, {stream.num_nodes:,} nodes", flush=True)
        for seed in options.seeds:
            for known, what in ((BEFORE_MOVES, "without moves"), (len(NAMES), "with moves")):
                row = validated(stream, known, seed)
                found = [
                    " / ".join(f"{100 * row[key]:.2f}" for key in (f"val_{kind}", f"val_new_{kind}") if key in row)
                    for kind in (f"{sort}average_precision" for sort in ("", "historical_", "inductive_"))
                ]
                print(f"  seed {seed}, {what}: random, historical, inductive {', '.join(found)}", flush=True)


if __name__ == "__main__":
    main()
