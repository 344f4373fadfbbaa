import itertools
from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import nn
from torch_geometric import nn as gnn
from torch_geometric.nn.conv.gcn_conv import gcn_norm as normalise
from torch_geometric.utils import degree

from hopstate.compensation.top.top import TopConfig
from hopstate.compensation.top.wrapper import top
from hopstate.data.graph import Graph
from hopstate.errors import ConfigError
from hopstate.testing.conformance import relative_rmse

GRAPH = Graph.from_edges(
    np.random.default_rng(0).integers(0, 60, (150, 2)),
    60,
    self_loops="drop",
    x=np.random.default_rng(1).standard_normal((60, 5)).astype(np.float32),
)
LOOPS = Graph.from_edges(
    np.concatenate([np.random.default_rng(0).integers(0, 60, (150, 2)), np.arange(60)[::3, None].repeat(2, 1)]),
    60,
    x=GRAPH.x,
)
GRAPHS = {"no loops": GRAPH, "loops": LOOPS}
DEGREES = torch.bincount(torch.from_numpy(np.array(GRAPH.degree)))


def one(conv: Callable[[], nn.Module], width: int = 8, given: str = "x, e -> x") -> Callable[[], nn.Module]:
    return lambda: gnn.Sequential("x, e", [(conv(), given), (nn.Linear(width, 3), "x -> x")])


class Tutorial(gnn.MessagePassing):
    """A layer that normalises by its own code, as torch-geometric's tutorial does."""

    def __init__(self) -> None:
        super().__init__(aggr="add")
        self.lin = nn.Linear(5, 3)

    def forward(self, x: torch.Tensor, edge_index: torch.Tensor) -> torch.Tensor:
        scale = degree(edge_index[1], len(x)).clamp_min(1).rsqrt()
        return self.propagate(edge_index, x=self.lin(x), norm=scale[edge_index[0]] * scale[edge_index[1]])

    def message(self, x_j: torch.Tensor, norm: torch.Tensor) -> torch.Tensor:
        return norm[:, None] * x_j


class Renamed(Tutorial):
    """... by torch-geometric's function, under another name."""

    def forward(self, x: torch.Tensor, edge_index: torch.Tensor) -> torch.Tensor:
        edge_index, norm = normalise(edge_index, None, len(x), dtype=x.dtype)
        return self.propagate(edge_index, x=self.lin(x), norm=norm)


class Twice(gnn.GCNConv):
    """A layer with normalisation in its base class."""

    def forward(self, x: torch.Tensor, edge_index: torch.Tensor) -> torch.Tensor:
        return 2 * super().forward(x, edge_index)


NORMALISING = {
    "GCNConv": one(lambda: gnn.GCNConv(5, 8)),
    "GCNConv cached": one(lambda: gnn.GCNConv(5, 8, cached=True)),
    "GCNConv improved": one(lambda: gnn.GCNConv(5, 8, improved=True)),
    "EGConv": one(lambda: gnn.EGConv(5, 8, aggregators=["symnorm", "max"], num_heads=4)),
    "SGConv": one(lambda: gnn.SGConv(5, 8, K=1)),
    "SSGConv": one(lambda: gnn.SSGConv(5, 8, alpha=0.1, K=1)),
    "TAGConv": one(lambda: gnn.TAGConv(5, 8, K=1)),
    "LGConv": one(gnn.LGConv, 5),
    "MixHopConv": one(lambda: gnn.MixHopConv(5, 8, powers=[0, 1]), 16),
    "ChebConv": one(lambda: gnn.ChebConv(5, 8, K=2)),
    "ChebConv rw": one(lambda: gnn.ChebConv(5, 8, K=2, normalization="rw")),
    "ClusterGCNConv": one(lambda: gnn.ClusterGCNConv(5, 8)),
    "APPNP": one(lambda: gnn.APPNP(1, 0.1), 5),
    "PDNConv": one(lambda: gnn.PDNConv(5, 8, 1, 1)),
    "GCN2Conv": one(lambda: gnn.GCN2Conv(5, 0.1, 0.5, 1), 5, "x, x, e -> x"),
    "FAConv": one(lambda: gnn.FAConv(5), 5, "x, x, e -> x"),
    "AntiSymmetricConv": one(lambda: gnn.AntiSymmetricConv(5), 5),
    "a layer of one's own": one(Renamed, 3),
}
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


def edges(graph: Graph = GRAPH) -> torch.Tensor:
    return torch.from_numpy(graph.edge_index()[::-1].copy())


@pytest.mark.parametrize("name", MODELS)
def test_models_run_unchanged_and_are_exact_on_all_nodes(name: str) -> None:
    model = MODELS[name]().eval()
    topped = top(model, GRAPH, TopConfig(ridge=0.0))
    x, nodes = torch.tensor(GRAPH.x), np.random.default_rng(2).permutation(60)
    full = model(x, edges())
    rows = torch.from_numpy(nodes)
    assert relative_rmse(topped(x[rows], topped.batch(nodes)), full[rows]) < 1e-5
    assert relative_rmse(model(x, edges()), full) < 1e-6  # nothing is left on the model


@pytest.mark.parametrize("name", MODELS)
def test_random_weights_are_exact_where_the_basis_holds_them(name: str) -> None:
    """With a basis of the model's own embeddings and enough nodes in the batch, the result is exact."""
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


@pytest.mark.parametrize(("name", "loops"), list(zip(NORMALISING, itertools.cycle(GRAPHS))))
def test_layers_that_normalise_have_the_weights_of_the_whole_graph(name: str, loops: str) -> None:
    graph, model = GRAPHS[loops], NORMALISING[name]().eval()
    topped = top(model, graph, TopConfig(ridge=0.0))
    x = torch.tensor(graph.x)
    full = model(x, edges(graph))
    before = [(list(vars(module)), getattr(module, "cached", None)) for module in model.modules()]
    some = np.random.default_rng(3).permutation(60)[:45]
    for nodes in (np.arange(60), some):
        batch = topped.batch(nodes)
        assert relative_rmse(topped(x[nodes], batch), full[torch.from_numpy(nodes)]) < 2e-6
    assert [(list(vars(module)), getattr(module, "cached", None)) for module in model.modules()] == before
    assert relative_rmse(model(x, edges(graph)), full) < 1e-6
    for missing in batch.missing:
        missing.left.zero_()
    assert relative_rmse(topped(x[some], batch), full[torch.from_numpy(some)]) > 1e-3


def test_parallel_edges_and_gradients_are_those_of_the_whole_graph() -> None:
    ends = np.random.default_rng(0).integers(0, 60, (100, 2))
    graph = Graph.from_edges(np.concatenate([ends, ends[:40]]), 60, x=GRAPH.x, duplicates="keep")
    model, nodes = gnn.GCNConv(5, 3), np.arange(60)[np.arange(60) % 4 > 0]
    topped = top(model, graph, TopConfig(ridge=0.0))
    x, found = torch.tensor(graph.x), []
    for out in (model(x, edges(graph))[nodes], topped(x[nodes], topped.batch(nodes))):
        model.zero_grad()
        out.square().sum().backward()
        found.append(model.lin.weight.grad.clone())
    assert relative_rmse(found[1], found[0]) < 1e-5


@pytest.mark.parametrize(
    ("make", "named", "loops"),
    [
        (Tutorial, "Tutorial", "loops"),
        (lambda: Twice(5, 3), "Twice", "no loops"),
        (lambda: gnn.ChebConv(5, 3, K=2, normalization=None), "ChebConv", "loops"),
        (lambda: gnn.SAGEConv(5, 3, aggr="lstm"), "SAGEConv", "no loops"),  # padded to the most neighbors
        (lambda: gnn.GCNConv(5, 3, flow="target_to_source"), "GCNConv", "loops"),
    ],
)
def test_layers_that_cannot_be_exact_are_named(make: Callable[[], nn.Module], named: str, loops: str) -> None:
    with pytest.raises(ConfigError, match=named):
        top(make(), GRAPHS[loops])


def test_edge_weights_given_to_a_layer_are_rejected() -> None:
    def weighted(model: nn.Module, x: torch.Tensor, e: torch.Tensor) -> torch.Tensor:
        return model(x, e, torch.ones(e.shape[1]))

    with pytest.raises(ConfigError, match="GCNConv"):
        top(gnn.GCNConv(5, 3), GRAPH, call=weighted)
    with pytest.raises(ConfigError, match="GCNConv"):
        top(gnn.GCNConv(5, 3), GRAPH, call=lambda model, x, e: model(x, e[:, ::2]))


def test_other_models_normalise_as_usual_while_a_batch_runs() -> None:
    graph, model = GRAPH, gnn.GCN(5, 8, 2, 3).eval()
    topped, other, x = top(model, graph), gnn.GCN(5, 8, 2, 3).eval(), torch.tensor(GRAPH.x)
    nodes = np.arange(30)
    batch, full = topped.batch(nodes), other(x, edges())
    found: list[torch.Tensor] = []
    handle = model.convs[1].register_propagate_forward_pre_hook(lambda *_: found.append(other(x, edges())))
    topped(x[nodes], batch)
    handle.remove()
    torch.testing.assert_close(found[0], full)


def test_settings_do_not_depend_on_the_form() -> None:
    model, nodes, x = gnn.GCN(5, 8, 2, 3).eval(), np.arange(30), torch.tensor(GRAPH.x)
    found = []
    for form in ("general", "linear", "auto"):
        topped = top(model, GRAPH, TopConfig(form=form))
        found.append(topped(x[nodes], topped.batch(nodes)))
    torch.testing.assert_close(found[0], found[1])
    torch.testing.assert_close(found[0], found[2])


def test_gradients_reach_every_weight() -> None:
    model = MODELS["GAT"]()
    topped = top(model, GRAPH)
    topped(torch.tensor(GRAPH.x)[:30], topped.batch(np.arange(30))).square().sum().backward()
    assert all(p.grad is not None and torch.isfinite(p.grad).all() for p in model.parameters())


@pytest.mark.parametrize(
    "make", [lambda: gnn.TAGConv(5, 3, K=2), lambda: gnn.MixHopConv(5, 3), lambda: gnn.APPNP(2, 0)]
)
def test_layers_of_several_passes_are_named(make: Callable[[], nn.Module]) -> None:
    model = gnn.Sequential("x, e", [(make(), "x, e -> x"), (nn.LazyLinear(3), "x -> x")])
    model(torch.tensor(GRAPH.x), edges())
    with pytest.raises(ConfigError):
        top(model, GRAPH)


class Attention(nn.Module):
    """Attention over all nodes by a function, scaled by a gate."""

    def __init__(self, gate: float = 1.0) -> None:
        super().__init__()
        self.gate = nn.Parameter(torch.tensor(gate))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.gate * torch.softmax(x @ x.T, 1) @ x


class SelfAttention(nn.MultiheadAttention):
    def forward(self, x: torch.Tensor) -> torch.Tensor:  # type: ignore[override]
        return super().forward(x, x, x)[0]


class NodeTable(nn.Module):
    def __init__(self, *, by_id: bool) -> None:
        super().__init__()
        self.table, self.conv, self.by_id = nn.Embedding(100, 5), gnn.SAGEConv(5, 3), by_id

    def forward(self, x: torch.Tensor, edge_index: torch.Tensor) -> torch.Tensor:
        ids = torch.arange(len(x)) if self.by_id else torch.arange(100)
        return self.conv(x + self.table(ids), edge_index)


class Positions(nn.Module):
    """A layer that reads two different inputs of neighbors."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.conv = gnn.SAGEConv(5, 5), gnn.PointTransformerConv(5, 8)

    def forward(self, x: torch.Tensor, edge_index: torch.Tensor) -> torch.Tensor:
        return self.conv(self.first(x, edge_index).tanh(), x[:, :3], edge_index)


class Jumps(nn.Module):
    """A layer that reads a sequence of vectors per node."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = gnn.DNAConv(5)

    def forward(self, x: torch.Tensor, edge_index: torch.Tensor) -> torch.Tensor:
        return self.conv(torch.stack([x, x.tanh()], 1), edge_index)


def between(module: nn.Module, given: str = "x -> x") -> nn.Module:
    first, last = gnn.SAGEConv(5, 8), gnn.SAGEConv(8, 3)
    return gnn.Sequential("x, e", [(first, "x, e -> x"), nn.Tanh(), (module, given), (last, "x, e -> x")])


MIXING: dict[str, tuple[Callable[[], nn.Module], str]] = {
    "GPSConv": (lambda: between(gnn.GPSConv(8, gnn.GCNConv(8, 8), heads=2), "x, e -> x"), "GPSConv"),
    "attention": (lambda: between(SelfAttention(8, 2)), "SelfAttention"),
    "transformer layer": (lambda: between(nn.TransformerEncoderLayer(8, 2)), "MultiheadAttention"),
    "attention by a function": (lambda: between(Attention()), "Attention"),
    "closed gate": (lambda: between(Attention(0.0)), "Attention"),
    "attention at the end": (lambda: gnn.Sequential("x, e", [(gnn.SAGEConv(5, 3), "x, e -> x"), Attention()]), "Atten"),
    "PMLP": (lambda: gnn.PMLP(5, 8, 3, 3), r"norm \(BatchNorm1d\)"),
    "GraphUNet": (lambda: gnn.GraphUNet(5, 8, 3, 2), "GraphUNet"),
    "GraphNorm": (lambda: between(gnn.GraphNorm(8)), "GraphNorm"),
    "LayerNorm": (lambda: gnn.GCN(5, 8, 3, 3, norm="LayerNorm"), r"norms.0 \(LayerNorm\)"),
    "GraphSizeNorm": (lambda: between(gnn.GraphSizeNorm()), "GraphSizeNorm"),
    "table": (lambda: NodeTable(by_id=False), "NodeTable"),
    "table by row": (lambda: NodeTable(by_id=True), "NodeTable"),
    "LINKX": (lambda: gnn.LINKX(60, 5, 8, 3, 2), "SparseLinear"),
    "random": (lambda: between(gnn.DeepGraphInfomax(8, nn.Dropout(), torch.mean, torch.clone)), "DeepGraphInfomax"),
    "readout": (lambda: gnn.Sequential("x, e", [(gnn.SAGEConv(5, 3), "x, e -> x"), lambda x: x.mean(0)]), "Sequential"),
    "layer without rows": (lambda: between(gnn.WLConv(), "x, e -> x"), "WLConv"),
}
EXACT: dict[str, Callable[[], nn.Module]] = {
    "PMLP": lambda: gnn.PMLP(5, 8, 3, 3, norm=False),
    "positions": Positions,
    "sequences": Jumps,
    "two passes of the same input": lambda: gnn.Sequential("x, e", [(gnn.SignedConv(5, 4, True), "x, e, e -> x")]),
    "no parameters": gnn.LGConv,
    "norms of rows": lambda: gnn.GCN(5, 8, 3, 3, norm="layer_norm", norm_kwargs={"mode": "node"}),
    "batch norm": lambda: gnn.GCN(5, 8, 3, 3, norm="batch_norm", jk="lstm"),
}


@pytest.mark.parametrize("name", MIXING)
def test_modules_that_mix_nodes_are_named(name: str) -> None:
    make, named = MIXING[name]
    torch.manual_seed(0)
    with pytest.raises(ConfigError, match=named):
        top(make(), GRAPH)


@pytest.mark.parametrize("name", EXACT)
def test_row_wise_modules_equal_the_full_model(name: str) -> None:
    torch.manual_seed(0)
    model = EXACT[name]().eval()
    topped, x = top(model, GRAPH, TopConfig(ridge=0.0)), torch.tensor(GRAPH.x)
    nodes = np.random.default_rng(2).permutation(60)[:45]
    full = model(x, edges())[torch.from_numpy(nodes)]
    assert relative_rmse(topped(x[nodes], topped.batch(nodes)), full) < 5e-3


def test_a_refresh_names_modules_that_mix_nodes() -> None:
    model = gnn.Polynormer(5, 8, 3).eval()
    topped = top(model, GRAPH, call=lambda model, x, e: model(x, e, torch.zeros(len(x), dtype=torch.long)))
    topped.refresh()
    model._global = True
    with pytest.raises(ConfigError, match="Polynormer"):
        topped.refresh()


def test_a_model_that_caches_its_last_output_is_refreshed() -> None:
    model = gnn.SuperGATConv(5, 3)
    topped = top(model, GRAPH)
    x = torch.tensor(GRAPH.x)[:30]
    model.last = topped(x, topped.batch(np.arange(30)))
    topped.refresh()
    torch.testing.assert_close(topped(x, topped.batch(np.arange(30))), model.last)  # its weights are the same
