"""What work in slices warned of, beside what it returns."""

from __future__ import annotations

import warnings
from typing import TypeVar

import torch

from hopstate.streaming.slices import Steps

T = TypeVar("T")


def with_warnings(steps: Steps[T]) -> Steps[tuple[T, list[str]]]:
    """Do work in slices without gradients; return what it returned, and the texts of its warnings."""
    told = list[str]()
    while True:
        with warnings.catch_warnings(record=True) as said, torch.no_grad():
            warnings.simplefilter("always")
            try:
                next(steps)
            except StopIteration as end:
                return end.value, told + [str(one.message) for one in said]
        told += [str(one.message) for one in said]
        yield
