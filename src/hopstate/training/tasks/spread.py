"""A set of nodes that send to each other, spread over ranks: each computes its share of the rows of every layer.

What a layer sends is gathered before it is summed, so that each rank's rows receive what they do in one process; its
gradient flows back to the rank that computed it. Layers that work on rows alone never see the others'.
"""

from __future__ import annotations

from typing import Protocol, runtime_checkable

import torch
from torch import Tensor, nn

from hopstate.layers.message import Normalization
from hopstate.training.ranks import Ranks


class Rows:
    """This rank's rows of count, which the other ranks have the others of."""

    def __init__(self, ranks: Ranks, count: int) -> None:
        self.ranks, self.count, self.own = ranks, count, ranks.own(count)

    def joined(self, own: Tensor) -> Tensor:
        """Return (count, ...) of all ranks from this rank's rows; gradients flow back to each."""
        return self.ranks.joined(own, self.count)

    def to(self, device: torch.device | str) -> Rows:
        """Return the same, which holds no tensor."""
        return self


@runtime_checkable
class Cuttable(Protocol):
    """A graph or batch of which some receivers' rows can be had alone."""

    def some(self, own: slice) -> Cuttable:
        """Return the same with the receivers own (a range of all) alone."""
        ...

    def to(self, device: torch.device | str) -> Cuttable: ...

    def propagate(self, conv: nn.Module, normalization: Normalization, layer: int, *nodes: Tensor) -> Tensor:
        """Return conv's output at the receivers; see `Adjacency.propagate`."""
        ...


class Spread:
    """A graph of count nodes, all of which receive, of which this rank's rows are computed here.

    Args:
        graph: of all of them, or with own of this rank's receivers.
        ranks: who computes them.
        count: of nodes.
        own: whether graph is cut already.
    """

    def __init__(self, graph: Cuttable, ranks: Ranks, count: int, *, own: bool = False) -> None:
        self.graph = graph if own else graph.some(ranks.own(count))
        self.ranks, self.count = ranks, count

    def to(self, device: torch.device | str) -> Spread:
        return Spread(self.graph.to(device), self.ranks, self.count, own=True)

    def propagate(self, conv: nn.Module, normalization: Normalization, layer: int, *nodes: Tensor) -> Tensor:
        """Return conv's output at this rank's rows, of what this rank's rows (n, F) and the others' send."""
        return self.graph.propagate(conv, normalization, layer, *(self.ranks.joined(h, self.count) for h in nodes))
