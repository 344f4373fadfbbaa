"""What is made of a model's values, such as packed weights, and kept while these stay as they are."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Generic, TypeVar

import torch
from torch import Tensor, nn

from hopstate.layers.alike import alike

T = TypeVar("T")


class Kept(Generic[T]):
    """What was made last of each of some models; it must not hold the model itself, or neither ever goes."""

    def __init__(self) -> None:
        self._made: weakref.WeakKeyDictionary[nn.Module, _Made[T]] = weakref.WeakKeyDictionary()

    def of(self, model: nn.Module, make: Callable[[], T]) -> T:
        """Return what was made of a model the last time; of one that has changed since, what make returns."""
        values, held = _values(model), self._made.get(model)
        if held is None or not held.is_of(values):
            with torch.no_grad(), alike():
                held = self._made[model] = _Made(values, make())
        return held.what


class _Made(Generic[T]):
    """Something, and the values that it was made of.

    Whether these have changed is seen by their numbers, since not all that writes into a parameter counts as a new
    version of it; by their versions, where they take no gradient and so nobody trains them.
    """

    def __init__(self, values: list[Tensor], what: T) -> None:
        self.what, self.values, self.copies = what, values, [value.clone() for value in values]
        self.states = list(map(_state, values))

    def is_of(self, values: list[Tensor]) -> bool:
        """Return whether it was made of such values."""
        if len(values) != len(self.copies):
            return False
        fixed = not any(value.requires_grad for value in values)
        if fixed and all(a is b for a, b in zip(values, self.values)) and list(map(_state, values)) == self.states:
            return True
        return all(a.dtype == b.dtype and torch.equal(a, b) for a, b in zip(self.copies, values))


def _state(value: Tensor) -> tuple[int, int, torch.dtype]:
    return value._version, value.data_ptr(), value.dtype


def _values(model: nn.Module) -> list[Tensor]:
    """Return all parameters and buffers, without the names that torch's own walk makes."""
    found, waiting = [], [model]
    while waiting:
        module = waiting.pop()
        found += [value for value in (*module._parameters.values(), *module._buffers.values()) if value is not None]
        waiting.extend(inner for inner in module._modules.values() if inner is not None)
    return found
