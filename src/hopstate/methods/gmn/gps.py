"""A GPS layer whose global half reads all nodes as one sequence: message passing beside a scan, then an FFN.

    z = Norm(message block(h, e)) + Norm(blocks over the nodes(h))        h' = Norm(z + FFN(z))        e' of the block

Source: Rampasek et al. 2022, arXiv:2205.12454, equations 2-5, its Transformer replaced as in Behrouz & Hashemi 2024,
arXiv:2402.08678, section 5.1 ("GPS + Mamba").
Deviation: LayerNorm where GPS takes BatchNorm; no states of edges where edges have no features (relative encodings give
them some).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import torch
from torch import Tensor, nn

from hopstate.layers.message import Adjacency
from hopstate.layers.mpnn import MessageBlock
from hopstate.layers.ssm import BidirectionalMamba


class GPSLayer(nn.Module):
    """One layer: new node rows and, where message passing keeps states of edges, new edge rows.

    Args:
        message: the local half.
        blocks: the global half's blocks over the nodes.
        dim: width.
        dropout: in the feed-forward part.
    """

    def __init__(self, message: MessageBlock, blocks: list[BidirectionalMamba], dim: int, dropout: float) -> None:
        super().__init__()
        self.message, self.blocks = message, nn.ModuleList(blocks)
        self.norms = nn.ModuleList(nn.LayerNorm(dim) for _ in range(3))
        self.ffn = nn.Sequential(
            nn.Linear(dim, 2 * dim), nn.ReLU(), nn.Dropout(dropout), nn.Linear(2 * dim, dim), nn.Dropout(dropout)
        )

    def forward(
        self, h: Tensor, e: Tensor | None, graph: Adjacency, order: Tensor, sequences: Tensor
    ) -> tuple[Tensor, Tensor | None]:
        """Return (N, dim) and (E, dim) or None.

        Args:
            h: (N, dim) nodes.
            e: (E, dim) edges in the order of graph.indices, or None.
            graph: adjacency.
            order: (N,) nodes in the order of the sequences.
            sequences: (G + 1,) bounds of the graphs in order.
        """
        local, e = self.message(h, graph, e)
        return self.joined(local, in_order(self.blocks, h, order, sequences)), e

    def joined(self, local: Tensor, everywhere: Tensor) -> Tensor:
        """Return (n, dim) from what the two halves gave for some nodes, (n, dim) each."""
        z = self.norms[0](local) + self.norms[1](everywhere)
        return self.norms[2](z + self.ffn(z))


def in_order(blocks: nn.ModuleList, y: Tensor, order: Tensor, sequences: Tensor) -> Tensor:
    """Return (n, dim): the rows of y after blocks that read them in the given order."""
    for block in blocks:
        out = block(y.index_select(0, order), sequences)
        y = torch.empty_like(out).index_copy(0, order, out)
    return y


def recomputed(layer: nn.Module, *inputs: Any) -> Any:
    """Return layer(*inputs), keeping nothing for the backward pass but the inputs: what lies between is made again.

    Dropout draws the same again, and batch normalisation counts its batch once.
    """
    from torch.utils.checkpoint import checkpoint

    return checkpoint(layer, *inputs, use_reentrant=False, context_fn=_held(layer))


def _held(layer: nn.Module) -> Callable[[], tuple[Any, Any]]:
    norms = [module for module in layer.modules() if isinstance(module, nn.modules.batchnorm._BatchNorm)]

    @contextmanager
    def again() -> Iterator[None]:
        before = [(norm.momentum, norm.num_batches_tracked) for norm in norms]
        for norm in norms:
            norm.momentum, norm.num_batches_tracked = 0.0, None
        try:
            yield
        finally:
            for norm, (momentum, tracked) in zip(norms, before, strict=True):
                norm.momentum, norm.num_batches_tracked = momentum, tracked

    return lambda: (nullcontext(), again())


__all__ = ["GPSLayer", "in_order", "recomputed"]
