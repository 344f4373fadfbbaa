"""Layers work in `torch_geometric.nn.Sequential` together with its own and give the output of a direct call."""

import numpy as np
import pytest
import torch
from torch import nn
from torch_geometric.nn import GCNConv, Sequential

import hopstate
from hopstate.layers.attention import (
    CrossAttention,
    PackedLayout,
    PackedSelfAttention,
    PackedTransformerBlock,
    SelfAttention,
    TransformerBlock,
)
from hopstate.layers.decoders import LinkHead, NodeHead
from hopstate.layers.encodings import TimeEncoding
from hopstate.layers.message import Adjacency
from hopstate.layers.mpnn import MPNN, BatchNorm, GatedGCN, MessageBlock
from hopstate.layers.ssm import BidirectionalMamba, SelectiveSSM, StepProjection
from hopstate.methods.baselines.graphmixer import MixerBlock

DIM, NODES = 8, 30


@pytest.fixture
def given():
    """Return inputs of layers: node features, edges both ways, packed sequences, blocks of tokens, gaps."""
    rng = np.random.default_rng(0)
    graph = hopstate.Graph.from_edges(rng.integers(0, NODES, (80, 2)), NODES)
    torch.manual_seed(0)
    bounds = torch.tensor([0, 7, 7, 20, NODES])
    row = torch.arange(4).repeat_interleave(bounds.diff())
    return {
        "x": torch.randn(NODES, DIM),
        "edge_index": torch.from_numpy(np.stack(graph.edge_index())),
        "graph": Adjacency.of(graph.indptr, graph.indices),
        "offsets": bounds,
        "layout": PackedLayout.of(row, torch.arange(NODES) - bounds[row], torch.ones(NODES), 4, 13),
        "blocks": torch.randn(5, 6, DIM),
        "gap": torch.rand(NODES) * 100,
        "width": 13,
    }


def layers():
    """Return the layers, each with its inputs and output."""
    found = [
        (lambda: SelectiveSSM(DIM, inner_dim=12, state_dim=4), "x, offsets -> x"),
        (lambda: BidirectionalMamba(DIM, state_dim=4), "x, offsets -> x"),
        (lambda: StepProjection(DIM, 2), "x -> x"),
        (lambda: GatedGCN(DIM), "x, graph -> x, e"),
        (lambda: BatchNorm(DIM), "x -> x"),
        (lambda: PackedSelfAttention(DIM, 2), "x, layout -> x"),
        (lambda: PackedTransformerBlock(DIM, 2, ffn_dim=16), "x, layout -> x"),
        (lambda: CrossAttention(DIM, 2), "x, offsets, width -> x"),
        (lambda: NodeHead(DIM, DIM), "x -> x"),
        (lambda: SelfAttention(DIM, 2), "blocks -> blocks"),
        (lambda: TransformerBlock(DIM, 2, ffn_dim=16), "blocks -> blocks"),
        (lambda: MixerBlock(6, DIM), "blocks -> blocks"),
        (lambda: TimeEncoding.geometric(DIM), "gap -> x"),
        (lambda: LinkHead(DIM), "x, x -> x"),
    ]
    for kind in ("gcn", "sage", "gin", "gatedgcn", "pna"):
        found.append((lambda kind=kind: MessageBlock(kind, DIM, edges=False, dropout=0.0), "x, graph -> x, e"))
        found.append((lambda kind=kind: MPNN(kind, DIM, num_layers=2), "x, graph -> x"))
    return found


@pytest.mark.parametrize(("make", "how"), layers())
def test_a_layer_in_a_sequential_equals_a_direct_call(make, how, given):
    torch.manual_seed(1)
    layer = make().eval()
    takes, gives = (part.split(", ") for part in how.split(" -> "))
    lone = layer(*(given[name] for name in takes))
    first = (GCNConv(DIM, DIM), "x, edge_index -> x")
    whole = Sequential(", ".join(given), [first, (layer, how), (nn.Identity(), f"{gives[0]} -> {gives[0]}")]).eval()
    changed = given | {"x": whole[0](given["x"], given["edge_index"])}
    expected = layer(*(changed[name] for name in takes))
    expected = expected[0] if isinstance(expected, tuple) else expected
    out = whole(*given.values())
    torch.testing.assert_close(out, expected, rtol=1e-5, atol=1e-6)
    assert out.shape == (lone[0] if isinstance(lone, tuple) else lone).shape
    if "x" in takes:
        out.sum().backward()
        assert whole[0].lin.weight.grad.abs().sum() > 0  # gradients go through to the layers before


def test_a_scan_between_two_convolutions_learns(given):
    torch.manual_seed(0)
    model = Sequential(
        "x, edge_index, offsets",
        [
            (GCNConv(DIM, DIM), "x, edge_index -> x"),
            nn.ReLU(),
            (BidirectionalMamba(DIM, state_dim=4), "x, offsets -> x"),
            (GCNConv(DIM, 2), "x, edge_index -> x"),
        ],
    )
    y = (given["x"][:, 0] > 0).long()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    losses = []
    for _ in range(60):
        loss = nn.functional.cross_entropy(model(given["x"], given["edge_index"], given["offsets"]), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < 0.7 * losses[0]
