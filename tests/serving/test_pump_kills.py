"""Kills between source, log and sink: SIGKILL before and after a commit, a write of scores, a snapshot. At the end
each event is in the log once, and each score in the sink once and bit-identical to a replay."""

import itertools
import json
import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from crashes import warm_context

from made_events import small_run, table

pytest.importorskip("apsw", reason="needs apsw: pip install 'hopstate[serve]'")

from hopstate.runs.run import Run
from hopstate.serving import kafka as pumping
from hopstate.serving.kafka import KafkaSink, Topic, open_source
from hopstate.serving.live import LiveRun
from hopstate.serving.replay import replayed
from hopstate.serving.sinks import ParquetSink, Sink, open_sink

pytestmark = pytest.mark.slow

EVENTS = table(200, 60).to_dict("records")
POINTS = ("append", "_write", "snapshot")
EACH = 7  # events of a commit
SNAPSHOTS = 15
NUMBER = itertools.count()


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return small_run("recency", tmp_path_factory.mktemp("run"))


def _dies(of: Any, name: str, call: int, when: str) -> None:
    """Kill a process before or after some call."""
    work, calls = getattr(of, name), itertools.count(1)

    def dying(*what: Any, **how: Any) -> Any:
        mine = next(calls) == call
        if mine and when == "before":
            os.kill(os.getpid(), signal.SIGKILL)
        found = work(*what, **how)
        if mine:
            os.kill(os.getpid(), signal.SIGKILL)
        return found

    setattr(of, name, dying)


def _sink(place: str) -> Sink:
    return open_sink(place) if "://" in place else ParquetSink(place, batch_size=10)


def _work(run: Path, folder: Path, source: str, sink: str, fault: tuple[str, int, str] | None) -> None:
    pumping.BATCH = EACH
    scores = _sink(sink)
    with LiveRun(run, folder=folder, late="clamp", snapshot_every=SNAPSHOTS, sink=scores) as live:
        if fault is not None:
            point, call, when = fault
            _dies({"append": live.log, "_write": scores, "snapshot": live}[point], point, call, when)
        pump, idle = pumping.IngestLoop(live, open_source(source, live.log.facts())), 0
        while idle < 30 and live.position < len(EVENTS):
            idle = 0 if pump.run_once() else idle + 1


def campaign(run: Run, folder: Path, source: str, sink: str, faults: Iterator[tuple[str, int, str]]) -> int:
    """Run through faults, then to the end; return how many occurred."""
    context, came = warm_context(), 0
    for fault in itertools.chain(faults, [None]):
        process = context.Process(target=_work, args=(Path(run.path), folder / "live", source, sink, fault))
        process.start()
        process.join()
        assert process.exitcode in (0, -signal.SIGKILL) if fault else process.exitcode == 0
        came += process.exitcode != 0
        with LiveRun(run.path, folder=folder / "live") as live:
            live.snapshot_position = live.position  # the next process finds the state after the kill
            rows = [json.loads(body) for commit in live.log.commits() for body in commit.bodies]
            assert rows == EVENTS[: len(rows)]
    assert len(rows) == len(EVENTS)
    there, expected = written_scores(sink), pd.concat(list(replayed(run.path, folder / "live")), ignore_index=True)
    assert there["position"].tolist() == expected["position"].tolist()
    np.testing.assert_array_equal(there["score"].to_numpy(float), expected["score"].to_numpy(float))
    return came


def written_scores(place: str) -> pd.DataFrame:
    """Return the rows of a sink in the order of writing."""
    sink = _sink(place)
    try:
        if isinstance(sink, ParquetSink):
            return pd.concat([pd.read_parquet(path) for path in sorted(sink.folder.iterdir())], ignore_index=True)
        assert isinstance(sink, KafkaSink)
        reader, found = Topic(f"{sink.topic.place}?log_level=0").consumer({0: 0}), list[Any]()
        while len(found) < sink.topic.bounds(reader, 0)[1]:
            found += [json.loads(value or b"") for _, _, value in sink.topic.poll(reader)]
        reader.close()
        return pd.DataFrame(found)
    finally:
        sink.close()


@pytest.fixture
def messages(kafka: Callable[[str], str]) -> str:
    name = f"killed_{next(NUMBER)}"
    url = kafka(name)
    producer = pytest.importorskip("confluent_kafka").Producer({"bootstrap.servers": url.split("/")[2], "log_level": 0})
    for event in EVENTS:
        producer.produce(name, json.dumps(event).encode(), partition=0)
    producer.flush(10)
    return url


def test_kills_between_source_log_and_sink_lose_and_duplicate_nothing(run: Run, tmp_path: Path, messages: str) -> None:
    assert (
        campaign(
            run, tmp_path, messages, str(tmp_path / "scores"), iter([("append", 1, "after"), ("snapshot", 1, "before")])
        )
        == 2
    )


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("sink", ["folder", "topic"])
def test_kills_at_every_step(
    messages: str, sink: str, run: Run, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    name = f"kept_{next(NUMBER)}"
    if sink == "folder":
        place = str(tmp_path / "scores")
    else:
        place = request.getfixturevalue("kafka")(name)
    faults = [(point, 1, when) for when in ("before", "after") for point in POINTS * 2]
    came = campaign(run, tmp_path, messages, place, iter(faults))
    assert came >= len(POINTS) * 2
