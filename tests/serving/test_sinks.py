"""A sink finally has the score of every event once, bit-identical, whatever was killed in between."""

import itertools
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from made_events import small_run, table

pytest.importorskip("apsw", reason="needs apsw: pip install 'hopstate[serve]'")

from hopstate.errors import ConfigError, HopstateWarning, StorageError
from hopstate.runs.run import Run
from hopstate.serving.kafka import KafkaSink, Topic
from hopstate.serving.live import LiveRun
from hopstate.serving.replay import replayed
from hopstate.serving.sinks import ParquetSink, Sink, open_sink

NUMBER = itertools.count()


EVENTS = table(200, 60).to_dict("records")


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return small_run("recency", tmp_path_factory.mktemp("run"))


def written_scores(sink: Sink) -> pd.DataFrame:
    """Return the rows of a sink."""
    if isinstance(sink, ParquetSink):
        return pd.concat([pd.read_parquet(path) for path in sorted(sink.folder.iterdir())], ignore_index=True)
    assert isinstance(sink, KafkaSink)
    reader, rows = Topic(f"{sink.topic.place}?log_level=0").consumer({0: 0}), []
    while len(rows) < sink.topic.bounds(reader, 0)[1]:
        rows += [value for _, _, value in sink.topic.poll(reader)]
    reader.close()
    return pd.DataFrame([json.loads(row) for row in rows])


@pytest.mark.parametrize("kind", ["folder", pytest.param("kafka", marks=pytest.mark.slow)])
def test_each_score_is_written_once(kind: str, run: Run, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    folder = str(tmp_path / "scores")
    place = folder if kind == "folder" else request.getfixturevalue("kafka")(f"sink_{next(NUMBER)}")

    def opened() -> Sink:
        return ParquetSink(place, batch_size=12) if kind == "folder" else open_sink(place)

    for k in range(0, 50, 10):
        live = LiveRun(run.path, folder=tmp_path / "live", snapshot_every=15, sink=opened())
        for i in range(k, k + 10, 5):
            live.take(EVENTS[i : i + 5], score=i % 2 == 0)
        live.close(snapshot=False)  # as after a kill
    with LiveRun(run.path, folder=tmp_path / "live", sink=opened()) as live:
        live.take([*EVENTS[50:], {**EVENTS[-1], "kind": "delete"}])
    sink = opened()
    found, expected = written_scores(sink), pd.concat(list(replayed(run.path, tmp_path / "live")), ignore_index=True)
    sink.close()
    assert sink.next == 61
    assert found["position"].tolist() == list(range(61))
    for column in ("src", "dst", "t"):
        assert found[column].tolist() == expected[column].tolist()
    np.testing.assert_array_equal(found["score"].to_numpy(float), expected["score"].to_numpy(float))
    assert np.isnan(found["score"].to_numpy(float)).tolist() == [False] * 60 + [True]


@pytest.mark.slow
def test_a_failing_sink_loses_no_score(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sink = ParquetSink(tmp_path / "scores", batch_size=5)

    def fails(*_: Any) -> None:
        raise StorageError("no space left")

    with LiveRun(run.path, folder=tmp_path / "live", sink=sink, snapshot_every=20) as live:
        monkeypatch.setattr("hopstate.serving.sinks.write_table", fails)
        with pytest.warns(HopstateWarning) as warned:
            live.take(EVENTS[:30])
        assert [str(one.message).partition(":")[0] for one in warned] == ["scores wait", "no snapshot was kept"]
        assert live.snapshot_position == 0  # otherwise missing scores could not be computed again
        monkeypatch.undo()
        live.take(EVENTS[30:])
    assert written_scores(sink)["position"].tolist() == list(range(60))


@pytest.mark.slow
def test_invalid_sinks_are_rejected_and_sinks_can_be_added_later(run: Run, tmp_path: Path) -> None:
    with pytest.raises(ConfigError):
        open_sink("nats://h/x")
    with LiveRun(run.path, folder=tmp_path / "live") as live:
        live.take(EVENTS[:10])
    with LiveRun(run.path, folder=tmp_path / "live", sink=ParquetSink(tmp_path / "scores")) as live:
        live.take(EVENTS[10:20])
    with LiveRun(run.path, folder=tmp_path / "live") as live:
        live.take(EVENTS[20:30])
    with (
        LiveRun(run.path, folder=tmp_path / "live", sink=ParquetSink(tmp_path / "scores")) as live,
        pytest.warns(HopstateWarning, match="20.*29"),
    ):
        live.take(EVENTS[30:])
    names = sorted(path.name for path in (tmp_path / "scores").iterdir())
    assert names == [f"scores-{10:012}-{19:012}.parquet", f"scores-{30:012}-{59:012}.parquet"]


def test_scores_of_another_log_are_rejected(run: Run, tmp_path: Path) -> None:
    with LiveRun(run.path, folder=tmp_path / "one", sink=ParquetSink(tmp_path / "scores")) as live:
        live.take(EVENTS[:20])
    with pytest.raises(ConfigError):
        LiveRun(run.path, folder=tmp_path / "two", sink=ParquetSink(tmp_path / "scores"))


class Away:
    """Temporarily unavailable brokers: nothing is acknowledged, although some messages may have arrived."""

    def __init__(self, producer: Any) -> None:
        self.producer, self.away, self.arrives = producer, True, 0

    def produce(self, *what: Any, on_delivery: Any, **how: Any) -> None:
        if not self.away:
            self.producer.produce(*what, on_delivery=on_delivery, **how)
        elif self.arrives:
            self.arrives -= 1
            self.producer.produce(*what, **how)

    def flush(self, timeout: float) -> None:
        self.producer.flush(timeout)

    def purge(self) -> None: ...


@pytest.mark.slow
def test_unacknowledged_messages_are_written_once(
    run: Run, tmp_path: Path, kafka: Callable[[str], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    sink = KafkaSink(kafka("late"))
    away = Away(sink._producer)
    monkeypatch.setattr(sink.topic, "producer", lambda: away)
    with LiveRun(run.path, folder=tmp_path / "live", sink=sink) as live:
        sink._producer = away
        for i in range(0, 30, 10):
            away.arrives = 4
            with pytest.warns(HopstateWarning):
                live.take(EVENTS[i : i + 10])
        away.away = False
        live.take(EVENTS[30:])
        assert sink.next == 60
    found = written_scores(sink)
    assert found["position"].tolist() == list(range(60))
    expected = pd.concat(list(replayed(run.path, tmp_path / "live")), ignore_index=True)
    assert found["score"].tolist() == expected["score"].tolist()
