"""What the scan over the nodes carries: labels that only the order of the nodes' sequence knows.

Run: python benchmarks/gmn_order.py --out runs/order [--gaps 1,4,16] [--epochs 120] [--rate 0.005]
4,000 nodes of a ring, each of one of four classes and with a key at random; a node's label is the class of the node
`gap` places before it by those keys. No tokens, no message passing: the sequence is all there is (chance: 25). One step
an epoch, 60% of the nodes for training. By degrees, all alike, the order is that of the nodes and says nothing.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import Any

import numpy as np

from common import machine, require_green
from hopstate.cli.compare import numbers
from hopstate.data.graph import Graph
from hopstate.runs.run import fit

NODES, CLASSES = 4000, 4
KEYS: dict[str, Any] = {"order.kind": "column", "order.column": CLASSES}
ROWS: dict[str, dict[str, Any]] = {
    "by the keys": KEYS,
    "by the keys, two blocks": KEYS | {"model.node_layers": 2},
    "by the keys, one direction": KEYS | {"model.bidirectional": False},
    "by degree": {},
    "no block": {"model.node_layers": 0},
}
BARE = {
    "model.mpnn": "none", "encoding.kind": "none", "walks.max_length": 0, "model.token_layers": 0, "model.dim": 32,
    "model.expand": 1.0, "model.state_dim": 8, "model.dropout": 0.0, "metric": "accuracy", "split.kind": "random",
    "split.fractions": (0.6, 0.2, 0.2), "loop.patience": None, "loop.progress": False,
}  # fmt: skip


def made(gap: int) -> Graph:
    """Return the ring; the first nodes by keys are told their own class."""
    rng = np.random.default_rng(0)
    keys, classes = rng.permutation(NODES).astype(np.float32) / NODES, rng.integers(0, CLASSES, NODES)
    order, labels = np.argsort(keys), classes.copy()
    labels[order[gap:]] = classes[order[:-gap]]
    x = np.concatenate([np.eye(CLASSES, dtype=np.float32)[classes], keys[:, None]], 1)
    pairs = np.stack([np.arange(NODES), np.roll(np.arange(NODES), -1)], 1)
    return Graph.from_edges(pairs, NODES, undirected=True, x=x, y=labels)


def main() -> None:
    """Print the machine and a row of validation and test accuracy for each gap and network."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, help="folder of all runs")
    parser.add_argument("--gaps", default="1,4,16")
    parser.add_argument("--epochs", type=int, default=120)
    parser.add_argument("--rate", type=float, default=0.005)
    options = parser.parse_args()
    require_green(
        "tests/layers/test_ssm.py",
        "tests/methods/gmn/test_walk_tokens.py",
        "tests/methods/gmn/test_model_written_out.py",
    )
    print(machine(), flush=True)
    own = BARE | {"loop.epochs": options.epochs, "loop.eval_every": max(1, options.epochs // 4)}
    for gap in numbers(options.gaps):
        graph = made(gap)
        for name, row in ROWS.items():
            start = time.process_time()
            settings = own | {"loop.optim.lr": options.rate} | row
            run = fit(
                "gmn",
                graph,
                out=options.out / f"{gap}-{name}",
                **{k.replace(".", "__"): v for k, v in settings.items()},
            )
            found = ", ".join(f"{100 * run.metrics[part]['accuracy']:.1f}" for part in ("val", "test"))
            print(f"| {gap} | {name} | {found} | {time.process_time() - start:.1f} s |", flush=True)


if __name__ == "__main__":
    main()
