"""Self-attention over equal-length or packed sequences, and pre-norm Transformer blocks.

For packed sequences, linear maps process the real tokens only, and attention uses a padded (sequence, token) block. A
token can replace w equal ones: its key's attention score is shifted by log w, which equals w copies of it.

Source: Vaswani et al. 2017, arXiv:1706.03762; LayerNorm before each part as in Xiong et al. 2020, arXiv:2002.04745;
for packed sequences also dropout within the feed-forward part, as in DyGFormer, arXiv:2303.13047.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from hopstate.errors import ConfigError
from hopstate.types import Float, shapecheck


class MultiHead(nn.Module):
    """Projections of multi-head attention: joint queries, keys and values, and the output.

    Args:
        dim: token width.
        num_heads: number of heads; divides dim.
        dropout: dropout probability of attention weights.

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
    """Self-attention within a sequence, softmax(QK^T / sqrt(d_head)) V W_o."""

    @shapecheck
    def forward(self, x: Float[Tensor, "batch token feature"]) -> Float[Tensor, "batch token feature"]:
        """Return the attended tokens."""
        b, t, d = x.shape
        q, k, v = self.qkv(x).view(b, t, 3, self.num_heads, d // self.num_heads).permute(2, 0, 3, 1, 4).contiguous()
        if self.training and self.dropout:  # torch has no fused CPU kernel with dropout
            mixed = dot_product_attention(q, k, v, dropout=self.dropout)
        else:
            mixed = F.scaled_dot_product_attention(q, k, v)
        return self.out(mixed.transpose(1, 2).reshape(b, t, d))


class TransformerBlock(nn.Module):
    """x + Attention(LN(x)), then x + FFN(LN(x)), with dropout on both residual branches.

    Args:
        dim: token width.
        num_heads: number of heads; divides dim.
        ffn_dim: hidden width of the feed-forward part.
        dropout: dropout probability of the residual branches.
        attention_dropout: dropout probability of attention weights.
    """

    def __init__(
        self, dim: int, num_heads: int, *, ffn_dim: int, dropout: float = 0.0, attention_dropout: float = 0.0
    ) -> None:
        super().__init__()
        self.attention_norm = nn.LayerNorm(dim)
        self.attention = SelfAttention(dim, num_heads, dropout=attention_dropout)
        self.ffn_norm = nn.LayerNorm(dim)
        self.ffn = nn.Sequential(nn.Linear(dim, ffn_dim), nn.GELU(), nn.Linear(ffn_dim, dim))
        self.dropout = nn.Dropout(dropout)

    @shapecheck
    def forward(self, x: Float[Tensor, "batch token feature"]) -> Float[Tensor, "batch token feature"]:
        """Return the tokens after one block."""
        x = x + self.dropout(self.attention(self.attention_norm(x)))
        return x + self.dropout(self.ffn(self.ffn_norm(x)))


def dot_product_attention(q: Tensor, k: Tensor, v: Tensor, *, dropout: float = 0.0) -> Tensor:
    """Return softmax(QK^T / sqrt(d)) V over the last two axes of q, k, v (..., token, d), in plain torch."""
    weights = torch.softmax((q * q.shape[-1] ** -0.5) @ k.transpose(-1, -2), -1)
    return F.dropout(weights, dropout) @ v


class PackedLayout(NamedTuple):
    """Positions of T packed tokens in a padded (batch, width) block.

    Args:
        slot: (T,) int64 position in the flattened block.
        bias: (batch, 1, 1, width) added to the scores of each key: the log of its weight, -inf for padding.
    """

    slot: Tensor
    bias: Tensor

    @classmethod
    def of(cls, row: Tensor, position: Tensor, weight: Tensor, batch: int, width: int) -> PackedLayout:
        """Place tokens by row and position (T,) in a block of batch rows and width columns.

        weight (T,) is the number of equal tokens that each represents. 0 hides a token from the others.
        """
        slot = row * width + position
        logs = weight.new_full((batch * width,), -torch.inf).index_copy(0, slot, weight.log())
        return cls(slot, logs.view(batch, 1, 1, width))


class PackedSelfAttention(MultiHead):
    """Self-attention within each packed sequence, softmax(QK^T / sqrt(d_head) + log w) V W_o."""

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
    """x + Attention(LN(x)), then x + W_2 GELU(W_1 LN(x)), with dropout on both branches and after the GELU.

    Args:
        dim: token width.
        num_heads: number of heads; divides dim.
        ffn_dim: hidden width of the feed-forward part.
        dropout: dropout probability of elements and attention weights.
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


class CrossAttention(MultiHead):
    """Simultaneous cross-attention x + Attention(LN(x)) between the tokens of u and v.

    Args:
        dim: token width.
        num_heads: number of heads; divides dim.
    """

    def __init__(self, dim: int, num_heads: int) -> None:
        super().__init__(dim, num_heads)
        self.norm = nn.LayerNorm(dim)

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
        empty = bias.isinf().all(-1, keepdim=True)  # no keys: the softmax would be NaN
        mixed = F.scaled_dot_product_attention(q, k, v, attn_mask=bias.masked_fill(empty, 0))
        return x + self.out(mixed.transpose(1, 2).reshape(count * width, dim).index_select(0, layout.slot))
