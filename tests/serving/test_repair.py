"""A damaged log is repaired: what is intact stays, what is lost is told by position, nothing is deleted."""

import itertools
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from made_events import small_run, table

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


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return small_run("ctdg-ssm", tmp_path_factory.mktemp("run"))


def taken(run: Run, folder: Path, events: Sequence[dict[str, Any]], **options: Any) -> str:
    """Take events in commits of six; return a hash of the state after them."""
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
    """Return its files but for the index of the journal, which is made anew."""
    files = [path for path in folder.iterdir() if path.is_file() and path.stat().st_size]
    return {path.name: path.read_bytes() for path in files if not path.name.endswith("-shm")}


@pytest.mark.parametrize("snapshots", [10, 1_000])
def test_what_is_intact_stays(snapshots: int, run: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """As if what is lost had never come; whatever snapshots have seen of it."""
    live, lost = tmp_path / "live", {17, 18, 40}
    taken(run, live, EVENTS, snapshot_every=snapshots)
    altered(live, "update events set body = replace(body, '{', '{ ') where position in (17, 18, 40)")
    damaged = contents(live)
    serve = ["serve", str(run.path), "--folder", str(live)]
    assert main([*serve, "--port", "0"]) == 1
    assert f"{live / NAME} is damaged: event 17 " in capsys.readouterr().err
    assert main([*serve, "--repair"]) == 0
    told = capsys.readouterr().out
    assert "lost: 3 events, at 17 to 18, 40" in told
    assert str(live / "damaged-1") in told
    assert contents(live / "damaged-1") == damaged
    expected = [event for k, event in enumerate(EVENTS) if k not in lost]
    state = taken(run, tmp_path / "other", expected)
    with LiveRun(run.path, folder=live) as again:
        assert (again.position, digest(again.past)) == (57, state)
        receipts = again.take([EVENTS[16], EVENTS[19], EVENTS[59]], score=False)
        assert [receipt.position for receipt in receipts] == [16, 17, 56]
    first, second = (list(replayed(run.path, folder)) for folder in (live, tmp_path / "other"))
    np.testing.assert_allclose(*(pd.concat(parts)["score"] for parts in (first, second)), rtol=1e-5)
    assert main([*serve, "--repair"]) == 0
    assert "57 intact events; nothing was changed" in capsys.readouterr().out


@pytest.mark.parametrize(("position", "start"), [(20, 24), (50, 18)])
def test_a_cut_log_begins_at_a_snapshot(position: int, start: int, run: Run, tmp_path: Path) -> None:
    """One that has seen what is lost, so that the state is what it was; or that leads on to it."""
    state = taken(run, tmp_path, EVENTS, snapshot_every=18, retention=42)
    with LiveRun(run.path, folder=tmp_path) as live:
        live.take([])
    altered(tmp_path, f"update events set body = '[]' where position = {position}")
    found = repair(run.path, tmp_path)
    assert found.lost == ((position, position),)
    with LiveRun(run.path, folder=tmp_path) as live:
        assert live.log.start == found.start
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
def test_parts_of_a_log_that_are_gone(kind: str, run: Run, tmp_path: Path) -> None:
    state = taken(run, tmp_path / "live", EVENTS, snapshot_every=1_000)
    LOSS[kind](tmp_path / "live")
    with pytest.raises(CheckpointError):
        LiveRun(run.path, folder=tmp_path / "live")
    found = repair(run.path, tmp_path / "live")
    with LiveRun(run.path, folder=tmp_path / "live") as live:
        assert live.position == found.end
        if kind == "no end":
            assert (found.lost, live.position) == (((50, 59),), 50)
            expected = taken(run, tmp_path / "other", EVENTS[:50])
            assert digest(live.past) == expected
        else:  # the snapshot has seen all
            assert (live.position, digest(live.past)) == (60, state)
            assert found.lost == (() if kind in ("no position", "no facts") else ((0, 59),))
        live.take(EVENTS[59:])
    assert list((tmp_path / "live" / "damaged-1").iterdir())


@pytest.mark.parametrize("fails", range(1, 7))
def test_a_repair_that_was_stopped_is_completed(
    fails: int, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken(run, tmp_path / "live", EVENTS, snapshot_every=1_000)
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


def test_a_log_that_is_written_is_not_repaired(run: Run, tmp_path: Path) -> None:
    with LiveRun(run.path, folder=tmp_path) as live:
        live.take(EVENTS[:6])
        for path in tmp_path.glob(".*lock"):
            path.unlink()
        with pytest.raises(BusyError):
            repair(run.path, tmp_path)


@pytest.mark.slow
def test_a_log_in_postgres(run: Run, tmp_path: Path, postgres: str) -> None:
    url = f"{postgres}&log=repair_{next(NUMBER)}"
    taken(run, tmp_path / "live", EVENTS, log=url, snapshot_every=10)
    log = open_log(url)
    log._query("update events set body = '{}' where position = 17")
    log.close()
    with pytest.raises(CheckpointError, match="event 17"):
        LiveRun(run.path, folder=tmp_path / "live", log=url)
    found = repair(run.path, tmp_path / "live", url)
    assert (found.lost, "damaged_1" in found.aside, "cret" in str(found)) == (((17, 17),), True, False)
    expected = taken(run, tmp_path / "other", [event for k, event in enumerate(EVENTS) if k != 17])
    with LiveRun(run.path, folder=tmp_path / "live", log=url) as live:
        assert (live.position, digest(live.past)) == (59, expected)
    with pytest.raises(CheckpointError, match="event 17"):
        open_log(f"{url}_damaged_1", read_only=True)


def test_dead_letters_that_cannot_be_read_are_named(run: Run, tmp_path: Path) -> None:
    live = tmp_path / "live"
    taken(run, live, EVENTS[:60])
    altered(live, "update events set body = replace(body, '{', '{ ') where position = 17")
    altered(live, "drop table dead_letters")
    with pytest.warns(HopstateWarning, match="dead letters"):
        found = repair(run.path, live)
    assert found.lost == ((17, 17),)


def test_a_repair_does_not_search_positions_that_were_never_written(run: Run, tmp_path: Path) -> None:
    live = tmp_path / "live"
    state = taken(run, live, EVENTS)
    log = open_log(live)
    log.set_facts({"end": 10**15})
    log.close()
    repair(run.path, live)
    with LiveRun(run.path, folder=live) as again:
        assert (again.position, digest(again.past)) == (len(EVENTS), state)
