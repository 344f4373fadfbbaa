"""Graph isomorphism network over packed graphs: torch-geometric's layers, every layer's pooled output read out.

Source: Xu et al. 2019, arXiv:1810.00826, sections 4.2 and 7.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch.nn.functional as F
from torch import Tensor, nn

from hopstate.errors import check_range
from hopstate.layers.mpnn import BatchNorm, Reading, pool, read_width
from hopstate.methods.gmn.model import GMNInputs


class GIN(nn.Module):
    """GIN layers with batch normalisation; graph output is the sum over layers of a linear map of the pooled nodes.

    Args:
        config: what a user chooses.
        in_dim: node features.
        out_dim: classes or targets.
    """

    @dataclass(frozen=True, kw_only=True)
    class Config:
        """Settings of a GIN; the defaults are the paper's.

        Args:
            dim: width; the paper searches 16, 32, 64.
            num_layers: convolutions.
            pooling: over the nodes of a graph; "all" reads mean, sum and maximum side by side.
            dropout: before the readout; the paper searches 0, 0.5.
        """

        dim: int = 32
        num_layers: int = 4
        pooling: Reading = "sum"
        dropout: float = 0.5

        def __post_init__(self) -> None:
            check_range("model.", least=1, dim=self.dim, num_layers=self.num_layers)
            check_range("model.", least=0, below=1, dropout=self.dropout)

    def __init__(self, config: Config, *, in_dim: int, out_dim: int) -> None:
        super().__init__()
        from torch_geometric.nn import GINConv

        self.config, self.in_dim, c = config, in_dim, config
        self.convs, self.norms, self.heads = (
            nn.ModuleList(),
            nn.ModuleList(),
            nn.ModuleList([nn.Linear(read_width(in_dim, c.pooling), out_dim)]),
        )
        for i in range(c.num_layers):
            width = in_dim if i == 0 else c.dim
            mlp = nn.Sequential(nn.Linear(width, c.dim), BatchNorm(c.dim), nn.ReLU(), nn.Linear(c.dim, c.dim))
            self.convs.append(GINConv(mlp, train_eps=True))
            self.norms.append(BatchNorm(c.dim))
            self.heads.append(nn.Linear(read_width(c.dim, c.pooling), out_dim))

    def forward(self, inputs: GMNInputs) -> Tensor:
        """Return (G, out_dim)."""
        h, c = inputs.x, self.config
        out = self.heads[0](pool(h, inputs.sequences, c.pooling))
        for conv, norm, head in zip(self.convs, self.norms, self.heads[1:]):
            h = F.relu(norm(inputs.graph.propagate(conv, "sum", 0, h)))
            out = out + F.dropout(head(pool(h, inputs.sequences, c.pooling)), c.dropout, self.training)
        return out
