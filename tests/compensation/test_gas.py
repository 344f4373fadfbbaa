import itertools

import numpy as np
import pytest
import torch

from hopstate.compensation.gas import GasBatch, GasCache
from hopstate.data.graph import Graph
from hopstate.errors import CheckpointError
from hopstate.methods.message_passing.model import Backbone
from hopstate.sampling.samplers import ClusterSampler, LayerSampler, SaintSampler, ShadowSampler, UniformSampler
from hopstate.sampling.subgraph import (
    LayerSource,
    NodeSetSource,
    ShadowSource,
    features,
    full_graph,
    row_blocks,
)
from hopstate.testing.conformance import relative_rmse

KINDS = ["mlp", "gcn", "sage", "gin", "gat", "pna", "gcnii"]


def random_graph(n: int = 60, edges: int = 120) -> Graph:
    rng = np.random.default_rng(0)
    x = rng.standard_normal((n, 5)).astype(np.float32)
    return Graph.from_edges(rng.integers(0, n, (edges, 2)), n, x=x)


def backbone(kind: str, **settings) -> Backbone:
    config = Backbone.Config(dim=8, num_layers=3, dropout=0.0, **settings)
    return Backbone(config, kind=kind, in_dim=5, num_classes=3, degrees=torch.arange(6)).eval()


@pytest.mark.parametrize("kind", ["gcn", "gat", "pna", "gcnii"])
def test_gas_equals_full_batch_after_one_pass_more_than_layers(kind: str) -> None:
    """With fixed weights, the first pass that reads only fresh histories equals full batch; earlier ones do not."""
    graph, model = random_graph(), backbone(kind)
    history = GasCache(60, [8, 8, 8])
    sampler = UniformSampler(np.arange(60), 20, seed=0, shuffle=False)
    source = NodeSetSource(graph, sampler, np.arange(60), history)
    full, errors = model(*full_graph(graph)), []
    for _ in range(4):
        out = torch.empty_like(full)
        for i in range(3):
            batch = source.batch(0, i)
            out[batch.nodes] = model(batch.x, batch.graph)
        errors.append(relative_rmse(out, full))
    assert errors[0] > 1e-2
    assert errors[3] < 1e-6


def test_history_survives_a_checkpoint_and_rejects_another_graph() -> None:
    history = GasCache(5, [3])
    history.push(0, torch.tensor([1, 4]), torch.ones(2, 3))
    other = GasCache(5, [3])
    other.load_state(history.state())
    assert torch.equal(other.pull(0, torch.arange(5)), history.pull(0, torch.arange(5)))
    for num_nodes, widths in ((6, [3]), (5, [4]), (5, [3, 3])):
        with pytest.raises(CheckpointError):
            GasCache(num_nodes, widths).load_state(history.state())


def test_a_gas_batch_without_missing_neighbors_is_exact() -> None:
    graph = Graph.from_edges(np.array([[0, 1], [2, 3]]), 4, x=np.eye(4, 5, dtype=np.float32))
    sampler = ClusterSampler(np.array([0, 0, 1, 1]), 1, seed=0)
    batch = NodeSetSource(graph, sampler, np.arange(4), GasCache(4, [8] * 3)).batch(0, 0)
    assert isinstance(batch.graph, GasBatch)
    model = backbone("gcn")
    assert relative_rmse(model(batch.x, batch.graph), model(*full_graph(graph))[batch.nodes]) < 1e-6


@pytest.mark.parametrize(  # a sample that covers nearly every pair of options
    ("kind", "jumping_knowledge", "size", "halo"),
    list(itertools.product(KINDS, ["none", "cat", "max"], [1, 17, 60], [False, True]))[::11],
)
def test_layerwise_inference_is_full_batch(kind: str, jumping_knowledge: str, size: int, halo: bool) -> None:
    graph, model = random_graph(), backbone(kind, jumping_knowledge=jumping_knowledge)
    with torch.no_grad():
        out = model.layerwise(features(graph, np.arange(60)), lambda: row_blocks(graph, size, halo=halo))
        assert relative_rmse(out, model(*full_graph(graph))) < 1e-6


@pytest.mark.parametrize("labor", [False, True])
def test_sampling_all_neighbours_is_full_batch(labor: bool) -> None:
    graph, rows = random_graph(), np.arange(0, 60, 2)
    source = LayerSource(graph, LayerSampler(graph, rows, 8, (60, 60, 60), seed=0, labor=labor))
    for kind in ("gcn", "sage", "gat"):
        model = backbone(kind)
        full = model(*full_graph(graph))
        batch = source.batch(0, 1)
        out = model(batch.x, batch.graph)
        assert relative_rmse(out[: len(batch.nodes)], full[batch.nodes]) < 1e-6, kind


def test_shadow_of_everything_near_is_full_batch() -> None:
    graph = random_graph(60, 60)
    source = ShadowSource(graph, ShadowSampler(graph, np.arange(60), 7, seed=0, kind="hops", depth=6, fanout=60))
    model = backbone("gcn")
    batch = source.batch(0, 0)
    out = model(batch.x, batch.graph)[batch.rows]
    assert relative_rmse(out, model(*full_graph(graph))[batch.nodes[batch.rows]]) < 1e-5


def test_training_rows_and_weights_of_a_batch() -> None:
    graph = random_graph()
    train = np.arange(0, 60, 3)
    saint = SaintSampler(graph, "node", 30, seed=0)
    batch = NodeSetSource(graph, saint, train).batch(0, 0)
    assert np.isin(batch.nodes[batch.rows], train).all()
    expected = 1 / saint.node_probability[batch.nodes[batch.rows]] / len(train)
    assert np.allclose(batch.weight, expected)
    assert torch.equal(batch.x, torch.tensor(graph.x[batch.nodes]))


@pytest.mark.parametrize(("kind", "norm"), [("gcn", "batch"), ("gcnii", "layer")])
def test_histories_are_kept_without_dropout(kind: str, norm: str) -> None:
    """Histories of a training step are computed without dropout; norms update from the step."""
    graph = random_graph()
    config = Backbone.Config(dim=8, num_layers=3, dropout=0.5, norm=norm)
    model = Backbone(config, kind=kind, in_dim=5, num_classes=3)
    history = GasCache(60, [8, 8, 8])
    source = NodeSetSource(graph, UniformSampler(np.arange(60), 60, seed=0), np.arange(60), history)
    batch = source.batch(0, 0)
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    read = batch.graph.written_by(model, batch.x)
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())
    assert all(module.training for module in model.modules())
    kept = [table.clone() for table in history.tables]
    out = [model(batch.x, read) for _ in range(2)]
    assert not torch.equal(*out)  # the step itself uses dropout
    assert all(torch.equal(a, b) for a, b in zip(kept, history.tables))
    plain = Backbone(Backbone.Config(dim=8, num_layers=3, dropout=0.0, norm=norm), kind=kind, in_dim=5, num_classes=3)
    plain.load_state_dict(before)
    other = GasCache(60, [8, 8, 8])
    plain(batch.x, GasBatch(batch.graph.adjacency, batch.graph.nodes, other))
    assert all(relative_rmse(a, b) < 1e-6 for a, b in zip(history.tables, other.tables))
