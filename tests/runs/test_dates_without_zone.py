"""A date without a zone is read in the zone of the run's dates, in every function."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import hopstate
from hopstate.data.dates import local_to_utc, parse_times
from hopstate.errors import HopstateWarning
from hopstate.runs.run import Run

TOKYO = timezone(timedelta(hours=9))
QUIET = {"progress": False, "logger": "none"}


def hourly(count: int = 456) -> pd.DataFrame:
    start = datetime(2024, 2, 20, tzinfo=TOKYO)
    rows = [(f"bus-{i % 41:02d}", f"stop-{i * 7 % 29:02d}", start + timedelta(hours=i)) for i in range(count)]
    return pd.DataFrame(rows, columns=["source", "target", "time"]).astype({"time": str})


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    folder = tmp_path_factory.mktemp("tokyo")
    hourly().to_csv(folder / "tokyo.csv", index=False)
    split = {"kind": "time", "val_time": "2024-03-01", "test_time": "2024-03-05"}
    return hopstate.fit("recency", folder / "tokyo.csv", split=split, loop=QUIET, out=folder / "run")


def test_a_split_date_starts_at_midnight_in_the_zone_of_the_file(run: Run) -> None:
    assert run.predict(split="val").t[0] == "2024-03-01T01:00:00+09:00"  # the event at midnight is a training event


@pytest.mark.parametrize(
    "when",
    ["2024-03-11", datetime(2024, 3, 11), pd.Timestamp("2024-03-11"), np.datetime64("2024-03-11"), "2024-03-10T15:00Z"],
)
def test_queries_read_dates_in_the_zone_of_the_file(run: Run, when: Any) -> None:
    midnight = "2024-03-11T00:00:00+09:00"
    assert run.score([("bus-00", "stop-00")], when).t.tolist() == [midnight]
    assert run.rank("bus-00", time=when, top=1).t.tolist() == [midnight]
    table = pd.DataFrame({"source": ["bus-00"], "target": ["stop-00"], "time": [when]})
    assert run.score(table).t.tolist() == [midnight]


@pytest.mark.parametrize("date", [datetime.fromisoformat, pd.Timestamp, np.datetime64])
def test_splits_accept_python_dates(tmp_path: Path, date: Callable[[str], Any]) -> None:
    split = {"kind": "time", "val_time": date("2024-03-01T00:00:00"), "test_time": date("2024-03-05T00:00:00")}
    run = hopstate.fit("recency", hourly(), split=split, loop=QUIET, out=tmp_path / "run")
    assert run.predict(split="val").t[0] == "2024-03-01T01:00:00+09:00"


def test_new_events_without_a_zone_are_read_in_that_of_the_run(run: Run, tmp_path: Path) -> None:
    text = "source,target,time\nbus-00,stop-00,2024-03-11T00:00:00\nbus-01,stop-01,2024-03-11 06:30:00\n"
    (tmp_path / "new.csv").write_text(text, "utf-8")
    expected = ["2024-03-11T00:00:00+09:00", "2024-03-11T06:30:00+09:00"]
    assert run.predict(tmp_path / "new.csv").t.tolist() == expected
    assert run.stream(tmp_path / "new.csv", save=tmp_path / "state").t.tolist() == expected


def test_a_date_is_read_as_utc_if_times_are_numbers() -> None:
    with pytest.warns(HopstateWarning, match="UTC"):
        assert parse_times(["1970-01-02"], "s", "", "numbers") == [86_400]
    with pytest.warns(HopstateWarning, match="UTC"):
        assert parse_times([datetime(1970, 1, 2)], "ms", "UTC", "mixed offsets") == [86_400_000]
    assert parse_times(["1970-01-02T00:00+01:00", 7, "8", "1e3"], "s", "", "numbers") == [82_800, 7, 8, 1000.0]


@pytest.mark.parametrize("zone", ["Europe/Berlin", "America/New_York"])
def test_daylight_saving_time_keeps_the_order(zone: str) -> None:
    local = np.arange(np.datetime64("2024-01-01", "s"), np.datetime64("2025-01-01", "s"), np.timedelta64(10, "m"))
    utc = local_to_utc(local, zone)
    assert utc.dtype == local.dtype
    assert (np.diff(utc) >= np.timedelta64(0, "s")).all()
    aware = pd.DatetimeIndex(utc).tz_localize("UTC").tz_convert(zone).tz_localize(None)
    assert (aware.to_numpy() != local).sum() == 6  # the hour that daylight saving time skips in spring


def test_nanoseconds_are_exact() -> None:
    when = pd.Timestamp("2024-03-01T00:00:00.123456789")
    assert parse_times([when], "ns", "+09:00", "events") == [pd.Timestamp(when, tz="Asia/Tokyo").value]


def test_explanations_read_dates_in_the_zone_of_the_file(tmp_path: Path) -> None:
    run = hopstate.fit("pair-trees", hourly(200), config={"model.num_trees": 5}, loop=QUIET, out=tmp_path / "run")
    found = hopstate.explain(run.path, "bus-00", "stop-00", "2024-03-11")
    assert found.t == pd.Timestamp("2024-03-11", tz="Asia/Tokyo").timestamp()  # type: ignore[union-attr]


def test_queries_use_a_zone_with_daylight_saving_time(tmp_path: Path) -> None:
    times = pd.date_range("2024-03-25", periods=200, freq="h", tz="Europe/Berlin")  # the clock changes on the 31st
    table = hourly(200).assign(time=times)
    table.to_parquet(tmp_path / "berlin.parquet")
    run = hopstate.fit("recency", tmp_path / "berlin.parquet", loop=QUIET, out=tmp_path / "run")
    pair = [("bus-00", "stop-00")]
    assert run.score(pair, "2024-07-01").t.tolist() == ["2024-07-01T00:00:00+02:00"]
    assert run.score(pair, "2024-12-01").t.tolist() == ["2024-12-01T00:00:00+01:00"]
