"""Message passing against its equations row by row; pooling; single rows."""

import numpy as np
import pytest
import torch

from hopstate.errors import ConfigError
from hopstate.layers.message import Adjacency
from hopstate.layers.mpnn import MPNN, GatedGCN, MessageBlock, WalkEncoder, pool


def small() -> Adjacency:
    return Adjacency.of(np.array([0, 2, 3, 5, 5]), np.array([1, 2, 0, 0, 1]))


def test_gated_gcn_equals_its_equations():
    layer, h, e = GatedGCN(5, edges=True).double(), torch.randn(4, 5).double(), torch.randn(5, 5).double()
    graph = small()
    out, new = layer(h, graph, e)
    own, value, receiver, sender = layer.node(h).chunk(4, -1)
    for i in range(4):
        top, bottom = torch.zeros(5).double(), torch.full((5,), 1e-6).double()
        for k in range(graph.indptr[i], graph.indptr[i + 1]):
            j = graph.indices[k]
            gate = layer.edge(e)[k] + receiver[i] + sender[j]
            torch.testing.assert_close(new[k], gate)
            top, bottom = top + gate.sigmoid() * value[j], bottom + gate.sigmoid()
        torch.testing.assert_close(out[i], own[i] + top / bottom)


@pytest.mark.parametrize("kind", ["gatedgcn", "gcn", "gin", "gine", "sage"])
@pytest.mark.parametrize("norm", ["batch", "layer"])
def test_row_indices_equal_gathered_rows(kind, norm):
    net = MPNN(kind, 6, num_layers=2, edges=True, norm=norm).eval()
    table, rows, e = torch.randn(3, 6), torch.tensor([2, 0, 2, 1]), torch.randn(5, 6)
    torch.testing.assert_close(net(table, small(), e, rows), net(table[rows], small(), e))


def test_edge_features_change_the_output_if_used():
    graph, h = small(), torch.randn(4, 6)
    for kind, used in (("gatedgcn", True), ("gine", True), ("gcn", False)):
        net = MPNN(kind, 6, num_layers=2, edges=True).eval()
        same = torch.allclose(net(h, graph, torch.zeros(5, 6)), net(h, graph, torch.ones(5, 6)))
        assert same != used


def test_one_node_trains():
    net = MPNN("gatedgcn", 4, num_layers=2).train()
    assert net(torch.randn(1, 4), Adjacency.of(np.array([0, 0]), np.empty(0, np.int64))).isfinite().all()


@pytest.mark.parametrize("how", ["mean", "sum", "max"])
def test_pool_reduces_segments(how):
    x = torch.randn(6, 3, dtype=torch.float64, requires_grad=True)
    offsets = torch.tensor([0, 2, 2, 6])
    out = pool(x, offsets, how)
    for i, part in enumerate((x[:2], x[2:2], x[2:])):
        expected = torch.zeros(3).double() if not len(part) else part.amax(0) if how == "max" else getattr(part, how)(0)
        torch.testing.assert_close(out[i], expected)
    torch.autograd.gradcheck(lambda x: pool(x, offsets, how), x)


def test_walk_encoder_uses_bits_and_separates_walks():
    encoder = WalkEncoder(8, window=2, edges=True).eval()
    x, bits = torch.randn(7, 8), torch.randint(0, 2, (7, 4), dtype=torch.uint8)
    walks, tokens, e = torch.tensor([0, 3, 5, 7]), torch.tensor([0, 5, 7]), torch.randn(7, 8)
    out = encoder(x, bits, walks, tokens, e)
    single = encoder(x[5:], bits[5:], torch.tensor([0, 2]), torch.tensor([0, 2]), e[5:])
    torch.testing.assert_close(out[1:], single)
    swapped = torch.tensor([3, 4, 0, 1, 2, 5, 6])
    again = encoder(x[swapped], bits[swapped], torch.tensor([0, 2, 5, 7]), tokens, e[swapped])
    torch.testing.assert_close(out, again)
    assert not torch.allclose(out, encoder(x, 1 - bits, walks, tokens, e))


def test_unknown_and_impossible_kinds_are_named():
    with pytest.raises(ConfigError, match="gatedgcn"):
        MessageBlock("gatedcgn", 4, edges=False, dropout=0.0)
    with pytest.raises(ConfigError):
        MessageBlock("gine", 4, edges=False, dropout=0.0)
