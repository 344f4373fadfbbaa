"""Attention over packed sequences against the padded, repeated and one-by-one forms."""

import pytest
import torch

from hopstate.errors import ConfigError
from hopstate.layers.attention import (
    CrossAttention,
    PackedLayout,
    PackedSelfAttention,
    PackedTransformerBlock,
    dot_product_attention,
)

LENGTHS = [3, 1, 5]


def _packed(dim: int = 6, weights: list[float] | None = None):
    x = torch.randn(sum(LENGTHS), dim, dtype=torch.float64)
    row = torch.repeat_interleave(torch.arange(3), torch.tensor(LENGTHS))
    position = torch.cat([torch.arange(n) for n in LENGTHS])
    weight = torch.ones(len(x), dtype=torch.float64) if weights is None else torch.tensor(weights).double()
    return x, PackedLayout.of(row, position, weight, 3, 7)


def _single(attention: PackedSelfAttention, x: torch.Tensor) -> torch.Tensor:
    """One sequence (token, dim) through the heads, written out."""
    q, k, v = (part.unflatten(1, (attention.num_heads, -1)).transpose(0, 1) for part in attention.qkv(x).chunk(3, 1))
    return attention.out(dot_product_attention(q, k, v).transpose(0, 1).flatten(1))


def test_packed_equals_single_sequences():
    x, layout = _packed()
    attention = PackedSelfAttention(6, 2).double()
    expected = torch.cat([_single(attention, part) for part in x.split(LENGTHS)])
    torch.testing.assert_close(attention(x, layout), expected)


def test_an_integer_weight_equals_copies():
    attention = PackedSelfAttention(6, 3).double()
    x, layout = _packed(weights=[1, 4, 1, 1, 1, 1, 1, 1, 3])
    out = attention(x, layout)
    first = _single(attention, torch.cat([x[:1], x[1:2].expand(4, -1), x[2:3]]))
    torch.testing.assert_close(out[:3], first[[0, 1, 5]])
    last = _single(attention, torch.cat([x[4:8], x[8:].expand(3, -1)]))
    torch.testing.assert_close(out[4:], last[[0, 1, 2, 3, 6]])


def test_weight_zero_hides_a_token_from_the_others():
    block = PackedTransformerBlock(6, 2, ffn_dim=8).double()
    x, layout = _packed(weights=[1, 1, 1, 1, 1, 1, 1, 1, 0])
    other = torch.cat([x[:-1], torch.full((1, 6), 9.0, dtype=torch.float64)])
    torch.testing.assert_close(block(x, layout)[:-1], block(other, layout)[:-1])


def test_gradients_of_a_block():
    block = PackedTransformerBlock(4, 2, ffn_dim=5).double()
    x, layout = _packed(dim=4, weights=[1, 2, 1, 1, 1, 1, 1, 1, 0])
    assert torch.autograd.gradcheck(lambda x: block(x, layout), x.requires_grad_())


def test_sequences_do_not_see_each_other():
    block = PackedTransformerBlock(6, 2, ffn_dim=8).double()
    x, layout = _packed()
    changed = x.clone()
    changed[4:] += 1
    out, again = block(x, layout), block(changed, layout)
    torch.testing.assert_close(out[:4], again[:4], rtol=1e-5, atol=1e-6)
    assert not torch.allclose(out[4:], again[4:])


def test_heads_must_divide_the_width():
    with pytest.raises(ConfigError, match="num_heads"):
        PackedSelfAttention(6, 4)


def test_cross_attention_reads_the_other_sequence_as_it_was_and_no_padding():
    attention = CrossAttention(6, 2).double()
    lengths = [3, 0, 2, 5]  # u_0, u_1, v_0, v_1: u_1 is empty, so v_1 has no token to attend to
    offsets = torch.tensor([0, *lengths]).cumsum(0)
    x = torch.randn(10, 6, dtype=torch.float64)
    out = attention(x, offsets, 5)
    assert torch.isfinite(out).all()
    parts, results = x.split(lengths), out.split(lengths)
    for mine, other in ((0, 2), (2, 0)):
        q = attention.qkv(attention.norm(parts[mine])).chunk(3, -1)[0]
        _, k, v = attention.qkv(attention.norm(parts[other])).chunk(3, -1)
        heads = [(q[:, c] @ k[:, c].T / 3**0.5).softmax(-1) @ v[:, c] for c in (slice(0, 3), slice(3, 6))]
        torch.testing.assert_close(results[mine], parts[mine] + attention.out(torch.cat(heads, 1)))
    with pytest.raises(ConfigError):
        CrossAttention(6, 4)
