"""Batches for a model: weights of sums, of the loss and of the full graph; refreshes of TOP."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from hopstate.compensation.top.top import Refresher, Top, TopConfig
from hopstate.data.graph import Graph
from hopstate.methods.message_passing.batching import embedder
from hopstate.methods.message_passing.model import Backbone
from hopstate.ops.sampling import Neighborhoods
from hopstate.sampling.samplers import LayerSampler, SaintSampler, ShadowSampler
from hopstate.sampling.subgraph import LayerSource, NodeSetSource, full_graph
from hopstate.testing.conformance import assert_close_rmse
from hopstate.training.tasks.node import NodeLabels, NodeTask, Subgraphs
from hopstate.training.tasks.target import Target


def random_graph(n: int = 50, edges: int = 150, seed: int = 0) -> Graph:
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((n, 4)).astype(np.float32)
    return Graph.from_edges(rng.integers(0, n, (edges, 2)), n, x=x, y=np.arange(n) % 3)


def backbone(**settings) -> Backbone:
    config = Backbone.Config(**{"dim": 8, "num_layers": 2, "dropout": 0.5, **settings})
    return Backbone(config, kind="gcn", in_dim=4, num_classes=3)


def test_saint_sums_have_the_whole_graphs_degrees_and_the_edges_scale() -> None:
    graph = random_graph()
    sampler = SaintSampler(graph, "edge", 30, seed=0)
    batch = NodeSetSource(graph, sampler, np.arange(50)).batch(0, 1)
    local = Neighborhoods(graph.indptr, graph.indices).induced(batch.nodes)
    expected = torch.zeros(len(batch.nodes), len(batch.nodes))
    scale, degree = sampler.edge_scale(local.edges), graph.degree[batch.nodes] + 1.0
    for row in range(len(batch.nodes)):
        for e in range(local.indptr[row], local.indptr[row + 1]):
            column = local.indices[e]
            expected[row, column] += scale[e] / np.sqrt(degree[row] * degree[column])
        expected[row, row] += 1 / degree[row]
    assert_close_rmse(batch.graph.normalized_adjacency("symmetric").to_dense(), expected)
    torch.testing.assert_close(batch.weight, torch.from_numpy(1 / sampler.node_probability[batch.nodes]).float() / 50)


@pytest.mark.parametrize("labor", [False, True])
def test_sampled_sums_are_those_of_all_neighbours_on_average(labor: bool) -> None:
    graph = random_graph()
    source = LayerSource(graph, LayerSampler(graph, np.arange(50), 50, (2,), seed=0, labor=labor))
    x, whole = full_graph(graph)
    drawn = []
    for epoch in range(1000):
        batch = source.batch(epoch, 0)
        order = torch.from_numpy(np.argsort(batch.nodes))
        drawn.append((batch.graph.layers[0].normalized_adjacency("sum") @ batch.x)[order])
    drawn = torch.stack(drawn)
    error = drawn.std(0) / len(drawn) ** 0.5
    assert bool(((drawn.mean(0) - whole.normalized_adjacency("sum") @ x).abs() < 5 * error + 1e-4).all())


def test_saint_loss_is_the_weighted_sum() -> None:
    graph, model = random_graph(), backbone(dropout=0.0)
    split = {"train": np.arange(0, 50, 2), "val": np.arange(1), "test": np.arange(1)}
    labels = NodeLabels(
        y=graph.y, split=split, target=Target(goal="classes", names=("a", "b", "c"), metrics=("accuracy",))
    )
    source = NodeSetSource(graph, SaintSampler(graph, "node", 20, seed=0), labels.split["train"])
    task = NodeTask(model, Subgraphs(source, labels, lambda m: torch.zeros(50, 3)))
    made = source.batch(0, 0)
    y = torch.from_numpy(graph.y[made.nodes])[made.rows]
    each = F.cross_entropy(model(made.x, made.graph)[made.rows], y, reduction="none")
    torch.testing.assert_close(task.loss(next(task.batches(0))), (each * made.weight).sum())
    assert made.weight.std() > 0


def test_saint_weights_of_walks_add_up_on_a_large_sparse_graph() -> None:
    graph = random_graph(6000, 18000)
    sampler = SaintSampler(graph, "walk", 64, seed=0)
    sums = [sampler.node_set(epoch, 0).loss_weight.sum() / 6000 for epoch in range(300)]
    assert abs(np.mean(sums) - 1) < 0.06  # with 10 visits per node it is 1.13


@pytest.mark.parametrize(("depth", "fanout"), [(1, 4), (2, 3), (3, 2)])
def test_shadow_follows_the_given_hops_and_keeps_each_node_once(depth: int, fanout: int) -> None:
    graph = random_graph(300, 3000)
    cutter = Neighborhoods(graph.indptr, graph.indices)
    for root in range(20):
        offsets, nodes = cutter.hops(np.array([root]), depth, fanout, seed=root)
        assert offsets.tolist() == [0, len(nodes)]
        assert nodes[0] == root
        assert len(set(nodes.tolist())) == len(nodes) <= sum(fanout**k for k in range(depth + 1))
        near = {root}
        for _ in range(depth):
            near |= {int(u) for v in near for u in graph.indices[graph.indptr[v] : graph.indptr[v + 1]]}
        assert set(nodes.tolist()) <= near
    assert len(nodes) > 1 + fanout * (depth > 1)
    sampler = ShadowSampler(graph, np.arange(300), 7, seed=0, kind="hops", depth=depth, fanout=fanout)
    assert sampler.subgraphs(0, 0)[1].tolist()[0] == 0


def test_a_compensation_is_refreshed_when_it_is_due() -> None:
    graph, model = random_graph(), backbone()
    top = Top(graph, TopConfig(refresh=5), "symmetric", seed=0)
    embed = embedder(graph, top, 100)
    top.prepare(model, embed)
    refresher = Refresher(top, model, embed, 5)
    assert [epoch for epoch in range(21) if refresher.due(epoch)] == [1, 2, 4, 5, 10, 15, 20]
    before = [basis.values.clone() for basis in top.bases]
    with torch.no_grad():
        for p in model.parameters():
            p.mul_(1.5)
    refresher(model, 3)
    assert all(torch.equal(basis.values, kept) for basis, kept in zip(top.bases, before))
    refresher(model, 4)
    assert not any(torch.equal(basis.values, kept) for basis, kept in zip(top.bases, before))


def test_a_refresh_in_training_mode_draws_no_dropout() -> None:
    graph, model = random_graph(), backbone()
    top = Top(graph, TopConfig(), "symmetric", seed=0)
    embed = embedder(graph, top, 100)
    made = []
    for training in (True, False):
        top.refresh(model.train(training), embed)
        made.append([basis.values.clone() for basis in top.bases])
        assert model.training == training
    assert all(torch.equal(a, b) for a, b in zip(*made))


@pytest.mark.parametrize("basis", ["global", "batch"])
def test_a_batch_has_the_requested_samples_and_is_reproducible(basis: str) -> None:
    graph, model = random_graph(), backbone()
    top = Top(graph, TopConfig(samples=12, rank=6, basis=basis, refresh=0), "symmetric", seed=0)
    top.prepare(model, embedder(graph, top, 100))
    state = torch.random.get_rng_state()
    once, again = (top.batch(np.arange(0, 50, 2)) for _ in range(2))
    assert torch.equal(torch.random.get_rng_state(), state)
    for a, b in zip(once.missing, again.missing):
        assert len(a.rows) == 12
        assert torch.equal(a.left, b.left)
        assert torch.equal(a.right, b.right)


def test_the_basis_of_a_batch_equals_equation_12() -> None:
    graph, model = random_graph(), backbone(num_layers=1)
    top = Top(graph, TopConfig(rank=3, basis="batch", refresh=0, num_initializations=1, ridge=0.0), "symmetric", seed=0)
    top.prepare(model, embedder(graph, top, 100))
    nodes = np.arange(0, 50, 2)
    found = top.batch(nodes).missing[0]
    h = top.bases[0].values.double()
    inside, rows = h[nodes], found.rows
    whole = full_graph(graph)[1].normalized_adjacency("symmetric").to_dense().double()
    far = np.setdiff1d(np.arange(50), nodes)
    sums = whole[nodes][:, far] @ h[far]
    q = torch.linalg.svd(inside, full_matrices=False).U[:, :3]  # the best that a range finder can find
    expected = sums @ torch.linalg.pinv(q[rows].T @ inside[rows]) @ q[rows].T
    torch.testing.assert_close(
        (found.left @ found.right).double(), expected, rtol=0.02, atol=0.02 * float(expected.std())
    )
