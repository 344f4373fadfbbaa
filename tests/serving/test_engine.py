"""Clients that disconnect during an answer, stops during slices: no partial state, nothing lost, others unaffected."""

import asyncio
import json
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from made_events import small_run, table

pytest.importorskip("fastapi", reason="needs the extra serve: pip install 'hopstate[serve]'")
pytest.importorskip("apsw", reason="needs the extra serve: pip install 'hopstate[serve]'")

from gated_log import GatedLog

from hopstate.runs.queries import QuerySession, pair_probabilities
from hopstate.runs.run import Run
from hopstate.serving import live as live_module
from hopstate.serving.engine import Limits, ServiceEngine
from hopstate.serving.live import LiveRun
from hopstate.serving.service import service
from hopstate.serving.work_queue import WorkQueue
from hopstate.streaming.slices import Steps, run_to_completion

EVENTS = [row | {"event_id": f"e{i}"} for i, row in enumerate(table(200, 40).to_dict("records"))]
PAIRS = [("u1", "v2"), ("u2", "v3")]
SECONDS = 60  # timeout of a hanging test


class Long:
    """A sliced query that blocks in its first slice until `leave` is set."""

    def __init__(self) -> None:
        self.begun, self.leave, self.slices, self.closed = threading.Event(), threading.Event(), 0, False

    def __call__(self, session: QuerySession) -> Steps[tuple[np.ndarray, int]]:
        before = run_to_completion(pair_probabilities(session, PAIRS))[0]
        try:
            for _ in range(3):
                self.slices += 1
                self.begun.set()
                assert self.leave.wait(SECONDS)
                yield
        finally:
            self.closed = True
        return before, self.slices


def with_engine(work: Callable[[ServiceEngine, GatedLog], Any], run: Run, folder: Path, **limits: float) -> None:
    """Run `work` with an open engine and a log whose commits can be blocked."""

    async def whole() -> None:
        folder.mkdir(exist_ok=True)
        log = GatedLog(folder)
        engine = ServiceEngine(partial(LiveRun, run.path, folder=folder, log=log), Limits(**limits))
        await engine.start()
        await asyncio.wait_for(work(engine, log), SECONDS)
        await asyncio.wait_for(engine.stop(), SECONDS)
        assert engine.metrics.queue == 0
        assert {task for task in asyncio.all_tasks() if task is not asyncio.current_task()} == set()

    asyncio.run(whole())


async def scores(engine: ServiceEngine) -> list[float]:
    (found, _), _ = await engine.answer(partial(pair_probabilities, pairs=PAIRS))
    return found.tolist()


def offline(run: Run, count: int) -> list[float]:
    return run.score(PAIRS, events=table(200, 40)[:count] if count else None)["score"].tolist()


async def begun(event: threading.Event) -> None:
    assert await asyncio.to_thread(event.wait, SECONDS)


# ---- the executor ----------------------------------------------------------------------------------------------
def test_cancelled_work_ends_with_its_slice() -> None:
    executor, begun, leave, done = WorkQueue("test"), threading.Event(), threading.Event(), list[str]()

    def long() -> Steps[None]:
        try:
            for k in range(3):
                done.append(f"slice {k}")
                begun.set()
                assert leave.wait(SECONDS)
                yield
        finally:
            done.append("closed")

    slow = executor.submit_steps(long)
    assert begun.wait(SECONDS)
    never = executor.submit(lambda: done.append("never"))
    assert never.cancel()
    slow.cancel()
    leave.set()
    assert executor.submit(lambda: 7).result(SECONDS) == 7
    executor.close()
    assert done == ["slice 0", "closed"]


# ---- engine -------------------------------------------------------------------------------------------------
def test_events_are_acknowledged_while_a_slice_runs(run: Run, tmp_path: Path) -> None:
    """They are durable: the run applies them later, but before any query that arrives after them."""

    async def work(engine: ServiceEngine, log: GatedLog) -> None:
        long, commit = Long(), asyncio.create_task(engine.take(EVENTS))
        await begun(log.begun)
        answer = asyncio.create_task(engine.answer(long))
        await begun(long.begun)
        log.leave.set()
        assert [one.position for one in await commit] == list(range(40))
        later = asyncio.create_task(scores(engine))
        assert not answer.done()
        long.leave.set()
        assert await later == offline(run, 40)
        (before, _), _ = await answer
        assert before.tolist() == offline(run, 0)

    with_engine(work, run, tmp_path / "live")


def test_a_snapshot_during_a_commit_has_the_state_after_it(run: Run, tmp_path: Path) -> None:
    leave = threading.Event()

    async def work(engine: ServiceEngine, log: GatedLog) -> None:
        def tick(*, again: bool = False) -> None:
            before = engine.live.past
            assert leave.wait(SECONDS)
            engine.live.past = before  # as a snapshot does

        engine.live.tick = tick  # type: ignore[method-assign]
        commit = asyncio.create_task(engine.take(EVENTS[:2]))
        await begun(log.begun)
        await asyncio.sleep(0.2)  # a tick is due
        log.leave.set()
        await commit
        leave.set()
        await scores(engine)
        assert engine.live.position == 2

    with_engine(work, run, tmp_path / "live", tick=0.01)


def test_a_client_that_disconnects_during_a_commit_loses_nothing(run: Run, tmp_path: Path) -> None:
    """The events of its request are stored once; those of others too, in the same commit or the next."""

    async def work(engine: ServiceEngine, log: GatedLog) -> None:
        first = asyncio.create_task(engine.take(EVENTS[:10]))
        await begun(log.begun)
        others = [asyncio.create_task(engine.take(EVENTS[i : i + 10])) for i in (10, 20)]
        await asyncio.sleep(0)
        first.cancel()
        others[0].cancel()
        log.leave.set()
        assert [one.position for one in await others[1]] == list(range(20, 30))
        again = await engine.take(EVENTS[:20])
        assert [(one.position, one.duplicate) for one in again] == [(i, True) for i in range(20)]
        assert await scores(engine) == offline(run, 30)

    with_engine(work, run, tmp_path / "live")
    with LiveRun(run.path, folder=tmp_path / "live") as live:
        assert len(live.log) == live.position == 30


@pytest.mark.slow
def test_a_disconnect_cancels_the_query(run: Run, tmp_path: Path) -> None:
    async def work(engine: ServiceEngine, log: GatedLog) -> None:
        log.leave.set()
        long = Long()
        answer, waiting = asyncio.create_task(engine.answer(long)), asyncio.create_task(scores(engine))
        await begun(long.begun)
        commit, gone = asyncio.create_task(engine.take(EVENTS[:20])), asyncio.create_task(scores(engine))
        await asyncio.sleep(0)
        answer.cancel()
        gone.cancel()
        await asyncio.sleep(0)
        long.leave.set()
        assert await waiting == offline(run, 0)
        assert len(await commit) == 20
        assert await scores(engine) == offline(run, 20)
        assert (long.slices, long.closed) == (1, True)

    with_engine(work, run, tmp_path / "live")


@pytest.mark.slow
def test_a_stop_during_slices_answers_and_keeps_all(run: Run, tmp_path: Path) -> None:
    async def work(engine: ServiceEngine, log: GatedLog) -> None:
        log.leave.set()
        long = Long()
        answer = asyncio.create_task(engine.answer(long))
        await begun(long.begun)
        commit = asyncio.create_task(engine.take(EVENTS[:20]))
        await asyncio.sleep(0)
        stopped = asyncio.create_task(engine.stop())
        await asyncio.sleep(0)
        long.leave.set()
        assert [one.position for one in await commit] == list(range(20))
        (before, slices), _ = await answer
        assert (before.tolist(), slices) == (offline(run, 0), 3)
        await stopped

    async def whole() -> None:
        log = GatedLog(tmp_path)
        engine = ServiceEngine(partial(LiveRun, run.path, folder=tmp_path, log=log), Limits())
        await engine.start()
        await asyncio.wait_for(work(engine, log), SECONDS)

    asyncio.run(whole())
    with LiveRun(run.path, folder=tmp_path) as live:
        assert live.snapshot_position == live.position == 20


@pytest.mark.parametrize("name", ["ctdg-ssm", pytest.param("pair-trees", marks=pytest.mark.slow)])
def test_queries_between_slices_of_a_commit_see_the_earlier_state(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And the result of the sliced commit equals that of one call."""
    run = small_run(name, tmp_path)
    monkeypatch.setattr(live_module, "SLICE", 3)
    with LiveRun(run.path, folder=tmp_path / "a") as live, LiveRun(run.path, folder=tmp_path / "b") as whole:
        before, steps, count = run_to_completion(pair_probabilities(live.session(), PAIRS))[0], live.drafting(EVENTS), 0
        while True:
            try:
                next(steps)
            except StopIteration as end:
                draft = end.value
                break
            count += 1
            assert run_to_completion(pair_probabilities(live.session(), PAIRS))[0].tolist() == before.tolist()
            assert live.position == 0
        first = draft.commit(live.log)
        live.accept(draft)
        live.settle(draft, first)
        assert draft.receipts(first) == whole.take(EVENTS)
        assert (
            run_to_completion(pair_probabilities(live.session(), PAIRS))[0].tolist()
            == run_to_completion(pair_probabilities(whole.session(), PAIRS))[0].tolist()
        )
        assert count > 0


# ---- the service -------------------------------------------------------------------------------------------
@pytest.mark.slow
@pytest.mark.parametrize("path", ["/rank", "/events"])
def test_a_connection_that_ends_during_an_answer(path: str, run: Run, tmp_path: Path) -> None:
    """A ranking is cancelled and counted as 499; events are stored nevertheless."""
    log = GatedLog(tmp_path)
    app = service(ServiceEngine(partial(LiveRun, run.path, folder=tmp_path, log=log)), name="run")
    engine, sent = app.state.engine, list[Any]()
    args: dict[str, Any] = {"source": "u1"} if path == "/rank" else {"events": EVENTS[:5]}
    body = json.dumps(args).encode()
    heads = [(b"content-length", str(len(body)).encode()), (b"content-type", b"application/json")]
    scope = {"type": "http", "method": "POST", "path": path, "headers": heads, "query_string": b""}
    scope |= {"raw_path": path.encode(), "root_path": "", "scheme": "http", "server": ("h", 80), "app": app}

    async def whole() -> None:
        await engine.start()
        long, left = Long(), asyncio.Event()
        blocking = asyncio.create_task(engine.answer(long))  # the request waits for it
        await begun(long.begun)
        parts = [{"type": "http.request", "body": body, "more_body": False}]

        async def receive() -> Any:
            if parts:
                return parts.pop()
            await left.wait()
            return {"type": "http.disconnect"}

        async def send(message: Any) -> None:
            sent.append(message)

        request = asyncio.create_task(app(scope, receive, send))  # type: ignore[arg-type]
        while not engine.metrics.queue > 1:
            await asyncio.sleep(0)
        left.set()
        if path == "/rank":
            await asyncio.wait_for(request, SECONDS)
            assert engine.metrics.queue == 1
            assert sent[0]["status"] == 499
        log.leave.set()
        long.leave.set()
        await blocking
        await asyncio.wait_for(request, SECONDS)
        await engine.stop()

    asyncio.run(whole())
    status = 499 if path == "/rank" else 200
    assert (
        engine.metrics.registry.get_sample_value("hopstate_requests_total", {"route": path, "status": str(status)}) == 1
    )
    with LiveRun(run.path, folder=tmp_path) as live:
        assert live.position == (0 if path == "/rank" else 5)
