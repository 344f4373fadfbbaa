"""What waits for a live run's thread: short things pass long ones, and each answer is of one state."""

import asyncio
import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

from made_events import small_run, table

pytest.importorskip("fastapi", reason="needs the extra serve: pip install 'hopstate[serve]'")
pytest.importorskip("apsw", reason="needs the extra serve: pip install 'hopstate[serve]'")

from hopstate.ops.threads import usual_threads
from hopstate.runs.queries import pair_probabilities, ranking
from hopstate.runs.run import Run
from hopstate.serving.engine import LATER, SOON, Limits, SerialExecutor, ServiceEngine
from hopstate.serving.live import LiveRun
from hopstate.serving.log import SqliteLog
from hopstate.streaming import slices
from hopstate.streaming.slices import Steps, finished
from hopstate.testing.conformance import F32


@pytest.fixture
def executor() -> Iterator[SerialExecutor]:
    made = SerialExecutor("test")
    yield made
    made.close()


def test_one_thread_does_all_and_tells_what_came_of_it(executor: SerialExecutor) -> None:
    names = [executor.submit(lambda: threading.current_thread().name) for _ in range(3)]
    assert [name.result() for name in names] == ["test"] * 3
    failed = executor.submit(lambda: 1 // 0)
    with pytest.raises(ZeroDivisionError):
        failed.result()
    assert executor.submit(lambda: 7).result() == 7


def test_what_is_short_comes_between_the_slices_of_what_is_long(executor: SerialExecutor) -> None:
    done, begun, asked = [], threading.Event(), threading.Event()

    def long() -> Steps[str]:
        for k in range(3):
            done.append(f"slice {k}")
            if not k:
                begun.set()
                asked.wait()
            yield
        return "whole"

    slow = executor.submit_steps(long)
    begun.wait()
    later, quick = executor.submit(lambda: done.append("later"), LATER), executor.submit(lambda: done.append("quick"))
    asked.set()
    assert (slow.result(), quick.result(), later.result()) == ("whole", None, None)
    assert done == ["slice 0", "quick", "slice 1", "slice 2", "later"]


def test_its_linear_algebra_has_one_thread_and_kernels_all() -> None:
    """So that no answer has to bring that about, which starts a thread each time."""
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(2)
        other = SerialExecutor("another")
        try:
            assert other.submit(lambda: (torch.get_num_threads(), usual_threads())).result() == (1, 2)
        finally:
            other.close()
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)


def test_what_was_given_is_done_before_the_end() -> None:
    executor, done = SerialExecutor("test"), list[int]()
    for k in range(5):
        executor.submit(partial(done.append, k), SOON * (k % 2))
    executor.close()
    assert sorted(done) == [0, 1, 2, 3, 4]


# ---- a run behind it ---------------------------------------------------------------------------------------
@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return small_run("ctdg-ssm", tmp_path_factory.mktemp("run"))


EVENTS = table(200, 40).to_dict("records")


def test_a_long_answer_is_of_the_state_that_it_began_with(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in {"FIRST": 1, "LEAST": 1, "AIM": 0.0}.items():
        monkeypatch.setattr(slices, name, value)
    with LiveRun(run.path, folder=tmp_path) as live:
        live.take(EVENTS[:20])
        expected = finished(ranking(live.session(), "u1", top=5))
        steps = ranking(live.session(), "u1", 5)
        for k in range(20, 25):  # a commit, and a question of another time, after each slice
            next(steps)
            live.take([EVENTS[k]])
            finished(pair_probabilities(live.session(), [("u1", "v1")], [int(live.past.last_time) + 50]))
        pd.testing.assert_frame_equal(finished(steps), expected, rtol=F32)
        assert not finished(ranking(live.session(), "u1", top=5)).equals(expected)


def test_answers_are_given_while_the_disk_syncs(run: Run, tmp_path: Path) -> None:
    """Of what was acknowledged, and no more."""
    begun, synced = threading.Event(), threading.Event()

    class Slow(SqliteLog):
        def append(self, *told: Any) -> int:
            begun.set()
            synced.wait(30)
            return super().append(*told)

    def scores(engine: ServiceEngine) -> Any:
        return engine.answer(partial(pair_probabilities, pairs=[("u1", "v2"), ("u2", "v3")]))

    async def work() -> None:
        engine = ServiceEngine(partial(LiveRun, run.path, folder=tmp_path, log=Slow(tmp_path)), Limits())
        await engine.start()
        (before, _), _ = await scores(engine)
        waiting = asyncio.create_task(engine.take(EVENTS))
        await asyncio.to_thread(begun.wait, 30)
        (during, _), _ = await scores(engine)
        assert not waiting.done()
        synced.set()
        assert [one.position for one in await waiting] == list(range(40))
        (after, _), _ = await scores(engine)
        await engine.stop()
        np.testing.assert_array_equal(before, during)
        assert (after != before).any()

    asyncio.run(work())
