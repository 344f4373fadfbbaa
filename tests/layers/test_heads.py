"""Decoders of pairs and nodes."""

import torch

from hopstate.layers.decoders import LinkHead, NodeHead


def test_link_head_equals_its_formula_and_is_directional():
    head = LinkHead(3).double()
    u, v = torch.randn(2, 4, 3, dtype=torch.float64)
    merged = torch.relu(torch.cat([u, v], 1) @ head.merge.weight.T + head.merge.bias)
    torch.testing.assert_close(head(u, v), merged @ head.score.weight[0] + head.score.bias)
    assert head(u, v).shape == (4,)
    assert not torch.allclose(head(u, v), head(v, u))
    assert head(u[:0], v[:0]).shape == (0,)


def test_parameters_are_counted():
    assert sum(p.numel() for p in LinkHead(172).parameters()) == 344 * 172 + 172 + 172 + 1
    widths = [tuple(p.shape) for p in NodeHead(172, 1).parameters() if p.ndim == 2]
    assert widths == [(80, 172), (10, 80), (1, 10)]
    assert NodeHead(4, 3, hidden=())(torch.randn(2, 4)).shape == (2, 3)


def test_node_head_applies_dropout_only_in_training():
    head = NodeHead(6, 2, hidden=(8,), dropout=0.5)
    x = torch.randn(3, 6)
    assert not torch.equal(head(x), head(x))
    head.eval()
    assert torch.equal(head(x), head(x))
