"""`gmn_inputs`: inputs of a GMN for custom training loops."""

from __future__ import annotations

from dataclasses import replace
from unittest.mock import MagicMock

import numpy as np
import pytest
import torch

import hopstate
from hopstate.errors import DataError
from hopstate.methods.gmn.batches import FullGraphBatches, PreparedGraph
from hopstate.methods.gmn.tokens import WalkSettings
from hopstate.methods.shared.node import flow_reversed

WALKS = {"max_length": 2, "repeats": 2, "walks": 3}


def graph(**fields) -> hopstate.Graph:
    rng = np.random.default_rng(0)
    edges = np.stack([np.arange(9), np.arange(1, 10)])
    edges = np.concatenate([edges, rng.integers(0, 10, (2, 6))], 1)
    return hopstate.Graph.from_edges(edges, num_nodes=10, x=rng.normal(size=(10, 3)).astype(np.float32), **fields)


def model(config, tokens=1):
    torch.manual_seed(0)
    return hopstate.GMN(config, in_dim=3, out_dim=2, tokens=tokens).eval()


def test_outputs_equal_those_of_a_run():
    data, config = graph(undirected=False), hopstate.GMN.Config(dim=8, mpnn_layers=1)
    over = flow_reversed(data)
    ready = PreparedGraph(
        indptr=over.indptr, indices=over.indices, x=np.array(data.x), edge_attr=None,
        key=np.arange(10, 0, -1).astype(float), settings=WalkSettings(max_length=0, repeats=1, walks=1),
    )  # fmt: skip
    net = model(config)
    source = FullGraphBatches(net.config, ready, MagicMock(), seed=0)
    mine = hopstate.gmn_inputs(data)
    with torch.no_grad():
        expected = net(source._inputs(0, None))
        given = torch.from_numpy(np.arange(10)[::-1].copy())  # the run's order of nodes
        torch.testing.assert_close(net(replace(mine, order=given)), expected)


@pytest.mark.parametrize("local", ["gatedgcn", "rwf"])
def test_a_seed_fixes_walks_and_order_and_another_changes_them(local):
    config = hopstate.GMN.Config(dim=8, mpnn_layers=1, local=local)
    net = model(config, tokens=5)
    with torch.no_grad():
        first, again, other = (net(hopstate.gmn_inputs(graph(), config, **WALKS, seed=seed)) for seed in (1, 1, 2))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


def test_nodes_receive_from_the_sources_of_their_edges():
    data = hopstate.Graph.from_edges(np.array([[0, 1]]), num_nodes=2, x=np.eye(2, dtype=np.float32), undirected=False)
    adjacency = hopstate.gmn_inputs(data).graph
    assert adjacency.indptr.tolist() == [0, 0, 1]
    assert adjacency.indices.tolist() == [0]


def test_a_graph_without_features_is_rejected():
    with pytest.raises(DataError, match="features"):
        hopstate.gmn_inputs(graph().with_(x=None))
