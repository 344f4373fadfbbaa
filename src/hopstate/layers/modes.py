"""A model put into evaluation, or into faster products of its linear maps, for a while."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from types import MethodType

import torch
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


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """Put a model into evaluation mode without gradients, and each module back in its own however the block ends."""
    training = [module for module in _modules(model) if module.training]
    if training:
        model.eval()
    try:
        with torch.no_grad():
            yield
    finally:
        for module in training:
            module.training = True


def _modules(model: nn.Module) -> Iterator[nn.Module]:
    """Yield a module and all in it, without the names that torch's own walk makes: a fifth of a small answer's time."""
    waiting = [model]
    while waiting:
        module = waiting.pop()
        yield module
        waiting.extend(inner for inner in module._modules.values() if inner is not None)
