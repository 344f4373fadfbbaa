"""Links of a graph: our methods compared with their baselines, and our gcn with a plain torch-geometric loop.

    python benchmarks/static_links.py --data cora --methods gcn,sage,gmn --seeds 0,1,2
    python benchmarks/static_links.py --data cora --methods gcn --seeds 0 --plain

Splits are those of --split.number 0, 1, 2, ...: 85/5/10. --plain trains without structural features (only the dot
product of two embeddings), and compares with a loop of torch-geometric's two GCNConv layers on the same split, links,
number of negatives (torch-geometric's own negative_sampling), loss, width, dropout, rate, epochs and validation
frequency, without early stopping, evaluated by the same code. Networks and negatives differ: our blocks
are residual with LayerNorm, with a linear map before and after them, and our negatives share an endpoint with their
link.
"""

from __future__ import annotations

import argparse
import tempfile
from functools import partial
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import hopstate
from common import machine, require_green
from hopstate.evaluation.static_link import link_metrics
from hopstate.runs.load import load_run
from hopstate.training.tasks.static_link import StaticLinkTask

EPOCHS, EVERY, RATE, DIM, DROP, OTHERS = 200, 10, 3e-3, 128, 0.5, 20
PLAIN = {
    "link.structural_features": False,
    "link.num_negatives": OTHERS,
    "link.dim": DIM,
    "model.dim": DIM,
    "model.dropout": DROP,
    "loop.optim.lr": RATE,
    "loop.epochs": EPOCHS,
    "loop.eval_every": EVERY,
    "loop.patience": None,
}


class Convolutions(nn.Module):
    """Two of torch-geometric's GCNConv layers, as its examples have them."""

    def __init__(self, width: int) -> None:
        from torch_geometric.nn import GCNConv

        super().__init__()
        self.first, self.second = GCNConv(width, DIM), GCNConv(DIM, DIM)

    def forward(self, x: Tensor, edges: Tensor) -> Tensor:
        """Return (N, DIM) vectors."""
        hidden = F.dropout(F.relu(self.first(x, edges)), DROP, self.training)
        return self.second(hidden, edges)


def their_loop(task: StaticLinkTask, seed: int) -> dict[str, float]:
    """Return test metrics of a torch-geometric loop over the split of a task, chosen on validation."""
    from torch_geometric.utils import negative_sampling

    torch.manual_seed(seed)
    graph = task.messages
    assert graph.x is not None
    x, edges = torch.tensor(graph.x), torch.from_numpy(graph.edge_index())
    links = torch.from_numpy(task.split.pairs["train"])
    model = Convolutions(x.shape[1])
    optimizer = torch.optim.Adam(model.parameters(), RATE)
    best, kept = -1.0, {}
    for epoch in range(1, EPOCHS + 1):
        model.train()
        z = model(x, edges)
        drawn = negative_sampling(edges, len(x), OTHERS * len(links))
        scores = (z[drawn[0]] * z[drawn[1]]).sum(-1)
        scores = scores[: len(scores) // len(links) * len(links)].view(len(links), -1)
        found = (z[links[:, 0]] * z[links[:, 1]]).sum(-1)
        loss = (torch.cat([found[:, None], scores], 1).logsumexp(1) - found).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if epoch % EVERY == 0:
            model.eval()
            with torch.no_grad():
                z = model(x, edges)
            value, test = (link_metrics(task.question(part), partial(dots, z)) for part in ("val", "test"))
            if value["mrr"] > best:
                best, kept = value["mrr"], test
    return kept


def dots(z: Tensor, u: np.ndarray, v: np.ndarray) -> np.ndarray:
    """Return (n,) dot products of rows."""
    parts = range(0, len(u), 1 << 16)
    return np.concatenate(
        [(z[torch.from_numpy(u[i : i + (1 << 16)])] * z[torch.from_numpy(v[i : i + (1 << 16)])]).sum(-1) for i in parts]
    )


def main() -> None:
    """Print a line a run."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", default="cora")
    parser.add_argument("--methods", default="gcn")
    parser.add_argument("--seeds", default="0,1,2")
    parser.add_argument("--epochs", type=int, help="at most (default: automatic)")
    parser.add_argument("--plain", action="store_true")
    options = parser.parse_args()
    require_green("tests/evaluation/test_static_link.py")
    print(machine())
    plain = (PLAIN if options.plain else {}) | ({} if options.epochs is None else {"loop.epochs": options.epochs})
    for method in options.methods.split(","):
        for seed in map(int, options.seeds.split(",")):
            with tempfile.TemporaryDirectory() as folder:
                settings = {"loop.progress": False, "loop.seed": seed, "split.number": seed, **plain}
                run = hopstate.fit(method, options.data, out=Path(folder) / "run", task="link", **settings)
                baselines = ", ".join(f"{name} {100 * found['mrr']:.2f}" for name, found in run.baselines.items())
                print(
                    f"{method} {options.data} split {seed}: {100 * run.metrics['test']['mrr']:.2f}; {baselines}",
                    flush=True,
                )
                if options.plain:
                    with load_run(run.path) as (_, task):
                        theirs = their_loop(task, seed)
                    print(f"torch-geometric, split {seed}: {100 * theirs['mrr']:.2f}", flush=True)


if __name__ == "__main__":
    main()
