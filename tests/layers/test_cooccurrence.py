"""The encoding of two counts: a loop over tokens, and its symmetry."""

import torch

from hopstate.layers.encodings import CountEncoding


def test_encoding_is_the_sum_of_the_mlp_of_each_count():
    encoding = CountEncoding(5).double()
    counts = torch.tensor([[0, 3], [2, 2], [3, 0], [7, 1]])
    expected = torch.stack([sum(encoding(c.double().view(1)) for c in row) for row in counts])
    torch.testing.assert_close(encoding.of(counts, 7), expected)
    torch.testing.assert_close(
        encoding.of(counts, 7)[0], encoding.of(counts.flip(1), 7)[0], rtol=1e-5, atol=1e-6
    )  # source and destination have equal weight
    assert encoding.of(counts[:0], 0).shape == (0, 5)


def test_gradients_reach_the_mlp_through_the_table():
    encoding = CountEncoding(4).double()
    counts = torch.tensor([[1, 2], [2, 2]])
    fast = torch.autograd.grad(encoding.of(counts, 9).square().sum(), list(encoding.parameters()))
    plain = (encoding(counts[:, :1].double()) + encoding(counts[:, 1:].double())).square().sum()
    for a, b in zip(fast, torch.autograd.grad(plain, list(encoding.parameters()))):
        torch.testing.assert_close(a, b)
