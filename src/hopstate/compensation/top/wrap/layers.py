"""Message-passing layers that receive the rows of more nodes than a batch has, and whether they are exact so."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from hopstate.errors import ConfigError

Extend = Callable[[Tensor, int], Tensor]


@contextmanager
def extended(layer: Any, number: int, count: int, extend: Extend) -> Iterator[None]:
    """Within it, layer receives extended node tensors and returns the batch's rows; its own code runs as it is.

    Args:
        layer: the layer.
        number: what it is called for `extend`.
        count: nodes of the batch.
        extend: (a layer's (count, d) input, its number) → (count + m, d).

    Raises:
        ConfigError: when the layer passes messages more than once a call, which cannot be compensated.
    """
    names, passes = inspect.signature(layer.forward), 0

    def before(_: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        nonlocal passes
        passes = 0
        bound = names.bind(*args, **kwargs)
        for name, value in bound.arguments.items():
            if not name.startswith("edge"):
                bound.arguments[name] = _extend(value, count, lambda rows: extend(rows, number))
        return bound.args, bound.kwargs

    def tally(*_: Any) -> None:
        nonlocal passes
        passes += 1

    def after(_: nn.Module, __: Any, out: Any) -> Any:
        if passes > 1:
            raise ConfigError(_several(layer, passes))
        return out[:count] if isinstance(out, Tensor) else (out[0][:count], *out[1:])

    handles = [
        layer.register_forward_pre_hook(before, with_kwargs=True),
        layer.register_forward_hook(after),
        layer.register_propagate_forward_pre_hook(tally),
    ]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


class Witness:
    """Keeps some rows of what a layer receives and returns on the whole graph, and holds it to them on a batch.

    Args:
        layer: the layer.
        nodes: (m,) rows of the graph that are kept.
        count: the first of them, which are the batch; the others only send.
    """

    def __init__(self, layer: nn.Module, nodes: Tensor, count: int) -> None:
        self.layer, self.nodes, self.count = layer, nodes, count
        self.received: list[Tensor] = []
        self.returned: list[Tensor] = []

    def keep(self, rows: Tensor, _: int) -> Tensor:
        """Keep what the layer receives on the whole graph; it passes unchanged."""
        self.received.append(rows[self.nodes.to(rows.device)])
        return rows

    def keep_output(self, _: nn.Module, __: Any, out: Any) -> None:
        self.returned.append(_first(out)[self.nodes[: self.count].to(_first(out).device)])

    def give(self, rows: Tensor, _: int) -> Tensor:
        """Return what the layer received on the whole graph in the same place."""
        kept = self.received.pop(0) if self.received else rows
        if kept.shape[1:] != rows.shape[1:]:
            self._refuse()
        return kept

    def check_output(self, _: nn.Module, __: Any, out: Any) -> None:
        """Hold the layer to what it returned there.

        Raises:
            ConfigError: it returns something else.
        """
        got = _first(out)[: self.count]
        expected = self.returned.pop(0) if self.returned else got[:0]
        if got.shape != expected.shape:
            self._refuse()
        error, scale = (t.double().square().sum().sqrt() for t in (got - expected, expected))
        if error > scale * torch.finfo(got.dtype).eps ** 0.5:  # not where something is NaN, which is named elsewhere
            self._refuse()

    def _refuse(self) -> None:
        raise ConfigError(
            f"{type(self.layer).__name__} returns something else on a batch than on the whole graph even where it "
            f"receives the same from every neighbour, so TOP would be wrong for it: it may weigh edges by degrees or "
            f"other properties of the graph that a batch does not have. Weigh them by torch-geometric's gcn_norm or "
            f"get_laplacian in the layer itself, which TOP gives the whole graph, or train it by plain node batches"
        )


def _extend(value: Any, count: int, extend: Callable[[Tensor], Tensor]) -> Any:
    if isinstance(value, (tuple, list)):
        return type(value)(_extend(v, count, extend) for v in value)
    rows = isinstance(value, Tensor) and value.is_floating_point() and value.ndim > 1 and len(value) == count
    return extend(value) if rows else value


def _first(out: Any) -> Tensor:
    first = out if isinstance(out, Tensor) else out[0]
    assert isinstance(first, Tensor)
    return first


def _several(layer: nn.Module, passes: int) -> str:
    return (
        f"{type(layer).__name__} passes messages {passes} times a call; TOP compensates once a layer, so use as many "
        f"layers of one pass instead"
    )


__all__ = ["Witness", "extended"]
