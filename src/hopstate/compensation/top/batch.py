"""Batches of TOP: message passing with compensation for the missing neighbors.

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
    """A batch in the linear form: layers aggregate A_BB h + left (right h_S).

    Args:
        inside: adjacency among the batch nodes, normalized by the degrees of the full graph.
        missing: estimated sums over out-of-batch neighbors, one per layer or one for all layers.
        normalization: the normalization that `missing` was fitted for.
    """

    def __init__(self, inside: Adjacency, missing: list[LowRankCompensation], normalization: Normalization) -> None:
        self.inside, self.missing, self.normalization = inside, missing, normalization

    def to(self, device: torch.device | str) -> LinearTop:
        """Return the batch on a device."""
        return LinearTop(self.inside.to(device), [m.to(device) for m in self.missing], self.normalization)

    def propagate(self, conv: nn.Module, normalization: Normalization, layer: int, *nodes: Tensor) -> Tensor:
        """Return the (|B|, F') layer output with the compensated sum."""
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
    """A batch in the general form: layers receive estimated rows for the out-of-batch neighbors.

    Args:
        adjacency: adjacency of the batch rows over the batch nodes, followed by their out-of-batch neighbors.
        missing: estimated rows of these neighbors, one per layer or one for all layers.
    """

    def __init__(self, adjacency: Adjacency, missing: list[LowRankCompensation]) -> None:
        self.adjacency, self.missing = adjacency, missing

    def to(self, device: torch.device | str) -> GeneralTop:
        """Return the batch on a device."""
        return GeneralTop(self.adjacency.to(device), [m.to(device) for m in self.missing])

    def extended(self, h: Tensor, layer: int) -> Tensor:
        """Return (|B| + m, ...): h followed by the estimated missing rows of a layer."""
        missing = self.missing[layer % len(self.missing)]
        rows = missing.left.to(h.dtype) @ missing.weights(h.flatten(1))
        return torch.cat([h, rows.view(-1, *h.shape[1:])])

    def propagate(self, conv: nn.Module, normalization: Normalization, layer: int, *nodes: Tensor) -> Tensor:
        """Return the (|B|, F') layer output with estimated rows for the missing neighbors."""
        return self.adjacency.propagate(conv, normalization, layer, *(self.extended(h, layer) for h in nodes))


def not_linear(name: str, normalization: str) -> str:
    return (
        f"{name} ({normalization}) does not sum its neighbors with fixed weights of the right kind, which TOP's "
        f"linear form needs; use the general form (top.form=general), which works with any aggregator"
    )
