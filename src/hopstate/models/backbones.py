"""Message-passing backbones on a whole graph, in residual blocks with LayerNorm: MLP, GCN, GraphSAGE.

A block is x + W_2 GELU(conv(LN(x))) with dropout after both parts; conv is torch-geometric's layer, or a linear map
for the MLP. The first block is preceded by a linear map to the hidden width, the last followed by LayerNorm and a
linear map to classes.

Source: Platonov et al., ICLR 2023, arXiv:2302.11640 (architecture); Kipf & Welling 2017, arXiv:1609.02907 (GCN);
Hamilton et al. 2017, arXiv:1706.02216 (GraphSAGE, mean aggregation).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

from torch import Tensor, nn

from hopstate.errors import ConfigError, nearest
from hopstate.layers.message import Adjacency, Weighting
from hopstate.types import Float, shapecheck

Kind = Literal["mlp", "gcn", "sage"]
_WEIGHTING: dict[str, Weighting | None] = {"mlp": None, "gcn": "symmetric", "sage": "mean"}


class ResidualBlock(nn.Module):
    """x + Dropout(W_2 GELU(Dropout(conv(LN(x))))).

    Args:
        kind: "mlp", "gcn" or "sage".
        dim: width.
        dropout: probability that an element is dropped in training.
    """

    def __init__(self, kind: Kind, dim: int, dropout: float) -> None:
        super().__init__()
        self.weighting = _WEIGHTING[kind]
        self.norm = nn.LayerNorm(dim)
        self.conv = _conv(kind, dim)
        self.ffn = nn.Sequential(nn.Dropout(dropout), nn.GELU(), nn.Linear(dim, dim), nn.Dropout(dropout))

    def forward(self, x: Tensor, adjacency: Adjacency) -> Tensor:
        """Return (N, dim) after one block."""
        z = self.norm(x)
        z = self.conv(z) if self.weighting is None else self.conv(z, adjacency.weighted(self.weighting))
        return x + self.ffn(z)


def _conv(kind: Kind, dim: int) -> nn.Module:
    """Return the layer; the adjacency it is called with holds the weights, so that it only sums."""
    if kind == "mlp":
        return nn.Linear(dim, dim)
    from torch_geometric.nn import GCNConv, SAGEConv

    return GCNConv(dim, dim, normalize=False) if kind == "gcn" else SAGEConv(dim, dim, aggr="sum")


class Backbone(nn.Module):
    """Residual blocks over a whole graph.

    Args:
        config: what a user chooses.
        kind: "mlp", "gcn" or "sage".
        in_dim: node features.
        num_classes: width of the output.

    Raises:
        ConfigError: an unknown kind.
    """

    @dataclass(frozen=True, kw_only=True)
    class Config:
        """Settings of a backbone; the defaults are those of Platonov et al.

        Args:
            dim: hidden width.
            num_layers: residual blocks.
            dropout: probability that an element is dropped in training.
        """

        dim: int = 512
        num_layers: int = 5
        dropout: float = 0.2

        def __post_init__(self) -> None:
            if self.dim < 1 or self.num_layers < 0:
                raise ConfigError(
                    f"model.dim must be at least 1 and model.num_layers at least 0; got {self.dim}, {self.num_layers}"
                )
            if not 0 <= self.dropout < 1:
                raise ConfigError(f"model.dropout lies in [0, 1); got {self.dropout}")

    def __init__(self, config: Config, *, kind: str, in_dim: int, num_classes: int) -> None:
        super().__init__()
        if kind not in get_args(Kind):
            raise ConfigError(
                f"unknown backbone {kind!r}{nearest(kind, get_args(Kind))}; known: {', '.join(get_args(Kind))}"
            )
        self.config, self.kind = config, kind
        self.embed = nn.Sequential(nn.Linear(in_dim, config.dim), nn.Dropout(config.dropout), nn.GELU())
        self.blocks = nn.ModuleList(ResidualBlock(kind, config.dim, config.dropout) for _ in range(config.num_layers))
        self.norm = nn.LayerNorm(config.dim)
        self.head = nn.Linear(config.dim, num_classes)

    @shapecheck
    def forward(self, x: Float[Tensor, "node feature"], adjacency: Adjacency) -> Float[Tensor, "node class"]:
        """Return logits of every node."""
        z = self.embed(x)
        for block in self.blocks:
            z = block(z, adjacency)
        return self.head(self.norm(z))


__all__ = ["Adjacency", "Backbone", "ResidualBlock"]
