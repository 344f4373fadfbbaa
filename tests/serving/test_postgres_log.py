"""The log in PostgreSQL, against a server of the system's package."""

import itertools
import sys
from functools import partial
from pathlib import Path

import pytest
from log_conformance import LogConformance, Logs, entries

from hopstate.errors import BusyError, CheckpointError, ConfigError, StorageError
from hopstate.io.files import locked
from hopstate.serving.log import open_log
from hopstate.serving.postgres_log import PostgresLog

pytestmark = pytest.mark.slow

NUMBER = itertools.count()


@pytest.fixture
def url(postgres: str) -> str:
    return f"{postgres}&log=test_{next(NUMBER)}"


class TestPostgresLog(LogConformance):
    @pytest.fixture
    def logs(self, url: str) -> Logs:
        return Logs(partial(PostgresLog, url), url)


def test_a_password_is_never_shown(postgres: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wrong = postgres.replace("se%25cret", "wr0ng")
    monkeypatch.setattr(sys, "argv", ["hopstate", "serve", "--log", wrong, "password=wr0ng"])
    with pytest.raises(StorageError, match="authentication failed") as raised:
        open_log(wrong)
    for bad in (wrong.replace("wr0ng", "wr0ng%zz"), "postgresql://hop:wr0ng@h:port/db", f"{postgres}&log=wr0ng;--"):
        with pytest.raises(ConfigError) as refused:
            open_log(bad.replace("%2F%401", ""))
        assert "wr0ng%" not in str(refused.value)
    assert "wr0ng" not in str(raised.value)
    with locked(tmp_path):
        with pytest.raises(BusyError) as busy, locked(tmp_path):
            pass
        assert "wr0ng" not in str(busy.value) + (tmp_path / ".lock").read_text()


def test_a_broken_connection_reconnects_unless_another_writer_exists(url: str) -> None:
    log, admin = PostgresLog(url), PostgresLog(url.replace("log=", "log=other_"))
    log.append(entries("a"))

    def drop() -> None:
        query = "select pg_terminate_backend(pid, 5000) from pg_stat_activity where pid <> pg_backend_pid()"
        admin._query(query + " and usename = 'hop' and backend_type = 'client backend'")

    drop()
    with pytest.raises(StorageError):
        log.append(entries("b"))
    assert log.append(entries("b")) == 1
    drop()
    other = PostgresLog(url)
    with pytest.raises(StorageError):
        log.append(entries("c"))
    with pytest.raises(BusyError, match="hopstate"):
        log.append(entries("c"))
    assert other.append(entries("c")) == 2
    for one in (log, other, admin):
        one.close()


def test_commits_wait_for_the_disk(url: str) -> None:
    log = PostgresLog(url.replace("?", "?options=-csynchronous_commit%3Doff&"))
    assert log._query("show synchronous_commit") == [("on",)]
    log.close()


def test_a_schema_without_a_log_is_rejected(url: str) -> None:
    log = PostgresLog(url)
    log.set_facts({"format": "other"})
    log.close()
    with pytest.raises(CheckpointError, match="other"):
        PostgresLog(url)
    with pytest.raises(ConfigError, match="log="):
        PostgresLog(url + "'")
