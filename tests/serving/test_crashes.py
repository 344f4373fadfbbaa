"""Crashes of a live run lose nothing, and the check itself can fail."""

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from made_events import SMALL, small_run, table

pytest.importorskip("apsw", reason="needs apsw: pip install 'hopstate[serve]'")

import crashes as module
from crashes import DurabilityError, check_crash, digest
from faulty_disk import VFS, Fault, FaultyDisk, Kind

from hopstate.errors import HopstateWarning
from hopstate.serving.live import LiveRun
from hopstate.serving.log import Entry, SqliteLog

DYGFORMER: dict[str, dict[str, Any]] = {
    "dygformer": {"model.channel_dim": 4, "model.time_dim": 8, "model.num_layers": 1, "model.max_length": 6}
}
SETTINGS: dict[str, dict[str, Any]] = {
    name: {"read.edge_columns": ["amount"]} | DYGFORMER.get(name, {}) for name in (*SMALL, *DYGFORMER)
}
# of each method; together at least 200 kills and 50 write faults
CAMPAIGN: dict[Kind, int] = {"kill": 30, "drop": 3, "tear": 3, "eio": 1, "enospc": 1}
FEW: dict[Kind, int] = {"kill": 20, "drop": 3, "tear": 3, "eio": 1, "enospc": 1}  # over three logs, of ten crashes each


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("runs")


def trained(home: Path, name: str) -> Path:
    if not (home / name).exists():
        small_run(name, home, table(0, 160, seed=5, amount=True), **SETTINGS[name])
    return home / name


def test_a_few_crashes_lose_no_event(home: Path, tmp_path: Path) -> None:
    report = check_crash(trained(home, "recency"), tmp_path, {"kill": 1, "drop": 1})
    assert sum(report.crashes.values()) == 2


@pytest.mark.slow
def test_no_crash_loses_an_event(home: Path, tmp_path: Path) -> None:
    report = check_crash(trained(home, "recency"), tmp_path, FEW)
    assert report.crashes == FEW
    assert report.events > 0
    assert "nothing lost or doubled" in str(report)


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("name", SETTINGS)
def test_a_crash_campaign_loses_no_event(name: str, home: Path, tmp_path: Path) -> None:
    check_crash(trained(home, name), tmp_path, CAMPAIGN, seed=1)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["drop", "tear"])
def test_power_loss_without_syncs_is_detected(kind: Kind, home: Path, tmp_path: Path) -> None:
    with pytest.raises(DurabilityError, match=f"after {kind} at call"):
        check_crash(trained(home, "recency"), tmp_path, {kind: 20}, syncs=False)


@pytest.mark.slow
@pytest.mark.parametrize("broken", ["log", "snapshot", "order"])
def test_a_broken_run_is_detected(broken: str, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In this process, without a fault: a log that loses events, a state that differs from a replay."""
    run = trained(home, "ctdg-ssm")
    (tmp_path / "live").mkdir()
    with LiveRun(run, folder=tmp_path / "replay") as replay:
        events = module._made(replay, 40, np.random.default_rng(0))
        with LiveRun(run, folder=tmp_path / "live") as live:
            for i in range(0, 40, 4):
                live.take(events[i : i + 4])
        state = module._Checked(replay, events, run, tmp_path / "live", None)
        state.acknowledged, state.ends = 40, set(range(0, 41, 4))
        if broken == "log":
            log = SqliteLog(tmp_path / "live")  # which has lost them
            log._query("delete from events where position >= 36")
            log.set_facts({"end": 36})
            for _ in range(2):  # two records
                log._acknowledged.write(36)  # type: ignore[union-attr]
            log.close()
            (tmp_path / "live" / "state" / "live.json").unlink()
            words = "4 acknowledged events are lost"
        elif broken == "snapshot":
            observe = replay.observe
            monkeypatch.setattr(replay, "observe", lambda bodies: observe([b | {"amount": 9.0} for b in bodies]))
            words = "not the replay's"
        else:
            state.ends -= {20}
            words = "the commit at 16 is a part of what was sent"
        with pytest.raises(DurabilityError, match=words):
            state._check("a test")


@pytest.mark.slow
def test_a_log_is_created_completely_or_not_at_all(tmp_path: Path) -> None:
    """If the first start is killed at any moment, the next one finds a usable log."""
    for call in range(1, 80):
        folder = tmp_path / str(call)
        folder.mkdir()
        child = os.fork()
        if child == 0:
            try:
                FaultyDisk(folder / "state", tmp_path / "synced", Fault("tear", call, call), lambda: None)
                log = SqliteLog(folder, vfs=VFS)
                log.append([Entry("{}", "a")])
            finally:
                os._exit(7)
        _, status = os.waitpid(child, 0)
        log = SqliteLog(folder)
        assert len(log) in (0, 1)
        if os.WIFEXITED(status):  # the disk did not fail
            assert (os.WEXITSTATUS(status), len(log)) == (7, 1)
            break
        log.close()
    else:
        raise AssertionError("the disk failed every time")


def test_the_last_three_snapshots_are_kept(home: Path, tmp_path: Path) -> None:
    run = trained(home, "ctdg-ssm")
    state = tmp_path / "state"
    with LiveRun(run, folder=tmp_path, snapshot_every=10) as live:
        events = module._made(live, 60, np.random.default_rng(0))
        for i in range(0, 60, 10):
            live.take(events[i : i + 10])
            heads = sorted(path.name for path in state.glob("live-*.json"))
            assert heads == [f"live-{160 + j:012}.json" for j in range(max(i - 10, 10), i + 1, 10)]
        expected = digest(live.past)

    def again() -> int:
        """Return the position from which the log is read."""
        with LiveRun(run, folder=tmp_path) as live:
            assert digest(live.past) == expected
            live.snapshot_position, kept = live.position, live.snapshot_position
        return kept

    assert again() == 60
    (state / "live.json").write_text("{")
    with pytest.warns(HopstateWarning):
        assert again() == 50
    assert again() == 50  # it is complete now
    (state / "live.json").write_text("{")
    (state / f"live-{160 + 50:012}.json").unlink()
    with pytest.warns(HopstateWarning):
        assert again() == 40
    for path in state.glob("live*.json"):
        path.write_text("")
    with pytest.warns(HopstateWarning):
        assert again() == 0
    with pytest.warns(), LiveRun(run, folder=tmp_path) as live:
        live.snapshot()
    assert again() == 60
    used = {file["file"] for path in state.glob("live*.json") for file in _files(path)}
    assert {path.name for path in state.glob("*.safetensors") if not path.name.startswith("x-")} == used


def _files(path: Path) -> list[dict[str, Any]]:
    head = json.loads(path.read_text() or '{"events": [], "memories": []}')
    return head["events"] + head["memories"]
