"""A custom backbone: one registered class works with every command."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from torch import nn
from torch_geometric.nn import GraphConv

from hopstate.data.graph import Graph
from hopstate.layers.message import Normalization
from hopstate.methods.message_passing.backbones import BACKBONES, Convolution, LayerSpec
from hopstate.methods.message_passing.method import backbone_method
from hopstate.runs.run import fit

SETTINGS = {"model.dim": 8, "loop.epochs": 40, "loop.progress": False, "loop.optim.lr": 0.01}


class GraphConvBackbone(Convolution):
    name = "graphconv"
    summary = "W_1 x_i + W_2 mean_j x_j"
    source = "arXiv:1810.02244"
    normalization: Normalization | None = "mean"

    def layer(self, spec: LayerSpec) -> nn.Module:
        return GraphConv(spec.in_dim, spec.config.dim)


METHOD = None


@pytest.fixture
def method(monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setitem(BACKBONES, "graphconv", GraphConvBackbone())
    monkeypatch.setattr(f"{__name__}.METHOD", backbone_method("graphconv"))
    return f"{__name__}:METHOD"


def graph(n: int = 200) -> Graph:
    """Return a graph whose classes are the sign of the sum of the neighbors' first features."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(n, 2)).astype(np.float32)
    plain = Graph.from_edges(rng.integers(0, n, (3 * n, 2)), n, x=x, undirected=True)
    sources, targets = plain.edge_index()
    y = (np.bincount(targets, x[sources, 0], n) > 0).astype(np.int64)
    where = rng.permutation(n) % 4
    return plain.with_(y=y, masks={"train": where < 2, "val": where == 2, "test": where == 3}, name="near")


@pytest.mark.parametrize("batching", ["full", "cluster", "top", "neighbor", "gas"])
@pytest.mark.parametrize("settings", [{"block": "ffn"}, {"block": "conv", "pre_linear": False}], ids=str)
def test_a_registered_backbone_trains(method: str, batching: str, settings: dict[str, Any], tmp_path: Path) -> None:
    more = {"batching.kind": batching, "batching.num_clusters": 4, "batching.clusters_per_batch": 2}
    more |= {"model.num_layers": 2, "batching.partitioner": "bisection"}
    more |= {f"model.{name}": value for name, value in settings.items()}
    run = fit(method, graph(), out=tmp_path / "run", config={**SETTINGS, **more})
    assert run.metrics["test"]["accuracy"] > 0.7
