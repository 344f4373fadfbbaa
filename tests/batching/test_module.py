import numpy as np
import pytest
import torch
from torch import nn
from torch_geometric import nn as gnn

from hopstate.batching.module import top
from hopstate.batching.top import TopConfig
from hopstate.data.graph import Graph
from hopstate.errors import ConfigError
from hopstate.testing.asserts import relative_rmse

GRAPH = Graph.from_edges(
    np.random.default_rng(0).integers(0, 60, (150, 2)),
    60,
    self_loops="drop",
    x=np.random.default_rng(1).standard_normal((60, 5)).astype(np.float32),
)
DEGREES = torch.bincount(torch.from_numpy(np.array(GRAPH.degree)))
MODELS = {
    "GCN": lambda: gnn.GCN(5, 8, 2, 3),
    "GCN without loops": lambda: gnn.GCN(5, 8, 2, 3, add_self_loops=False),
    "GAT": lambda: gnn.GAT(5, 8, 2, 3, heads=2),
    "GATv2": lambda: gnn.GAT(5, 8, 2, 3, v2=True),
    "SAGE max": lambda: gnn.GraphSAGE(5, 8, 2, 3, aggr="max"),
    "GIN": lambda: gnn.GIN(5, 8, 2, 3),
    "PNA": lambda: gnn.PNA(
        5, 8, 2, 3, aggregators=["mean", "min", "max", "std"], scalers=["identity", "amplification"], deg=DEGREES
    ),
    "Transformer": lambda: gnn.Sequential(
        "x, e", [(gnn.TransformerConv(5, 8), "x, e -> x"), (nn.Linear(8, 3), "x -> x")]
    ),
    "GCN2": lambda: gnn.Sequential(
        "x, e", [(gnn.GCN2Conv(5, 0.1, 0.5, 1), "x, x, e -> x"), (nn.Linear(5, 3), "x -> x")]
    ),
}


def edges() -> torch.Tensor:
    return torch.from_numpy(GRAPH.edge_index()[::-1].copy())


@pytest.mark.parametrize("name", MODELS)
def test_models_run_unchanged_and_are_exact_on_all_nodes(name: str) -> None:
    model = MODELS[name]().eval()
    topped = top(model, GRAPH, TopConfig(ridge=0.0))
    x, nodes = torch.tensor(GRAPH.x), np.random.default_rng(2).permutation(60)
    full = model(x, edges())
    rows = torch.from_numpy(nodes)
    assert relative_rmse(topped(x[rows], topped.batch(nodes)), full[rows]) < 1e-5
    assert relative_rmse(model(x, edges()), full) == 0.0  # nothing is left on the model


@pytest.mark.parametrize("name", MODELS)
def test_random_weights_are_exact_where_the_basis_holds_them(name: str) -> None:
    """With a basis of the model's own embeddings and enough nodes in the batch, nothing is approximate."""
    model = MODELS[name]().eval()
    topped = top(model, GRAPH, TopConfig(ridge=0.0))
    x, nodes = torch.tensor(GRAPH.x), np.arange(0, 60)[np.arange(60) % 4 > 0]
    for p in model.parameters():
        p.data.mul_(1.5)
    topped.refresh()
    assert all(basis.values.shape[1] < len(nodes) for basis in topped.compensation.bases)
    full = model(x, edges())[torch.from_numpy(nodes)]
    batch = topped.batch(nodes)
    assert relative_rmse(topped(x[nodes], batch), full) < 5e-3
    for missing in batch.missing:
        missing.left.zero_()
    assert relative_rmse(topped(x[nodes], batch), full) > 2e-2


def test_gradients_reach_every_weight() -> None:
    model = MODELS["GAT"]()
    topped = top(model, GRAPH)
    topped(torch.tensor(GRAPH.x)[:30], topped.batch(np.arange(30))).square().sum().backward()
    assert all(p.grad is not None and torch.isfinite(p.grad).all() for p in model.parameters())


def test_layers_of_several_passes_are_named() -> None:
    model = gnn.Sequential("x, e", [(gnn.TAGConv(5, 3, K=2), "x, e -> x")])
    topped = top(model, GRAPH)
    with pytest.raises(ConfigError, match="TAGConv passes messages 2 times"):
        topped(torch.tensor(GRAPH.x)[:30], topped.batch(np.arange(30)))
