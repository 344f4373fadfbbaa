"""Test metric against epochs and time, and at the epoch that validation chooses: full batch, TOP, and what it replaces.

    python benchmarks/top_convergence.py run DATA KIND:SHARE ... --seeds 0 1 2 --out RUNS.jsonl
    python benchmarks/top_convergence.py table RUNS.jsonl
    python benchmarks/top_convergence.py plot RUNS.jsonl --out docs/images/top-convergence.svg

KIND is full, top, random (TOP with a basis of random weights, never refreshed), cluster, gas, saint, neighbor or labor;
SHARE the share of nodes in a batch (of training nodes, for neighbor and labor). Batches of top, cluster and gas are
METIS clusters; top@random draws nodes uniformly. A 3-layer GCN; every kind takes --steps optimiser steps, a learning
rate that falls to zero by a cosine, on the same splits and from the same weights. Time is the processor's, that of
training steps and refreshes only.
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
from hopstate.compensation.top.top import TopConfig
from hopstate.data.graph import Graph
from hopstate.methods.message_passing.batching import Batching
from hopstate.methods.message_passing.method import FullBatchRun, build
from hopstate.methods.message_passing.model import BackboneConfig
from hopstate.methods.method import Context, ReadOptions, SplitConfig
from hopstate.random import seed_everything
from hopstate.runs.data import load_data
from hopstate.training.config import LoopConfig

CLUSTERS = 100
KINDS = ["full", "top", "top@random", "random", "cluster", "gas", "saint", "neighbor", "labor"]


def batching(graph: Graph, kind: str, share: float, refresh: int, directions: int) -> Batching:
    """Return the settings of a kind of batch that holds a share of the nodes."""
    kind, _, nodes = kind.partition("@")
    if kind == "full":
        return Batching()
    top = TopConfig(refresh=0) if kind == "random" else TopConfig(refresh=refresh, directions=directions)
    size = max(1, round(share * graph.num_nodes))
    size = {"saint": max(1, size // 4), "neighbor": round(0.6 * size), "labor": round(0.6 * size)}.get(kind, size)
    return Batching(
        kind="top" if kind == "random" else kind,
        nodes="random" if nodes == "random" else "clusters",
        num_clusters=CLUSTERS,
        clusters_per_batch=max(1, round(share * CLUSTERS)),
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
        batching=batching(graph, kind, share, o.refresh, o.directions),
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
        found = {
            split: task.labels.target.score(task.labels.y[of], logits[of])[task.metric] for split, of in rows.items()
        }
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


def groups(runs: list[dict]) -> dict[tuple[str, str, float, int], list[dict]]:
    """Return runs of all seeds by (data, kind, share, steps), in the order in which kinds are drawn."""
    names = {name: [r for r in runs if key(r) == name] for name in dict.fromkeys(map(key, runs))}
    return dict(sorted(names.items(), key=lambda item: (item[0][0], KINDS.index(item[0][1]), -item[0][2], item[0][3])))


def key(run: dict) -> tuple[str, str, float, int]:
    """Return (data, kind, share, steps) of a run."""
    return run["data"], run["kind"], run["share"], run["points"][-1]["steps"]


def table(runs: list[dict]) -> str:
    """Return a Markdown table of means over seeds, and paired differences to full batch with their standard errors."""
    head = ("data", "batches", "share", "steps", "seeds", "test", "to full batch", "s an epoch", "s in all")
    lines = ["| " + " | ".join(head) + " |", "|---" * len(head) + "|"]
    full = {(r["data"], r["seed"]): chosen(r) for r in runs if r["kind"] == "full"}
    for (data, kind, share, steps), same in groups(runs).items():
        scores = np.array([chosen(r) for r in same])
        gaps = np.array([chosen(r) - full[data, r["seed"]] for r in same if (data, r["seed"]) in full])
        error = gaps.std(ddof=1) / np.sqrt(len(gaps)) if len(gaps) > 1 else np.nan
        last = [r["points"][-1] for r in same]
        epoch, total = np.mean([p["seconds"] / p["epoch"] for p in last]), np.mean([p["seconds"] for p in last])
        lines.append(
            f"| {data} | {kind} | {share:g} | {steps} | {len(same)} | {scores.mean():.2f} ± {scores.std():.2f} | "
            f"{gaps.mean():+.2f} ± {error:.2f} | {epoch:.3f} | {total:.0f} |"
        )
    return "\n".join(lines)


def on(grid: list[int], points: list[dict], name: str) -> np.ndarray:
    """Return a metric of a run's evaluations at given epochs, by linear interpolation."""
    return np.interp(grid, [p["epoch"] for p in points], [p[name] for p in points])


def plot(runs: list[dict], out: Path) -> None:
    """Draw the mean test metric over seeds that all kinds have against epochs and seconds, each kind's longest runs."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    every = set.intersection(*({r["seed"] for r in same} for same in groups(runs).values()))
    runs = [r for r in runs if r["seed"] in every]  # a seed is a split, too: curves of the same ones compare
    longest = {name[:3]: same for name, same in groups(runs).items()}
    names = list(dict.fromkeys(data for data, _, _ in longest))
    figure, axes = plt.subplots(2, len(names), figsize=(4.2 * len(names), 7), squeeze=False)
    shown: dict[str, object] = {}
    for column, data in enumerate(names):
        ends = []
        for (_, kind, share), same in (item for item in longest.items() if item[0][0] == data):
            grid = [p["epoch"] for p in min((r["points"] for r in same), key=len)]
            mean = {axis: np.mean([on(grid, r["points"], axis) for r in same], 0) for axis in ("test", "seconds")}
            mean |= {"epoch": np.array(grid), "test": 100 * mean["test"]}
            test = mean["test"]
            ends.append((test[-1], test.max()))
            style = "--" if (kind, share) == ("top", 0.5) else "-"
            for row, axis in enumerate(("epoch", "seconds")):
                label = {"full": "full batch", "random": "top, random weights", "top@random": "top, random nodes"}.get(
                    kind, kind
                )
                label += "" if kind == "full" else f", {share:.0%}"
                (line,) = axes[row, column].plot(
                    mean[axis],
                    test,
                    style,
                    color=f"C{KINDS.index(kind)}",
                    linewidth=2 if kind in ("full", "top", "top@random") else 1.1,
                )
                shown.setdefault(label, line)
        for row, axis in enumerate(("epochs", "training time, processor s")):
            axes[row, column].set(
                xlabel=axis, xscale="log", ylim=(min(low for low, _ in ends) - 5, max(high for _, high in ends) + 0.5)
            )
            axes[row, column].set_ylabel("test ROC AUC, %" if data == "minesweeper" else "test accuracy, %")
            axes[row, column].grid(alpha=0.3)
        axes[0, column].set_title(data)
    figure.tight_layout(rect=(0, 0.08, 1, 1))
    figure.legend(shown.values(), shown.keys(), loc="lower center", ncol=5, fontsize=9, frameon=False)
    out.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(out, metadata={"Date": None} if out.suffix == ".svg" else None)


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
    parser.add_argument("--directions", type=int, default=TopConfig.directions)
    parser.add_argument("--out", type=Path, required=False)
    parser.add_argument("--no-tests", action="store_true")
    o = parser.parse_args()
    if o.out is None and o.what != "table":
        parser.error(f"{o.what} writes a file: give --out")
    if o.what == "run" and not o.kinds:
        parser.error("name what to train, e.g. full top:0.5")
    if o.what == "run":
        if not o.no_tests:
            require_green("tests/compensation/top/test_top.py")
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
