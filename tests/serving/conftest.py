"""Servers for the tests of this folder.

PostgreSQL is the system's own package in a temporary folder. Kafka is the mock cluster that librdkafka has built in:
brokers in this process that keep messages in memory, in order, and know idempotent producers; it fences nobody,
deletes nothing but what is beyond 5 MB, and makes topics by their being asked for.
"""

import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest


def program(name: str) -> str | None:
    places = [str(path) for path in sorted(Path("/usr/lib/postgresql").glob("*/bin"))]
    return shutil.which(name) or shutil.which(name, path=os.pathsep.join(places))


@pytest.fixture(scope="session")
def postgres() -> Iterator[str]:
    """Address of an empty server, which listens in its folder alone and asks for a password."""
    pytest.importorskip("psycopg", reason="needs psycopg: pip install 'hopstate[postgres]'")
    initdb, pg_ctl = program("initdb"), program("pg_ctl")
    if initdb is None or pg_ctl is None:
        pytest.skip("needs a server of PostgreSQL: initdb and pg_ctl (Debian: apt install postgresql)")
    who: dict[str, object] = {}
    home = Path(tempfile.mkdtemp(prefix="hopstate-pg-"))
    if os.geteuid() == 0:  # the server refuses to run as root
        try:
            nobody = pwd.getpwnam("nobody")
            os.chown(home, nobody.pw_uid, nobody.pw_gid)
        except (KeyError, OSError) as error:
            pytest.skip(f"PostgreSQL does not run as root, and there is nobody else: {error}")
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
            # stops the server when this process has ended, however that was, or lets go of it
            yield f"postgresql://hop:se%25cret%2F%401@/postgres?host={home}"
    finally:
        shutil.rmtree(home, ignore_errors=True)


@pytest.fixture(scope="session")
def kafka() -> Callable[[str], str]:
    """Give the address of a new topic of a mock cluster."""
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
