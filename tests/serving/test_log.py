"""What a live run asks of a log: commits whole and in order, each event once, durable, readers beside the writer."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from hopstate.errors import CheckpointError, DataError, MissingFileError, StorageError
from hopstate.serving.log import NAME, Commit, Entry, SqliteLog

pytest.importorskip("apsw", reason="needs apsw: pip install 'hopstate[serve]'")


def entries(*names: str) -> list[Entry]:
    return [Entry(f'{{"n": "{name}"}}', name) for name in names]


def test_commits_come_back_as_they_were_made(tmp_path: Path) -> None:
    log = SqliteLog(tmp_path)
    assert len(log) == 0
    assert list(log.commits()) == []
    assert log.append(entries("a", "b", "c")) == 0
    assert log.append([Entry("1"), Entry("2")]) == 3  # without ids, of which there may be many
    assert log.append(entries("d")) == 5
    assert list(log.commits()) == [
        Commit(0, ('{"n": "a"}', '{"n": "b"}', '{"n": "c"}')),
        Commit(3, ("1", "2")),
        Commit(5, ('{"n": "d"}',)),
    ]
    assert [c.first for c in log.commits(4)] == [4, 5]
    assert [c.first for c in log.commits(6)] == []
    assert log.positions(["d", "b", "nobody", "it's"]) == {"d": 5, "b": 1}
    log.close()
    again = SqliteLog(tmp_path, read_only=True)
    assert len(again) == 6
    with pytest.raises(StorageError, match="cannot be written"):
        again.append(entries("e"))


@pytest.mark.parametrize("bad", [entries("x", "b"), entries("x", "y", "x")])
def test_an_id_that_is_there_undoes_the_whole_commit(bad: list[Entry], tmp_path: Path) -> None:
    log = SqliteLog(tmp_path)
    log.append(entries("a", "b"))
    with pytest.raises(DataError, match="nothing was taken"):
        log.append(bad)
    assert (len(log), len(list(log.commits()))) == (2, 1)
    assert log.append(entries("x")) == 2


def test_facts_and_what_is_kept_aside(tmp_path: Path) -> None:
    log = SqliteLog(tmp_path)
    log.tell({"model": "m", "own_events": 3})
    log.tell({"own_events": 4})
    log.park(entries("late"), "late")
    log.close()
    log = SqliteLog(tmp_path)
    assert {key: log.facts()[key] for key in ("model", "own_events")} == {"model": "m", "own_events": 4}
    assert (log.parked(), len(log)) == (1, 0)


def test_files_that_are_no_logs(tmp_path: Path) -> None:
    with pytest.raises(MissingFileError, match="no log in"):
        SqliteLog(tmp_path, read_only=True)
    (tmp_path / NAME).write_bytes(b"no database, but long enough to look like one" * 100)
    with pytest.raises(CheckpointError, match="damaged"):
        SqliteLog(tmp_path)


def test_a_log_whose_events_are_missing_says_so(tmp_path: Path) -> None:
    log = SqliteLog(tmp_path)
    log.append(entries("a", "b"))
    log._file.execute("delete from events where position = 0")
    with pytest.raises(CheckpointError, match="lacks events"):
        list(log.commits())


WRITER = """
import sys
from hopstate.serving.log import Entry, SqliteLog
log = SqliteLog(sys.argv[1])
for k in range(100_000):
    log.append([Entry(str(i), f"{k}-{i}") for i in range(7)])
    print(k, flush=True)
"""


def test_what_was_acknowledged_is_there_after_a_kill(tmp_path: Path) -> None:
    """And nothing is there half: commits of seven stay commits of seven."""
    for _ in range(3):
        path = tmp_path / str(_)
        path.mkdir()
        process = subprocess.Popen([sys.executable, "-c", WRITER, str(path)], stdout=subprocess.PIPE, text=True)
        assert process.stdout is not None
        told = [process.stdout.readline() for _ in range(5)]
        os.kill(process.pid, signal.SIGKILL)
        rest = process.stdout.read().splitlines()
        process.wait()
        acknowledged = int(rest[-1] if rest else told[-1]) + 1
        log = SqliteLog(path)
        found = list(log.commits())
        assert len(found) in (acknowledged, acknowledged + 1)
        assert all(len(commit.bodies) == 7 for commit in found)


def test_commits_are_synced(tmp_path: Path) -> None:
    """What makes a commit survive a loss of power: a log of SQLite's that syncs, which no kill can show."""
    log = SqliteLog(tmp_path)
    assert next(iter(log._file.execute("pragma synchronous")))[0] == 2
    assert next(iter(log._file.execute("pragma journal_mode")))[0] == "wal"
