"""NAGphormer: scores a node from the short sequence of its hop averages, so that nodes batch in any order.

Source: Chen et al., ICLR 2023, arXiv:2206.04910. Hop2Token is `methods/nagphormer/hops.py`, run once before training.
Deviation from the authors' code: returns logits, not log-probabilities (the loss takes the softmax); a batch of one
node works; the width of the feed-forward part is a setting. The weight of Z_0 in the readout's score is left out,
because the softmax does not depend on it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from torch import Tensor, nn

from hopstate.errors import ConfigError, ShapeError, check_range
from hopstate.layers.attention import TransformerBlock
from hopstate.types import Float, shapecheck


class AttentionReadout(nn.Module):
    """Z_0 + sum_k alpha_k Z_k with alpha = softmax over k >= 1 of Z_k w.

    Args:
        dim: token width.
    """

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.score = nn.Linear(dim, 1, bias=False)

    @shapecheck
    def weights(self, z: Float[Tensor, "node token dim"]) -> Float[Tensor, "node hop"]:
        """Return alpha_1..alpha_K of each node; rows sum to 1."""
        return self.score(z[:, 1:]).squeeze(-1).softmax(-1)

    @shapecheck
    def forward(self, z: Float[Tensor, "node token dim"]) -> Float[Tensor, "node dim"]:
        """Return one vector per node, which is Z_0 if there are no further hops."""
        if z.shape[1] == 1:
            return z[:, 0]
        return z[:, 0] + (self.weights(z).unsqueeze(1) @ z[:, 1:]).squeeze(1)


class NAGphormer(nn.Module):
    """A linear map of each hop, Transformer blocks over the hops, a readout and a two-layer head.

    Args:
        config: settings of the model.
        in_dim: number of features of a token.
        num_classes: number of outputs per node.
        num_hops: K; the input has K + 1 tokens per node.

    Example:
        >>> import numpy as np
        >>> graph = hopstate.load_dataset("sbm", num_nodes=120)
        >>> tokens = hopstate.hop_tokens(graph, 3, max_memory=2**30)
        >>> config = hopstate.NAGphormer.Config(dim=16, num_heads=4)
        >>> model = hopstate.NAGphormer(config, in_dim=graph.num_features, num_classes=5, num_hops=3)
        >>> model(tokens.rows(np.arange(8))).shape
        torch.Size([8, 5])
    """

    @dataclass(frozen=True, kw_only=True)
    class Config:
        """Settings of NAGphormer.

        Args:
            dim: token width; the paper searches 128, 256, 512.
            num_layers: Transformer blocks; the paper mostly takes 1.
            num_heads: attention heads; divides dim.
            ffn_ratio: inner width of the feed-forward part, in multiples of dim.
            dropout: on tokens; the paper searches 0.1, 0.3, 0.5.
            attention_dropout: on attention weights.
            readout: "attention" weighs the hops, "self" takes the node's own token, "sum" adds all.
        """

        dim: int = 512
        num_layers: int = 1
        num_heads: int = 8
        ffn_ratio: int = 2
        dropout: float = 0.1
        attention_dropout: float = 0.1
        readout: Literal["attention", "self", "sum"] = "attention"

        def __post_init__(self) -> None:
            check_range("model.", minimum=1, dim=self.dim, num_heads=self.num_heads, ffn_ratio=self.ffn_ratio)
            check_range("model.", minimum=0, num_layers=self.num_layers)
            if self.dim < 2 or self.dim % self.num_heads:
                raise ConfigError(f"model.dim={self.dim} is not a multiple of model.num_heads={self.num_heads}")
            check_range("model.", minimum=0, below=1, dropout=self.dropout)
            check_range("model.", minimum=0, below=1, attention_dropout=self.attention_dropout)
            if self.readout not in ("attention", "self", "sum"):
                raise ConfigError(f"model.readout is 'attention', 'self' or 'sum'; got {self.readout!r}")

    def __init__(self, config: Config, *, in_dim: int, num_classes: int, num_hops: int) -> None:
        super().__init__()
        c, self.config, self.num_hops, self.in_dim = config, config, num_hops, in_dim
        self.embed = nn.Linear(in_dim, c.dim)
        self.blocks = nn.Sequential(
            *(
                TransformerBlock(
                    c.dim,
                    c.num_heads,
                    ffn_dim=c.ffn_ratio * c.dim,
                    dropout=c.dropout,
                    attention_dropout=c.attention_dropout,
                )
                for _ in range(c.num_layers)
            )
        )
        self.norm = nn.LayerNorm(c.dim)
        # the weights of fewer than two hops are 1: the sum, without an idle parameter
        self.readout = AttentionReadout(c.dim) if c.readout == "attention" and num_hops > 1 else None
        self.head = nn.Sequential(nn.Linear(c.dim, c.dim // 2), nn.ReLU(), nn.Linear(c.dim // 2, num_classes))

    @shapecheck
    def forward(self, x: Float[Tensor, "node token feature"]) -> Float[Tensor, "node class"]:
        """Return logits of nodes from their tokens x[v, k] = (A_hat^k X)[v], hop 0 first.

        Raises:
            ShapeError: x does not have num_hops + 1 tokens of in_dim features per node.
        """
        if x.shape[1:] != (self.num_hops + 1, self.in_dim):
            raise ShapeError(
                f"expected {self.num_hops + 1} tokens of {self.in_dim} features a node, "
                f"got {x.shape[1]} of {x.shape[2]}"
            )
        z = self.norm(self.blocks(self.embed(x)))
        if self.readout is not None:
            z = self.readout(z)
        else:
            z = z[:, 0] if self.config.readout == "self" else z.sum(1)
        return self.head(z)
