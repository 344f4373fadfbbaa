"""Test metric against epochs and time, and at the epoch that validation chooses: full batch, TOP, and what it replaces.

    python benchmarks/top_convergence.py run DATA KIND:SHARE ... --seeds 0 1 2 --out RUNS.jsonl
    python benchmarks/top_convergence.py table RUNS.jsonl
    python benchmarks/top_convergence.py plot RUNS.jsonl --out docs/images/top-convergence.svg

KIND is full, top, random (TOP with a basis of random weights, never refreshed), cluster, gas, saint, neighbor or labor;
SHARE the share of nodes in a batch (of training nodes, for neighbor and labor). A 3-layer GCN; every kind takes the
same number of optimiser steps, with a learning rate that falls to zero by a cosine, on the same splits and from the
same weights. Time is the processor's, that of training steps and refreshes alone.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from pathlib import Path

import numpy as np
import torch

from common import machine, require_green
from hopstate.api import load_data
from hopstate.batching.top import TopConfig
from hopstate.data.graph import Graph
from hopstate.methods.base import Context, ReadOptions, SplitConfig
from hopstate.methods.batching import Batching
from hopstate.methods.full_batch import FullBatchRun, build
from hopstate.models.backbones import BackboneConfig
from hopstate.training.loop import LoopConfig
from hopstate.training.seed import seed_everything

PARTS = 100


def batching(graph: Graph, kind: str, share: float, refresh: int) -> Batching:
    """Return the settings of a kind of batch that holds a share of the nodes."""
    if kind == "full":
        return Batching()
    top = TopConfig(refresh=0 if kind == "random" else refresh)
    size = max(1, round(share * graph.num_nodes))
    size = {"saint": max(1, size // 4), "neighbor": round(0.6 * size), "labor": round(0.6 * size)}.get(kind, size)
    return Batching(
        kind="top" if kind == "random" else kind,
        num_parts=PARTS,
        parts_per_batch=max(1, round(share * PARTS)),
        batch_size=size,
        walk_length=3,
        top=top,
    )


def train(graph: Graph, data: str, kind: str, share: float, seed: int, o: argparse.Namespace) -> dict[str, object]:
    """Train once; return the metrics of each evaluation."""
    minesweeper = data == "minesweeper"
    config = FullBatchRun(
        data=data,
        split=SplitConfig(number=seed, seed=seed),
        model=BackboneConfig(dim=o.dim, num_layers=3, dropout=o.dropout),
        batching=batching(graph, kind, share, o.refresh),
        metric="roc_auc" if minesweeper else "accuracy",
        loop=LoopConfig(seed=seed),
    )
    seed_everything(seed)
    with tempfile.TemporaryDirectory() as folder:
        begin = time.process_time()
        task = build(graph, config, Context(run=Path(folder), cache=Path(folder)), kind=o.model)
        prepared = time.process_time() - begin
    optimizer = torch.optim.Adam(task.model.parameters(), o.lr)
    falling = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, o.steps)
    points, steps, epoch, seconds = [], 0, 0, 0.0
    while steps < o.steps:
        begin = time.process_time()
        task.model.train()
        for batch in task.batches(epoch):
            optimizer.zero_grad()
            task.loss(batch).backward()
            optimizer.step()
            falling.step()
            steps += 1
            if steps == o.steps:
                break
        seconds += time.process_time() - begin
        epoch += 1
        if epoch * o.evaluations * max(1, steps // epoch) // o.steps == len(points) and steps < o.steps:
            continue
        task.model.eval()
        with torch.no_grad():
            logits = task.logits(np.arange(graph.num_nodes))
        rows = {split: task.labels.rows(split) for split in ("val", "test")}
        found = {split: task.labels.score(of, logits[of])[task.metric] for split, of in rows.items()}
        points.append({"epoch": epoch, "steps": steps, "seconds": round(seconds, 2), **found})
    return {
        "data": data,
        "kind": kind,
        "share": share,
        "seed": seed,
        "preparation_s": round(prepared, 2),
        "points": points,
    }


def chosen(run: dict) -> float:
    """Return the test metric, in percent, where validation is best."""
    return 100 * max(run["points"], key=lambda p: p["val"])["test"]


def table(runs: list[dict]) -> str:
    """Return a Markdown table of means over seeds, and paired differences to full batch with their standard errors."""
    lines = [
        "| data | batches | share | seeds | test | to full batch | s an epoch | s in all |",
        "|---|---|---|---|---|---|---|---|",
    ]
    full = {(r["data"], r["seed"]): chosen(r) for r in runs if r["kind"] == "full"}
    for data, kind, share in dict.fromkeys((r["data"], r["kind"], r["share"]) for r in runs):
        same = [r for r in runs if (r["data"], r["kind"], r["share"]) == (data, kind, share)]
        scores = np.array([chosen(r) for r in same])
        gaps = np.array([chosen(r) - full[data, r["seed"]] for r in same if (data, r["seed"]) in full])
        error = gaps.std(ddof=1) / np.sqrt(len(gaps)) if len(gaps) > 1 else np.nan
        last = [r["points"][-1] for r in same]
        epoch, total = np.mean([p["seconds"] / p["epoch"] for p in last]), np.mean([p["seconds"] for p in last])
        lines.append(
            f"| {data} | {kind} | {share:g} | {len(same)} | {scores.mean():.2f} ± {scores.std():.2f} | "
            f"{gaps.mean():+.2f} ± {error:.2f} | {epoch:.3f} | {total:.0f} |"
        )
    return "\n".join(lines)


def plot(runs: list[dict], out: Path) -> None:
    """Draw the mean test metric over seeds against epochs and against seconds."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    names = list(dict.fromkeys(r["data"] for r in runs))
    figure, axes = plt.subplots(2, len(names), figsize=(4.2 * len(names), 6.4), squeeze=False)
    for column, data in enumerate(names):
        kinds = list(dict.fromkeys((r["kind"], r["share"]) for r in runs if r["data"] == data))
        for color, (kind, share) in enumerate(kinds):
            same = [r["points"] for r in runs if (r["data"], r["kind"], r["share"]) == (data, kind, share)]
            length = min(map(len, same))
            test = 100 * np.mean([[p["test"] for p in points[:length]] for points in same], 0)
            for row, axis in enumerate(("epoch", "seconds")):
                along = np.mean([[p[axis] for p in points[:length]] for points in same], 0)
                label = kind if kind == "full" else f"{kind} {share:.0%}"
                axes[row, column].plot(along, test, label=label, color=f"C{color}", linewidth=1.3)
                axes[row, column].set(xlabel={"epoch": "epochs", "seconds": "training time, s"}[axis], xscale="log")
                axes[row, column].set_ylim(np.percentile(test, 10) - 2, test.max() + 1) if color == 0 else None
        axes[0, column].set_title(data)
        axes[0, column].set_ylabel("test ROC AUC, %" if data == "minesweeper" else "test accuracy, %")
        axes[0, column].legend(fontsize=7, loc="lower right")
    figure.tight_layout()
    out.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(out, metadata={"Date": None})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=["run", "table", "plot"])
    parser.add_argument("data", help="a data set by name, or the file of runs")
    parser.add_argument("kinds", nargs="*")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--evaluations", type=int, default=60)
    parser.add_argument("--model", default="gcn")
    parser.add_argument("--dim", type=int, default=64)
    parser.add_argument("--dropout", type=float, default=0.5)
    parser.add_argument("--lr", type=float, default=5e-3)
    parser.add_argument("--refresh", type=int, default=TopConfig.refresh)
    parser.add_argument("--out", type=Path, required=False)
    parser.add_argument("--no-tests", action="store_true")
    o = parser.parse_args()
    if o.what == "run":
        if not o.no_tests:
            require_green("tests/batching/test_top.py")
        graph = load_data(o.data, ReadOptions(), "graph")
        for seed in o.seeds:
            for name in o.kinds:
                kind, _, share = name.partition(":")
                run = train(graph, o.data, kind, float(share or 1), seed, o) | {"machine": machine()}
                print(o.data, name, seed, round(chosen(run), 2), run["points"][-1], flush=True)
                with o.out.open("a") as file:
                    file.write(json.dumps(run) + "\n")
        return
    runs = [json.loads(line) for line in Path(o.data).read_text().splitlines()]
    print(table(runs)) if o.what == "table" else plot(runs, o.out)


if __name__ == "__main__":
    main()
