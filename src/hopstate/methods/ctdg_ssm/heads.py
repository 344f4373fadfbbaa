"""Inputs and read-outs that CTDG models share: static node embeddings and decoders.

Source: CTDG-SSM, arXiv:2606.04672, section 5 and algorithms 1-2.
Deviation: a decoder may have a hidden layer (`hidden` > 0); the paper's is linear.
"""

from __future__ import annotations

from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from hopstate.errors import ConfigError, DataError
from hopstate.random import named_rng

StaticKind = Literal["none", "onehot", "random", "learnable"]
ONEHOT_LIMIT = 65_536


class StaticEmbedding(nn.Module):
    """A vector per node that no event changes.

    Args:
        kind: "none" (no columns), "onehot" (N columns), "random" (fixed normal of variance 1/dim, the same for a
            node whatever N), "learnable".
        dim: columns of "random" and "learnable".
        num_nodes: N, fixed, for "onehot" and "learnable"; the others know every node.
        seed: of "random"; kept with the weights.

    Raises:
        ConfigError: an unknown kind, no N where one is needed, or too large an N for "onehot".
    """

    table: Tensor
    seed: Tensor

    def __init__(self, kind: StaticKind, dim: int, num_nodes: int | None, seed: int = 0) -> None:
        super().__init__()
        if kind not in ("none", "onehot", "random", "learnable"):
            raise ConfigError(f"static must be none, onehot, random or learnable; got {kind!r}")
        if kind in ("onehot", "learnable") and not num_nodes:
            raise ConfigError(f"static={kind} needs the number of nodes (num_nodes), which then is fixed")
        if kind == "onehot" and (num_nodes or 0) > ONEHOT_LIMIT:
            raise ConfigError(f"static=onehot of {num_nodes} nodes is too wide; use random or learnable")
        self.kind, self.num_nodes = kind, num_nodes
        self.dim = {"none": 0, "onehot": num_nodes or 0}.get(kind, dim)
        if kind == "learnable":
            self.weight = nn.Parameter(torch.randn(num_nodes or 0, dim) / dim**0.5)
        self.register_buffer("seed", torch.tensor(seed), persistent=kind == "random")
        self.register_buffer("table", torch.zeros(0, self.dim), persistent=False)

    def _load_from_state_dict(self, *args: Any, **options: Any) -> None:
        super()._load_from_state_dict(*args, **options)
        self.table = self.table[:0]  # drawn anew from the seed that was loaded

    def check(self, nodes: Tensor) -> None:
        """Check that every node has a vector.

        Raises:
            DataError: one lies beyond the fixed number of nodes.
        """
        if self.kind in ("onehot", "learnable") and len(nodes) and int(nodes.max()) >= (self.num_nodes or 0):
            raise DataError(
                f"node {int(nodes.max())} is beyond the {self.num_nodes} nodes that this model's {self.kind} "
                "embedding was built for; train with static=none or random to meet new nodes"
            )

    def forward(self, nodes: Tensor) -> Tensor:
        """Return (n, dim) vectors of nodes (n,)."""
        self.check(nodes)
        if self.kind == "onehot":
            return F.one_hot(nodes, self.dim).to(self.table.dtype)
        if self.kind == "learnable":
            return self.weight[nodes]
        if self.kind == "random" and len(nodes) and int(nodes.max()) >= len(self.table):
            rows = 1 << int(nodes.max()).bit_length()  # the generator fills row by row: a longer table starts alike
            drawn = named_rng(int(self.seed)).standard_normal((rows, self.dim)) / self.dim**0.5
            self.table = torch.from_numpy(drawn).to(self.table)
        return self.table[nodes] if self.dim else self.table.new_zeros(len(nodes), 0)


def make_decoder(inputs: int, outputs: int, hidden: int) -> nn.Module:
    """Return a linear map, or one with a hidden layer of GELUs where hidden > 0."""
    if not hidden:
        return nn.Linear(inputs, outputs)
    return nn.Sequential(nn.Linear(inputs, hidden), nn.GELU(), nn.Linear(hidden, outputs))
