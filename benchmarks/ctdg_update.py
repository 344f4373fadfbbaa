"""CTDG-SSM's update: cost against active nodes on every path, and events per second of a live stream.

The baseline is algorithm 3 as it is listed: one dense exponential per quadrature node. Run on one core:
    OMP_NUM_THREADS=1 taskset -c 0 python benchmarks/ctdg_update.py [--quick] [--plot FILE]
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch

from common import machine, median_time, require_green
from hopstate.data.neighbor_store import NeighborStore
from hopstate.datasets.temporal_generators import MessageConfig, generate_messages
from hopstate.io.output import draw_figure
from hopstate.methods.ctdg_ssm.model import CTDGSSM
from hopstate.ops.filters.laplacian import dense_laplacian, sparse_laplacian
from hopstate.ops.filters.quadrature import evolve
from hopstate.ops.filters.transition import DenseTransition, SparseTransition, Transition
from hopstate.streaming.active_batch import ActiveBatch, recent_context

DIM, LAYERS = 32, 2
LISTED_LIMIT = 512  # most active nodes of the baseline, which takes minutes beyond


def transition(path: str, c: torch.Tensor, pairs: torch.Tensor, old: int, n: int) -> Transition:
    """P and G of a graph whose edges after the first `old` are new."""
    if path == "sparse":
        ones = np.ones(pairs.shape[1], np.float32)
        both = (sparse_laplacian(pairs[:, :e].numpy(), ones[:e], n, np.float32) for e in (pairs.shape[1], old))
        return SparseTransition(c, *both)
    weight = torch.ones(pairs.shape[1])
    both = (dense_laplacian(pairs[:, :e], weight[:e], n) for e in (pairs.shape[1], old))
    return DenseTransition(c, *both, exponential_limit=n if path == "listed" else 0)


def step_seconds(path: str, n: int, order: int, *, repeats: int) -> float:
    """Seconds of two layers' update and its gradients: n active nodes, 1.3 n edges, a tenth of them new."""
    rng = np.random.default_rng(n)
    edges = int(1.3 * n)
    hubs = (n * rng.random(edges) ** 3).astype(np.int64)  # a few nodes have many edges
    pairs = torch.from_numpy(np.stack([hubs, rng.integers(0, n, edges)]))
    alpha = torch.tensor([1.0] + [2.0] * order, requires_grad=True)
    H, U = (torch.randn(1, n, DIM, requires_grad=True) for _ in range(2))
    rate = -0.05 * torch.ones(1, n, DIM)

    def work() -> None:
        change = transition(path, alpha, pairs, edges - edges // 10, n)
        out = H
        for _ in range(LAYERS):
            out = evolve(change, out, U, rate)
        torch.autograd.grad(out.square().mean(), (alpha, H, U))

    return median_time(work, repeats=repeats, warmup=min(1, repeats - 1))


def table(order: int, sizes: list[int]) -> list[tuple[float | None, ...]]:
    """Print seconds per path and the ratio to the baseline; return the seconds: listed, dense, sparse."""
    seconds = []
    print(f"\nupdate and gradients, order {order}, d = {DIM}, {LAYERS} layers, float32; ms")
    print(f"{'N_B':>6} {'listed':>10} {'dense':>10} {'sparse':>10} {'listed / best':>14}")
    for n in sizes:
        listed = step_seconds("listed", n, order, repeats=3 if n <= 256 else 1) if n <= LISTED_LIMIT else None
        dense = step_seconds("dense", n, order, repeats=5 if n <= 512 else 1)
        sparse = step_seconds("sparse", n, order, repeats=5)
        seconds.append((listed, dense, sparse))
        cells = [f"{1e3 * v:10.2f}" if v is not None else f"{'-':>10}" for v in (listed, dense, sparse)]
        ratio = f"{listed / min(dense, sparse):14.1f}" if listed else f"{'-':>14}"
        print(f"{n:6d} {' '.join(cells)} {ratio}", flush=True)
    return seconds


def plot(path: Path, sizes: list[int], found: dict[int, list[tuple[float | None, ...]]]) -> None:
    """Draw seconds against active nodes, one panel per order."""

    def paint(figure: Any) -> None:
        axes = figure.subplots(1, len(found), sharey=True)
        names = ("as listed: an exponential a quadrature node", "dense", "sparse")
        for panel, (order, rows) in zip(axes, found.items()):
            for name, column, mark in zip(names, zip(*rows), "s^o"):
                points = [(n, v) for n, v in zip(sizes, column) if v is not None]
                panel.loglog(*zip(*points), marker=mark, markersize=4, label=name)
            panel.axvline(CTDGSSM.Config().dense_limit, color="gray", linewidth=0.8, linestyle=":")
            panel.set(title=f"order {order}", xlabel="active nodes of a batch")
            panel.grid(alpha=0.3)
        axes[0].set_ylabel("seconds, update and gradients")
        axes[0].legend(fontsize=8)

    draw_figure(path, (9, 3.6), paint)


def stream(events: int, nodes: int, batch: int, neighbors: int, order: int) -> None:
    """Print events per second of a synthetic message stream through queries and `update`, without gradients."""
    messages = generate_messages(MessageConfig(num_nodes=nodes, num_events=events, days=190.0, num_communities=40))
    src, dst, t = messages.src, messages.dst, messages.t
    events = len(src)
    config = CTDGSSM.Config(order=order, dim=DIM, num_layers=LAYERS, static="random", max_norm=100.0)
    model, store = CTDGSSM(config).eval(), NeighborStore(nodes)
    active: list[int] = []
    with torch.inference_mode():
        state = model.initial_state(nodes)
        start = time.process_time()  # of this process only: other users of a shared machine do not count
        for i in range(0, events, batch):
            u, v, when = src[i : i + batch], dst[i : i + batch], t[i : i + batch]
            ends = np.unique(np.concatenate([u, v]))
            context = recent_context(store, ends, np.full(len(ends), when[0]), neighbors, order).edges
            last, found_before = store.last_meeting(u, v, when)
            gap = np.where(found_before, np.log1p(when - last), 17.0)
            part = ActiveBatch.build(u, v, when, context=context, gap=gap)
            state = model.update(state, part, in_place=True)
            store.append(u, v, when)
            active.append(len(part.nodes))
        seconds = time.process_time() - start
    mean = f"N_B {np.mean(active):.0f} on average, {max(active)} at most"
    rate = f"{events / seconds:,.0f} events/s of processor time"
    print(f"order {order}: {rate} ({nodes} nodes, batch {batch}, N_u {neighbors}, {mean})")


def main() -> None:
    """Run the requested measurements."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="small sizes only")
    parser.add_argument("--plot", type=Path, help="also draw the update's cost there")
    options = parser.parse_args()
    quick = options.quick
    require_green("tests/ops/filters/test_quadrature.py", "tests/methods/ctdg_ssm/test_ctdg_ssm.py")
    print(machine())
    torch.manual_seed(0)
    sizes = [16, 32, 64, 128, 256] if quick else [16, 32, 64, 128, 256, 512, 1024, 2048, 4000]
    found = {order: table(order, sizes) for order in (1, 2)}
    if options.plot:
        plot(options.plot, sizes, found)
    print("\nlive stream, no gradients")
    for order in (0, 1, 2):
        stream(5_000 if quick else 40_000, 2_000, 128, 10, order)


if __name__ == "__main__":
    main()
