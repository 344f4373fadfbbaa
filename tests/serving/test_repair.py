"""A damaged log is repaired: intact events stay, lost ones are named by position, nothing is deleted."""

import itertools
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from made_events import table

pytest.importorskip("apsw", reason="needs apsw: pip install 'hopstate[serve]'")

import apsw
from crashes import digest

from hopstate.cli.main import main
from hopstate.errors import BusyError, CheckpointError, HopstateWarning
from hopstate.runs.run import Run
from hopstate.serving.live import LiveRun
from hopstate.serving.log import ACKNOWLEDGED, NAME, open_log
from hopstate.serving.repair import repair
from hopstate.serving.replay import replayed

EVENTS = [event | {"event_id": f"e{k}"} for k, event in enumerate(table(200, 60).to_dict("records"))]
NUMBER = itertools.count()


def state_hash_after(run: Run, folder: Path, events: Sequence[dict[str, Any]], **options: Any) -> str:
    """Commit events in groups of six; return a hash of the state after them."""
    with LiveRun(run.path, folder=folder, **options) as live:
        for k in range(0, len(EVENTS), 6):
            if some := [event for event in EVENTS[k : k + 6] if event in events]:
                live.take(some)
        return digest(live.past)


def altered(folder: Path, what: str) -> None:
    file = apsw.Connection(str(folder / NAME))
    file.execute(what)
    file.close()


def contents(folder: Path) -> dict[str, bytes]:
    """Return its files except the index of the journal, which is created again."""
    files = [path for path in folder.iterdir() if path.is_file() and path.stat().st_size]
    return {path.name: path.read_bytes() for path in files if not path.name.endswith("-shm")}


@pytest.mark.parametrize("snapshots", [10, 1_000])
def test_a_repair_keeps_intact_events(
    snapshots: int, run: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The result equals a log without the lost events, even if snapshots contain them."""
    live, lost = tmp_path / "live", {17, 18, 40}
    state_hash_after(run, live, EVENTS, snapshot_every=snapshots)
    altered(live, "update events set body = replace(body, '{', '{ ') where position in (17, 18, 40)")
    damaged = contents(live)
    serve = ["serve", str(run.path), "--folder", str(live)]
    assert main([*serve, "--port", "0"]) == 1
    assert f"{live / NAME} is damaged: event 17 " in capsys.readouterr().err
    assert main([*serve, "--repair"]) == 0
    output = capsys.readouterr().out
    assert "lost: 3 events, at 17 to 18, 40" in output
    assert str(live / "damaged-1") in output
    assert contents(live / "damaged-1") == damaged
    expected = [event for k, event in enumerate(EVENTS) if k not in lost]
    state = state_hash_after(run, tmp_path / "other", expected)
    with LiveRun(run.path, folder=live) as again:
        assert (again.position, digest(again.past)) == (57, state)
        receipts = again.take([EVENTS[16], EVENTS[19], EVENTS[59]], score=False)
        assert [receipt.position for receipt in receipts] == [16, 17, 56]
    first, second = (list(replayed(run.path, folder)) for folder in (live, tmp_path / "other"))
    np.testing.assert_allclose(*(pd.concat(parts)["score"] for parts in (first, second)), rtol=1e-5)
    assert main([*serve, "--repair"]) == 0
    assert "57 intact events; nothing was changed" in capsys.readouterr().out


@pytest.mark.parametrize(("position", "start"), [(20, 36), (50, 18)])
def test_a_truncated_log_starts_at_a_snapshot(position: int, start: int, run: Run, tmp_path: Path) -> None:
    """A snapshot after the lost events keeps the state; an earlier one is the start of the replay."""
    state = state_hash_after(run, tmp_path, EVENTS, snapshot_every=18, retention=42)
    with LiveRun(run.path, folder=tmp_path) as live:
        live.take([])
    altered(tmp_path, f"update events set body = '[]' where position = {position}")
    found = repair(run.path, tmp_path)
    assert (found.lost, found.start) == (((position, position),), start)
    with LiveRun(run.path, folder=tmp_path) as live:
        assert live.log.start == start
        assert (digest(live.past) == state) == (position == 20)
        assert live.position == (60 if position == 20 else 59)
    assert sum(len(part) for part in replayed(run.path, tmp_path)) > 0


LOSS: dict[str, Callable[[Path], object]] = {
    "no log": lambda folder: (folder / NAME).unlink(),
    "an empty log": lambda folder: (folder / NAME).write_bytes(b""),
    "no database": lambda folder: (folder / NAME).write_bytes(b"something else" * 1_000),
    "no facts": lambda folder: altered(folder, "update facts set value = '{'"),
    "no position": lambda folder: (folder / ACKNOWLEDGED).unlink(),
    "no end": lambda folder: altered(folder, "delete from events where position >= 50"),
}


@pytest.mark.parametrize("kind", LOSS)
@pytest.mark.filterwarnings("ignore:the dead letters")
def test_missing_parts_of_a_log_are_repaired(kind: str, run: Run, tmp_path: Path) -> None:
    state = state_hash_after(run, tmp_path / "live", EVENTS, snapshot_every=1_000)
    LOSS[kind](tmp_path / "live")
    with pytest.raises(CheckpointError):
        LiveRun(run.path, folder=tmp_path / "live")
    found = repair(run.path, tmp_path / "live")
    with LiveRun(run.path, folder=tmp_path / "live") as live:
        assert live.position == found.end
        if kind == "no end":
            assert (found.lost, live.position) == (((50, 59),), 50)
            expected = state_hash_after(run, tmp_path / "other", EVENTS[:50])
            assert digest(live.past) == expected
        else:  # the snapshot contains all events
            assert (live.position, digest(live.past)) == (60, state)
            assert found.lost == (() if kind in ("no position", "no facts") else ((0, 59),))
        live.take(EVENTS[59:])
    assert list((tmp_path / "live" / "damaged-1").iterdir())


@pytest.mark.parametrize("fails", range(1, 7))
def test_an_interrupted_repair_is_completed(
    fails: int, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    state_hash_after(run, tmp_path / "live", EVENTS, snapshot_every=1_000)
    altered(tmp_path / "live", "delete from events where position = 30")
    calls, rename = itertools.count(1), Path.rename

    def stopped(self: Path, target: Path) -> Path:
        if next(calls) == fails:
            raise KeyboardInterrupt
        return rename(self, target)

    monkeypatch.setattr(Path, "rename", stopped)
    with pytest.raises(KeyboardInterrupt):
        repair(run.path, tmp_path / "live")
    monkeypatch.undo()
    with pytest.raises(CheckpointError):
        LiveRun(run.path, folder=tmp_path / "live")
    assert repair(run.path, tmp_path / "live").lost == ((30, 30),)
    with LiveRun(run.path, folder=tmp_path / "live") as live:
        assert live.position == 59


def test_a_log_in_use_is_not_repaired(run: Run, tmp_path: Path) -> None:
    with LiveRun(run.path, folder=tmp_path) as live:
        live.take(EVENTS[:6])
        for path in tmp_path.glob(".*lock"):
            path.unlink()
        with pytest.raises(BusyError):
            repair(run.path, tmp_path)


@pytest.mark.slow
def test_a_log_in_postgres_is_repaired(run: Run, tmp_path: Path, postgres: str) -> None:
    url = f"{postgres}&log=repair_{next(NUMBER)}"
    state_hash_after(run, tmp_path / "live", EVENTS, log=url, snapshot_every=10)
    log = open_log(url)
    log._query("update events set body = '{}' where position = 17")
    log.close()
    with pytest.raises(CheckpointError, match="event 17"):
        LiveRun(run.path, folder=tmp_path / "live", log=url)
    found = repair(run.path, tmp_path / "live", url)
    assert (found.lost, "damaged_1" in found.aside, "cret" in str(found)) == (((17, 17),), True, False)
    expected = state_hash_after(run, tmp_path / "other", [event for k, event in enumerate(EVENTS) if k != 17])
    with LiveRun(run.path, folder=tmp_path / "live", log=url) as live:
        assert (live.position, digest(live.past)) == (59, expected)
    with pytest.raises(CheckpointError, match="event 17"):
        open_log(f"{url}_damaged_1", read_only=True)


def test_unreadable_dead_letters_are_named(run: Run, tmp_path: Path) -> None:
    live = tmp_path / "live"
    state_hash_after(run, live, EVENTS[:60])
    altered(live, "update events set body = replace(body, '{', '{ ') where position = 17")
    altered(live, "drop table dead_letters")
    with pytest.warns(HopstateWarning, match="dead letters"):
        found = repair(run.path, live)
    assert found.lost == ((17, 17),)


def test_a_repair_skips_positions_that_were_never_written(run: Run, tmp_path: Path) -> None:
    live = tmp_path / "live"
    state = state_hash_after(run, live, EVENTS)
    log = open_log(live)
    log.set_facts({"end": 10**15})
    log.close()
    repair(run.path, live)
    with LiveRun(run.path, folder=live) as again:
        assert (again.position, digest(again.past)) == (len(EVENTS), state)
