"""Edge data in methods: direction, weights, features; unsupported data are rejected."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch_geometric.nn.conv.gcn_conv import gcn_norm

from hopstate.compensation.top.top import TopConfig
from hopstate.data.graph import Graph
from hopstate.errors import ConfigError, DataError
from hopstate.methods import get_method
from hopstate.methods.gmn.model import GMN
from hopstate.methods.gmn.node_method import EncodingConfig, GMNRun, WalksConfig
from hopstate.methods.gmn.node_method import build as build_gmn
from hopstate.methods.message_passing.batching import Batching
from hopstate.methods.message_passing.method import FullBatchRun, reads_edges
from hopstate.methods.message_passing.model import Backbone
from hopstate.methods.method import Context
from hopstate.methods.nagphormer.hops import hop_tokens
from hopstate.methods.nagphormer.method import HopTokensConfig, NAGphormerRun
from hopstate.methods.nagphormer.model import NAGphormer
from hopstate.methods.shared.node import EdgeConfig
from hopstate.random import seed_everything
from hopstate.runs.data import fit_scalers
from hopstate.sampling.subgraph import full_adjacency
from hopstate.testing.conformance import F32_SUM, F32_TIGHT, relative_rmse
from hopstate.training.config import LoopConfig

QUICK: dict[str, Any] = {"progress": False, "logger": "none", "device": "cpu", "epochs": 1, "patience": None}
N = 60


def graph(**carried: np.ndarray) -> Graph:
    """Return a directed graph without self-loops or repeated edges; edge arrays have one row per edge."""
    rng = np.random.default_rng(0)
    ends = rng.integers(0, N, (240, 2))
    ends = np.unique(ends[ends[:, 0] != ends[:, 1]], axis=0)
    x, y = rng.standard_normal((N, 4)).astype(np.float32), np.arange(N) % 2
    masks = {name: np.arange(N) % 3 == i for i, name in enumerate(("train", "val", "test"))}
    made = {name: array[: len(ends)] for name, array in carried.items()}
    return Graph.from_edges(ends, N, undirected=False, x=x, y=y, masks=masks, name="edges", **made)


def numbers(columns: int = 1, low: float = 0.5) -> np.ndarray:
    return np.random.default_rng(3).uniform(low, 2, (240, columns)).astype(np.float32)


def made(
    method: str, data: Graph, folder: Path, *, trained: dict[str, Any] | None = None, batching: Any = None, **edges: Any
) -> Any:
    """Return a task with fixed weights; `trained` has the data facts of a finished run."""
    shared: dict[str, Any] = {"data": "x", "edges": EdgeConfig(**edges), "loop": LoopConfig(**QUICK)}
    config: Any
    if method == "nagphormer":
        tokens = HopTokensConfig(num_hops=2, eigenvectors=0)
        config = NAGphormerRun(**shared, model=NAGphormer.Config(dim=8, num_heads=2), tokens=tokens)
    else:
        model = Backbone.Config(dim=8, num_layers=2, dropout=0.0, heads=2)
        config = FullBatchRun(**shared, model=model, batching=batching or Batching())
    seed_everything(0)
    return get_method(method).build(data, config, Context(run=folder, cache=folder, trained=trained))


@torch.no_grad()
def outputs(task: Any) -> torch.Tensor:
    task.model.eval()
    return task.logits(np.arange(N))


@pytest.mark.parametrize("weighted", [False, True])
def test_hop_averages_equal_powers_of_torch_geometrics_normalisation(weighted: bool, tmp_path: Path) -> None:
    """On disk and in memory; the reversed graph gives others."""
    data = graph(**({"edge_weight": numbers()} if weighted else {}))
    weight = torch.tensor(data.edge_weight) if weighted else None
    edges, norm = gcn_norm(torch.tensor(data.edge_index()), weight, N)
    dense = torch.zeros(N, N).index_put((edges[1], edges[0]), norm, accumulate=True)
    expected, x = [], torch.tensor(data.x)
    for _ in range(4):
        expected.append(x)
        x = dense @ x
    wanted = torch.stack(expected, 1)
    for budget in (1 << 30, 4 * 4 * N * 4 * 2):
        tokens = hop_tokens(data, 3, max_memory=budget, folder=tmp_path)
        assert relative_rmse(tokens.rows(np.arange(N)), wanted) < 1e-6
    other = hop_tokens(data.reversed(), 3, max_memory=1 << 30)
    assert relative_rmse(other.rows(np.arange(N)), wanted) > 1e-2


@pytest.mark.parametrize("undirected", [False, True])
@pytest.mark.parametrize("weights", ["none", "some", "zero"])
def test_existing_self_loops_are_normalised_as_by_torch_geometric(undirected: bool, weights: str) -> None:
    rng = np.random.default_rng(0)
    ends = np.concatenate([np.arange(0, N, 2)[:, None].repeat(2, 1), rng.integers(0, N, (240, 2))])
    values = rng.uniform(0.5, 2, len(ends))
    if weights == "zero":
        values[:: N // 4] = 0
    weighted = {} if weights == "none" else {"edge_weight": values}
    data = Graph.from_edges(ends, N, undirected=undirected, **weighted)
    weight = None if weights == "none" else torch.tensor(data.edge_weight)
    edges, norm = gcn_norm(torch.tensor(data.edge_index()), weight, N)
    expected = torch.zeros(N, N).index_put((edges[1], edges[0]), norm, accumulate=True)
    found = full_adjacency(data).normalized_adjacency("symmetric", torch.float32).to_dense()
    assert data.num_self_loops >= N // 2
    torch.testing.assert_close(found, expected)


@pytest.mark.parametrize("method", ["gcn", "gcnii", "nagphormer", "gat", "gin", "pna"])
def test_edge_features_are_used_or_ignored_on_request(method: str, tmp_path: Path) -> None:
    """Other edge features give other outputs with the same weights."""
    data = graph(edge_attr=numbers())
    other = data.with_(edge_attr=data.edge_attr * np.linspace(0.1, 3, data.num_edges, dtype=np.float32)[:, None])
    one, two = (outputs(made(method, one, tmp_path)) for one in (data, other))
    assert (one - two).abs().max() > 1e-4
    one, two = (outputs(made(method, one, tmp_path, use="drop")) for one in (data, other))
    torch.testing.assert_close(one, two)


ALL_NODES: dict[str, Any] = {"num_clusters": 4, "clusters_per_batch": 4, "batch_size": N, "fanouts": (1000,)}


@pytest.mark.parametrize(
    ("method", "kind"),
    [("gcn", "top"), ("gcn", "cluster"), ("gcn", "gas"), ("gat", "top"), ("gat", "cluster"), ("gat", "neighbor")],
)
def test_a_batch_of_all_nodes_uses_edges_as_the_full_graph_does(method: str, kind: Any, tmp_path: Path) -> None:
    losses = []
    for name in ("full", kind):
        task = made(method, graph(edge_attr=numbers()), tmp_path, batching=Batching(kind=name, **ALL_NODES))
        task.model.eval()
        (batch,) = task.batches(0)
        losses.append(task.loss(batch))
    torch.testing.assert_close(losses[1], losses[0], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("kind", ["top", "cluster", "gas", "neighbor", "labor", "shadow"])
@pytest.mark.parametrize("method", ["gcn", "gat"])
def test_every_batching_computes_a_loss_with_edge_features(method: str, kind: Any, tmp_path: Path) -> None:
    small: dict[str, Any] = {"num_clusters": 4, "clusters_per_batch": 2, "batch_size": 20}
    batching = Batching(kind=kind, top=TopConfig(refresh=2), **small)
    task = made(method, graph(edge_attr=numbers()), tmp_path, batching=batching)
    losses = [task.loss(batch) for batch in task.batches(0)]
    assert len(losses) > 0
    assert all(loss.isfinite() for loss in losses)


def test_errors_name_method_data_and_setting(tmp_path: Path) -> None:
    several, negative = graph(edge_attr=numbers(3)), graph(edge_attr=numbers(1, -1.0))
    with pytest.raises(ConfigError, match=r"sage.*edges"):
        made("sage", several, tmp_path)
    with pytest.raises(ConfigError, match=r"gcn.*edges\.weight"):
        made("gcn", several, tmp_path)
    with pytest.raises(DataError, match="weight"):
        made("gcn", negative, tmp_path)
    with pytest.raises(DataError, match=r"edges\.weight=7"):
        made("nagphormer", several, tmp_path, weight=7)
    with pytest.raises(ConfigError, match=r"edges\.weight"):
        made("gat", several, tmp_path, weight=1)
    with pytest.raises(ConfigError, match=r"edges\.use"):
        EdgeConfig(use="drop", weight=1)
    made("gcn", several, tmp_path, weight=1)
    made("gcn", several, tmp_path, use="drop")
    made("mlp", several, tmp_path)  # it reads no edges at all


@pytest.mark.parametrize("method", ["gcn", "nagphormer"])
def test_one_edge_feature_equals_edge_weights(method: str, tmp_path: Path) -> None:
    columns = numbers(3)
    of_column = made(method, graph(edge_attr=columns), tmp_path, weight=1)
    weights = made(method, graph(edge_weight=columns[:, 1]), tmp_path)
    torch.testing.assert_close(outputs(of_column), outputs(weights))
    other = made(method, graph(edge_weight=columns[:, 2]), tmp_path)
    assert (outputs(other) - outputs(weights)).abs().max() > 1e-4


def test_edge_features_are_scaled_if_they_are_read() -> None:
    data = graph(edge_attr=(np.concatenate([numbers(), 2000 + 10 * numbers()], 1) * [1e-3, 1.0]).astype(np.float32))
    config = FullBatchRun(data="x")
    assert reads_edges(config, "gat")
    assert "edge_attr" in fit_scalers(data, config, edges=True)
    assert fit_scalers(data.with_(published=True), config, edges=True) == {}
    for edges, kind in ((EdgeConfig(use="drop"), "gat"), (EdgeConfig(weight=1), "gcn")):
        assert not reads_edges(FullBatchRun(data="x", edges=edges), kind)
    assert "edge_attr" not in fit_scalers(data, config, edges=False)


def test_data_with_other_edge_features_are_rejected(tmp_path: Path) -> None:
    known = {"num_features": 4, "class_names": ["0", "1"], "edge_columns": 3}
    made("gat", graph(edge_attr=numbers(3)), tmp_path, trained=known)
    for other in (graph(edge_attr=numbers(2)), graph()):
        with pytest.raises(DataError, match="edges"):
            made("gat", other, tmp_path, trained=known)


@pytest.mark.parametrize("method", ["gcn", "pna", "nagphormer"])
def test_flow_reverses_messages(method: str, tmp_path: Path) -> None:
    data = graph(edge_attr=numbers())
    forward = outputs(made(method, data, tmp_path))
    back = outputs(made(method, data.reversed(), tmp_path, flow="target_to_source"))
    torch.testing.assert_close(forward, back, rtol=F32_SUM, atol=F32_SUM)
    assert (outputs(made(method, data.reversed(), tmp_path)) - forward).abs().max() > 1e-4


def test_psi_of_a_gmn_receives_over_in_edges(tmp_path: Path) -> None:
    """Along 0 -> 1 -> ... a node's output depends on the nodes before it; only Psi, one layer, no walks."""
    x = np.random.default_rng(0).standard_normal((N, 4)).astype(np.float32)
    masks = {name: np.arange(N) % 3 == i for i, name in enumerate(("train", "val", "test"))}
    chain = Graph.from_edges(
        np.stack([np.arange(N - 1), np.arange(1, N)], 1), N, undirected=False, x=x, y=np.arange(N) % 2, masks=masks,
        edge_attr=numbers()[: N - 1], name="chain",
    )  # fmt: skip
    context = Context(run=tmp_path, cache=tmp_path)
    for flow, other in (("source_to_target", chain), ("target_to_source", chain.reversed())):
        model = GMN.Config(dim=8, mpnn="gatedgcn", mpnn_layers=1)
        config = GMNRun(
            data="memory:chain", encoding=EncodingConfig(kind="none"), walks=WalksConfig(max_length=0), model=model,
            loop=LoopConfig(**QUICK), flow=flow,
        )  # fmt: skip
        task = build_gmn(chain, config, context)
        senders, receivers = task.source.prepared.adjacency.edge_index().tolist()
        assert sorted(zip(senders, receivers)) == sorted(zip(*other.edge_index().tolist()))
        features = {pair: float(e) for pair, e in zip(zip(senders, receivers), task.source.prepared.edge_attr[:, 0])}
        assert features == {pair: float(e) for pair, e in zip(zip(*other.edge_index().tolist()), other.edge_attr[:, 0])}
        assert task.source.prepared.table is not None


@pytest.mark.parametrize("flow", ["source_to_target", "target_to_source"])
def test_pna_of_a_gmn_scales_by_in_degrees(flow: str, tmp_path: Path) -> None:
    """All nodes send to node 0, which sends to none: N - 1 messages to one node, or one to each of the others."""
    masks = {name: np.arange(N) % 3 == i for i, name in enumerate(("train", "val", "test"))}
    x = np.random.default_rng(0).standard_normal((N, 4)).astype(np.float32)
    edges = np.stack([np.arange(1, N), np.zeros(N - 1, np.int64)], 1)
    star = Graph.from_edges(edges, N, undirected=False, x=x, y=np.arange(N) % 2, masks=masks, name="star")
    config = GMNRun(
        data="memory:star", encoding=EncodingConfig(kind="none"), walks=WalksConfig(max_length=0), flow=flow,
        model=GMN.Config(dim=8, mpnn="pna", mpnn_layers=1), loop=LoopConfig(**QUICK),
    )  # fmt: skip
    task = build_gmn(star, config, Context(run=tmp_path, cache=tmp_path))
    received = np.bincount(task.source.prepared.adjacency.edge_index()[1].numpy(), minlength=N)
    buffers = [float(value) for name, value in task.model.state_dict().items() if name.endswith("avg_deg_log")]
    assert len(buffers) == 1
    assert buffers[0] == pytest.approx(np.log(received + 1.0).mean(), rel=F32_TIGHT)
