"""A shadow takes the place of the run that serves: no event is lost, whenever it happens and whatever is killed, and
what it scores from then on is its own replay's, bit for bit."""

import json
import os
import signal
import threading
import time
from itertools import pairwise
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from made_events import small_run, table

pytest.importorskip("fastapi", reason="needs the extra serve: pip install 'hopstate[serve]'")
pytest.importorskip("apsw", reason="needs the extra serve: pip install 'hopstate[serve]'")

from fastapi.testclient import TestClient

from hopstate.errors import ConfigError, StorageError, TimeOrderError
from hopstate.runs.api import Run
from hopstate.serving.crashes import digest, warm_context
from hopstate.serving.live import LiveRun
from hopstate.serving.replaying import replayed
from hopstate.serving.service import Limits, service
from hopstate.serving.shadow import Pair, Shadow, swap
from hopstate.serving.sinks import ParquetSink
from hopstate.serving.whose import OtherModelError

pytestmark = pytest.mark.slow

EVENTS = table(200, 60).to_dict("records")


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> tuple[Run, Run]:
    home = tmp_path_factory.mktemp("runs")
    return small_run("recency", home), small_run("ctdg-ssm", home)


def again(run: Run, folder: Path) -> list[float]:
    return list(pd.concat(list(replayed(run.path, folder)))["score"])


def test_before_the_swap_one_serves_after_it_the_other(runs: tuple[Run, Run], tmp_path: Path) -> None:
    """And back; a start goes on with the one that served, from its own snapshot; the sink has what was told."""
    first, second = runs
    told: list[float | None] = []
    pair = Pair(first.path, second.path, folder=tmp_path / "live", sink=ParquetSink(tmp_path / "scores"))
    live = pair.opened()
    shadow: LiveRun = pair.beside(live)
    serving = []
    for k in range(0, 40, 5):
        if k in (15, 30):
            swap(live, shadow)
            live, shadow = shadow, live
        serving += [live.model] * 5
        told += [receipt.score for receipt in live.take(EVENTS[k : k + 5])]
        shadow.follow(2)
    swap(live, shadow)
    live, shadow = shadow, live
    live.close()  # the log is the other's
    shadow.close()
    with pytest.raises(OtherModelError, match="since a swap"):
        LiveRun(first.path, folder=tmp_path / "live")
    pair = Pair(first.path, second.path, folder=tmp_path / "live", sink=ParquetSink(tmp_path / "scores"))
    live = pair.opened()
    assert (live.run.path, live.kept) == (second.path, 40)
    shadow = pair.beside(live)
    assert (shadow.run.path, shadow.kept, shadow.lag) == (first.path, 40, 0)
    serving += [live.model] * 20
    told += [receipt.score for receipt in live.take(EVENTS[40:])]
    expected = {"recency": again(first, tmp_path / "live"), "ctdg-ssm": again(second, tmp_path / "live")}
    names = {live.model: "ctdg-ssm", shadow.model: "recency"}
    assert told == [expected[names[model]][k] for k, model in enumerate(serving)]
    shadow.close()
    live.close()
    files = sorted((tmp_path / "scores").iterdir())
    assert pd.concat([pd.read_parquet(path) for path in files])["score"].tolist() == told
    with pytest.raises(ConfigError, match="since a swap"):
        LiveRun(first.path, folder=tmp_path / "live")
    with LiveRun(second.path, folder=tmp_path / "live") as alone, LiveRun(second.path, folder=tmp_path / "new") as new:
        new.take(EVENTS)
        assert digest(alone.past) == digest(new.past)


def test_what_is_no_shadow(runs: tuple[Run, Run], tmp_path: Path) -> None:
    first, second = runs
    with LiveRun(first.path, folder=tmp_path / "live") as live:
        with pytest.raises(ConfigError, match="another model"):
            Shadow(first.path, live)
        live.take(EVENTS[:5])
        (tmp_path / "later").mkdir()
        later = small_run("ctdg-ssm", tmp_path / "later", table(150, 160))
        with pytest.raises(TimeOrderError):
            Shadow(later.path, live)
        exact = small_run("ctdg-ssm", tmp_path, **{"loop.matmul_precision": "medium"})
        with pytest.raises(ConfigError, match="matmul_precision"):
            Shadow(exact.path, live)
        (tmp_path / "unit").mkdir()
        seconds = small_run("ctdg-ssm", tmp_path / "unit", table(0, 160), **{"read.time_unit": "s"})
        with pytest.raises(ConfigError, match="those of the run that serves in no unit"):
            Shadow(seconds.path, live)
        with Shadow(second.path, live) as shadow:
            assert shadow.position == 5


def test_a_swap_that_cannot_be_written_changes_nothing(
    runs: tuple[Run, Run], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with LiveRun(runs[0].path, folder=tmp_path) as live, Shadow(runs[1].path, live) as shadow:
        live.take(EVENTS[:20])

        def fails(facts: Any) -> None:
            raise StorageError("no space left")

        with monkeypatch.context() as patch:
            patch.setattr(live.log, "tell", fails)
            with pytest.raises(StorageError):
                swap(live, shadow)
        assert (live.follows, shadow.follows) == (False, True)
        live.take(EVENTS[20:])
        patch.setattr("hopstate.serving.shadow.NEAR", 10)
        with pytest.raises(ConfigError, match="40 events behind"):
            swap(live, shadow)


def test_a_swap_at_the_doors_while_events_come(runs: tuple[Run, Run], tmp_path: Path) -> None:
    """Each event is taken once, and scored by the one or the other."""
    first, second = runs
    pair = Pair(first.path, second.path, folder=tmp_path)
    app = service(pair.opened, name="run", limits=Limits(look=0.001, delay=0.0), beside=pair.beside)
    told: list[float] = []
    with TestClient(app) as client:
        state = client.get("/state").json()
        models = [state["model"], state["shadow"]["model"]]
        swapped: list[int] = []

        def send() -> None:
            for event in EVENTS:
                answer = client.post("/events", json={"events": [event]})
                assert answer.status_code == 200
                told.extend(receipt["score"] for receipt in answer.json()["receipts"])

        thread = threading.Thread(target=send)
        thread.start()
        while len(swapped) < 4 and thread.is_alive():
            answer = client.post("/swap", json={"model": models[(len(swapped) + 1) % 2]})
            assert answer.status_code == 200, answer.text
            swapped.append(answer.json()["position"])
        thread.join()
        assert client.post("/swap", json={"model": "nowhere"}).status_code == 422
        assert client.get("/state").json()["position"] == 60
        assert "hopstate_shadow_lag" in client.get("/metrics").text
    edges = [0, *swapped, 60]
    expected = [again(run, tmp_path) for run in runs]
    for k, (begin, end) in enumerate(pairwise(edges)):
        assert told[begin:end] == expected[k % 2][begin:end]


def _swapping(runs: tuple[Path, Path], folder: Path, after: float, pipe: Connection) -> None:
    threading.Thread(target=lambda: (time.sleep(after), os.kill(os.getpid(), signal.SIGKILL)), daemon=True).start()
    pair = Pair(*runs, folder=folder, snapshot_every=7)
    live = pair.opened()
    shadow: LiveRun = pair.beside(live)
    while live.position < len(EVENTS):
        part = EVENTS[live.position : live.position + 3]
        pipe.send((live.position, live.model, [receipt.score for receipt in live.take(part)]))
        shadow.follow(2)
        pipe.send("swaps")
        swap(live, shadow)
        live, shadow = shadow, live
    os.kill(os.getpid(), signal.SIGKILL)


def killed(runs: tuple[Run, Run], folder: Path, count: int) -> None:
    """Kill a process that takes events and swaps, at once and a little later each time, until all is taken."""
    context, told = warm_context(), dict[int, tuple[str, float]]()
    paths = (Path(runs[0].path), Path(runs[1].path))
    for k in range(count):
        ours, theirs = context.Pipe(duplex=False)
        after = 60.0 if k + 1 == count else 0.3 + 0.8 * k / count
        process = context.Process(target=_swapping, args=(paths, folder, after, theirs))
        process.start()
        theirs.close()
        try:
            while True:
                if (word := ours.recv()) != "swaps":
                    told.update({word[0] + i: (word[1], score) for i, score in enumerate(word[2])})
        except EOFError:
            process.join()
            assert process.exitcode == -signal.SIGKILL
    pair = Pair(*paths, folder=folder)
    with pair.opened() as live, pair.beside(live) as shadow:
        bodies = [json.loads(body) for commit in live.log.commits() for body in commit.bodies]
        assert bodies == EVENTS
        shadow.follow(99)
        by_path = {Path(run.path): again(run, folder) for run in runs}
        expected = {one.model: by_path[Path(one.run.path)] for one in (live, shadow)}
        assert all(expected[model][position] == score for position, (model, score) in told.items())
        with LiveRun(live.run.path, folder=folder / "fresh") as fresh:
            fresh.take(EVENTS)
            assert digest(fresh.past) == digest(live.past)
    assert len({model for model, _ in told.values()}) == 2


def test_a_swap_that_is_killed_loses_nothing(runs: tuple[Run, Run], tmp_path: Path) -> None:
    killed(runs, tmp_path, 2)


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_swaps_that_are_killed_again_and_again_lose_nothing(runs: tuple[Run, Run], tmp_path: Path) -> None:
    killed(runs, tmp_path, 60)
