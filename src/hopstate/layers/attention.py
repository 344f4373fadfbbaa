"""Self-attention over sequences of one length or packed ones, and the pre-norm Transformer blocks built on it.

Of packed sequences linear maps see the real tokens alone, and the attention product is laid out as a padded
(sequence, token) block. A token may stand for several equal ones: a weight w of a key multiplies its share in the
softmax, which is the same as w copies of it.

Source: Vaswani et al. 2017, arXiv:1706.03762; LayerNorm before each part as in Xiong et al. 2020, arXiv:2002.04745;
for packed sequences dropout within the feed-forward part too, as in DyGFormer, arXiv:2303.13047.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from hopstate.errors import ConfigError
from hopstate.types import Float, shapecheck


class MultiHead(nn.Module):
    """The projections of multi-head attention: queries, keys and values together, and the way out.

    Args:
        dim: token width.
        num_heads: heads; divides dim.
        dropout: probability that an attention weight is dropped in training.

    Raises:
        ConfigError: num_heads does not divide dim.
    """

    def __init__(self, dim: int, num_heads: int, *, dropout: float = 0.0) -> None:
        super().__init__()
        if num_heads < 1 or dim % num_heads:
            raise ConfigError(f"dim={dim} is not a multiple of num_heads={num_heads}")
        self.num_heads, self.dropout = num_heads, dropout
        self.qkv = nn.Linear(dim, 3 * dim)
        self.out = nn.Linear(dim, dim)


class SelfAttention(MultiHead):
    """Attention of every token of a sequence to every other, softmax(QK^T / sqrt(d_head)) V W_o."""

    @shapecheck
    def forward(self, x: Float[Tensor, "batch token feature"]) -> Float[Tensor, "batch token feature"]:
        """Return the attended tokens."""
        b, t, d = x.shape
        q, k, v = self.qkv(x).view(b, t, 3, self.num_heads, d // self.num_heads).permute(2, 0, 3, 1, 4).contiguous()
        if self.training and self.dropout:  # torch has no fused form with dropout on a CPU, and its plain one is slower
            mixed = dot_product_attention(q, k, v, dropout=self.dropout)
        else:
            mixed = F.scaled_dot_product_attention(q, k, v)
        return self.out(mixed.transpose(1, 2).reshape(b, t, d))


class FeedForward(nn.Sequential):
    """W_2 GELU(W_1 x) on every token alone.

    Args:
        dim: token width.
        hidden: inner width.
    """

    def __init__(self, dim: int, hidden: int) -> None:
        super().__init__(nn.Linear(dim, hidden), nn.GELU(), nn.Linear(hidden, dim))


class TransformerBlock(nn.Module):
    """x + Attention(LN(x)), then x + FFN(LN(x)), with dropout on what is added.

    Args:
        dim: token width.
        num_heads: heads; divides dim.
        ffn_dim: inner width of the feed-forward part.
        dropout: probability that an added element is dropped in training.
        attention_dropout: probability that an attention weight is dropped in training.
    """

    def __init__(
        self, dim: int, num_heads: int, *, ffn_dim: int, dropout: float = 0.0, attention_dropout: float = 0.0
    ) -> None:
        super().__init__()
        self.attention_norm = nn.LayerNorm(dim)
        self.attention = SelfAttention(dim, num_heads, dropout=attention_dropout)
        self.ffn_norm = nn.LayerNorm(dim)
        self.ffn = FeedForward(dim, ffn_dim)
        self.dropout = nn.Dropout(dropout)

    @shapecheck
    def forward(self, x: Float[Tensor, "batch token feature"]) -> Float[Tensor, "batch token feature"]:
        """Return the tokens after one block."""
        x = x + self.dropout(self.attention(self.attention_norm(x)))
        return x + self.dropout(self.ffn(self.ffn_norm(x)))


def dot_product_attention(q: Tensor, k: Tensor, v: Tensor, *, dropout: float = 0.0) -> Tensor:
    """Return softmax(QK^T / sqrt(d)) V over the last two axes of q, k, v (..., token, d), written out."""
    weights = torch.softmax((q * q.shape[-1] ** -0.5) @ k.transpose(-1, -2), -1)
    return F.dropout(weights, dropout) @ v


class PackedLayout(NamedTuple):
    """Where T packed tokens stand in a (batch, width) block.

    Args:
        slot: (T,) int64 place of each token in the flattened block.
        bias: (batch, 1, 1, width) what is added to the attention scores of each key: the logarithm of its weight,
            -inf where there is no token.
    """

    slot: Tensor
    bias: Tensor

    @classmethod
    def of(cls, row: Tensor, position: Tensor, weight: Tensor, batch: int, width: int) -> PackedLayout:
        """Lay tokens out by row and position (T,) in a block of batch rows and width.

        weight (T,) says how many equal tokens each stands for; 0 hides a token from the others.
        """
        slot = row * width + position
        logs = weight.new_full((batch * width,), -torch.inf).index_copy(0, slot, weight.log())
        return cls(slot, logs.view(batch, 1, 1, width))


class PackedSelfAttention(MultiHead):
    """Attention of every token to those of its own sequence, softmax(QK^T / sqrt(d_head) + log w) V W_o."""

    def __init__(self, dim: int, num_heads: int, *, dropout: float = 0.0) -> None:
        super().__init__(dim, num_heads, dropout=dropout)
        nn.init.xavier_uniform_(self.qkv.weight)  # DyGFormer's; its biases start at zero
        nn.init.zeros_(self.qkv.bias)
        nn.init.zeros_(self.out.bias)

    def forward(self, x: Float[Tensor, "token channel"], layout: PackedLayout) -> Float[Tensor, "token channel"]:
        batch, width = layout.bias.shape[0], layout.bias.shape[-1]
        dim, heads = x.shape[1], self.num_heads
        block = x.new_zeros(batch * width, 3 * dim).index_copy(0, layout.slot, self.qkv(x))
        q, k, v = block.view(batch, width, 3, heads, dim // heads).permute(2, 0, 3, 1, 4)
        drop = self.dropout if self.training else 0.0
        mixed = F.scaled_dot_product_attention(q, k, v, attn_mask=layout.bias.to(q.dtype), dropout_p=drop)
        return self.out(mixed.transpose(1, 2).reshape(batch * width, dim).index_select(0, layout.slot))


class PackedTransformerBlock(nn.Module):
    """x + Attention(LN(x)), then x + W_2 GELU(W_1 LN(x)), with dropout on what is added and after the GELU.

    Args:
        dim: token width.
        num_heads: heads; divides dim.
        ffn_dim: inner width of the feed-forward part.
        dropout: probability that an element, or an attention weight, is dropped in training.
    """

    def __init__(self, dim: int, num_heads: int, *, ffn_dim: int, dropout: float = 0.0) -> None:
        super().__init__()
        self.attention_norm = nn.LayerNorm(dim)
        self.attention = PackedSelfAttention(dim, num_heads, dropout=dropout)
        self.ffn_norm = nn.LayerNorm(dim)
        self.ffn = nn.Sequential(nn.Linear(dim, ffn_dim), nn.GELU(), nn.Dropout(dropout), nn.Linear(ffn_dim, dim))
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Float[Tensor, "token channel"], layout: PackedLayout) -> Float[Tensor, "token channel"]:
        x = x + self.dropout(self.attention(self.attention_norm(x), layout))
        return x + self.dropout(self.ffn(self.ffn_norm(x)))


class CrossAttention(nn.Module):
    """x + Attention of every token of u to the tokens of v as they were, and of v to those of u, after a LayerNorm.

    Args:
        dim: token width.
        num_heads: heads; divides dim.
    """

    def __init__(self, dim: int, num_heads: int) -> None:
        super().__init__()
        if num_heads < 1 or dim % num_heads:
            raise ConfigError(f"dim={dim} is not a multiple of num_heads={num_heads}")
        self.num_heads = num_heads
        self.norm = nn.LayerNorm(dim)
        self.qkv = nn.Linear(dim, 3 * dim)
        self.out = nn.Linear(dim, dim)

    def forward(self, x: Tensor, offsets: Tensor, width: int) -> Tensor:
        """Return (token, dim).

        Args:
            x: (token, dim), the sequences of u_0..u_{P-1}, then of v_0..v_{P-1}.
            offsets: (2P + 1,) int64.
            width: tokens of the longest sequence.
        """
        count, dim, heads = len(offsets) - 1, x.shape[1], self.num_heads
        row = torch.arange(count, device=x.device).repeat_interleave(offsets.diff(), output_size=len(x))
        position = torch.arange(len(x), device=x.device) - offsets[row]
        layout = PackedLayout.of(row, position, x.new_ones(len(x)), count, width)
        normed = self.norm(x)
        block = x.new_zeros(count * width, 3 * dim).index_copy(0, layout.slot, self.qkv(normed))
        q, k, v = block.view(count, width, 3, heads, dim // heads).permute(2, 0, 3, 1, 4)
        k, v, bias = (torch.roll(part, count // 2, 0) for part in (k, v, layout.bias.to(q.dtype)))
        alone = bias.isinf().all(-1, keepdim=True)  # nothing to attend to: a softmax over nothing is not a number
        mixed = F.scaled_dot_product_attention(q, k, v, attn_mask=bias.masked_fill(alone, 0))
        return x + self.out(mixed.transpose(1, 2).reshape(count * width, dim).index_select(0, layout.slot))
