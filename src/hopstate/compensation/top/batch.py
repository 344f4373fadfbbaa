"""Batches under TOP: what a model convolves over when something stands for a batch's missing neighbors.

Source: Shi et al., "Accurate and scalable graph neural networks via message invariance" (TOP), algorithm 2 (linear
form) and appendix B.1 (general form).
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from hopstate.compensation.top.basis import LowRankCompensation
from hopstate.errors import ConfigError
from hopstate.layers.message import Adjacency, Normalization


class LinearTop:
    """A batch in the linear form: what its layers sum is A_BB h + left (right h_S).

    Args:
        inside: adjacency among the batch's nodes, weighted by the whole graph's degrees.
        missing: what stands for the sums over out-of-batch neighbors, for each layer or one for all.
        normalization: the one normalization that `missing` was made for.
    """

    def __init__(self, inside: Adjacency, missing: list[LowRankCompensation], normalization: Normalization) -> None:
        self.inside, self.missing, self.normalization = inside, missing, normalization

    def to(self, device: torch.device | str) -> LinearTop:
        """Return the batch on a device."""
        return LinearTop(self.inside.to(device), [m.to(device) for m in self.missing], self.normalization)

    def propagate(self, conv: nn.Module, normalization: Normalization, layer: int, *nodes: Tensor) -> Tensor:
        """Return (|B|, F'): the layer's output, the sum that it makes compensated."""
        if normalization != self.normalization:
            raise ConfigError(not_linear(type(conv).__name__, normalization))
        missing = self.missing[layer % len(self.missing)]

        def add(_: nn.Module, inputs: tuple[object, dict[str, object]], out: Tensor) -> Tensor:
            sent = inputs[1]["x"]
            sent = sent[0] if isinstance(sent, (tuple, list)) else sent
            assert isinstance(sent, Tensor)
            return torch.addmm(out, missing.left.to(out.dtype), missing.weights(sent))

        handle = conv.register_message_and_aggregate_forward_hook(add)  # type: ignore[operator]
        try:
            return self.inside.propagate(conv, normalization, layer, *nodes)
        finally:
            handle.remove()


class GeneralTop:
    """A batch in the general form: every layer receives made-up rows for the out-of-batch neighbors.

    Args:
        around: adjacency of the batch's rows over its nodes and then their out-of-batch neighbors.
        missing: what stands for those neighbors' rows, for each layer or one for all.
    """

    def __init__(self, adjacency: Adjacency, missing: list[LowRankCompensation]) -> None:
        self.adjacency, self.missing = adjacency, missing

    def to(self, device: torch.device | str) -> GeneralTop:
        """Return the batch on a device."""
        return GeneralTop(self.adjacency.to(device), [m.to(device) for m in self.missing])

    def extended(self, h: Tensor, layer: int) -> Tensor:
        """Return (|B| + m, d): h, and under it what stands for the missing rows that a layer receives."""
        missing = self.missing[layer % len(self.missing)]
        return torch.cat([h, missing.left.to(h.dtype) @ missing.weights(h)])

    def propagate(self, conv: nn.Module, normalization: Normalization, layer: int, *nodes: Tensor) -> Tensor:
        """Return (|B|, F'): the layer's output where missing neighbors send made-up rows."""
        return self.adjacency.propagate(conv, normalization, layer, *(self.extended(h, layer) for h in nodes))


def not_linear(name: str, normalization: str) -> str:
    return (
        f"{name} ({normalization}) does not sum its neighbors with fixed weights of the right kind, which TOP's "
        f"linear form needs; use the general form (top.form=general), which works with any aggregator"
    )
