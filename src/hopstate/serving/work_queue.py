"""One queue and one worker for everything that a live run does.

Short work is done first, other work in order of arrival. Shorter work passes short work that came a little earlier.
Work goes in slices, between which work that comes before it is done. How long work takes is estimated from earlier work
of its kind. Work that would miss its deadline is refused while it waits: when it is submitted, or when what is before
it turns out to take longer.
"""

from __future__ import annotations

import math
import threading
import time
from collections import defaultdict, deque
from collections.abc import Callable, Hashable
from concurrent.futures import CancelledError, Future
from typing import Any, TypeVar

from hopstate.errors import HopstateError
from hopstate.ops.threads import one_thread
from hopstate.streaming.slices import Steps

T = TypeVar("T")
SHORT = 0.02  # seconds of work that is done before longer work
PATIENCE = 10.0  # short work waits this many times its duration for shorter work that comes later
MARGIN = 1.25  # by which work may take longer than its kind did
_LATEST = 5  # durations of a kind that are known; the first may include compilation, so their median counts
_FIRST, _IN_ORDER, _BACKGROUND = range(3)


class OverloadError(HopstateError):
    """There is too much work to meet a deadline, which would be missed by so many seconds."""

    def __init__(self, late: float) -> None:
        self.retry_after = min(max(math.ceil(late), 1), 60)
        super().__init__(f"too much work for an answer within the deadline; ask again in {self.retry_after} s")


class Job(Future[T]):
    """The result of work to come; `cancel` ends work that has begun before its next slice."""

    def __init__(
        self, start: Callable[[], Steps[T]], kind: Hashable, deadline: float, order: tuple[int, float, int]
    ) -> None:
        super().__init__()
        self.start, self.kind, self.deadline, self.order = start, kind, deadline, order
        self.spent, self.has_begun = 0.0, False  # seconds; whether its first slice was taken up
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
    """A thread that does work."""

    def __init__(self, name: str, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._jobs = list[Job[Any]]()
        self._count = 0
        self._took = defaultdict[Hashable, deque[float]](lambda: deque(maxlen=_LATEST))
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
            deadline: time of the clock by which it is to be done, or else to be refused with OverloadError.
        """
        seconds = self.seconds(kind, unknown=math.inf)
        if seconds <= SHORT:
            return self._add(start, _FIRST, kind, deadline, wait=PATIENCE * seconds)
        return self._add(start, _IN_ORDER, kind, deadline)

    def submit_background(self, start: Callable[[], Steps[T]]) -> Job[T]:
        """Let the thread do work in slices while there is nothing else to do."""
        return self._add(start, _BACKGROUND)

    def seconds(self, kind: Hashable, unknown: float = 0.0) -> float:
        """Return how long work of a kind takes."""
        took = sorted(self._took.get(kind, ()))
        return took[(len(took) - 1) // 2] if took else unknown

    def wait(self) -> float:
        """Return how many seconds the work takes that is there now."""
        with self._changed:
            return sum(self._left(job) for job in self._jobs)

    def close(self) -> None:
        """End the thread when all work is done."""
        with self._changed:
            self._is_closed = True
            self._changed.notify()
        self._thread.join()

    def _add(
        self,
        start: Callable[[], Steps[T]],
        level: int,
        kind: Hashable = None,
        deadline: float = math.inf,
        *,
        wait: float = 0.0,
    ) -> Job[T]:
        with self._changed:
            self._count += 1
            job = Job(start, kind, deadline, (level, self._clock() + wait, self._count))
            self._jobs.append(job)
            self._refuse_late()
            self._changed.notify()
        return job

    @one_thread()  # once: to go there and back for every slice starts a thread each time
    def _work(self) -> None:
        while (job := self._next()) is not None:
            begin = self._clock()
            is_running = job.step()
            job.spent += self._clock() - begin
            if not is_running:
                self._finish(job)

    def _next(self) -> Job[Any] | None:
        with self._changed:
            while not self._jobs:
                if self._is_closed:
                    return None
                self._changed.wait()
            job = min(self._jobs, key=lambda one: one.order)
            job.has_begun = True
            return job

    def _finish(self, job: Job[Any]) -> None:
        with self._changed:
            self._jobs.remove(job)
            # unwanted work ended early: its kind takes longer than this
            counts = job.spent > self.seconds(job.kind) if job.is_unwanted else job.exception() is None
            if job.kind is not None and counts:
                self._took[job.kind].append(job.spent)
            self._refuse_late()

    def _left(self, job: Job[Any]) -> float:
        if job.done():  # its result is known before the job leaves the queue
            return 0.0
        return max(MARGIN * self.seconds(job.kind) - job.spent, 0.0)

    def _refuse_late(self) -> None:
        now = end = self._clock()
        for job in sorted(self._jobs, key=lambda one: one.order):
            before, end = end, end + self._left(job)
            # work that nothing is before is tried in any case
            if end > job.deadline and before > now and not job.has_begun and job.set_running_or_notify_cancel():
                self._jobs.remove(job)
                job.set_exception(OverloadError(end - job.deadline))
                end = before
