"""GPS layers with a scan over the nodes: several layers, edge states, activation checkpointing."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from hopstate.data.graph import Graph
from hopstate.errors import ConfigError
from hopstate.layers.message import Adjacency
from hopstate.methods.gmn.model import GMN, GMNInputs
from hopstate.testing.conformance import F64_SUM

SMALL = GMN.Config(variant="gps-mamba", dim=8, expand=1.0, state_dim=4, mpnn_layers=3, dropout=0.3)


def inputs(n: int = 14, edges: int = 20) -> GMNInputs:
    rng = np.random.default_rng(0)
    g = Graph.from_edges(rng.integers(0, n, (edges, 2)), n)
    return GMNInputs(
        x=torch.from_numpy(rng.normal(size=(n, 5))),
        graph=Adjacency.of(g.indptr, g.indices),
        edge_attr=torch.from_numpy(rng.normal(size=(g.num_edges, 3))),
        order=torch.from_numpy(rng.permutation(n)),
        sequences=torch.tensor([0, n]),
    )


def made(config: GMN.Config = SMALL, **changes) -> GMN:
    torch.manual_seed(0)
    return GMN(config, in_dim=5, out_dim=2, edge_dim=3, **changes).double()


def test_mpnn_layers_are_the_layers_and_node_layers_the_blocks_of_each():
    def size(**changes) -> int:
        return sum(p.numel() for p in made(replace(SMALL, **changes)).parameters())

    assert size(mpnn_layers=1) < size(mpnn_layers=2) < size(mpnn_layers=4)
    assert size(node_layers=1) < size(node_layers=2)
    for nothing in ({"mpnn_layers": 0}, {"node_layers": 0}, {"mpnn": "none"}):
        with pytest.raises(ConfigError, match=r"model\.mpnn_layers"):
            replace(SMALL, **nothing)


def test_a_gps_layer_equals_its_formula():
    """A loop over layers in plain torch that passes on GatedGCN's edge states: e' = e + ReLU(Norm(gate))."""
    model, given = made().eval(), inputs()
    senders, receivers = given.graph.edge_index()
    h, e = model.embed(given.x), model.embed_edge(given.edge_attr)
    for number, layer in enumerate(model.gps):
        conv = layer.message.conv
        own, value, to, out_of = conv.node(h).chunk(4, 1)
        gate = to[receivers] + out_of[senders] + conv.edge(e)
        top, bottom = (
            torch.zeros_like(h).index_add(0, receivers, v) for v in (gate.sigmoid() * value[senders], gate.sigmoid())
        )
        local = h + layer.message.norm(own + top / (bottom + 1e-6)).relu()
        if number < 2:
            e = e + layer.message.edge_norm(gate).relu()
        everywhere = torch.empty_like(h)
        everywhere[given.order] = layer.blocks[0](h[given.order], given.sequences)
        z = layer.norms[0](local) + layer.norms[1](everywhere)
        h = layer.norms[2](z + layer.ffn(z))
    torch.testing.assert_close(model(given), model.head(model.norm(h)), rtol=F64_SUM, atol=F64_SUM)


def test_edge_states_reach_the_output():
    model, given = made().eval(), inputs()
    loss = model(given).square().sum()
    loss.backward()
    norms = [layer.message.edge_norm for layer in model.gps]
    assert norms[-1] is None
    assert all(norm.weight.grad.abs().max() > 0 for norm in norms[:-1])
    assert all(p.grad is not None for p in model.parameters())


def test_the_pna_scale_is_saved_with_the_weights():
    few, many = (made(replace(SMALL, mpnn="pna"), degrees=torch.full((9,), degree)).eval() for degree in (1, 6))
    assert not torch.equal(few(inputs()), many(inputs()))
    few.load_state_dict(many.state_dict())
    torch.testing.assert_close(few(inputs()), many(inputs()))
