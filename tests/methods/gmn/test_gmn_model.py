"""The network as a whole: conformance, permutation, variants, and pairs of graphs that 3-WL cannot distinguish."""

from dataclasses import replace
from itertools import product

import networkx as nx
import numpy as np
import pytest
import torch

from hopstate.data.graph import Graph
from hopstate.errors import ConfigError, ShapeError
from hopstate.layers.message import Adjacency
from hopstate.layers.mpnn import WalkEncoder
from hopstate.methods.gmn.batches import token_inputs
from hopstate.methods.gmn.model import GMN, GMNInputs
from hopstate.methods.gmn.orders import node_order
from hopstate.methods.gmn.tokens import WalkSettings, token_order, walk_tokens
from hopstate.ops.rows import bounds_of, ranges
from hopstate.ops.walks import WalkTable
from hopstate.testing.conformance import F32, F32_SUM, F32_TIGHT, ModelCase, check_model

SMALL = {"dim": 8, "expand": 1.0, "state_dim": 4, "mpnn_layers": 2}
M0 = WalkSettings(max_length=0, repeats=1, walks=1)
M2 = WalkSettings(max_length=2, repeats=2, walks=2, window=3)


def inputs_of(graph: Graph, settings: WalkSettings, kind: str = "subgraph", *, seed: int = 0, edges: bool = False):
    extra = {}
    if settings.max_length:
        table, nodes = WalkTable.of(graph.indptr, graph.indices), np.arange(graph.num_nodes)
        tokens = walk_tokens(table, nodes, settings, kind=kind, seed=seed, edges=edges)
        extra = {**token_inputs(tokens), "token_order": token_order(graph.num_nodes, settings, None)}
    key = graph.x[:, 0].astype(np.float64)  # distinct keys
    return GMNInputs(
        x=torch.from_numpy(graph.x.copy()),
        graph=Adjacency.of(graph.indptr, graph.indices),
        edge_attr=torch.from_numpy(graph.edge_attr.copy()) if edges else None,
        order=torch.from_numpy(node_order(key)),
        sequences=torch.tensor([0, graph.num_nodes]),
        **extra,
    )


def example(n: int = 14, extra_edges: int = 20) -> Graph:
    rng = np.random.default_rng(3)
    edges = np.array(nx.gnm_random_graph(n, extra_edges, seed=2).edges()).reshape(-1, 2)
    edges = np.concatenate([edges, edges[:, ::-1]])
    attr = rng.normal(size=(len(edges), 3)).astype(np.float32)
    x = rng.normal(size=(n, 5)).astype(np.float32)
    return Graph.from_edges(edges, n, undirected=False, x=x, edge_attr=attr)


def permuted(inputs: tuple[GMNInputs], order: torch.Tensor) -> tuple[GMNInputs]:
    """Row i becomes old row order[i]; every node keeps its walks."""
    old = inputs[0]
    place = order.argsort()
    k = (len(old.token_offsets) - 1) // len(order)
    indptr, edges = _segments(old.graph.indptr, order)
    graph = Adjacency(indptr, place[old.graph.indices[edges]])
    tokens = (order[:, None] * k + torch.arange(k)).flatten()
    offsets, rows = _segments(old.token_offsets, tokens)
    token_ptr, token_edges = _segments(old.token_graph.indptr, rows)
    new = replace(
        old, x=old.x[order], graph=graph, order=place[old.order],
        edge_attr=None if old.edge_attr is None else old.edge_attr[edges],
        token_offsets=offsets, token_nodes=place[old.token_nodes[rows]],
        token_graph=Adjacency(token_ptr, rows.argsort()[old.token_graph.indices[token_edges]]),
        token_edges=None if old.token_edges is None else edges.argsort()[old.token_edges[token_edges]],
    )  # fmt: skip
    return (new,)


def _segments(offsets: torch.Tensor, which: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    sizes = (offsets[which + 1] - offsets[which]).numpy()
    rows, bounds = ranges(offsets[which].numpy(), sizes), bounds_of(sizes)
    return torch.from_numpy(bounds), torch.from_numpy(rows)


@pytest.mark.parametrize("edges", [False, True])
def test_conformance(edges):
    config = GMN.Config(**SMALL, local="gatedgcn", local_layers=2)
    single_node = Graph.from_edges(np.empty((0, 2), np.int64), 1, x=np.ones((1, 5), np.float32))
    single_node = single_node.with_(edge_attr=np.empty((0, 3), np.float32))
    check_model(
        ModelCase(
            make=lambda: GMN(config, in_dim=5, out_dim=3, edge_dim=3 if edges else 0, tokens=M2.tokens),
            inputs=(inputs_of(example(), M2, edges=edges),),
            permute=permuted,
            one=(inputs_of(single_node, M2, edges=edges),),
        )
    )


def test_tokens_of_one_node_each_are_permutation_equivariant():
    graph = example()
    model = GMN(GMN.Config(**SMALL), in_dim=5, out_dim=2).eval()
    order = np.random.default_rng(0).permutation(14)
    moved = Graph.from_scipy(graph.to_scipy()[order][:, order], x=graph.x[order])
    out = model(inputs_of(graph, M0))
    torch.testing.assert_close(model(inputs_of(moved, M0)), out[torch.from_numpy(order)], rtol=F32_SUM, atol=F32)


VARIANTS = [
    {"variant": "gmn"}, {"variant": "gmn-"}, {"variant": "gps-mamba"}, {"bidirectional": False}, {"mpnn": "none"},
    {"local": "gin", "mpnn": "gine"}, {"local": "gcn", "mpnn": "sage"}, {"variant": "gps-mamba", "mpnn": "pna"},
    {"local": "rwf", "pooling": "max"},
]  # fmt: skip


@pytest.mark.parametrize("change", VARIANTS, ids=lambda c: "-".join(f"{k}={v}" for k, v in c.items()))
def test_every_variant_needs_one_setting_and_trains(change):
    config = GMN.Config(**{**SMALL, **change})
    settings = M0 if config.variant == "gps-mamba" else M2
    model = GMN(config, in_dim=5, out_dim=2, edge_dim=3, tokens=settings.tokens, window=3)
    assert (model.mpnn is None) == (config.variant != "gmn" or config.mpnn == "none")
    inputs = inputs_of(example(), settings, config.token_kind, edges=True)
    y = torch.arange(14) % 2
    optimizer = torch.optim.Adam(model.parameters(), 2e-2)
    losses = []
    for _ in range(5):
        loss = torch.nn.functional.cross_entropy(model(inputs), y)
        optimizer.zero_grad()
        loss.backward()
        assert all(p.grad is not None for p in model.parameters())
        optimizer.step()
        losses.append(loss.item())
    assert min(losses[1:]) < losses[0]


@pytest.mark.parametrize("change", [{"pooling": "sum"}, {"graph_pooling": "all", "input_readout": True}])
def test_packed_graphs_do_not_see_each_other(change):
    model = GMN(GMN.Config(**SMALL, **change), in_dim=5, out_dim=2, level="graph").eval()
    a, b = example(), example(9, 12)
    one, two = inputs_of(a, M0), inputs_of(b, M0)
    both = GMNInputs(
        x=torch.cat([one.x, two.x]),
        graph=Adjacency(
            torch.cat([one.graph.indptr, two.graph.indptr[1:] + one.graph.indptr[-1]]),
            torch.cat([one.graph.indices, two.graph.indices + 14]),
        ),
        order=torch.cat([one.order, two.order + 14]),
        sequences=torch.tensor([0, 14, 23]),
    )
    torch.testing.assert_close(model(both), torch.cat([model(one), model(two)]), rtol=F32_SUM, atol=F32)


def rook() -> nx.Graph:
    cells = list(product(range(4), range(4)))
    joined = [(a, b) for a in cells for b in cells if a < b and (a[0] == b[0]) != (a[1] == b[1])]
    return nx.convert_node_labels_to_integers(nx.Graph(joined), ordering="sorted")


def shrikhande() -> nx.Graph:
    steps = [(0, 1), (1, 0), (1, 1), (0, 3), (3, 0), (3, 3)]
    cells = product(range(4), range(4))
    joined = [(c, ((c[0] + s) % 4, (c[1] + t) % 4)) for c in cells for s, t in steps]
    return nx.convert_node_labels_to_integers(nx.Graph(joined), ordering="sorted")


def test_walk_features_distinguish_3wl_equivalent_graphs_and_message_passing_cannot():
    """A random walk encoder's mean token differs between the graphs far beyond sampling noise; Psi's do not."""
    graphs = [Graph.from_edges(np.array(g.edges()), 16, x=np.ones((16, 1), np.float32)) for g in (rook(), shrikhande())]
    assert not nx.is_isomorphic(rook(), shrikhande())
    model = GMN(GMN.Config(**SMALL, mpnn="gin", node_layers=0), in_dim=1, out_dim=4).eval()
    torch.testing.assert_close(
        model(inputs_of(graphs[0], M0)), model(inputs_of(graphs[1], M0)), rtol=F32, atol=F32_TIGHT
    )

    settings = WalkSettings(max_length=5, repeats=1, walks=150, window=4)
    encoder = WalkEncoder(64, window=4, edges=False)
    means = []
    with torch.no_grad():
        encoder.bits.weight.mul_(6)  # in the nonlinear range of the activations
        encoder.conv.weight.mul_(6)
        for graph in graphs:
            own = []
            for seed in range(8):
                d = inputs_of(graph, settings, "walk", seed=seed)
                rows = encoder(torch.zeros(len(d.bits), 64), d.bits, d.walks, d.token_offsets)
                own.append(rows.view(16, -1, 64)[:, 0].mean(0))
            means.append(torch.stack(own))
    noise = sum(m.var(0) / 8 for m in means).sqrt()
    assert ((means[0].mean(0) - means[1].mean(0)).abs() / noise).max() > 5


def test_features_are_dropped_before_both_embeddings_and_only_in_training():
    inputs = inputs_of(example(), M2)
    torch.manual_seed(0)
    plain = GMN(GMN.Config(**SMALL, dropout=0.0), in_dim=5, out_dim=2, tokens=M2.tokens)
    dropping = GMN(GMN.Config(**SMALL, dropout=0.0, input_dropout=0.5), in_dim=5, out_dim=2, tokens=M2.tokens)
    dropping.load_state_dict(plain.state_dict())
    seen = []
    for embed in (dropping.embed, dropping.mpnn.embed):
        embed.register_forward_pre_hook(lambda _, given: seen.append((given[0] == 0).double().mean().item()))
    assert torch.equal(dropping.eval()(inputs), plain.eval()(inputs))
    assert seen == [0, 0]
    assert not torch.equal(dropping.train()(inputs), plain.train()(inputs))
    assert all(0.25 < share < 0.75 for share in seen[2:])
    assert len(seen) == 4


def test_bad_gmn_settings_are_named():
    with pytest.raises(ConfigError, match="gmm"):
        GMN.Config(variant="gmm")
    with pytest.raises(ConfigError, match="avg"):
        GMN.Config(pooling="avg")
    with pytest.raises(ConfigError, match="readout"):
        GMN.Config(readout=None)
    with pytest.raises(ConfigError, match="every"):
        GMN.Config(graph_pooling="every")
    for change in ({"graph_pooling": "sum"}, {"input_readout": True}):
        with pytest.raises(ConfigError, match=r"graph_pooling|input_readout"):
            GMN(GMN.Config(**change), in_dim=3, out_dim=2)
    with pytest.raises(ConfigError, match="gps-mamba"):
        GMN(GMN.Config(variant="gps-mamba"), in_dim=2, out_dim=2, tokens=3)
    with pytest.raises(ConfigError, match="mpnn"):
        GMN.Config(variant="gps-mamba", mpnn="none")
    with pytest.raises(ShapeError, match="5"):
        GMN(GMN.Config(**SMALL), in_dim=5, out_dim=2)(replace(inputs_of(example(), M0), x=torch.zeros(14, 2)))
