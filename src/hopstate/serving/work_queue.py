"""One queue and one worker for everything that a live run does.

Short work is done first, other work in order of arrival. Long work goes in slices, between which short work is done.
How long work takes is estimated from earlier work of its kind. Work that would miss its deadline is refused while it
waits: when it is given, or when what is before it turns out to take longer.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Hashable
from concurrent.futures import CancelledError, Future
from typing import Any, TypeVar

from hopstate.errors import HopstateError
from hopstate.ops.threads import one_thread
from hopstate.streaming.slices import Steps

T = TypeVar("T")
SHORT = 0.02  # seconds of work that is done before longer work
MARGIN = 1.25  # by which work may take longer than its kind did
_WEIGHT = 0.2  # of the latest duration in the average of its kind
_FIRST, _IN_ORDER, _BACKGROUND = range(3)


class OverloadError(HopstateError):
    """There is too much work to meet a deadline.

    Args:
        late: seconds by which it would be missed.
    """

    def __init__(self, late: float) -> None:
        self.retry_after = min(max(math.ceil(late), 1), 60)
        super().__init__(f"too much work for an answer within the deadline; ask again in {self.retry_after} s")


class Job(Future[T]):
    """The result of work to come; `cancel` ends work that has begun before its next slice."""

    def __init__(self, start: Callable[[], Steps[T]], kind: Hashable, deadline: float, order: tuple[int, int]) -> None:
        super().__init__()
        self.start, self.kind, self.deadline, self.order = start, kind, deadline, order
        self.begun: float | None = None
        self.is_unwanted = False
        self._steps: Steps[T] | None = None

    def cancel(self) -> bool:
        self.is_unwanted = True
        return super().cancel()

    def step(self) -> bool:
        """Do a slice; return whether there are more."""
        if self._steps is None and not self.set_running_or_notify_cancel():
            return False
        try:
            if self._steps is None:
                self._steps = self.start()
            elif self.is_unwanted:
                self._steps.close()
                raise CancelledError
            next(self._steps)
        except StopIteration as end:
            self.set_result(end.value)
            return False
        except BaseException as error:
            self.set_exception(error)
            return False
        return True


class WorkQueue:
    """A thread that does work.

    Args:
        name: of the thread.
    """

    def __init__(self, name: str) -> None:
        self._jobs = list[Job[Any]]()
        self._count = 0
        self._seconds = dict[Hashable, float]()
        self._is_closed = False
        self._changed = threading.Condition()
        self._thread = threading.Thread(target=self._work, name=name, daemon=True)
        self._thread.start()

    def submit(self, work: Callable[[], T]) -> Job[T]:
        """Let the thread call work before all that is not short."""

        def start() -> Steps[T]:
            yield from ()
            return work()

        return self._add(start, _FIRST)

    def submit_steps(
        self, start: Callable[[], Steps[T]], kind: Hashable = None, *, deadline: float = math.inf
    ) -> Job[T]:
        """Let the thread do work in slices until its end or `cancel`; `start`, which begins it, is called there too.

        Args:
            start: begins the work.
            kind: of work that takes about as long, None if that is unknown.
            deadline: time of `time.monotonic` by which it is to be done, or else to be refused with OverloadError.
        """
        is_short = self.seconds(kind, unknown=math.inf) <= SHORT
        return self._add(start, _FIRST if is_short else _IN_ORDER, kind, deadline)

    def submit_background(self, start: Callable[[], Steps[T]]) -> Job[T]:
        """Let the thread do work in slices while there is nothing else to do."""
        return self._add(start, _BACKGROUND)

    def seconds(self, kind: Hashable, unknown: float = 0.0) -> float:
        """Return how long work of a kind takes."""
        return self._seconds.get(kind, unknown)

    def wait(self) -> float:
        """Return how many seconds the work takes that is there now."""
        with self._changed:
            now = time.monotonic()
            return sum(self._left(job, now) for job in self._jobs)

    def close(self) -> None:
        """End the thread when all work is done."""
        with self._changed:
            self._is_closed = True
            self._changed.notify()
        self._thread.join()

    def _add(
        self, start: Callable[[], Steps[T]], level: int, kind: Hashable = None, deadline: float = math.inf
    ) -> Job[T]:
        with self._changed:
            self._count += 1
            job = Job(start, kind, deadline, (level, self._count))
            self._jobs.append(job)
            self._refuse_late()
            self._changed.notify()
        return job

    @one_thread()  # once: to go there and back for every slice starts a thread each time
    def _work(self) -> None:
        while (job := self._next()) is not None:
            if not job.step():
                self._finish(job)

    def _next(self) -> Job[Any] | None:
        with self._changed:
            while not self._jobs:
                if self._is_closed:
                    return None
                self._changed.wait()
            job = min(self._jobs, key=lambda one: one.order)
            job.begun = job.begun or time.monotonic()
            return job

    def _finish(self, job: Job[Any]) -> None:
        with self._changed:
            self._jobs.remove(job)
            if job.kind is not None and not job.cancelled():
                before, took = self._seconds.get(job.kind), time.monotonic() - (job.begun or 0.0)
                if job.is_unwanted:  # it would have taken longer
                    self._seconds[job.kind] = max(before or 0.0, took)
                elif job.exception() is None:
                    self._seconds[job.kind] = took if before is None else before + _WEIGHT * (took - before)
            self._refuse_late()

    def _left(self, job: Job[Any], now: float) -> float:
        if job.cancelled():
            return 0.0
        return max(MARGIN * self.seconds(job.kind) - (now - (job.begun or now)), 0.0)

    def _refuse_late(self) -> None:
        now = end = time.monotonic()
        for job in sorted(self._jobs, key=lambda one: one.order):
            before, end = end, end + self._left(job, now)
            # work that nothing is before is tried in any case
            if end > job.deadline and before > now and job.begun is None and job.set_running_or_notify_cancel():
                self._jobs.remove(job)
                job.set_exception(OverloadError(end - job.deadline))
                end = before
