"""Truncated logs: events that a snapshot needs are kept, and the rest replays to the same scores."""

import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import made_events
from made_events import small_run

pytest.importorskip("apsw", reason="needs apsw: pip install 'hopstate[serve]'")

from hopstate.cli.main import main
from hopstate.errors import CheckpointError, ConfigError, HopstateWarning
from hopstate.runs.run import Run
from hopstate.serving.live import LiveRun
from hopstate.serving.replay import replayed
from hopstate.serving.snapshots import snapshot_sizes

DAY = 86_400


def table(first: int, count: int) -> pd.DataFrame:
    """Return events one day apart."""
    return made_events.table(first, count).assign(t=(first + np.arange(count)) * DAY)


EVENTS = table(200, 90).to_dict("records")


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    home = tmp_path_factory.mktemp("run")
    return small_run("ctdg-ssm", home, table(0, 160), **{"read.time_unit": "s"})


@pytest.mark.parametrize(("retain", "start"), [(60, 30), ("60d", 15)])
def test_a_truncated_log_replays_the_same_scores(retain: str | int, start: int, run: Run, tmp_path: Path) -> None:
    """Snapshots are at 30, 60 and 90, and commits have 15 events: only 60d and 600d keep more than these need."""
    with LiveRun(run.path, folder=tmp_path, retention=retain, snapshot_every=20) as live:
        expected = [receipt.score for i in range(0, 90, 15) for receipt in live.take(EVENTS[i : i + 15])]
        assert min(snapshot_sizes(tmp_path / "state")) - live.own_events == 30
        assert live.log.start == start
    found = pd.concat(list(replayed(run.path, tmp_path)))
    first = 30 if start else 0
    assert found["position"].tolist() == list(range(first, 90))
    assert found["score"].tolist() == expected[first:]


def test_a_truncated_log_without_snapshots_is_rejected(
    run: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with LiveRun(run.path, folder=tmp_path, retention=1, snapshot_every=20) as live:
        for i in range(0, 90, 15):
            live.take(EVENTS[i : i + 15])
        start = live.log.start
        assert start > 0
    assert main(["replay", str(run.path), "--folder", str(tmp_path), "--out", str(tmp_path / "again.csv")]) == 0
    first = pd.read_csv(tmp_path / "again.csv")["position"][0]
    assert f"from event {first} on: what came before was cut" in capsys.readouterr().out
    newest = tmp_path / "state" / "live.json"
    newest.write_text(newest.read_text()[:-9])  # a damaged snapshot is tolerated
    with pytest.warns(HopstateWarning):
        LiveRun(run.path, folder=tmp_path).close()
    shutil.rmtree(tmp_path / "state")
    with pytest.raises(CheckpointError, match=f"event {start}"):
        LiveRun(run.path, folder=tmp_path)
    with pytest.raises(CheckpointError):
        list(replayed(run.path, tmp_path))


@pytest.mark.parametrize("bad", ["soon", "0", "-3", 0, "", "d"])
def test_invalid_retention_strings_are_rejected(bad: str | int, run: Run, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="retention"):
        LiveRun(run.path, folder=tmp_path, retention=bad)


def test_invalid_retention_is_rejected_before_the_first_event(run: Run, tmp_path: Path) -> None:
    bare = small_run("recency", tmp_path, table(0, 160))
    for path, retain in ((run.path, "abcd"), (bare.path, "30d")):
        with pytest.raises(ConfigError):
            LiveRun(path, folder=tmp_path / "live", retention=retain)
