"""Ctrl-C as a wish that the loop looks at between two steps."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from hopstate.errors import RanksError


@contextmanager
def interrupts() -> Iterator[threading.Event]:
    """Turn the first Ctrl-C or SIGTERM into an event that the loop looks at; a second one stops at once."""
    stop = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield stop
        return

    def on_signal(number: int, frame: object) -> None:
        if stop.is_set():
            raise KeyboardInterrupt
        stop.set()

    before = {number: signal.signal(number, on_signal) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stop
    except RanksError:
        # torchrun now ends the ranks that are left: first they say what happened
        before[signal.SIGTERM] = signal.SIG_IGN
        raise
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
