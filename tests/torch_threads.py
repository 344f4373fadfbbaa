"""Run code with a given number of torch threads."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

import torch

T = TypeVar("T")


@contextmanager
def torch_threads(count: int) -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def with_threads(function: Callable[[], T], counts: tuple[int, ...] = (1, 3)) -> list[T]:
    """Return the results of a function with each number of threads."""
    found = []
    for count in counts:
        with torch_threads(count):
            found.append(function())
    return found
