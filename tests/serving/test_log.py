"""Requirements of a log: atomic ordered commits, each event once, durable, concurrent readers."""

import json
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from log_conformance import LogConformance, Logs, entries

from hopstate.errors import BusyError, CheckpointError, ConfigError, MissingFileError
from hopstate.serving.log import ACKNOWLEDGED, NAME, Entry, SqliteLog, open_log

pytest.importorskip("apsw", reason="needs apsw: pip install 'hopstate[serve]'")


class TestSqliteLog(LogConformance):
    @pytest.fixture
    def logs(self, tmp_path: Path) -> Logs:
        return Logs(partial(SqliteLog, tmp_path), str(tmp_path))


def test_a_log_is_opened_by_its_location(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    assert isinstance(log, SqliteLog)
    log.close()
    with pytest.raises(ConfigError, match="nats"):
        open_log("nats://somewhere/log")


def test_files_that_are_not_logs_are_rejected(tmp_path: Path) -> None:
    with pytest.raises(MissingFileError):
        SqliteLog(tmp_path, read_only=True)
    (tmp_path / NAME).write_bytes(b"no database, but long enough to look like one" * 100)
    with pytest.raises(CheckpointError):
        SqliteLog(tmp_path)


FLIPS = 40


def test_a_flipped_bit_is_never_another_event(tmp_path: Path) -> None:
    """For any bit of the file: acknowledged events are unchanged, or the log is rejected by name."""
    (tmp_path / "whole").mkdir()
    log = SqliteLog(tmp_path / "whole")
    for k in range(30):
        log.append([Entry(json.dumps({"n": k, "text": "x" * 2_000}), f"e{k}"), Entry("1"), Entry("2")])
    expected = list(log.commits())
    log.close()
    rng, refused = np.random.default_rng(0), 0
    for k in range(FLIPS):
        folder = tmp_path / str(k)
        shutil.copytree(tmp_path / "whole", folder)
        with (folder / NAME).open("rb+") as file:
            place = int(rng.integers((folder / NAME).stat().st_size))
            file.seek(place)
            byte = file.read(1)[0]
            file.seek(place)
            file.write(bytes([byte ^ 1 << int(rng.integers(8))]))
        try:
            log = SqliteLog(folder)
        except CheckpointError:
            refused += 1
        else:
            assert list(log.commits()) == expected
            log.close()
    assert refused > FLIPS / 4


LOSS = ("journal gone", "journal damaged", "journal cut", "file gone", "file empty", "both gone", "position gone")


@pytest.mark.parametrize("what", LOSS)
def test_lost_acknowledged_events_are_named(what: str, tmp_path: Path) -> None:
    """After a kill, if the last commits are only in the journal; the error changes no file."""
    code = """
import os, sys
from hopstate.serving.log import Entry, SqliteLog
log = SqliteLog(sys.argv[1])
for k in range(50):
    log.append([Entry(str(k), f"e{k}")])
os._exit(9)
"""
    assert subprocess.run([sys.executable, "-c", code, str(tmp_path)], check=False).returncode == 9
    file, journal = tmp_path / NAME, tmp_path / f"{NAME}-wal"
    if what in ("journal gone", "both gone"):
        journal.unlink()
    elif what == "journal damaged":
        content = bytearray(journal.read_bytes())
        content[len(content) // 2] ^= 1
        journal.write_bytes(content)
    elif what == "journal cut":
        os.truncate(journal, journal.stat().st_size - 5_000)
    if what in ("file gone", "both gone"):
        file.unlink()
    elif what == "file empty":
        os.truncate(file, 0)
    elif what == "position gone":
        (tmp_path / ACKNOWLEDGED).unlink()

    def found() -> dict[str, bytes]:
        return {path.name: b"" if path.name.endswith("-shm") else path.read_bytes() for path in tmp_path.iterdir()}

    before = found()
    for read_only in (True, False, False):
        with pytest.raises(CheckpointError, match=str(tmp_path)):
            SqliteLog(tmp_path, read_only=read_only)
    assert found() == before


@pytest.mark.parametrize("change", ["update facts set value = '{'", "create view extra as select * from events"])
def test_a_rejected_log_gets_no_new_journal(tmp_path: Path, change: str) -> None:
    log = SqliteLog(tmp_path)
    log.append(entries("a"))
    log.close()
    with closing(sqlite3.connect(tmp_path / NAME)) as file, file:
        file.execute(change)
    (tmp_path / f"{NAME}-wal").unlink(missing_ok=True)
    (tmp_path / f"{NAME}-shm").unlink(missing_ok=True)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    for read_only in (True, False):
        with pytest.raises(CheckpointError):
            SqliteLog(tmp_path, read_only=read_only).facts()
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_deleting_the_lock_file_admits_no_second_writer(tmp_path: Path) -> None:
    log = SqliteLog(tmp_path)
    log.append(entries("a"))
    for path in tmp_path.glob(".*"):
        path.unlink()
    with pytest.raises(BusyError):
        SqliteLog(tmp_path)
    reader = SqliteLog(tmp_path, read_only=True)
    log.append(entries("b"))
    assert len(reader) == 2
    reader.close()
    log.close()


def test_one_damaged_record_of_the_position_is_tolerated(tmp_path: Path) -> None:
    log = SqliteLog(tmp_path)
    for name in "abc":
        log.append(entries(name))
    log.close()
    whole = (tmp_path / ACKNOWLEDGED).read_bytes()
    for place in (0, 512):
        (tmp_path / ACKNOWLEDGED).write_bytes(whole[:place] + b"9" + whole[place + 1 :])
        SqliteLog(tmp_path, read_only=True).close()
    (tmp_path / ACKNOWLEDGED).write_bytes(whole.replace(b"0", b"1"))
    with pytest.raises(CheckpointError, match=ACKNOWLEDGED):
        SqliteLog(tmp_path)


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
def test_acknowledged_events_survive_a_kill(tmp_path: Path) -> None:
    """Commits are atomic: commits of seven events have seven events."""
    for _ in range(3):
        path = tmp_path / str(_)
        path.mkdir()
        process = subprocess.Popen([sys.executable, "-c", WRITER, str(path)], stdout=subprocess.PIPE, text=True)
        assert process.stdout is not None
        lines = [process.stdout.readline() for _ in range(5)]
        os.kill(process.pid, signal.SIGKILL)
        rest = process.stdout.read().splitlines()
        process.wait()
        acknowledged = int(rest[-1] if rest else lines[-1]) + 1
        log = SqliteLog(path)
        found = list(log.commits())
        assert len(found) in (acknowledged, acknowledged + 1)
        assert all(len(commit.bodies) == 7 for commit in found)


def test_commits_are_synced(tmp_path: Path) -> None:
    """SQLite syncs each commit, which survives a power failure; a kill cannot test this."""
    log = SqliteLog(tmp_path)
    assert next(iter(log._file.execute("pragma synchronous")))[0] == 2
    assert next(iter(log._file.execute("pragma journal_mode")))[0] == "wal"


def test_reading_from_another_thread_does_not_stop_a_commit(tmp_path: Path) -> None:
    """As the page reads the dead letters while events arrive."""
    log, ended = SqliteLog(tmp_path), threading.Event()

    def looks() -> int:
        count = 0
        while not ended.is_set():
            count += log.num_dead_letters() + len(log.facts()) + len(log.positions(["e1"]))
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
