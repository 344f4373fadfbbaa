"""Waiting for what another thread or process does: until it is so, however loaded the machine is."""

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")
END = 120.0  # seconds, by which something is broken


def until(found: Callable[[], T], so: Callable[[T], bool] = bool) -> T:
    """Return what is found once it is so."""
    end, pause = time.monotonic() + END, 0.001
    while not so(value := found()):
        assert time.monotonic() < end, f"after {END:g} s still {value!r}"
        time.sleep(pause)
        pause = min(2 * pause, 0.05)
    return value
