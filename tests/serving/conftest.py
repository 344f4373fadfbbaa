"""Servers and a run for the tests of this folder.

PostgreSQL is the system's package with a temporary folder. Kafka is librdkafka's built-in mock cluster: brokers in this
process that keep ordered messages in memory and support idempotent producers. It fences no producer, deletes messages
only above 5 MB, and creates topics on first use.
"""

import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from hopstate.runs.run import Run
from made_events import small_run


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A run with a node memory."""
    return small_run("ctdg-ssm", tmp_path_factory.mktemp("run"))


def program(name: str) -> str | None:
    places = [str(path) for path in sorted(Path("/usr/lib/postgresql").glob("*/bin"))]
    return shutil.which(name) or shutil.which(name, path=os.pathsep.join(places))


@pytest.fixture(scope="session")
def postgres() -> Iterator[str]:
    """Address of an empty server, which listens only in its folder and requires a password."""
    pytest.importorskip("psycopg", reason="needs psycopg: pip install 'hopstate[postgres]'")
    initdb, pg_ctl = program("initdb"), program("pg_ctl")
    if initdb is None or pg_ctl is None:
        pytest.skip("needs a server of PostgreSQL: initdb and pg_ctl (Debian: apt install postgresql)")
    who: dict[str, object] = {}
    home = Path(tempfile.mkdtemp(prefix="hopstate-pg-"))
    if os.geteuid() == 0:  # the server does not run as root
        try:
            nobody = pwd.getpwnam("nobody")
            os.chown(home, nobody.pw_uid, nobody.pw_gid)
        except (KeyError, OSError) as error:
            pytest.skip(f"PostgreSQL does not run as root, and there is no other user: {error}")
        who = {"user": nobody.pw_uid, "group": nobody.pw_gid, "extra_groups": []}
    (home / "password").write_text("se%cret/@1")
    (home / "password").chmod(0o644)
    options = f"-c listen_addresses='' -k {home} -c shared_buffers=16MB -c max_connections=20"

    def run(*words: str) -> None:
        with (home / "out").open("a") as out:  # not a pipe, which the server would hold open
            try:
                done = subprocess.run(words, stdout=out, stderr=out, cwd=home, timeout=120, check=False, **who)  # type: ignore[call-overload]
            except (OSError, subprocess.TimeoutExpired) as error:
                pytest.skip(f"PostgreSQL cannot be run here: {error}")
        if done.returncode:
            pytest.skip(f"PostgreSQL does not start here: {(home / 'out').read_text()[-500:]}")

    account = ["-U", "hop", "-A", "scram-sha-256", f"--pwfile={home}/password"]
    try:
        run(initdb, "-D", f"{home}/data", "-E", "UTF8", "--no-locale", "--no-sync", *account)
        run(pg_ctl, "-D", f"{home}/data", "-w", "-l", f"{home}/log", "-o", options, "start")
        ends = ["sh", "-c", 'read -r _; "$0" -D "$1/data" -m immediate stop', pg_ctl, str(home)]
        with subprocess.Popen(ends, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, start_new_session=True, **who):  # type: ignore[call-overload]
            # stops the server when this process has ended or closes the pipe
            yield f"postgresql://hop:se%25cret%2F%401@/postgres?host={home}"
    finally:
        shutil.rmtree(home, ignore_errors=True)


@pytest.fixture(scope="session")
def kafka() -> Callable[[str], str]:
    """Yield the address of a new topic of a mock cluster."""
    kafka = pytest.importorskip("confluent_kafka", reason="needs confluent-kafka: pip install 'hopstate[kafka]'")
    home = kafka.Producer({"test.mock.num.brokers": 1, "log_level": 0})
    try:
        (broker,) = home.list_topics(timeout=10).brokers.values()
    except kafka.KafkaException as error:
        pytest.skip(f"librdkafka's mock cluster does not start here: {error}")

    def made(topic: str) -> str:
        home.list_topics(topic, timeout=10)
        return f"kafka://{broker.host}:{broker.port}/{topic}?log_level=0"

    return made
