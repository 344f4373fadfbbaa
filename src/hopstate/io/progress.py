"""How far a long loop is, told to whoever listens: loops say it, what shows progress decides what becomes of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

Tell = Callable[[int, int], None]
_LISTENER: ContextVar[Tell | None] = ContextVar("listener", default=None)


@contextmanager
def listening(tell: Tell) -> Iterator[None]:
    """Let loops within tell (how many are done, of how many)."""
    token = _LISTENER.set(tell)
    try:
        yield
    finally:
        _LISTENER.reset(token)


def at(done: int, total: int) -> None:
    """Tell that so many of a loop's rounds are done."""
    tell = _LISTENER.get()
    if tell is not None:
        tell(done, total)


__all__ = ["at", "listening"]
