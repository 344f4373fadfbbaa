import warnings

import numpy as np
import pytest

from hopstate.data.graph import Graph
from hopstate.errors import ConfigError, DataError, HopstateWarning, MissingExtraError
from hopstate.ops.sampling import Neighborhoods
from hopstate.sampling import partition as partition_module
from hopstate.sampling.partition import cut_fraction, partition
from hopstate.sampling.samplers import ClusterSampler, LayerSampler, SaintSampler, ShadowSampler, UniformSampler


def random_graph(n: int = 60, edges: int = 150, seed: int = 0, undirected: bool = True) -> Graph:
    ends = np.random.default_rng(seed).integers(0, n, (edges, 2))
    return Graph.from_edges(ends, n, undirected=undirected)


def ring(n: int = 400) -> Graph:
    nodes = np.arange(n)
    return Graph.from_edges(np.stack([nodes, (nodes + 1) % n], 1), n)


@pytest.mark.parametrize("how", ["auto", "bisection"])
def test_partition_covers_all_nodes_and_cuts_little(how: str) -> None:
    part = partition(ring(), 10, partitioner=how)
    assert sorted(set(part)) == list(range(10))
    assert cut_fraction(ring(), part) < 0.1
    assert np.array_equal(part, partition(ring(), 10, partitioner=how))


def test_partition_bad_input(monkeypatch) -> None:
    with pytest.raises(ConfigError, match="500"):
        partition(ring(), 500)
    monkeypatch.setattr(partition_module, "find_spec", lambda name: None)
    with pytest.raises(MissingExtraError):
        partition(ring(), 4, partitioner="metis")
    assert len(set(partition(ring(), 4))) == 4


def test_every_part_gets_a_node() -> None:
    assert sorted(partition(Graph.from_edges(np.empty((0, 2), int), 5), 5)) == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("shuffle", [True, False])
def test_parts_and_uniform_cover_the_rows_once_an_epoch(shuffle: bool) -> None:
    rows = np.arange(0, 400, 3)
    part = partition(ring(), 10)
    for sampler in (
        ClusterSampler(part, 3, seed=1, rows=rows, shuffle=shuffle),
        UniformSampler(rows, 40, seed=1, shuffle=shuffle),
    ):
        epochs = []
        for epoch in (0, 1):
            sets = [sampler.node_set(epoch, i) for i in range(sampler.num_batches(epoch))]
            assert np.array_equal(np.sort(np.concatenate([s.nodes for s in sets])), rows)
            epochs.append({tuple(s.nodes) for s in sets})
        assert (epochs[0] == epochs[1]) == (not shuffle)
        if not shuffle:
            kept = {tuple(s.nodes) for s in sets}
            assert tuple(sampler.node_set(0, 0).nodes) in kept


def test_parts_that_do_not_cover_the_training_nodes() -> None:
    with pytest.raises(DataError, match="node 12"):
        ClusterSampler(np.zeros(10, int), 1, seed=0, rows=np.array([3, 12]))
    with pytest.raises(DataError, match="node 3"):
        ClusterSampler(np.array([0, 1, 1, -1]), 1, seed=0, rows=np.array([0, 3]))
    with pytest.raises(ConfigError, match="5"):
        ClusterSampler(np.array([0, 1]), 5, seed=0)


@pytest.mark.parametrize(("kind", "size"), [("node", 25), ("edge", 15), ("walk", 8)])
def test_saint_sums_are_unbiased(kind: str, size: int) -> None:
    """Loss weights and edge scales make the mean over batches of weighted sums the sum over the graph."""
    graph = random_graph()
    sampler = SaintSampler(graph, kind, size, seed=0, walk_length=3, sample_coverage=1000)
    cutter, draws = Neighborhoods(graph.indptr, graph.indices), 1500
    nodes, edges = np.zeros((draws, graph.num_nodes)), np.zeros((draws, graph.num_edges))
    for i in range(draws):
        drawn = sampler.node_set(i, 0)
        nodes[i, drawn.nodes] = drawn.loss_weight
        local = cutter.induced(drawn.nodes)
        receiver = np.repeat(np.arange(len(drawn.nodes)), np.diff(local.indptr))
        edges[i, local.edges] = drawn.loss_weight[receiver] * sampler.edge_scale(local.edges)
    for values in (nodes, edges):
        drawn = values[:, values.any(0)]
        error = drawn.std(0) / np.sqrt(draws)
        assert drawn.shape[1] > 0.8 * values.shape[1]
        slack = 0.1 if kind == "walk" else 0.0  # its probabilities are estimated by counting
        assert (np.abs(drawn.mean(0) - 1) < 5.5 * error + slack).all()
        assert abs(drawn.mean() - 1) < 0.03


def test_saint_needs_an_undirected_graph() -> None:
    with pytest.raises(DataError):
        SaintSampler(random_graph(undirected=False), "node", 10, seed=0)


def test_layers_chain_from_input_to_seeds() -> None:
    graph, rows = random_graph(200, 2000), np.arange(50, 150)
    sampler = LayerSampler(graph, rows, 16, (5, 3), seed=2)
    seeds = []
    for i in range(sampler.num_batches(0)):
        first, last = sampler.layers(0, i)
        assert np.array_equal(first.nodes[: first.num_receivers], last.nodes)
        assert np.diff(last.indptr).max() <= 3
        assert np.diff(first.indptr).max() <= 5
        seeds.append(last.nodes[: last.num_receivers])
    assert np.array_equal(np.sort(np.concatenate(seeds)), rows)
    again = LayerSampler(graph, rows, 16, (5, 3), seed=2).layers(0, 2)
    assert np.array_equal(again[0].indices, sampler.layers(0, 2)[0].indices)
    assert not np.array_equal(sampler.layers(1, 2)[0].nodes, again[0].nodes)


@pytest.mark.parametrize("how", ["ppr", "hops"])
def test_shadow_gives_each_seed_its_own_subgraph(how: str) -> None:
    graph = random_graph(200, 2000)
    sampler = ShadowSampler(graph, np.arange(200), 20, seed=0, kind=how, size=12)
    local, roots = sampler.subgraphs(0, 3)
    assert len(roots) == 20
    assert np.array_equal(local.nodes[roots], sampler.seeds.node_set(0, 3).nodes)
    assert local.num_receivers == len(local.nodes)
    together = sampler.node_set(0, 3)
    assert np.array_equal(together.nodes, np.unique(local.nodes))
    seeds = np.isin(together.nodes, local.nodes[roots])
    assert set(together.loss_weight[seeds].tolist()) == {10.0}  # 200 seeds, 20 to a batch
    assert not together.loss_weight[~seeds].any()


def test_partitions_no_better_than_random_give_a_warning() -> None:
    rng = np.random.default_rng(0)
    everywhere = Graph.from_edges(rng.integers(0, 600, (100000, 2)), 600, name="dense")
    with pytest.warns(HopstateWarning, match="dense"):
        partition(everywhere, 10)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        partition(ring(600), 10)
