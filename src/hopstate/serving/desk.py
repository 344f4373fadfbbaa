"""One thread that has a live run, and what waits for it: in order of arrival, but for some patience of what is long.

Long work comes in slices (`streaming.slices`), and waits anew after each; so commits and short questions come
between, and nothing waits for ever.
"""

from __future__ import annotations

import itertools
import queue
import threading
import time
from collections.abc import Callable
from concurrent.futures import CancelledError, Future
from typing import TypeVar

from hopstate.ops.threads import one_thread
from hopstate.streaming.slices import Steps

T = TypeVar("T")
AT_ONCE, SOON, LATER = 0.0, 0.015, 0.3  # seconds for which it lets others pass that come after it


class Work(Future[T]):
    """What will hold the result of work; `cancel` ends it before its next slice."""

    _left = False

    def cancel(self) -> bool:
        """Begin no further slice; return whether none was begun."""
        self._left = True
        return super().cancel()

    @property
    def left(self) -> bool:
        """Whether nobody waits for it any more."""
        return self._left


class Desk:
    """A thread that does what it is given, one after another.

    Args:
        name: of the thread.
    """

    def __init__(self, name: str) -> None:
        self._jobs: queue.PriorityQueue[tuple[float, int, Callable[[], bool] | None, float]] = queue.PriorityQueue()
        self._order = itertools.count()
        self._thread = threading.Thread(target=self._work, name=name, daemon=True)
        self._thread.start()

    def give(self, work: Callable[[], T], patience: float = AT_ONCE) -> Future[T]:
        """Let the thread call work; return what will hold what it returned.

        Args:
            work: what is to be done.
            patience: seconds for which it lets others pass.
        """
        return self.give_steps(lambda: _at_once(work), patience)

    def give_steps(self, made: Callable[[], Steps[T]], patience: float = SOON) -> Future[T]:
        """Let the thread do work in slices until its end or cancel; made, which begins it, is called there too."""
        future: Work[T] = Work()
        steps: list[Steps[T]] = []

        def step() -> bool:
            """Do a slice; return whether more is to be done."""
            if not steps and not future.set_running_or_notify_cancel():
                return False
            try:
                if not steps:
                    steps.append(made())
                elif future.left:
                    steps[0].close()
                    raise CancelledError
                next(steps[0])
            except StopIteration as end:
                future.set_result(end.value)
                return False
            except BaseException as error:
                future.set_exception(error)
                return False
            return True

        self._put(step, patience)
        return future

    def close(self) -> None:
        """End the thread once all is done that it was given."""
        self._jobs.put((float("inf"), next(self._order), None, 0.0))
        self._thread.join()

    def _put(self, step: Callable[[], bool], patience: float) -> None:
        self._jobs.put((time.monotonic() + patience, next(self._order), step, patience))

    @one_thread()  # once: to go there and back for every slice starts a thread each time
    def _work(self) -> None:
        while True:
            _, _, step, patience = self._jobs.get()
            if step is None:
                return
            if step():
                self._put(step, patience)


def _at_once(work: Callable[[], T]) -> Steps[T]:
    yield from ()
    return work()
