"""MRR of methods on generated typed events, with relations and without, and of recency by relation.

Both runs rank the same candidates. The untyped one reads the same events without relations and types of nodes.

    python benchmarks/typed_events.py dyg-mamba [ctdg-ssm ...] [--seeds 0 1 2] [--epochs 20] [--events 3000]
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path
from typing import Any

import torch

import hopstate
from common import machine, require_green
from hopstate.data.events import EventStream
from hopstate.datasets.temporal_generators import OrderConfig, generate_orders
from hopstate.evaluation.link import link_report, score_split
from hopstate.runs.load import load_run
from hopstate.sampling.negatives import one_against_many

SMALL = {  # networks that one core trains in minutes
    "graphmixer": {"model.num_links": 12, "model.dim": 24, "model.time_dim": 24, "model.out_dim": 24},
    "dygformer": {"model.channel_dim": 12, "model.time_dim": 16, "model.max_length": 12, "model.out_dim": 24},
    "dyg-mamba": {"model.channel_dim": 12, "model.time_dim": 16, "model.out_dim": 24, "history.max_length": 12},
    "ctdg-ssm": {"model.dim": 24, "model.time_dim": 8, "model.hidden": 0, "model.static": "random"},
}
NETWORK = {"batch_size": 50, "loop.optim.lr": 3e-3, "evaluation.strategies": ["random"], "loop.patience": 100}


def main() -> None:
    """Print a table in Markdown, a row for each method and seed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("methods", nargs="+")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--events", type=int, default=3_000)
    args = parser.parse_args()
    require_green("tests/evaluation/test_typed_links.py")
    torch.set_num_threads(1)
    print(machine())
    print("| method | seed | typed | untyped | typed recency | typed by relation | best epochs | CPU s |")
    print("|---|---|---|---|---|---|---|---|", flush=True)
    for method in args.methods:
        for seed in args.seeds:
            print(row(method, seed, args.epochs, args.events), flush=True)


def row(method: str, seed: int, epochs: int, events: int) -> str:
    """Return the row of a method and a seed, which is also that of the stream."""
    typed = generate_orders(OrderConfig(num_events=events, seed=seed))
    plain = typed.with_(relation=None, relation_names=(), node_type=None, node_type_names=())
    settings: dict[str, Any] = {}
    if method in SMALL:
        settings = {**SMALL[method], **NETWORK, "loop.epochs": epochs, "loop.seed": seed}
    start = time.process_time()
    found, rounds = {}, []
    with tempfile.TemporaryDirectory() as home:
        folder = Path(home)
        for name, chosen, stream, more in (
            ("typed", method, typed, settings),
            ("untyped", method, plain, settings),
            ("recency", "recency", typed, {}),
        ):
            run = hopstate.fit(chosen, stream, out=folder / name, **{"loop.progress": False}, **more)
            rounds.append(str(run.best_epoch))
            found[name] = metrics(run.path, typed)
    values = [f"{100 * part['mrr']:.1f}" for part in found.values()]
    parts = [f"{name} {100 * found['typed'][f'mrr[{name}]']:.0f}" for name in typed.relation_names]
    seconds = f"{time.process_time() - start:.0f}"
    return f"| {' | '.join([method, str(seed), *values, ', '.join(parts), ', '.join(rounds[:2]), seconds])} |"


def metrics(run: Path, typed: EventStream) -> dict[str, Any]:
    """Return the metrics of a run's test events among 100 targets that their relations join."""
    with load_run(run) as (_, task):
        candidates = {("test", "ranking"): one_against_many(typed, task.split, "test", num_negatives=100)}
        scores = score_split(task.scorer("test"), task.stream, task.split.test, candidates)
        return link_report(scores, candidates, typed).rows[0]


if __name__ == "__main__":
    main()
