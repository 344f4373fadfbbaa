"""What a live run asks of a log: commits whole and in order, each event once, durable, readers beside the writer."""

import os
import signal
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import pytest
from log_conformance import LogConformance, Logs, entries

from hopstate.errors import CheckpointError, ConfigError, MissingFileError
from hopstate.serving.log import NAME, Entry, SqliteLog, open_log

pytest.importorskip("apsw", reason="needs apsw: pip install 'hopstate[serve]'")


class TestSqliteLog(LogConformance):
    @pytest.fixture
    def logs(self, tmp_path: Path) -> Logs:
        return Logs(partial(SqliteLog, tmp_path), str(tmp_path))


def test_a_log_is_opened_by_its_place(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    assert isinstance(log, SqliteLog)
    log.close()
    with pytest.raises(ConfigError, match="nats"):
        open_log("nats://somewhere/log")


def test_files_that_are_no_logs(tmp_path: Path) -> None:
    with pytest.raises(MissingFileError):
        SqliteLog(tmp_path, read_only=True)
    (tmp_path / NAME).write_bytes(b"no database, but long enough to look like one" * 100)
    with pytest.raises(CheckpointError):
        SqliteLog(tmp_path)


def test_a_log_whose_events_are_missing_says_so(tmp_path: Path) -> None:
    log = SqliteLog(tmp_path)
    for name in "abc":
        log.append(entries(name))
    log._file.execute("delete from events where position = 0")
    with pytest.raises(CheckpointError):
        list(log.commits())
    assert [c.first for c in log.commits(1)] == [1, 2]
    log._file.execute("delete from commits where first = 1")
    with pytest.raises(CheckpointError):
        list(log.commits(1))


WRITER = """
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from hopstate.serving.log import Entry, SqliteLog
log = SqliteLog(sys.argv[1])
for k in range(100_000):
    log.append([Entry(str(i), f"{k}-{i}") for i in range(7)])
    print(k, flush=True)
"""


@pytest.mark.slow
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


def test_a_look_from_another_thread_stops_no_commit(tmp_path: Path) -> None:
    """As the page asks what was kept aside while events come."""
    log, ended = SqliteLog(tmp_path), threading.Event()

    def looks() -> int:
        count = 0
        while not ended.is_set():
            count += log.parked() + len(log.facts()) + len(log.positions(["e1"]))
        return count

    with ThreadPoolExecutor(1) as pool:
        looking = pool.submit(looks)
        try:
            for i in range(100):
                log.append([Entry("{}", f"e{50 * i + k}") for k in range(50)])
        finally:
            ended.set()
        assert looking.result() > 0
    assert len(log) == 5_000
    log.close()
