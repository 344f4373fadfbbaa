"""No row of a table is passed over: a row behind a later one is waited for, and a key that cannot be read in order is
refused."""

import threading
from typing import Any

import pytest
from waiting import until

from hopstate.errors import ConfigError, MissingFileError
from hopstate.serving.sources import PostgresSource

pytestmark = pytest.mark.slow

psycopg = pytest.importorskip("psycopg", reason="needs psycopg: pip install 'hopstate[postgres]'")


def read(source: PostgresSource) -> list[str]:
    return [one.event["src"] for one in source.read(10) if one.event]


def read_all(source: PostgresSource, last: str) -> list[str]:
    """What comes up to a row, which may have to wait for others' transactions."""
    found: list[str] = []
    return until(lambda: found.extend(read(source)) or found, lambda rows: last in rows)


def test_a_row_whose_transaction_has_a_key_and_no_number_yet_is_waited_for(postgres: str) -> None:
    with psycopg.connect(postgres, autocommit=True) as db, psycopg.connect(postgres, autocommit=True) as slow:
        db.execute("create table keyed (id bigserial primary key, src text)")
        db.execute("insert into keyed (src) values ('a')")  # of 32 numbers the first is logged, which takes a number
        db.execute("""create function held() returns text language plpgsql volatile as
                      $$ begin perform pg_advisory_xact_lock(77); return 'b'; end $$""")
        db.execute("select pg_advisory_lock(77)")
        thread = threading.Thread(target=slow.execute, args=("insert into keyed values (default, held())",))
        thread.start()
        waits = "select count(*) from pg_locks where locktype = 'advisory' and not granted"
        until(lambda: db.execute(waits).fetchone(), lambda found: found != (0,))
        db.execute("insert into keyed (src) values ('c')")
        source = PostgresSource(f"{postgres}&table=keyed", None)
        early = [src for _ in range(3) for src in read(source)]
        db.execute("select pg_advisory_unlock(77)")
        thread.join()
        assert early + read_all(source, "c") == ["a", "b", "c"]
        db.execute("insert into keyed (src) values ('d')")
        assert read_all(source, "d") == ["d"]
        source.close()


@pytest.mark.parametrize("begun", ["serial", "identity", "own"])
def test_a_sequence_that_hands_out_numbers_ahead_is_refused(begun: str, postgres: str) -> None:
    """As its rows come: of two sessions one has numbers in hand and uses them behind the other's."""
    kind = {
        "serial": "bigserial primary key",
        "identity": "bigint generated always as identity primary key",
        "own": "bigint primary key default nextval('own_sequence')",
    }[begun]
    place = f"{postgres}&table=ahead_{begun}"
    with psycopg.connect(postgres, autocommit=True) as db, psycopg.connect(postgres, autocommit=True) as other:
        if begun == "own":
            db.execute("create sequence own_sequence")
        db.execute(f"create table ahead_{begun} (id {kind}, src text)")
        PostgresSource(place, None).close()
        sequence = "own_sequence" if begun == "own" else f"ahead_{begun}_id_seq"
        db.execute(f"alter sequence {sequence} cache 20")
        found = []
        for session, src in ((db, "a"), (other, "b"), (db, "c")):
            session.execute(f"insert into ahead_{begun} (src) values (%s)", [src])
            found.append(src)
        rows = db.execute(f"select src from ahead_{begun} order by id").fetchall()
        assert [src for (src,) in rows] == ["a", "c", "b"]  # so c would be passed over by whoever had read b
        with pytest.raises(ConfigError, match=r"20 numbers at once.* cache 1"):
            PostgresSource(place, None)
        db.execute(f"alter sequence {sequence} cache 1 increment -1 minvalue -100")
        with pytest.raises(ConfigError, match="does not only grow"):
            PostgresSource(place, None)


KEYS: dict[str, tuple[str, str]] = {
    "text primary key": ("id", "of type text"),
    "numeric primary key": ("id", "of type numeric"),
    "uuid primary key": ("id", "of type uuid"),
    "bigint": ("id", "could be passed over"),
    "bigint unique": ("id", "could be passed over"),
    "bigserial primary key": ("number", "no column number"),
}


@pytest.mark.parametrize("kind", KEYS)
def test_what_is_no_key(kind: str, postgres: str) -> None:
    column, told = KEYS[kind]
    with psycopg.connect(postgres, autocommit=True) as db:
        db.execute("drop table if exists unkeyed")
        db.execute(f"create table unkeyed (id {kind}, src text)")
    with pytest.raises(ConfigError, match=told):
        PostgresSource(f"{postgres}&table=unkeyed&key={column}", None)


def test_a_table_that_is_not_there_and_a_server_that_is_away(postgres: str) -> None:
    with pytest.raises(MissingFileError, match="no table nowhere"):
        PostgresSource(f"{postgres}&table=nowhere", None)
    away: Any = PostgresSource("postgresql://h@/postgres?host=/nonexistent&table=x", None)  # it comes back
    away.close()
