"""A table of a database is the same table in a file, prepared or read; what cannot be had is named, passwords never."""

import contextlib
import sqlite3

import numpy as np
import pandas as pd
import pytest

pytest.importorskip("duckdb", reason="needs the extra prepare")

import duckdb

from hopstate.cli.main import main
from hopstate.data.prepare import prepare
from hopstate.data.readers.addresses import check_no_password, fetch, is_address, shown, table_of
from hopstate.data.readers.read_events import read_events
from hopstate.data.readers.read_graph import read_graph
from hopstate.errors import ConfigError, DataError, FormatError, MissingFileError, StorageError
from hopstate.methods import get_method
from hopstate.methods.settings import config_from
from hopstate.runs.data import load_data

pytestmark = pytest.mark.filterwarnings("ignore::hopstate.errors.HopstateWarning")


def events(n=80, seed=0):
    r = np.random.default_rng(seed)
    columns = {"source": [f"n{k}" for k in r.integers(0, 9, n)], "target": [f"ü{k}" for k in r.integers(0, 9, n)]}
    return pd.DataFrame(columns | {"time": r.integers(0, 20, n), "feat_0": r.normal(size=n).round(6)})


def in_sqlite(path, table, name="met"):
    with contextlib.closing(sqlite3.connect(path)) as connection:
        table.to_sql(name, connection, index=False)
    return f"sqlite://{path}/{name}"


def in_duckdb(path, table, name="met"):
    with duckdb.connect(str(path)) as connection:
        connection.register("given", table)
        connection.execute(f'CREATE TABLE "{name}" AS SELECT * FROM given')
    return f"duckdb://{path}/{name}"


PUT = {"duckdb": in_duckdb, "sqlite": in_sqlite}


@pytest.mark.parametrize("kind", PUT)
def test_a_table_prepared_has_the_bytes_of_its_file(tmp_path, kind):
    events().to_csv(tmp_path / "met.csv", index=False)
    address = PUT[kind](tmp_path / "base", events())
    prepare(tmp_path / "met.csv", tmp_path / "file")
    first = prepare(address, tmp_path / "base.store")
    for path in (tmp_path / "file").glob("*.npy"):
        assert (tmp_path / "base.store" / path.name).read_bytes() == path.read_bytes(), path.name
    assert prepare(address, tmp_path / "base.store") == first
    stream = read_events(tmp_path / "base.store")
    assert (stream.name, stream.source) == ("met", address)
    other = PUT[kind](tmp_path / "base", events(seed=1), "others")
    with pytest.raises(StorageError):
        prepare(other, tmp_path / "base.store")


@pytest.mark.parametrize("kind", PUT)
def test_data_of_a_run_are_read_from_an_address(tmp_path, kind):
    events().to_csv(tmp_path / "met.csv", index=False)
    events()[["source", "target"]].to_csv(tmp_path / "edges.csv", index=False)
    address = PUT[kind](tmp_path / "base", events())
    edges = PUT[kind](tmp_path / "base", events()[["source", "target"]], "edges")
    for method, place, file in (("recency", address, "met.csv"), ("mlp", edges, "edges.csv")):
        found = get_method(method)
        config = config_from(found, {"data": place})
        record = load_data(place, config.read, found.data)
        assert record.content_hash == load_data(str(tmp_path / file), config.read, found.data).content_hash
        assert record.source == place


def test_a_table_of_a_database_is_inspected(tmp_path, capsys):
    address = in_sqlite(tmp_path / "base", events())
    assert main(["inspect", address]) == 0
    assert "80" in capsys.readouterr().out


def test_edges_of_a_database(tmp_path):
    address = in_duckdb(tmp_path / "base", events()[["source", "target"]])
    prepare(address, tmp_path / "s", kind="edges", undirected=False)
    events()[["source", "target"]].to_csv(tmp_path / "met.csv", index=False)
    expected = read_graph(tmp_path / "met.csv", undirected=False)
    assert read_graph(tmp_path / "s").content_hash == expected.content_hash


def test_columns_of_several_types_are_texts(tmp_path):
    with contextlib.closing(sqlite3.connect(tmp_path / "b")) as connection:
        connection.execute("CREATE TABLE t (source, target, time)")
        connection.executemany("INSERT INTO t VALUES (?, ?, ?)", [(1, "a", 3), ("x", "b", None), (2, "c", 1.5)])
        connection.execute("CREATE TABLE u (source, target BLOB)")
        connection.execute("INSERT INTO u VALUES (1, x'00')")
        connection.commit()
    fetch(f"sqlite://{tmp_path}/b/t", tmp_path / "t.parquet")
    frame = pd.read_parquet(tmp_path / "t.parquet")
    assert frame.source.tolist() == ["1", "x", "2"]
    np.testing.assert_array_equal(frame.time, [3, np.nan, 1.5])
    with pytest.raises(DataError, match="target"):
        fetch(f"sqlite://{tmp_path}/b/u", tmp_path / "u.parquet")


def test_what_cannot_be_had_is_named(tmp_path):
    in_sqlite(tmp_path / "lite", events())
    in_duckdb(tmp_path / "duck", events())
    (tmp_path / "text").write_text("no database at all, but quite long a text\n" * 40)
    for scheme, file in (("sqlite", "lite"), ("duckdb", "duck")):
        with pytest.raises(MissingFileError, match="absent"):
            prepare(f"{scheme}://{tmp_path}/{file}/absent", tmp_path / "s")
        with pytest.raises(MissingFileError):
            prepare(f"{scheme}://{tmp_path}/nowhere/t", tmp_path / "s")
        with pytest.raises(StorageError):
            prepare(f"{scheme}://{tmp_path}/text/t", tmp_path / "s")
        with pytest.raises(ConfigError):
            prepare(f"{scheme}://t", tmp_path / "s")
    with pytest.raises((DataError, FormatError), match="target"):
        prepare(in_duckdb(tmp_path / "duck", events()[["source"]], "one"), tmp_path / "s")
    assert not (tmp_path / "s" / "work").exists()


def test_addresses_are_kept_without_users_and_passwords():
    address = "postgresql://me:secret@host:5433/base?table=a.b&sslmode=require"
    assert is_address(address)
    assert not is_address("events.csv")
    assert (shown(address), table_of(address)) == ("postgresql://host:5433/base?table=a.b", "a.b")
    with pytest.raises(ConfigError, match="PGPASSWORD") as told:
        check_no_password(address)
    assert "secret" not in str(told.value)
    check_no_password("postgresql://me@host/base?table=a")
