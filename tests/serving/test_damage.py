"""Damaged logs and snapshots: errors name the damage, and the history of a truncated log is stored twice."""

import itertools
import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import made_events

pytest.importorskip("apsw", reason="needs apsw: pip install 'hopstate[serve]'")

import apsw

from hopstate.cli.main import main
from hopstate.errors import CheckpointError, HopstateError, HopstateWarning
from hopstate.runs.run import Run
from hopstate.serving.live import LiveRun
from hopstate.serving.sinks import ParquetSink

EVENTS = made_events.table(200, 90).to_dict("records")


def altered(folder: Path, what: str) -> None:
    file = apsw.Connection(str(folder / "log.sqlite"))
    file.execute(what)
    file.close()


DAMAGE = {
    "no JSON": """update events set body = '{"src": "u1"' where position = 5""",
    "no event": """update events set body = '{"more": 1}' where position = 5""",
    "a list": "update events set body = '[1, 2]' where position = 5",
    "deep": f"update events set body = '{'[' * 20_000}' where position = 5",
    "no text": "update events set body = 7 where position = 5",
    "bytes": "update events set body = x'ff00' where position = 5",
    "an end that is a list": """update events set body = '{"src": [1], "dst": "v1", "t": 300}' where position = 5""",
    "an end that is true": """update events set body = '{"src": true, "dst": "v1", "t": 300}' where position = 5""",
    "a time that is text": """update events set body = '{"src": "u1", "dst": "v1", "t": "soon"}' where position = 5""",
    "a time without end": """update events set body = '{"src": "u1", "dst": "v1", "t": 1e999}' where position = 5""",
    "a time before": """update events set body = '{"src": "u1", "dst": "v1", "t": 1}' where position = 5""",
    "an event that is missing": "delete from events where position = 5",
    "a text that is cut": "update events set body = substr(body, 1, 20) where position = 6",
    "events at positions of others": "update events set position = 104 where position = 5",
    "a commit of another size": "update events set begins = 0 where position = 6",
    "facts that are none": "update facts set value = '{' where key = 'own_events'",
    "a number of events that is none": "update facts set value = '[1]' where key = 'own_events'",
    "a format that is none": "update facts set value = '3' where key = 'format'",
    "no table": "drop table events",
    "a view": "alter table events rename to others; create view events as select * from others",
    "a trigger": "create trigger t after insert on events begin delete from events; end",
}


QUICK = (
    "no JSON",
    "a time before",
    "an event that is missing",
    "a commit of another size",
    "no table",
    "a view",
    "a trigger",
)


@pytest.mark.parametrize(
    "kind", [pytest.param(kind, marks=() if kind in QUICK else pytest.mark.slow) for kind in DAMAGE]
)
def test_a_damaged_log_is_named(kind: str, run: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with LiveRun(run.path, folder=tmp_path, snapshot_every=10**6) as live:
        for some in (EVENTS[:5], EVENTS[5:6], EVENTS[6:10]):  # one row of the log's table each
            live.take(some)
        live.snapshot_position = live.position  # no snapshot: a start reads the log
    altered(tmp_path, DAMAGE[kind])
    with pytest.raises(HopstateError) as error:
        LiveRun(run.path, folder=tmp_path)
    assert str(tmp_path) in str(error.value) or "own" in str(error.value)
    if kind != "no JSON":
        return
    assert main(["replay", str(run.path), "--folder", str(tmp_path), "--out", str(tmp_path / "again.csv")]) in (1, 2)
    assert str(tmp_path) in capsys.readouterr().err


def test_a_snapshot_of_another_log_is_rejected(run: Run, tmp_path: Path) -> None:
    """A deleted log, which would start again, or one with other events at the same positions."""
    for name, events in (("one", EVENTS[:20]), ("two", EVENTS[1:30])):
        with LiveRun(run.path, folder=tmp_path / name) as live:
            live.take(events)
    files = ("log.sqlite", "log.acknowledged")
    for name in files:
        (tmp_path / "one" / name).unlink()
    with pytest.raises(CheckpointError, match="deleted"):
        LiveRun(run.path, folder=tmp_path / "one")
    for name in files:
        shutil.copy(tmp_path / "two" / name, tmp_path / "one" / name)
    with pytest.raises(CheckpointError, match="event 19"):
        LiveRun(run.path, folder=tmp_path / "one")


def test_other_files_next_to_snapshots_are_kept(run: Run, tmp_path: Path) -> None:
    others = ("x-ray.safetensors", "events-mine.safetensors", ".tmp-mine", "live-notes.json", "memory-.part")
    (tmp_path / "state").mkdir()
    for name in others:
        (tmp_path / "state" / name).write_text("mine")
    for _ in range(2):
        with LiveRun(run.path, folder=tmp_path, snapshot_every=5, retention=10) as live:
            for k in range(0, 30, 5):
                live.take([event | {"t": live.past.last_time} for event in EVENTS[k : k + 5]])
    assert {name: (tmp_path / "state" / name).read_text() for name in others} == dict.fromkeys(others, "mine")


# ---- snapshots of a log that is cut -------------------------------------------------------------------------
def test_a_truncated_log_without_a_complete_snapshot_is_named(run: Run, tmp_path: Path) -> None:
    with LiveRun(run.path, folder=tmp_path, retention=1, snapshot_every=20) as live:
        for i in range(0, 75, 15):
            live.take(EVENTS[i : i + 15])
        assert live.log.start > 0
    for path in (tmp_path / "state").glob("events-0-*"):
        whole = bytearray(path.read_bytes())
        whole[-40] ^= 1
        path.write_bytes(whole)
    with pytest.warns(HopstateWarning), pytest.raises(CheckpointError, match="sqlite"):
        LiveRun(run.path, folder=tmp_path)


# ---- a sink's minute ----------------------------------------------------------------------------------------
def test_rows_are_written_after_a_minute_without_events(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = itertools.count(0.0, 10.0)
    monkeypatch.setattr("hopstate.serving.sinks.time.monotonic", lambda: next(now))
    sink = ParquetSink(tmp_path / "scores")
    with LiveRun(run.path, folder=tmp_path / "live", sink=sink) as live:
        live.tick()
        live.take(EVENTS[:5])
        for _ in range(4):
            live.tick()
            assert not list(sink.folder.iterdir())
        for _ in range(3):
            live.tick()
        assert [path.name for path in sink.folder.iterdir()] == [f"scores-{0:012}-{4:012}.parquet"]
        live.tick()
    assert len(list(sink.folder.iterdir())) == 1


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:scores wait")  # if the first try precedes a tick
def test_a_service_flushes_its_sink_over_time(run: Run, tmp_path: Path) -> None:
    """Also if the sink cannot be written, which is reported and retried."""
    pytest.importorskip("fastapi", reason="needs the extra serve: pip install 'hopstate[serve]'")
    from fastapi.testclient import TestClient
    from waiting import until

    from hopstate.errors import StorageError
    from hopstate.serving.engine import Limits, ServiceEngine
    from hopstate.serving.service import service

    sink = ParquetSink(tmp_path / "scores")
    sink.seconds, write = 0.0, sink._write
    sink._is_due = lambda: bool(sink._held) and ticking  # type: ignore[method-assign]
    ticking, broken = False, True

    def fails(rows: Any) -> None:
        if broken:
            raise StorageError("no space left")
        write(rows)

    sink._write = fails  # type: ignore[method-assign]

    def opened() -> LiveRun:
        return LiveRun(run.path, folder=tmp_path / "live", sink=sink)

    with TestClient(service(ServiceEngine(opened, limits=Limits(tick=0.01)), name="run")) as client:
        assert client.post("/events", json={"events": EVENTS[:5]}).status_code == 200
        ticking = True
        until(lambda: client.get("/state").json()["trouble"] == "no space left")
        until(lambda: 'hopstate_trouble{of="sink"} 1.0' in client.get("/metrics").text)
        broken = False
        until(lambda: len(list(sink.folder.iterdir())) == 1)
        until(lambda: client.get("/state").json()["trouble"] == "")
    assert np.array_equal(pd.read_parquet(next(sink.folder.iterdir()))["position"], range(5))
    assert json.loads((tmp_path / "live" / "state" / "live.json").read_text())


@pytest.mark.slow
@pytest.mark.parametrize("what", ["sink", "snapshot"])
def test_an_error_after_a_commit_clears_after_recovery(
    what: str, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without another event, the due write is retried."""
    pytest.importorskip("fastapi", reason="needs the extra serve: pip install 'hopstate[serve]'")
    from fastapi.testclient import TestClient
    from waiting import until

    from hopstate.serving.engine import Limits, ServiceEngine
    from hopstate.serving.service import service

    sink, broken = ParquetSink(tmp_path / "scores", batch_size=3), True
    name = "_write" if what == "sink" else "snapshot"
    owner: Any = ParquetSink if what == "sink" else LiveRun
    works = getattr(owner, name)

    def fails(*given: Any) -> Any:
        if broken:
            raise RuntimeError("it is away")
        return works(*given)

    monkeypatch.setattr(owner, name, fails)

    def opened() -> LiveRun:
        return LiveRun(run.path, folder=tmp_path / "live", sink=sink, snapshot_every=5)

    with TestClient(service(ServiceEngine(opened, limits=Limits(tick=0.01)), name="run")) as client:
        assert client.post("/events", json={"events": EVENTS[:5]}).status_code == 200
        until(lambda: "it is away" in client.get("/state").json()["trouble"])
        broken = False
        until(lambda: client.get("/state").json()["trouble"] == "")
        assert 'hopstate_trouble{of="sink or snapshot"} 0.0' in client.get("/metrics").text
        state = client.get("/state").json()
        assert (state["snapshot"], sink.next) == (5, 5)
