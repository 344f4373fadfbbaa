"""The work queue of a live run: short work overtakes long work, and each answer uses one state."""

import asyncio
import threading
from collections.abc import Iterator
from concurrent.futures import CancelledError
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

from made_events import table

pytest.importorskip("fastapi", reason="needs the extra serve: pip install 'hopstate[serve]'")
pytest.importorskip("apsw", reason="needs the extra serve: pip install 'hopstate[serve]'")

from gated_log import GatedLog

from hopstate.ops.threads import usual_threads
from hopstate.runs.queries import QuerySession, pair_probabilities, rank_session
from hopstate.runs.run import Run
from hopstate.serving.engine import Limits, ServiceEngine, rank_kind
from hopstate.serving.live import LiveRun
from hopstate.serving.work_queue import OverloadError, WorkQueue
from hopstate.streaming import slices
from hopstate.streaming.slices import Steps, run_to_completion
from hopstate.testing.conformance import F32
from torch_threads import torch_threads


class Clock:
    """A clock that only work advances."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now

    def lasting(self, seconds: float, slices: int = 5) -> Steps[None]:
        for _ in range(slices):
            self.now += seconds / slices
            yield


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def queue(clock: Clock) -> Iterator[WorkQueue]:
    made = WorkQueue("test", clock)
    yield made
    made.close()


@contextmanager
def blocked(queue: WorkQueue) -> Iterator[None]:
    """Block all other work that is submitted within the block."""
    begun, leave = threading.Event(), threading.Event()

    def wait() -> None:
        begun.set()
        leave.wait()

    job = queue.submit(wait)
    begun.wait()
    try:
        yield
    finally:
        leave.set()
        job.result()


def test_one_thread_does_all_work_and_returns_results(queue: WorkQueue) -> None:
    names = [queue.submit(lambda: threading.current_thread().name) for _ in range(3)]
    assert [name.result() for name in names] == ["test"] * 3
    failed = queue.submit(lambda: 1 // 0)
    with pytest.raises(ZeroDivisionError):
        failed.result()
    assert queue.submit(lambda: 7).result() == 7


def test_short_work_runs_between_slices_and_long_work_in_order(queue: WorkQueue) -> None:
    done, begun, leave = list[str](), threading.Event(), threading.Event()
    queue._took["short"].append(0.0)

    def noted(name: str, slices: int) -> Steps[None]:
        for k in range(slices):
            done.append(f"{name} {k}")
            begun.set()
            leave.wait()
            yield

    first = queue.submit_steps(lambda: noted("first", 3), "long")
    begun.wait()
    later = queue.submit_background(lambda: noted("background", 1))
    others = [queue.submit_steps(lambda k=k: noted(f"other{k}", 2), "long") for k in range(2)]
    short = queue.submit_steps(lambda: noted("short", 1), "short")
    leave.set()
    for job in (first, later, short, *others):
        job.result()
    assert done == [
        *("first 0", "short 0", "first 1", "first 2"),
        *("other0 0", "other0 1", "other1 0", "other1 1", "background 0"),
    ]


def test_shorter_work_overtakes_slightly_earlier_work(queue: WorkQueue, clock: Clock) -> None:
    done = list[str]()
    queue._took["pair"].append(0.001)
    queue._took["commit"].append(0.01)
    jobs = []
    with blocked(queue):
        for kind, name in (("commit", "commit"), ("pair", "soon"), ("pair", "late")):
            clock.now += 0.2 if name == "late" else 0.0
            jobs.append(queue.submit_steps(lambda name=name: noted_once(done, name), kind))
    for job in jobs:
        job.result()
    assert done == ["soon", "commit", "late"]


def noted_once(done: list[str], name: str) -> Steps[None]:
    done.append(name)
    yield


def test_late_work_is_rejected_immediately(queue: WorkQueue, clock: Clock) -> None:
    queue.submit_steps(lambda: clock.lasting(0.1), "kind").result()
    deadline = clock.now + 0.8
    with blocked(queue):
        jobs = [queue.submit_steps(lambda: clock.lasting(0.1), "kind", deadline=deadline) for _ in range(20)]
        assert [job.done() for job in jobs] == [False] * 6 + [True] * 14
    assert all(isinstance(job.exception(), OverloadError) for job in jobs[6:])
    for job in jobs[:6]:
        job.result()
    assert clock.now <= deadline


def test_unknown_kinds_are_accepted_until_their_duration_is_known(queue: WorkQueue, clock: Clock) -> None:
    with blocked(queue):
        deadline = clock.now + 0.35
        jobs = [queue.submit_steps(lambda: clock.lasting(0.1), "new", deadline=deadline) for _ in range(10)]
        assert not any(job.done() for job in jobs)
    assert [isinstance(job.exception(), OverloadError) for job in jobs] == [False] * 3 + [True] * 7


def test_one_long_duration_does_not_count(queue: WorkQueue, clock: Clock) -> None:
    """The first query compiles."""
    for seconds in (0.3, 0.0, 0.0):
        queue.submit_steps(lambda s=seconds: clock.lasting(s), "kind").result()
    assert queue.seconds("kind") == 0.0


def test_cancelled_work_only_raises_the_known_duration(queue: WorkQueue, clock: Clock) -> None:
    def cancelled_after(seconds: float) -> None:
        def work() -> Steps[None]:
            clock.now += seconds
            job.cancel()
            yield

        with blocked(queue):
            job = queue.submit_steps(work, "kind")
        with pytest.raises(CancelledError):
            job.result()
        queue.submit(lambda: None).result()

    queue.submit_steps(lambda: clock.lasting(0.5), "kind").result()
    cancelled_after(0.1)
    assert list(queue._took["kind"]) == pytest.approx([0.5])
    cancelled_after(2.0)
    assert list(queue._took["kind"]) == pytest.approx([0.5, 2.0])


def test_finished_work_is_not_waited_for(queue: WorkQueue, clock: Clock) -> None:
    """Its result is set just before it leaves the queue."""
    queue._took["kind"].extend([10.0] * 5)
    for _ in range(50):
        assert queue.submit_steps(lambda: clock.lasting(0.0), "kind", deadline=clock.now + 1.0).result() is None


def test_a_single_job_is_tried_however_long_its_kind_takes(queue: WorkQueue, clock: Clock) -> None:
    queue.submit_steps(lambda: clock.lasting(0.2), "kind").result()
    assert queue.submit_steps(lambda: clock.lasting(0.0), "kind", deadline=clock.now + 0.1).result() is None


def test_linear_algebra_uses_one_thread_and_kernels_all() -> None:
    """So that no answer has to do it, which would start a thread each time."""
    with torch_threads(2):
        other = WorkQueue("another")
        try:
            assert other.submit(lambda: (torch.get_num_threads(), usual_threads())).result() == (1, 2)
        finally:
            other.close()
        assert torch.get_num_threads() == 2


def test_submitted_work_is_done_before_closing() -> None:
    queue, done = WorkQueue("test"), list[int]()
    for k in range(5):
        queue.submit(partial(done.append, k))
    queue.close()
    assert done == [0, 1, 2, 3, 4]


# ---- a run behind it ---------------------------------------------------------------------------------------
EVENTS = table(200, 40).to_dict("records")


def test_a_long_query_uses_the_state_of_its_start(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"INITIAL_ROWS": 1, "MIN_ROWS": 1, "TARGET_SECONDS": 0.0}.items():
        monkeypatch.setattr(slices, name, value)
    with LiveRun(run.path, folder=tmp_path) as live:
        live.take(EVENTS[:20])
        expected = run_to_completion(rank_session(live.session(), "u1", top=5))
        steps = rank_session(live.session(), "u1", 5)
        for k in range(20, 25):  # a commit, and a query at another time, after each slice
            next(steps)
            live.take([EVENTS[k]])
            run_to_completion(pair_probabilities(live.session(), [("u1", "v1")], [int(live.past.last_time) + 50]))
        pd.testing.assert_frame_equal(run_to_completion(steps), expected, rtol=F32)
        assert not run_to_completion(rank_session(live.session(), "u1", top=5)).equals(expected)


def test_answers_are_given_while_the_disk_syncs(run: Run, tmp_path: Path) -> None:
    """With acknowledged events only."""
    log = GatedLog(tmp_path)

    def scores(engine: ServiceEngine) -> Any:
        return engine.answer(partial(pair_probabilities, pairs=[("u1", "v2"), ("u2", "v3")]))

    async def work() -> None:
        engine = ServiceEngine(partial(LiveRun, run.path, folder=tmp_path, log=log), Limits())
        await engine.start()
        (before, _), _ = await scores(engine)
        waiting = asyncio.create_task(engine.take(EVENTS))
        await asyncio.to_thread(log.begun.wait, 30)
        (during, _), _ = await scores(engine)
        assert not waiting.done()
        log.leave.set()
        assert [one.position for one in await waiting] == list(range(40))
        (after, _), _ = await scores(engine)
        await engine.stop()
        np.testing.assert_array_equal(before, during)
        assert (after != before).any()

    asyncio.run(work())


class Counted:
    """A query that counts how often it is computed, and blocks in its first slice."""

    def __init__(self) -> None:
        self.count, self.begun, self.leave = 0, threading.Event(), threading.Event()

    def __call__(self, session: QuerySession) -> Steps[int]:
        self.count += 1
        self.begun.set()
        assert self.leave.wait(30)
        yield
        return len(session.past)


def test_equal_queries_at_one_position_are_computed_once(run: Run, tmp_path: Path) -> None:
    async def work() -> None:
        limits = Limits(waiting=5)
        engine = ServiceEngine(partial(LiveRun, run.path, folder=tmp_path), limits)
        await engine.start()
        question = Counted()
        own = len(engine.live.past)
        answers = [asyncio.create_task(engine.answer(question, key="who")) for _ in range(50)]
        await asyncio.to_thread(question.begun.wait, 30)
        answers.pop(0).cancel()
        answers.pop().cancel()
        commit = asyncio.create_task(engine.take(EVENTS))
        question.leave.set()
        assert [(await one)[0] for one in answers] == [own] * 48
        assert question.count == 1
        await commit
        assert (await engine.answer(question, key="who"))[0] == own + 40
        await engine.stop()

    asyncio.run(work())


def test_a_query_after_a_commit_is_answered_separately(run: Run, tmp_path: Path) -> None:
    async def work() -> None:
        engine = ServiceEngine(partial(LiveRun, run.path, folder=tmp_path), Limits())
        await engine.start()
        engine._queue._took["events", 6].append(0.0)  # a commit that overtakes the query
        question, own = Counted(), len(engine.live.past)
        before = asyncio.create_task(engine.answer(question, key="who"))
        await asyncio.to_thread(question.begun.wait, 30)
        commit = asyncio.create_task(engine.take(EVENTS))
        while len(engine._queue._jobs) < 2:
            await asyncio.sleep(0)
        question.leave.set()
        await commit
        assert (await engine.answer(question, key="who"))[0] == own + 40
        assert (await before)[0] == own
        await engine.stop()

    asyncio.run(work())


def test_every_request_is_answered_or_rejected_by_its_deadline(run: Run, tmp_path: Path) -> None:
    """Also one that takes longer than any before, and those that wait for it."""

    def endless(session: QuerySession) -> Steps[None]:
        while True:
            yield

    async def work() -> None:
        engine = ServiceEngine(partial(LiveRun, run.path, folder=tmp_path), Limits(deadline=0.5))
        await engine.start()
        requests = [asyncio.create_task(engine.answer(endless, kind="endless")) for _ in range(3)]
        for request in requests:
            with pytest.raises(OverloadError) as error:
                await request
            assert error.value.retry_after >= 1
        engine.limits = Limits()
        (found, _), _ = await engine.answer(partial(pair_probabilities, pairs=[("u1", "v2")]))
        assert len(found) == 1
        await engine.stop()

    asyncio.run(work())


def test_late_commits_are_rejected_and_others_overtake_long_queries(run: Run, tmp_path: Path) -> None:
    async def work() -> None:
        engine = ServiceEngine(partial(LiveRun, run.path, folder=tmp_path), Limits())
        await engine.start()
        question = Counted()
        answer = asyncio.create_task(engine.answer(question, kind="slow"))
        await asyncio.to_thread(question.begun.wait, 30)
        engine._queue._took["slow"].append(1.0)
        engine._queue._took["events", 1].append(30.0)
        with pytest.raises(OverloadError):
            await engine.take(EVENTS[:1])
        assert len(engine.live.log) == 0
        engine._queue._took["events", 1].append(0.001)
        commit = asyncio.create_task(engine.take(EVENTS[:1]))
        while len(engine._queue._jobs) < 2:
            await asyncio.sleep(0)
        question.leave.set()
        assert (await commit)[0].position == 0
        await answer
        await engine.stop()

    asyncio.run(work())


def test_a_warm_engine_estimates_the_duration_of_explained_rankings(run: Run, tmp_path: Path) -> None:
    engine = ServiceEngine(partial(LiveRun, run.path, folder=tmp_path), Limits())
    engine.open()
    engine.warm_up()
    assert engine._queue.seconds(rank_kind(top=10, explain=True), unknown=0.0) > 0
    engine.live.close()
