"""RGCN and node types: the equation, relabeled relations, batches, and methods without relations."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch_geometric.nn import HeteroConv

from hopstate.data.graph import Graph
from hopstate.errors import ConfigError, DataError
from hopstate.methods.gmn.model import GMN
from hopstate.methods.gmn.node_method import GMNRun, WalksConfig
from hopstate.methods.gmn.node_method import build as build_gmn
from hopstate.methods.message_passing.method import FullBatchRun, backbone_for
from hopstate.methods.message_passing.model import Backbone
from hopstate.methods.method import Context, SplitConfig
from hopstate.methods.shared.node import EdgeConfig, graph_task, message_graph, split_rows
from hopstate.runs.data import fit_scalers
from hopstate.runs.run import evaluate, fit
from hopstate.sampling.subgraph import full_graph
from hopstate.testing.conformance import F32, F32_SUM
from hopstate.training.config import LoopConfig

N, NAMES = 60, ("same", "next", "before")
QUIET: dict[str, Any] = {"loop.progress": False, "loop.logger": "none", "loop.device": "cpu"}


def typed(count: int = 240, *, order: tuple[int, ...] = (0, 1, 2), **fields: Any) -> Graph:
    """Return a graph whose relations encode how the classes of the two endpoints differ."""
    rng = np.random.default_rng(0)
    y, ends = rng.integers(0, 3, N), rng.integers(0, N, (count, 2))
    relation = (y[ends[:, 1]] - y[ends[:, 0]]) % 3
    x = np.zeros((N, 4), np.float32)
    known = np.flatnonzero(rng.random(N) < 0.4)
    x[known, y[known]] = 1
    place = np.argsort(order)
    names = tuple(NAMES[i] for i in order)
    given = {"x": x, "y": y, "name": "typed", "relation": place[relation], "relation_names": names} | fields
    return Graph.from_edges(ends, N, undirected=False, **given)


def messages(graph: Graph, use: str = "auto") -> Graph:
    return message_graph(graph, EdgeConfig(use=use), "relations", "rgcn", LoopConfig(progress=False))  # type: ignore[arg-type]


def network(graph: Graph, **options: Any) -> Backbone:
    torch.manual_seed(0)
    config = Backbone.Config(dim=8, num_layers=1, dropout=0.0, **options)
    return backbone_for(graph, config, "rgcn", 3).eval()


@pytest.mark.parametrize("num_bases", [None, 2])
def test_the_layer_equals_a_mean_and_a_map_per_relation(num_bases: int | None) -> None:
    graph = messages(typed())
    model = network(graph, num_bases=num_bases)
    _, adjacency = full_graph(graph)
    conv, edges = model.blocks[0].conv, adjacency.edge_index()
    weight = conv.weight
    if num_bases is not None:
        weight = torch.einsum("rb,bio->rio", conv.comp, conv.weight)
    h, relation = torch.randn(N, 8), torch.from_numpy(graph.incoming.relation.astype(np.int64))
    expected = h @ conv.root + conv.bias
    for node in range(N):
        for r in range(6):  # three relations, and their inverses
            from_r = edges[0][(edges[1] == node) & (relation == r)]
            if len(from_r):
                expected[node] += h[from_r].mean(0) @ weight[r]
    torch.testing.assert_close(adjacency.propagate(conv, "edges", 0, h), expected, rtol=F32_SUM, atol=F32_SUM)


@pytest.mark.parametrize("kind", ["hetero-sage", "hetero-gat"])
def test_a_layer_per_relation_equals_heteroconv(kind: str) -> None:
    graph = messages(typed())
    model = backbone_for(graph, Backbone.Config(dim=8, num_layers=1, heads=2), kind, 3).eval()
    _, adjacency = full_graph(graph)
    conv, (sources, targets) = model.blocks[0].conv, adjacency.edge_index()
    h, relation = torch.randn(N, 8), torch.from_numpy(graph.incoming.relation.astype(np.int64))
    own = [torch.stack([sources[relation == r], targets[relation == r]]) for r in range(6)]
    keys = [("node", str(r), "node") for r in range(6)]
    whole = HeteroConv({key: conv.convs[key] for key in keys})({"node": h}, dict(zip(keys, own)))["node"]
    found = adjacency.propagate(conv, "edges", 0, h)
    torch.testing.assert_close(found, whole, rtol=F32, atol=F32)
    parts = sum(conv.convs[key](h, edges) for key, edges in zip(keys, own))
    torch.testing.assert_close(found, parts, rtol=F32_SUM, atol=F32_SUM)


def test_relabeled_relations_and_their_matrices_give_the_same_outputs() -> None:
    order = (2, 0, 1)
    first, second = messages(typed()), messages(typed(order=order))
    model, other = network(first), network(second)
    other.load_state_dict(model.state_dict())
    permuted = [*order, *(3 + i for i in order)]
    other.blocks[0].conv.weight.data = model.blocks[0].conv.weight.data[permuted]
    torch.testing.assert_close(other(*full_graph(second)), model(*full_graph(first)), rtol=F32, atol=F32)


def test_edges_of_both_directions_have_no_inverse_relations() -> None:
    ends = np.array([[0, 1], [1, 0], [1, 2], [2, 1]])
    graph = Graph.from_edges(ends, 3, undirected=False, relation=[0, 0, 1, 1], x=np.eye(3, dtype=np.float32))
    assert messages(graph).relation_names == ("0", "1")
    directed = graph.with_(indptr=np.array([0, 1, 2, 2]), indices=np.array([1, 2]), relation=np.array([0, 1]))
    assert messages(directed).relation_names == ("0", "1", "inverse of 0", "inverse of 1")


@pytest.mark.parametrize(
    ("method", "kind"),
    [*(("rgcn", kind) for kind in ("full", "top", "neighbor")), ("hetero-sage", "top"), ("hetero-gat", "neighbor")],
)
def test_relations_determine_classes_in_every_kind_of_batch(method: str, kind: str, tmp_path: Path) -> None:
    batching = {"kind": kind, "num_clusters": 4, "clusters_per_batch": 2, "batch_size": 16, "fanouts": [8]}
    settings = {"model.dim": 16, "model.num_layers": 2, "loop.epochs": 25, "batching": batching, **QUIET}
    run = fit(method, typed(), out=tmp_path / "run", **settings)
    assert run.metrics["test"]["accuracy"] > 0.8


def test_a_run_accepts_relations_in_any_order_and_rejects_unknown_ones(tmp_path: Path) -> None:
    run = fit("rgcn", typed(), out=tmp_path / "run", **{"model.dim": 8, "loop.epochs": 2, **QUIET})
    other = evaluate(run.path, data=typed(order=(2, 0, 1)))
    assert other["loss"] == pytest.approx(run.metrics["test"]["loss"], rel=1e-4)
    with pytest.raises(DataError, match="unlike"):
        evaluate(run.path, data=typed().with_(relation_names=("same", "next", "unlike")))


@pytest.mark.parametrize("method", ["gcn", "sage", "gcnii", "nagphormer"])
def test_a_method_without_relations_gives_a_warning(method: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="3 relations"):
        fit(method, typed(), out=tmp_path / "run", **QUIET)


def test_rgcn_needs_relations_and_no_features() -> None:
    plain = typed(relation=None, relation_names=())
    with pytest.raises(DataError, match="relation"):
        messages(plain)
    features = typed(edge_attr=np.ones((240, 2), np.float32))
    with pytest.raises(ConfigError, match="2 edge features"):
        messages(features)
    assert messages(features, "drop").edge_attr.shape[1] == 1


def test_networks_that_read_edge_features_read_relations() -> None:
    graph = message_graph(typed(), EdgeConfig(), "features", "gat", LoopConfig(progress=False))
    assert graph.relation is None
    order = np.argsort(np.asarray(typed().relation), kind="stable")
    assert np.array_equal(np.asarray(graph.edge_attr)[order], np.eye(3, dtype=np.float32)[np.sort(typed().relation)])
    many = typed().with_(relation_names=tuple(map(str, range(100))))
    with pytest.raises(ConfigError, match="100 relations"):
        message_graph(many, EdgeConfig(), "features", "gat", LoopConfig(progress=False))


def test_node_types_are_features_of_every_network(tmp_path: Path) -> None:
    """One column per type; an unknown type has zeros."""
    seen = {}

    def make(graph: Graph, *_: Any) -> Any:
        seen["x"] = graph.x
        raise InterruptedError

    node_type = np.arange(N, dtype=np.int16) % 3 - 1
    graph = typed(node_type=node_type, node_type_names=("user", "item"))
    context = Context(run=tmp_path, cache=tmp_path)
    with pytest.raises(InterruptedError):
        graph_task(graph, FullBatchRun(data="x"), context, make)
    assert np.array_equal(seen["x"][:, 4:], np.array([[0, 0], [1, 0], [0, 1]], np.float32)[node_type + 1])


def test_a_node_type_without_labels_is_scaled_by_all_its_nodes() -> None:
    x = np.arange(12, dtype=np.float32).reshape(6, 2)
    types = {"node_type": np.array([0, 0, 0, 0, 1, 1], np.int16), "node_type_names": ("paper", "author")}
    graph = Graph.from_edges(np.array([[0, 4], [1, 5]]), 6, x=x, y=np.array([0, 1, 0, 1, -1, -1]), **types)
    config = FullBatchRun(data="x", split=SplitConfig(kind="random"))
    scaler = fit_scalers(graph, config, edges=False)["x"]
    train = split_rows(graph, config.split)["train"]
    assert scaler.shift == pytest.approx(x[[*train, 4, 5]].mean(0))


@pytest.mark.parametrize(
    ("method", "settings"),
    [
        pytest.param("gmn", {"model": {"dim": 8, "mpnn": "gine"}, "walks.max_length": 2}, marks=pytest.mark.slow),
        ("nagphormer", {"model.dim": 8, "model.num_heads": 2, "edges.use": "drop"}),
        ("mlp", {"model.dim": 8}),
    ],
)
def test_other_methods_train_on_typed_graphs(method: str, settings: dict[str, Any], tmp_path: Path) -> None:
    node_type = np.arange(N, dtype=np.int16) % 2
    graph = typed(node_type=node_type, node_type_names=("user", "item"))
    run = fit(method, graph, out=tmp_path / "run", **settings, **{"loop.epochs": 1, **QUIET})
    swapped = graph.with_(node_type=1 - node_type, node_type_names=("item", "user"))
    assert evaluate(run.path, data=swapped)["loss"] == pytest.approx(run.metrics["test"]["loss"], rel=1e-4)
    with pytest.raises(DataError, match="node_type"):
        evaluate(run.path, data=graph.with_(node_type=None, node_type_names=()))


def test_gmn_reads_relations_by_name(tmp_path: Path) -> None:
    """One-hot edge features per relation give the first map one vector per relation."""

    def outputs(graph: Graph, trained: dict[str, Any] | None) -> np.ndarray:
        torch.manual_seed(0)
        settings = {"data": "x", "model": GMN.Config(dim=8, mpnn="gine"), "walks": WalksConfig(max_length=2)}
        task = build_gmn(graph, GMNRun(**settings), Context(run=tmp_path, cache=tmp_path, trained=trained))
        task.model.eval()
        with torch.no_grad():
            return np.asarray(task.logits(np.arange(N)))

    known = {"relation_names": NAMES, "num_features": 4, "class_names": ["0", "1", "2"], "edge_columns": 3}
    expected = outputs(typed(), known)
    np.testing.assert_allclose(outputs(typed(order=(2, 0, 1)), known), expected, rtol=F32_SUM, atol=F32_SUM)
    other = outputs(typed().with_(relation_names=(NAMES[1], NAMES[2], NAMES[0])), known)
    assert np.abs(other - expected).max() > 1e-3
