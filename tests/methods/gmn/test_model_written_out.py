"""The model against Algorithm 1 written out in float64: outputs and every gradient, for each configuration."""

from bisect import bisect_left
from itertools import pairwise

import networkx as nx
import numpy as np
import pytest
import torch
from written_out import WrittenOut

from hopstate.data.graph import Graph
from hopstate.layers.message import Adjacency
from hopstate.methods.gmn.batches import token_inputs
from hopstate.methods.gmn.model import GMN, GMNInputs
from hopstate.methods.gmn.tokens import WalkSettings, token_order, walk_tokens
from hopstate.ops.walks import WalkTable
from hopstate.testing.conformance import assert_close_rmse

M2 = WalkSettings(max_length=2, repeats=2, walks=2, window=2)
M0 = WalkSettings(max_length=0, repeats=1, walks=1)
SIZES = {"dim": 4, "expand": 1.5, "state_dim": 3, "mpnn_layers": 2, "dropout": 0.0}


def graph_of(seed: int) -> Graph:
    rng = np.random.default_rng(seed)
    pairs = np.array([*nx.gnm_random_graph(6, 8, seed=seed).edges(), (0, 6)])  # node 7 is isolated
    pairs = np.concatenate([pairs, pairs[:, ::-1]])
    return Graph.from_edges(
        pairs, 8, undirected=False, x=rng.normal(size=(8, 3)).astype(np.float32),
        edge_attr=rng.normal(size=(len(pairs), 2)).astype(np.float32),
    )  # fmt: skip


def walks_of(table: WalkTable, settings: WalkSettings, count: int) -> list:
    """Return walks[node][token][walk], a list of nodes, and the steps of each token in the sequence's order."""
    if settings.tokens == 1:
        return [[] for _ in range(count)]
    drawn = walk_tokens(table, np.arange(count), settings, kind="walk", seed=5)
    starts, steps, ends = drawn["walks"].tolist(), drawn["nodes"].tolist(), drawn["offsets"].tolist()
    walks = [steps[a:b] for a, b in pairwise(starts)]
    own = [range(bisect_left(starts, a), bisect_left(starts, b)) for a, b in pairwise(ends)]
    tokens = [[walks[i] for i in numbers] for numbers in own]
    return [tokens[i : i + settings.tokens] for i in range(0, len(tokens), settings.tokens)]


CASES = {
    "m = 0": (M0, {}, False),
    "m = 0, edges": (M0, {"node_layers": 2}, True),
    "subgraphs": (M2, {"local_layers": 2}, False),
    "subgraphs, edges": (M2, {"local_layers": 2, "mark_center": False}, True),
    "walk features": (M2, {"local": "rwf", "token_layers": 2}, False),
    "walk features, edges": (M2, {"local": "rwf"}, True),
    "without the node itself": (M2, {"node_token": False}, False),
    "mean of the tokens": (M2, {"readout": "mean"}, False),
    "mean of the walks' tokens": (M2, {"readout": "mean", "node_token": False, "local": "rwf"}, False),
    "graphs": (M2, {}, True),
    "graphs, sums, features": (M0, {"pooling": "max", "graph_pooling": "sum", "input_readout": True}, False),
    "graphs, all": (M2, {"graph_pooling": "all"}, False),
    "graphs, all, features": (M2, {"graph_pooling": "all", "input_readout": True}, True),
    "no message passing": (M2, {"mpnn": "none", "node_layers": 0}, False),
}


def neighbours_of(graph: Graph) -> list[dict[int, int]]:
    """Return, for each node, those that it receives from with the numbers of the edges."""
    bounds = zip(graph.indptr[:-1].tolist(), graph.indptr[1:].tolist(), strict=True)
    return [{int(u): number for number, u in enumerate(graph.indices[a:b], a)} for a, b in bounds]


def settings_of(config: GMN.Config) -> dict:
    """Return the settings that the written-out form uses."""
    same = ("local_layers", "token_layers", "node_layers", "node_token", "readout", "pooling", "reading")
    counted = {"local": config.encoder, "mpnn_layers": config.mpnn_layers * config.uses_mpnn, "window": M2.window}
    return {name: getattr(config, name) for name in same} | counted


def gradients(outputs: torch.Tensor, weights: torch.Tensor, leaves: list[torch.Tensor]) -> list[torch.Tensor]:
    """Return the gradients of a weighted sum of outputs; zeros for leaves that it does not depend on."""
    found = torch.autograd.grad((outputs * weights).sum(), leaves, allow_unused=True)
    return [torch.zeros_like(leaf) if g is None else g for leaf, g in zip(leaves, found, strict=True)]


MORE = {  # each part of these is in one of the other cases
    "m = 0", "subgraphs", "walk features, edges", "mean of the tokens", "graphs", "graphs, all",
}  # fmt: skip


@pytest.mark.parametrize("case", [pytest.param(c, marks=pytest.mark.slow) if c in MORE else c for c in CASES])
def test_the_model_equals_algorithm_1(case):
    settings, change, edges = CASES[case]
    torch.manual_seed(len(case))
    graph, config = graph_of(3), GMN.Config(**{**SIZES, **change})
    level = "graph" if case.startswith("graphs") else "node"
    model = GMN(
        config, in_dim=3, out_dim=2, edge_dim=2 * edges, tokens=settings.tokens, window=settings.window, level=level
    )
    model = model.double().eval()
    for name, value in model.state_dict().items():
        if "running" in name or name.endswith("norm.weight"):
            value.copy_(torch.rand_like(value) + 0.5)
    table, count = WalkTable.of(graph.indptr, graph.indices), graph.num_nodes
    tokens = {}
    if settings.tokens > 1:
        drawn = walk_tokens(table, np.arange(count), settings, kind=config.token_kind, seed=5, edges=edges)
        tokens = {**token_inputs(drawn), "token_order": token_order(count, settings, None)}
    bounds = [0, 7, 7, 8] if level == "graph" else [0, 8]  # one empty token, one with a single node
    orders = [np.random.default_rng(0).permutation(np.arange(a, b)) for a, b in pairwise(bounds)]
    x = torch.tensor(graph.x, dtype=torch.float64, requires_grad=True)
    e = torch.tensor(graph.edge_attr, dtype=torch.float64, requires_grad=True) if edges else None
    got = model(
        GMNInputs(
            x=x, graph=Adjacency.of(graph.indptr, graph.indices), edge_attr=e, sequences=torch.tensor(bounds),
            order=torch.from_numpy(np.concatenate(orders)), **tokens,
        )
    )  # fmt: skip
    written = WrittenOut(
        dict(model.named_parameters()) | dict(model.named_buffers()), neighbours_of(graph), settings_of(config)
    )
    given = list(x), None if e is None else list(e), walks_of(table, settings, count)
    lists = [order.tolist() for order in orders]
    expected = written.run_graphs(*given, lists) if level == "graph" else written.run(*given, lists[0])
    assert_close_rmse(got, expected, name="outputs")
    leaves = {"x": x, **({"e": e} if edges else {}), **dict(model.named_parameters())}
    weights = torch.randn_like(expected)
    ours, theirs = (gradients(outputs, weights, list(leaves.values())) for outputs in (got, expected))
    for name, own, other in zip(leaves, ours, theirs, strict=True):
        if other.norm() > 1e-12:  # a bias before a mean is taken away has a gradient of rounding errors only
            assert_close_rmse(own, other, name=name, factor=10)
        else:
            assert own.norm() < 1e-12, name
