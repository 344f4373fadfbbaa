"""Events of a topic are stored once and in order, whatever fails between reading and acknowledging."""

import itertools
import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from waiting import until

from made_events import small_run, table

pytest.importorskip("apsw", reason="needs apsw: pip install 'hopstate[serve]'")

from hopstate.errors import CheckpointError, ConfigError, StorageError
from hopstate.runs.run import Run
from hopstate.serving.kafka import IngestLoop, Topic, open_source
from hopstate.serving.live import LiveRun

pytestmark = pytest.mark.slow

NUMBER = itertools.count()


EVENTS = table(200, 60).to_dict("records")


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return small_run("recency", tmp_path_factory.mktemp("run"))


@pytest.fixture
def feed(kafka: Callable[[str], str]) -> tuple[str, Callable[[list[Any]], None]]:
    """A source's address, and a function that adds events to it."""
    name = f"source_{next(NUMBER)}"
    url, client = kafka(name), pytest.importorskip("confluent_kafka")
    producer = client.Producer({"bootstrap.servers": url.split("/")[2], "log_level": 0})

    def send(events: list[Any]) -> None:
        for event in events:
            producer.produce(name, json.dumps(event).encode(), partition=2)
            producer.flush(10)

    return url, send


def drained(pump: IngestLoop, count: int) -> list[Any]:
    found: list[Any] = []
    return until(lambda: found.extend(pump.run_once()) or found, lambda events: len(events) >= count)


def bodies(live: LiveRun) -> list[tuple[str, str, int]]:
    rows = [json.loads(body) for commit in live.log.commits() for body in commit.bodies]
    return [(row["src"], row["dst"], row["t"]) for row in rows]


WHOLE = [(e["src"], e["dst"], e["t"]) for e in EVENTS]


def test_events_of_a_source_are_stored_once(
    feed: tuple[str, Callable[[list[Any]], None]], run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A failed commit, one with a false error, a kill after each, a repeated id, and invalid events."""
    place, send = feed
    send(EVENTS[:20])
    for k, fails in enumerate(("before", "after", None)):
        live = LiveRun(run.path, folder=tmp_path, late="dead-letter")
        append = live.log.append

        def broken(entries: Any, facts: Any = None, append: Any = append, fails: Any = fails) -> int:
            if fails == "after":
                append(entries, facts)
            raise StorageError("no space left")

        pump = IngestLoop(live, open_source(place, live.log.facts()))
        if fails:
            monkeypatch.setattr(live.log, "append", broken)
            with pytest.raises(StorageError):
                drained(pump, 1)
            assert len(live.log) == 20 * k
            assert (pump.source.key in live.log.facts()) == (
                fails == "after"
            )  # the offset, stored with the events or not at all
        else:
            send([*EVENTS[20:40], {"src": "u1"}, {**EVENTS[40], "event_id": "own"}, {**EVENTS[0], "event_id": "late"}])
            drained(pump, 23)
            assert live.log.num_dead_letters() == 2  # an unreadable one and a late one
        pump.source.close()
        live.close(snapshot=False)  # as after a kill
    with LiveRun(run.path, folder=tmp_path, late="dead-letter") as live:
        pump = IngestLoop(live, open_source(place, live.log.facts()))
        send([{**EVENTS[40], "event_id": "own"}, *EVENTS[41:]])
        assert drained(pump, 20)[0].duplicate
        assert bodies(live) == WHOLE
        assert live.log.num_dead_letters() == 2
        pump.source.close()


def test_the_lag_behind_the_source_is_reported(
    feed: tuple[str, Callable[[list[Any]], None]], run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Events that were read but not committed count; computing the lag does not query the source."""
    place, send = feed
    monkeypatch.setattr("hopstate.serving.kafka.BATCH", 8)
    with LiveRun(run.path, folder=tmp_path, late="clamp") as live:
        send(EVENTS[:20])  # before it is opened: it reports the state of its last response
        pump = IngestLoop(live, open_source(place, {}))
        assert pump.behind() is None  # no response yet
        seen: dict[int, int | None] = {}
        while live.position < 20:
            pump.run_once()
            seen[live.position] = pump.behind()
        assert seen[20] == 0
        assert {at: 20 - at for at in seen if at} == {at: left for at, left in seen.items() if at}
        assert len(seen) > 2

        def fails(*entries: Any) -> int:
            raise StorageError("no space left")

        send(EVENTS[20:23])
        with monkeypatch.context() as patch:
            patch.setattr(live.log, "append", fails)
            with pytest.raises(StorageError):
                until(pump.run_once)
        assert pump.behind() in (1, 2, 3)  # the number of arrived events
        drained(pump, 3)
        assert (live.position, pump.behind()) == (23, 0)
        pump.source.close()


def test_invalid_sources_are_rejected(run: Run, tmp_path: Path, feed: tuple[str, Callable[[list[Any]], None]]) -> None:
    for bad in ("nats://h/x", "postgresql://h/d?table=a"):
        with pytest.raises(ConfigError):
            open_source(bad, {})
    with (
        LiveRun(run.path, folder=tmp_path) as live,
        pytest.raises(ConfigError, match="--late clamp or --late dead-letter"),
    ):
        IngestLoop(live, open_source(feed[0], {}))


def test_a_service_accepts_events_from_its_source_and_from_requests(
    feed: tuple[str, Callable[[list[Any]], None]], run: Run, tmp_path: Path
) -> None:
    """It continues where it stopped; errors of a source are raised at the start."""
    pytest.importorskip("fastapi", reason="needs the extra serve: pip install 'hopstate[serve]'")
    from fastapi.testclient import TestClient

    from hopstate.serving.engine import Limits, ServiceEngine
    from hopstate.serving.service import service

    place, send = feed
    made = partial(LiveRun, run.path, folder=tmp_path, late="clamp", sink=None)
    limits = Limits(look=0.01)
    for first in (0, 30):
        with TestClient(service(ServiceEngine(made, limits=limits, source=place), name="run")) as client:
            send(EVENTS[first : first + 29])
            state = until(lambda: client.get("/state").json(), lambda now: now["position"] >= first + 29)  # noqa: B023
            answer = client.post("/events", json={"events": [EVENTS[first + 29]]}).json()
            assert (answer["position"], state["trouble"]) == (first + 30, "")
            until(lambda: client.get("/state").json()["source_lag"] == 0)
            assert "hopstate_source_lag 0.0" in client.get("/metrics").text
    with LiveRun(run.path, folder=tmp_path) as live:
        assert bodies(live) == WHOLE
    rejecting = service(ServiceEngine(partial(LiveRun, run.path, folder=tmp_path), source=place), name="run")
    with pytest.raises(ConfigError, match="--late clamp"):
        rejecting.state.engine.open()
    LiveRun(run.path, folder=tmp_path).close()  # nothing refers to it


def test_exclusive_options_are_rejected(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("uvicorn", reason="needs the extra serve: pip install 'hopstate[serve]'")
    from hopstate.cli.main import main

    assert main(["serve", str(run.path), "--replica", "--sink", "scores"]) == 2
    assert main(["serve", str(run.path), "--source", "kafka://h:1/t"]) == 2
    captured = capsys.readouterr().err
    assert "--replica" in captured
    assert "--late clamp or --late dead-letter" in captured


def test_partitions_added_later_are_read_from_the_start(
    kafka: Callable[[str], str], run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Messages of the other partitions are not read again; a log without offsets is rejected by name."""
    url, client = kafka("grows"), pytest.importorskip("confluent_kafka")
    producer = client.Producer({"bootstrap.servers": url.split("/")[2], "log_level": 0})

    def send(events: list[Any], partition: int) -> None:
        for event in events:
            producer.produce("grows", json.dumps(event).encode(), partition=partition)
        producer.flush(10)

    many = 2  # topics of the mock cluster have four partitions, of which two are not seen yet
    monkeypatch.setattr(Topic, "partitions", lambda self, consumer: many)
    send(EVENTS[:5], 1)
    send(EVENTS[5:10], 3)
    with LiveRun(run.path, folder=tmp_path, late="clamp") as live:
        source = open_source(url, live.log.facts())
        pump = IngestLoop(live, source)
        assert len(drained(pump, 5)) == 5
        source.look = 0.0  # type: ignore[attr-defined]
        assert pump.run_once() == []
        many = 4
        assert [receipt.position for receipt in drained(pump, 5)] == list(range(5, 10))
        send(EVENTS[10:12], 1)
        assert len(drained(pump, 2)) == 2
        source.close()
        assert sorted(bodies(live)) == sorted(WHOLE[:12])
        key = source.key
    for wrong in (7, {"1": "x"}, {"x": 1}, [1]):
        with pytest.raises(CheckpointError, match=r"was read to"):
            open_source(url, {key: wrong})
