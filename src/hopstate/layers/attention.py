"""Self-attention over a short sequence of tokens, and the pre-norm Transformer block built on it.

Source: Vaswani et al. 2017, arXiv:1706.03762; LayerNorm before each part as in Xiong et al. 2020, arXiv:2002.04745.
"""

from __future__ import annotations

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
    """Return softmax(QK^T / sqrt(d)) V over the last two axes, written out.

    Args:
        q, k, v: (..., token, d).
        dropout: probability that an attention weight is dropped.
    """
    weights = torch.softmax((q * q.shape[-1] ** -0.5) @ k.transpose(-1, -2), -1)
    return F.dropout(weights, dropout) @ v
