"""Wait for a condition of another thread or process, also on a loaded machine."""

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")
END = 120.0  # timeout in seconds


def until(found: Callable[[], T], so: Callable[[T], bool] = bool) -> T:
    """Return the value of `found` as soon as it satisfies `so`."""
    end, pause = time.monotonic() + END, 0.001
    while not so(value := found()):
        assert time.monotonic() < end, f"after {END:g} s still {value!r}"
        time.sleep(pause)
        pause = min(2 * pause, 0.05)
    return value
