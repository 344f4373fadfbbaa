"""Ctrl-C as a wish that the loop looks at between two steps."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from hopstate.errors import RanksError

STOPPING = (
    "stopping: the step or evaluation under way is finished and the run saved; Ctrl-C once more stops now, and what "
    "came after the last checkpoint is lost"
)


class _Ended(KeyboardInterrupt):
    """Ctrl-C where nothing is lost by ending at once."""


class Stop(threading.Event):
    """A wish to stop.

    Args:
        tell: is called with a line where the wish waits for what is under way.

    ended: what was under way was left off at once.
    """

    def __init__(self, tell: Callable[[str], object] = lambda text: None) -> None:
        super().__init__()
        self.ended, self._at_once, self._tell = False, False, tell

    @contextmanager
    def at_once(self) -> Iterator[None]:
        """Let what is done within be left off by the first Ctrl-C: all that it needs is saved."""
        self._at_once = threading.current_thread() is threading.main_thread()
        try:
            yield
        finally:
            self._at_once = False

    def wished(self) -> None:
        if self.is_set():
            raise KeyboardInterrupt
        self.set()
        if self._at_once:
            raise _Ended
        with contextlib.suppress(RuntimeError, OSError):  # it may have come in the middle of another line
            self._tell(STOPPING)


@contextmanager
def interrupts(tell: Callable[[str], object] = lambda text: None) -> Iterator[Stop]:
    """Turn the first Ctrl-C or SIGTERM into an event that the loop looks at; a second one stops at once."""
    stop = Stop(tell)
    with signals_to(lambda number: stop.wished()) as before:
        try:
            yield stop
        except _Ended:
            stop.ended = True
        except RanksError:
            # torchrun now ends the ranks that are left: first they say what happened
            before[signal.SIGTERM] = signal.SIG_IGN
            raise


@contextmanager
def signals_to(call: Callable[[int], None]) -> Iterator[dict[int, Any]]:
    """Let Ctrl-C and SIGTERM call something with their number, and no more; yield what they did before, and do again.

    Beside the main thread, where none arrive, nothing is changed.
    """
    before: dict[int, Any] = {}
    if threading.current_thread() is threading.main_thread():
        for number in (signal.SIGINT, signal.SIGTERM):
            before[number] = signal.signal(number, lambda arrived, frame: call(arrived))
    try:
        yield before
    finally:
        for own, handler in before.items():
            signal.signal(own, handler)
