"""A live run behind a queue: one thread has it, and events that wait at the same time are committed together.

Events of several requests share a commit (one sync of the disk for all), but each request's are taken all or none. An
answer stands on everything that was acknowledged before it was requested, and on one state, however long it takes.
Every request has a deadline; see `work_queue`.
"""

from __future__ import annotations

import asyncio
import time
import warnings
from collections.abc import Callable, Hashable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Generic, TypeVar

import torch

from hopstate.data.stream_state import StreamState
from hopstate.errors import HopstateError, StorageError
from hopstate.runs.queries import QuerySession, rank_session
from hopstate.serving.kafka import IngestLoop, open_source
from hopstate.serving.live import LiveRun
from hopstate.serving.metrics import ServiceMetrics, StructuredLogger, state_of
from hopstate.serving.quality import Alarm, Quality
from hopstate.serving.transaction import Receipt, Request, Transaction
from hopstate.serving.work_queue import OverloadError, WorkQueue
from hopstate.streaming.slices import Steps

T = TypeVar("T")
AFTER_COMMIT = "sink or snapshot"  # trouble of what follows a commit; that of the tick alone is "sink"


@dataclass(frozen=True, kw_only=True)
class Limits:
    """What a service takes at most."""

    body: int = 8 << 20  # bytes of a request
    events: int = 10_000  # of a request
    waiting: int = 256  # requests that wait; of equal questions one
    deadline: float = 10.0  # seconds in which a request is answered or refused
    together: int = 5_000  # events that are committed together
    delay: float = 0.0  # seconds that events wait for others; they do while a commit is under way in any case
    look: float = 0.1  # seconds between two looks of a replica into its log
    tick: float = 1.0  # seconds between two looks for what is due without an event


class BusyServiceError(HopstateError):
    """Too many requests wait."""


def capture_warnings(steps: Steps[T]) -> Steps[tuple[T, list[str]]]:
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


@dataclass(eq=False)
class Question(Generic[T]):
    """A question that is being answered, for all who ask it.

    Args:
        answer: the answer to come, with warnings.
        past: the state it is answered from, None before that has begun.
        clients: how many wait for it.
    """

    answer: asyncio.Future[tuple[T, list[str]]] = field(init=False)
    past: StreamState | None = None
    clients: int = 0

    def is_current(self, past: StreamState) -> bool:
        """Return whether this answer is valid for a request at a state."""
        return not self.answer.done() and (self.past is None or self.past is past)


@dataclass(eq=False)
class Delivery:
    """Events that wait for their commit."""

    request: Request
    seconds: float  # that they alone take
    receipts: asyncio.Future[list[Receipt]]


class ServiceEngine:
    """A live run behind a queue.

    Args:
        open_run: opens the run; called in the thread that has it from then on.
        limits: see `Limits`.
        score_events: False scores no event as it comes, whatever a request says.
        source: place from which events come as well (see `kafka.open_source`).
        lines: where it says what happens.

    closed: it stopped as it should: all that was taken is answered, and a snapshot kept.
    """

    def __init__(
        self,
        open_run: Callable[[], LiveRun],
        limits: Limits | None = None,
        *,
        score_events: bool = True,
        source: str | None = None,
        lines: StructuredLogger | None = None,
    ) -> None:
        self.source, self.lines = source, lines or StructuredLogger()
        self.open_run, self.limits, self.score_events = open_run, limits or Limits(), score_events
        self.metrics = ServiceMetrics()
        self._queue, self._disk = WorkQueue("live run"), ThreadPoolExecutor(1, "log")
        self._run_lock = asyncio.Lock()  # who may move the run
        self._events: asyncio.Queue[Delivery] = asyncio.Queue()
        self._deliveries_seconds = 0.0  # for all that wait in the queue
        self._questions: dict[Hashable, Question[Any]] = {}
        self._is_open = self.ready = self.closed = False

    def open(self) -> None:
        """Open the run, so that what is wrong with it is raised before a service starts."""
        self._queue.submit(self._opened).result()

    def _opened(self) -> None:
        self.live: LiveRun = self.open_run()
        try:
            if self.source is not None:
                source = open_source(self.source, self.live.log.facts())
                self._ingest_loop = IngestLoop(self.live, source, score=self.score_events)
        except BaseException:
            self.live.close(snapshot=False)
            raise
        self._is_open = True
        self.lines("opened", run=self.live.run.path.name, model=self.live.model, position=self.live.position)

    def warm_up(self) -> None:
        """Explain a ranking twice, which compiles kernels and measures how long one takes."""
        past = self.live.past
        if not len(past):
            return
        source = past.src[-1:] if past.node_ids is None else past.node_ids.names(past.src[-1:])
        relation = None if past.relation is None else past.relation_names[past.relation[-1]]

        def start() -> Steps[Any]:
            ranking = rank_session(self.live.session(), source.tolist(), relation=relation, explain=True)
            return capture_warnings(ranking)

        for _ in range(2):
            self._queue.submit_steps(start, rank_kind(top=10, explain=True)).exception()

    async def start(self) -> None:
        """Begin to take events; the run is opened where it is not yet."""
        if not self._is_open:
            await self._in_thread(self._opened)
        self.metrics.follow(self.live)
        self.quality, self._evaluated_state = Quality(self.live, on_alarm=self._alarm), self.live.past
        self._evaluation: asyncio.Future[None] | None = None
        self._writer = asyncio.create_task(self._follow() if self.live.is_replica else self._write())
        work = [self._tick] if self.source is None else [self._tick, self._ingest]
        self._background = [asyncio.create_task(one()) for one in work]
        self.ready = True

    async def stop(self) -> None:
        """Finish what waits, keep a snapshot, let go."""
        self.ready = False
        await self._events.join()
        self._writer.cancel()
        for task in self._background:
            task.cancel()
        if self.source is not None:
            await self._in_thread(self._ingest_loop.source.close)
        await self.wait_for_evaluation()
        await self._in_thread(self.live.close)
        self.lines("closed", run=self.live.run.path.name, position=self.live.position)
        self._queue.close()
        self._disk.shutdown()
        self.closed = True

    # ---- in the background ------------------------------------------------------------------------------------
    def _start_evaluation(self) -> None:
        """Evaluate the latest events in the background, unless an evaluation is running."""
        if self._evaluation is None or self._evaluation.done():
            self._evaluation = asyncio.wrap_future(self._queue.submit_background(self._evaluate))

    async def wait_for_evaluation(self) -> None:
        """Wait until the running evaluation has ended."""
        if self._evaluation is not None:
            await self._evaluation

    def _evaluate(self) -> Steps[None]:
        before, self._evaluated_state = self._evaluated_state, self.live.past
        try:
            yield from self.quality.update_sliced(before)
            self.metrics.set_quality(self.quality)
        except Exception as error:  # events are taken whatever becomes of a figure
            self.quality.alarm(f"quality is not judged: {error}")

    def _alarm(self, alarm: Alarm) -> None:
        self.metrics.alarms.inc()
        self.lines("alarm", position=alarm.position, text=alarm.text)

    async def _guarded(self, part: str, work: Callable[[], T]) -> T | None:
        """Do work in the run's thread and return its result; an error is shown as trouble of a part, until it works."""
        try:
            found = await self._in_thread(work)
        except Exception as error:
            self._trouble(part, str(error) or type(error).__name__)
            return None
        self._trouble(part, "")
        return found

    def _trouble(self, part: str, text: str) -> None:
        if self.metrics.set_trouble(part, text):
            self.lines("trouble", of=part, text=text)

    async def _ingest(self) -> None:
        while True:
            async with self._run_lock:
                receipts = await self._guarded("source", self._ingest_once)
            if receipts:
                self.metrics.count_receipts(receipts, self.live)
                self._start_evaluation()
            await asyncio.sleep(0 if receipts else self.limits.look)

    def _ingest_once(self) -> list[Receipt]:
        begin = time.perf_counter()
        receipts = self._ingest_loop.run_once()
        self.metrics.source_lag = self._ingest_loop.behind()
        self._committed(receipts, begin)
        return receipts

    async def _tick(self) -> None:
        while True:
            await asyncio.sleep(self.limits.tick)
            again = self.metrics.has_trouble(AFTER_COMMIT)
            async with self._run_lock:  # a snapshot replaces the state, as a commit does
                await self._guarded("sink", partial(self.live.tick, again=again))
            if again and not self.metrics.has_trouble("sink"):
                self._trouble(AFTER_COMMIT, "")

    async def _follow(self) -> None:
        while True:
            left = await self._guarded("log", self.live.follow)  # what is known is answered in any case
            self.metrics.set_lag(left, self.live)
            await asyncio.sleep(0 if left else self.limits.look)

    # ---- requests ---------------------------------------------------------------------------------------------
    async def _in_thread(self, work: Callable[[], T]) -> T:
        return await asyncio.wrap_future(self._queue.submit(work))

    async def answer(
        self, work: Callable[[QuerySession], Steps[T]], *, kind: Hashable = None, key: Hashable = None
    ) -> tuple[T, list[str]]:
        """Return what answers a question to the run as it is now, and what it warned of.

        kind is that of questions that take about as long, key that of equal questions: they are answered once while the
        run stands where it is. Too much other work is a BusyServiceError or OverloadError.
        """
        question = self._questions.get(key)
        if key is None or question is None or not question.is_current(self.live.past):
            question = self._ask(work, kind, key)
        question.clients += 1
        try:
            async with asyncio.timeout(self.limits.deadline):
                return await asyncio.shield(question.answer)
        except TimeoutError:
            raise OverloadError(self._queue.wait()) from None
        finally:
            question.clients -= 1
            if not question.clients:
                question.answer.cancel()

    def _ask(self, work: Callable[[QuerySession], Steps[T]], kind: Hashable, key: Hashable) -> Question[T]:
        self._check_capacity()
        question = Question[T]()

        def start() -> Steps[tuple[T, list[str]]]:
            session = self.live.session()
            question.past = session.past
            return capture_warnings(work(session))

        deadline = time.monotonic() + self.limits.deadline
        question.answer = asyncio.wrap_future(self._queue.submit_steps(start, kind, deadline=deadline))
        self._questions[key] = question
        self._count(question.answer)
        question.answer.add_done_callback(lambda _: self._forget(key, question))
        return question

    def _forget(self, key: Hashable, question: Question[Any]) -> None:
        if self._questions.get(key) is question:
            del self._questions[key]

    def _check_capacity(self) -> None:
        if self.metrics.queue >= self.limits.waiting:
            raise BusyServiceError(f"{self.metrics.queue} requests wait; ask again in a second")

    def _count(self, answer: asyncio.Future[Any]) -> None:
        def done(_: object) -> None:
            self.metrics.queue -= 1

        self.metrics.queue += 1
        answer.add_done_callback(done)

    async def take(self, events: list[dict[str, Any]], *, score: bool = True) -> list[Receipt]:
        """Return receipts of events once they are durable; see `LiveRun.take`.

        If there is too much other work, a BusyServiceError or OverloadError says so, and no event is taken.
        """
        self.live.check_writer()
        self._check_capacity()
        before, seconds = self._queue.wait() + self._deliveries_seconds, self._queue.seconds(_kind(events))
        if before and before + seconds > self.limits.deadline:
            raise OverloadError(before + seconds - self.limits.deadline)
        delivery = Delivery(Request(events, score and self.score_events), seconds, asyncio.Future())
        self._events.put_nowait(delivery)
        self._deliveries_seconds += seconds
        self.metrics.events_waiting += len(events)
        self._count(delivery.receipts)
        return await asyncio.shield(delivery.receipts)

    async def _write(self) -> None:
        while True:
            group = [await self._events.get()]
            if self.limits.delay:
                await asyncio.sleep(self.limits.delay)
            while not self._events.empty() and sum(len(one.request.events) for one in group) < self.limits.together:
                group.append(self._events.get_nowait())
            found: Sequence[list[Receipt] | Exception]
            try:
                async with self._run_lock:
                    found = await self._commit_group([one.request for one in group])
            except Exception as error:  # nobody waits for ever, and the next ones are taken
                found = [error] * len(group)
            away = [str(one) for one in found if isinstance(one, StorageError)]
            self._trouble("log", away[0] if away else "")
            for delivery, answer in zip(group, found, strict=True):
                if isinstance(answer, Exception):
                    self.metrics.count_refusal(answer)
                    delivery.receipts.set_exception(answer)
                    delivery.receipts.exception()  # read, so that nothing is logged where the client has left
                else:
                    delivery.receipts.set_result(answer)
                self._deliveries_seconds -= delivery.seconds
                self.metrics.events_waiting -= len(delivery.request.events)
                self._events.task_done()
            self._start_evaluation()

    async def _commit_group(self, group: list[Request]) -> list[list[Receipt] | Exception]:
        if len(group) > 1:
            before = self.live.position
            try:
                scored = any(given.score for given in group)
                whole = Request([event for given in group for event in given.events], scored)
                each = iter(await self._commit_request(whole))
                return [[given.receipt_for_client(next(each)) for _ in given.events] for given in group]
            except StorageError as error:
                return [error] * len(group)
            except Exception as error:  # one request is at fault, and nothing was committed: take each by itself
                if self.live.position != before:
                    return [error] * len(group)
        found: list[list[Receipt] | Exception] = []
        for given in group:
            try:
                found.append(await self._commit_request(given))
            except Exception as error:
                found.append(error)
        return found

    async def _commit_request(self, given: Request) -> list[Receipt]:
        """Draft in the run's thread, commit in the disk's, then acknowledge; sink and snapshot follow."""
        begin, live = time.perf_counter(), self.live
        drafting = partial(live.drafting, given.events, score=given.score)
        draft = await asyncio.wrap_future(self._queue.submit_steps(drafting, _kind(given.events)))
        first = await asyncio.get_running_loop().run_in_executor(self._disk, draft.commit, live.log)
        live.accept(draft)
        # not awaited; submitted now, so that the one worker does it before the next draft
        self._queue.submit(partial(self._settle, live, draft, first))
        receipts = draft.receipts(first)
        self.metrics.count_receipts(receipts, live)
        self._committed(receipts, begin)
        return receipts

    def _settle(self, live: LiveRun, draft: Transaction, first: int) -> None:
        try:
            live.settle(draft, first)
            self._trouble(AFTER_COMMIT, "")
        except Exception as error:  # what was acknowledged stands; the next start makes up for the rest
            self._trouble(AFTER_COMMIT, str(error) or type(error).__name__)
        with suppress(Exception):  # the next question or draft repeats it, and raises the error
            live.prepare()

    def _committed(self, receipts: list[Receipt], begin: float) -> None:
        new = [one.position for one in receipts if one.position is not None and not one.duplicate]
        if new:
            self.lines("commit", first=new[0], events=len(new), seconds=time.perf_counter() - begin)

    async def state(self) -> dict[str, Any]:
        """Return what the page shows; whoever asks waits where the log is busy, and nobody else does."""
        dead_letters = await asyncio.to_thread(self.live.log.num_dead_letters) if self.live.late == "dead-letter" else 0
        return state_of(self.live, self.quality, self.metrics, dead_letters)


def rank_kind(*, top: int, explain: bool, candidates: Sequence[Any] = ()) -> Hashable:
    """Return what rankings that take about as long have in common."""
    return "rank", explain, top.bit_length(), len(candidates).bit_length()


def _kind(events: Sequence[Any]) -> Hashable:
    return "events", len(events).bit_length()
