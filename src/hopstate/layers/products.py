"""A model's linear maps by the fastest product there is while it trains; in evaluation they stay as they are."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from types import MethodType

import torch.nn.functional as F
from torch import Tensor, nn

from hopstate.ops.products import linear, pays


@contextmanager
def training_products(model: nn.Module) -> Iterator[None]:
    """Within it every `nn.Linear` of a model that is in training multiplies by `ops.products`, where that pays."""
    changed = []
    if pays():
        changed = [m for m in model.modules() if type(m).forward is nn.Linear.forward and "forward" not in vars(m)]
    for module in changed:
        module.forward = MethodType(_forward, module)  # a method, so that a copy of the model has its own
    try:
        yield
    finally:
        for module in changed:
            vars(module).pop("forward", None)


def _forward(self: nn.Linear, input: Tensor) -> Tensor:
    return (linear if self.training else F.linear)(input, self.weight, self.bias)
