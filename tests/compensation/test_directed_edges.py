"""Directed, weighted and featured edges behave as in torch-geometric, on full graphs and in every batch."""

import itertools
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch_geometric import nn as gnn

from hopstate.compensation.gas import GasCache
from hopstate.compensation.top.top import Top, TopConfig
from hopstate.compensation.top.wrapper import top
from hopstate.data.graph import Graph
from hopstate.errors import ConfigError
from hopstate.methods.message_passing.backbones import BACKBONES
from hopstate.methods.message_passing.model import Backbone
from hopstate.sampling.samplers import ClusterSampler, LayerSampler, ShadowSampler, UniformSampler
from hopstate.sampling.subgraph import (
    LayerSource,
    NodeSetSource,
    ShadowSource,
    all_features,
    full_graph,
    row_blocks,
)
from hopstate.testing.conformance import relative_rmse

KINDS = ["gcn", "sage", "gin", "gat", "pna", "gcnii"]
CARRIED = [(kind, "nothing") for kind in KINDS]
CARRIED += [(kind, BACKBONES[kind].edges) for kind in KINDS if BACKBONES[kind].edges != "none"]
N = 40


def directed(carry: str = "nothing", seed: int = 0, order: np.random.Generator | None = None) -> Graph:
    """Edges one way only, none twice, no self-loops; some nodes receive nothing, some send nothing."""
    rng = np.random.default_rng(seed)
    ends = rng.integers(0, N, (160, 2))
    ends[:, 1] = np.where(ends[:, 1] < 4, 7, ends[:, 1])  # the first nodes receive nothing
    ends = np.unique(ends[ends[:, 0] != ends[:, 1]], axis=0)
    weight, attr = rng.random(len(ends)) * 3, rng.standard_normal((len(ends), 2))
    x = rng.standard_normal((N, 5)).astype(np.float32)
    place = np.arange(len(ends)) if order is None else order.permutation(len(ends))
    carried = {"weights": {"edge_weight": weight[place]}, "features": {"edge_attr": attr[place]}}
    return Graph.from_edges(ends[place], N, undirected=False, x=x, name="one way", **carried.get(carry, {}))


def backbone(graph: Graph, kind: str, layers: int = 2) -> Backbone:
    torch.manual_seed(1)
    config = Backbone.Config(dim=8, num_layers=layers, dropout=0.0, heads=2)
    edge_dim = 0 if graph.edge_attr is None else graph.edge_attr.shape[1]
    degrees = torch.tensor(graph.incoming.count)
    return Backbone(config, kind=kind, in_dim=5, num_classes=3, degrees=degrees, edge_dim=edge_dim).eval()


def given(graph: Graph) -> dict[str, Tensor]:
    """The edge inputs of torch-geometric's layers."""
    found = {"edge_weight": graph.edge_weight, "edge_attr": graph.edge_attr}
    return {name: torch.tensor(array) for name, array in found.items() if array is not None}


def reference(graph: Graph, model: Backbone, kind: str) -> Tensor:
    """The model with torch-geometric's own layers, which receive the edge list and normalise it themselves."""
    edges, x, first = torch.tensor(graph.edge_index()), torch.tensor(graph.x), None
    x = model.embed(x)
    first = x
    for number, block in enumerate(model.blocks):
        if kind == "gcn":
            conv: nn.Module = gnn.GCNConv(8, 8)
        elif kind == "sage":
            conv = gnn.SAGEConv(8, 8)
        elif kind == "gcnii":
            conv = gnn.GCN2Conv(8, 0.1, 0.5, number + 1)
        else:
            conv = block.conv
        conv.load_state_dict(block.conv.state_dict())
        sent = block.sent(x)
        z = conv(sent, first, edges, **given(graph)) if kind == "gcnii" else conv(sent, edges, **given(graph))
        x = block.combined(x, z)
    return model.logits([x])


@pytest.mark.parametrize(("kind", "carry"), CARRIED)
def test_equals_torch_geometrics_own_layers(kind: str, carry: str) -> None:
    graph = directed(carry)
    model = backbone(graph, kind)
    expected = reference(graph, model, kind)
    assert relative_rmse(model(*full_graph(graph)), expected) < 1e-6
    assert relative_rmse(model(*full_graph(directed(carry, order=np.random.default_rng(5)))), expected) < 1e-6
    assert relative_rmse(model(*full_graph(graph.reversed())), expected) > 1e-2
    assert relative_rmse(model(*full_graph(graph.reversed().reversed())), expected) < 1e-6


@pytest.mark.parametrize(("kind", "carry"), [pair for pair in CARRIED if pair[1] != "nothing"])
def test_edge_features_change_the_output(kind: str, carry: str) -> None:
    graph = directed(carry)
    model = backbone(graph, kind)
    flat = {"edge_weight": np.ones_like} if carry == "weights" else {"edge_attr": np.zeros_like}
    other = graph.with_(**{name: make(getattr(graph, name)) for name, make in flat.items()})
    assert relative_rmse(model(*full_graph(other)), model(*full_graph(graph))) > 1e-2


def sources(graph: Graph, model: Backbone) -> dict[str, Callable[[], object]]:
    """Every kind of batch, without missing neighbors."""
    every, train = np.arange(N), np.arange(N)
    uniform = UniformSampler(every, N, seed=0)
    parts = ClusterSampler(np.arange(N) % 4, 4, seed=0)

    def compensated(**settings: object) -> NodeSetSource:
        config = TopConfig(refresh=0, ridge=0.0, rank=200, **settings)  # type: ignore[arg-type]
        made = Top(graph, config, model.normalization, seed=0)
        x, adjacency = full_graph(graph)
        made.prepare(model, made.full_graph_pass(lambda other: other(x, adjacency), adjacency))
        return NodeSetSource(graph, uniform, train, made)

    def histories() -> NodeSetSource:
        return NodeSetSource(graph, uniform, train, GasCache(N, [8, 8]))

    seeds = np.arange(0, N, 3)
    return {
        "cluster": lambda: NodeSetSource(graph, parts, train),
        "gas": histories,
        "top": compensated,
        "top general": lambda: compensated(form="general"),
        "neighbor": lambda: LayerSource(graph, LayerSampler(graph, seeds, 9, (N, N), seed=0)),
        "labor": lambda: LayerSource(graph, LayerSampler(graph, seeds, 9, (N, N), seed=0, labor=True)),
        "shadow": lambda: ShadowSource(graph, ShadowSampler(graph, seeds, 5, seed=0, kind="hops", depth=4, fanout=N)),
    }


@pytest.mark.parametrize(
    ("edges", "name"),
    list(itertools.product(CARRIED, ["cluster", "gas", "top", "top general", "neighbor", "labor"]))[::5],
)
def test_batches_without_missing_neighbors_equal_the_full_graph(edges: tuple[str, str], name: str) -> None:
    kind, carry = edges
    graph = directed(carry)
    model = backbone(graph, kind)
    full, source = model(*full_graph(graph)), sources(graph, model)[name]()
    for number in range(source.num_batches(0)):
        batch = source.batch(0, number)
        out = model(batch.x, batch.graph)
        assert relative_rmse(out, full[torch.from_numpy(batch.nodes)]) < 1e-6


def test_shadow_subgraphs_contain_the_receptive_field_of_seeds() -> None:
    """One node: its degree equals that in the subgraph, which contains its receptive field."""
    graph = directed("features")
    model = backbone(graph, "gat")
    full, source = model(*full_graph(graph)), sources(graph, model)["shadow"]()
    for number in range(source.num_batches(0)):
        batch = source.batch(0, number)
        out = model(batch.x, batch.graph)[batch.rows]
        assert relative_rmse(out, full[torch.from_numpy(batch.nodes)[batch.rows]]) < 1e-6


@pytest.mark.parametrize(("edges", "halo"), list(itertools.product(CARRIED, [False, True]))[::3])
def test_inference_in_blocks_is_exact(edges: tuple[str, str], halo: bool) -> None:
    kind, carry = edges
    graph = directed(carry)
    model = backbone(graph, kind)
    out = model.layerwise(all_features(graph), lambda: row_blocks(graph, 7, halo=halo))
    assert relative_rmse(out, model(*full_graph(graph))) < 1e-6


def test_a_chain_sends_forward_only() -> None:
    """0 -> 1 -> 2 -> 3: after k layers node v depends on the k nodes before it."""
    x = np.random.default_rng(0).standard_normal((4, 5)).astype(np.float32)
    graph = Graph.from_edges(np.array([[0, 1], [1, 2], [2, 3]]), 4, undirected=False, x=x)
    model = backbone(graph, "sage")
    before = model(*full_graph(graph))
    x[0] += 1
    after = model(*full_graph(graph.with_(x=x)))
    assert ((before - after).abs().sum(1) > 1e-4).tolist() == [True, True, True, False]


# ---- any torch-geometric model under `top` ----------------------------------------------------------------
def wrapped(graph: Graph, layer: Callable[[], nn.Module], edge: str = "") -> nn.Module:
    names = f"x, e{', ' + edge if edge else ''}"
    return gnn.Sequential(names, [(layer(), f"{names} -> x"), nn.ReLU(), (nn.Linear(8, 3), "x -> x")]).eval()


def degrees() -> Tensor:
    return torch.bincount(torch.tensor(directed().incoming.count))


PNA = {"aggregators": ["mean", "max", "std"], "scalers": ["identity", "amplification"]}
MODELS: dict[str, tuple[str, Callable[[Graph], nn.Module]]] = {
    "GCN": ("nothing", lambda g: gnn.GCN(5, 8, 2, 3)),
    "GraphSAGE": ("nothing", lambda g: gnn.GraphSAGE(5, 8, 2, 3)),
    "GAT": ("nothing", lambda g: gnn.GAT(5, 8, 2, 3, heads=2)),
    "PNA": ("nothing", lambda g: gnn.PNA(5, 8, 2, 3, deg=degrees(), **PNA)),
    "GCN weighted": ("weights", lambda g: gnn.GCN(5, 8, 2, 3)),
    "ChebConv weighted": ("weights", lambda g: wrapped(g, lambda: gnn.ChebConv(5, 8, K=2), "edge_weight")),
    "GraphConv weighted": ("weights", lambda g: wrapped(g, lambda: gnn.GraphConv(5, 8), "edge_weight")),
    "GAT features": ("features", lambda g: gnn.GAT(5, 8, 2, 3, heads=2, edge_dim=2)),
    "GATv2 features": ("features", lambda g: gnn.GAT(5, 8, 2, 3, v2=True, edge_dim=2)),
    "PNA features": ("features", lambda g: gnn.PNA(5, 8, 2, 3, deg=degrees(), edge_dim=2, **PNA)),
    "GINE features": ("features", lambda g: wrapped(g, lambda: gnn.GINEConv(nn.Linear(5, 8), edge_dim=2), "edge_attr")),
    "Transformer": ("features", lambda g: wrapped(g, lambda: gnn.TransformerConv(5, 8, edge_dim=2), "edge_attr")),
}  # fmt: skip


@pytest.mark.parametrize("name", MODELS)
def test_top_equals_the_model_on_all_nodes_and_is_close_on_most(name: str) -> None:
    carry, make = MODELS[name]
    graph = directed(carry)
    torch.manual_seed(0)
    model = make(graph).eval()
    topped = top(model, graph, TopConfig(ridge=0.0))
    x, edges = torch.tensor(graph.x), torch.tensor(graph.edge_index())
    full = model(x, edges, **given(graph))
    nodes = np.random.default_rng(2).permutation(N)
    assert relative_rmse(topped(x[nodes], topped.batch(nodes)), full[torch.from_numpy(nodes)]) < 1e-6
    most = np.sort(nodes[:30])
    assert relative_rmse(topped(x[most], topped.batch(most)), full[torch.from_numpy(most)]) < 5e-3
    assert relative_rmse(model(x, edges.flip(0), **given(graph)), full) > 1e-2


def test_top_names_unsupported_edge_data() -> None:
    weighted, featured = directed("weights"), directed("features")
    with pytest.raises(ConfigError, match="GraphSAGE"):
        top(gnn.GraphSAGE(5, 8, 2, 3), weighted)
    with pytest.raises(ConfigError, match="GCN"):
        top(gnn.GCN(5, 8, 2, 3), featured)
    with pytest.raises(ConfigError, match="Sequential"):
        top(wrapped(weighted, lambda: gnn.GCNConv(5, 8)), weighted)
    with pytest.raises(ConfigError, match="Sequential"):
        top(wrapped(weighted, lambda: gnn.GCNConv(5, 8)), weighted, call=None)
    with pytest.raises(ConfigError):
        top(gnn.GCN(5, 8, 2, 3), weighted, call=lambda model, x, e: model(x, e))
    top(gnn.GCN(5, 8, 2, 3), weighted, call=lambda model, x, e, edge_weight: model(x, e, edge_weight))


EDGE_READERS: dict[str, Callable[..., nn.Module]] = {
    "GAT": lambda **edge_dim: gnn.GAT(5, 8, 2, 3, **edge_dim),
    "GATv2": lambda **edge_dim: gnn.GAT(5, 8, 2, 3, v2=True, **edge_dim),
    "PNA": lambda **edge_dim: gnn.PNA(5, 8, 2, 3, deg=degrees(), **PNA, **edge_dim),
    "GATv2Conv": lambda **edge_dim: gnn.GATv2Conv(5, 3, **edge_dim),
    "PNAConv": lambda **edge_dim: gnn.PNAConv(5, 3, deg=degrees(), **PNA, **edge_dim),
}


@pytest.mark.parametrize("name", EDGE_READERS)
def test_weights_are_features_if_layers_read_them_and_otherwise_rejected(name: str) -> None:
    graph = directed("weights")
    with pytest.raises(ConfigError, match="edge weights"):
        top(EDGE_READERS[name](), graph)
    model = EDGE_READERS[name](edge_dim=1).eval()
    topped, x, nodes = top(model, graph, TopConfig(ridge=0.0)), torch.tensor(graph.x), np.arange(N)
    full = model(x, torch.tensor(graph.edge_index()), edge_attr=torch.tensor(graph.edge_weight)[:, None])
    assert relative_rmse(topped(x, topped.batch(nodes)), full) < 1e-6


def test_one_feature_column_serves_as_edge_weights() -> None:
    weighted = directed("weights")
    graph = weighted.with_(edge_attr=weighted.edge_weight[:, None], edge_weight=None)
    model = gnn.GCN(5, 8, 2, 3).eval()
    topped, x, nodes = top(model, graph, TopConfig(ridge=0.0)), torch.tensor(graph.x), np.arange(N)
    full = model(x, torch.tensor(weighted.edge_index()), torch.tensor(weighted.edge_weight))
    assert relative_rmse(topped(x, topped.batch(nodes)), full) < 1e-6


def test_weights_that_differ_from_the_graphs_are_rejected() -> None:
    graph = directed("weights")
    with pytest.raises(ConfigError):
        top(gnn.GCN(5, 8, 2, 3), graph, call=lambda model, x, e, edge_weight: model(x, e, edge_weight**2))


@pytest.mark.parametrize("kind", KINDS)
def test_a_backbone_without_edge_features_rejects_them(kind: str) -> None:
    plain = backbone(directed(), kind)
    for carry in ("weights", "features"):
        if carry == "weights" and BACKBONES[kind].edges == "weights":
            continue
        with pytest.raises(ConfigError, match=carry):
            plain(*full_graph(directed(carry)))
    if BACKBONES[kind].edges != "features":
        with pytest.raises(ConfigError, match=kind):
            Backbone(replace(plain.config), kind=kind, in_dim=5, num_classes=3, edge_dim=2)
