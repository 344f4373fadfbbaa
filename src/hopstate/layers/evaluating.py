"""A model put into evaluation for a while."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import nn


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
