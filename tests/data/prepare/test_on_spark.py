"""Spark writes the same bytes as DuckDB; tests without Java or pyspark are skipped."""

import json
import os
import subprocess
import sys
import types

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

pytest.importorskip("duckdb", reason="prepare needs the extra prepare")
pytest.importorskip("ibis", reason="prepare needs the extra prepare")

from hopstate.data.prepare import prepare
from hopstate.data.prepare.engines import by_time, check_engine, open_engine
from hopstate.errors import DataError, MissingExtraError, StorageError

ROWS = 3000


@pytest.fixture(scope="module")
def spark():
    """A user's session of two threads with its own settings."""
    try:
        check_engine("spark")
    except MissingExtraError as error:
        pytest.skip(str(error))
    from pyspark.sql import SparkSession

    settings = {"spark.ui.enabled": "false", "spark.log.level": "OFF", "spark.sql.ansi.enabled": "false"}
    builder = SparkSession.builder.master("local[2]")
    for key, value in settings.items():
        builder = builder.config(key, value)
    session = builder.getOrCreate()
    yield session
    session.stop()


def files(store):
    return {path.name: path.read_bytes() for path in store.iterdir() if path.name != "work"}


def both(folder, source, **read):
    for engine in ("duckdb", "spark"):
        prepare(source, folder / engine, engine=engine, batch_rows=700, **read)
    one, other = files(folder / "duckdb"), files(folder / "spark")
    assert one == other
    return one


def texts(r):
    letters = np.array(["n", "ü", "𝔘", "\ufb01", "Z", "a b"])  # UTF-16 sorts differently from UTF-8
    return np.char.add(r.choice(letters, ROWS), r.integers(0, 90, ROWS).astype(str))


KINDS = {
    "texts": (texts, texts),
    "numbers in two writings": (lambda r: r.choice(["+5", "5.0", "5", "17.", "12"], ROWS),) * 2,
    "numbers and texts": (lambda r: r.choice(["+5", "5.0", "900000000000"], ROWS), texts),
    "zeros in front": (lambda r: r.choice(["007", "7", "70"], ROWS), lambda r: r.integers(0, 90, ROWS).astype(str)),
    "texts of whole numbers": (lambda r: r.integers(0, 90, ROWS).astype(str),) * 2,
    "whole numbers": (lambda r: r.integers(0, 2**62, ROWS), lambda r: r.integers(0, 90, ROWS)),
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_events_have_the_same_bytes(spark, tmp_path, kind, ending):
    r = np.random.default_rng(0)
    source, target = KINDS[kind]
    table = pd.DataFrame({"source": source(r), "target": target(r)})
    table["time"] = r.choice([-0.0, 0.0, -2.5, 1.0, 3e9, 7.25], ROWS)  # many ties, none in order
    table["label"], table["feat_0"] = r.choice(["good", "bad"], ROWS), r.normal(size=ROWS)
    folder = tmp_path / "of [a], {b} é"
    folder.mkdir()
    path = folder / f"e.{ending}"
    table.to_csv(path, index=False) if ending == "csv" else table.to_parquet(path)
    made = both(folder, path)
    assert {"src.npy", "dst.npy", "t.npy", "labels.npy", "edge_attr.npy"} < set(made)
    assert json.loads(made["events.json"])["notes"] is not None
    if kind == "texts of whole numbers":
        assert ("node_ids.npy" in made) == (ending == "parquet")  # in a CSV they are the row numbers


def test_edges_have_the_same_bytes(spark, tmp_path):
    r = np.random.default_rng(1)
    table = pd.DataFrame({"source": texts(r), "target": texts(r), "weight": r.normal(size=ROWS)})
    table.to_parquet(tmp_path / "e.parquet")
    made = both(tmp_path, tmp_path / "e.parquet", kind="edges")
    assert {"indptr.npy", "indices.npy", "edge_attr.npy"} < set(made)


def test_the_users_spark_session_is_unchanged(spark, tmp_path):
    zone = spark.conf.get("spark.sql.session.timeZone")
    pd.DataFrame({"source": ["a"], "target": ["b"], "time": [1]}).to_parquet(tmp_path / "e.parquet")
    prepare(tmp_path / "e.parquet", tmp_path / "s", engine="spark")
    assert (spark.conf.get("spark.sql.ansi.enabled"), spark.conf.get("spark.sql.session.timeZone")) == ("false", zone)
    assert spark.range(3).count() == 3
    assert not spark.catalog.listTables()


def test_an_id_beyond_int64_is_named_and_leaves_nothing(spark, tmp_path):
    (tmp_path / "e.csv").write_text("source,target,time\n1,2,3\n99999999999999999999,2,4\n")
    for engine in ("duckdb", "spark"):
        with pytest.raises(DataError, match="99999999999999999999"):
            prepare(tmp_path / "e.csv", tmp_path / "s", engine=engine)
        assert not list((tmp_path / "s").glob("*.npy"))


def test_options_unsupported_by_spark_are_named(spark, tmp_path):
    with (
        open_engine("spark", tmp_path, 0, None) as engine,
        pytest.raises(StorageError, match=r"gone\.parquet"),
    ):
        next(engine.batches(by_time(engine.read([tmp_path / "gone.parquet"]))))


def test_a_missing_engine_is_named(tmp_path, monkeypatch):
    pd.DataFrame({"source": ["a"], "target": ["b"], "time": [1]}).to_parquet(tmp_path / "e.parquet")
    monkeypatch.setitem(sys.modules, "pyspark", None)
    with pytest.raises(MissingExtraError, match=r"hopstate\[spark\]"):
        prepare(tmp_path / "e.parquet", tmp_path / "s", engine="spark")
    monkeypatch.setitem(sys.modules, "pyspark", types.ModuleType("pyspark"))
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    with pytest.raises(MissingExtraError):
        prepare(tmp_path / "e.parquet", tmp_path / "s", engine="spark")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(MissingExtraError, match="JAVA_HOME"):
        prepare(tmp_path / "e.parquet", tmp_path / "s", engine="spark")
    assert not (tmp_path / "s").exists()


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_events_are_prepared_on_a_cluster(tmp_path):
    """An executor in a separate process, started by the command."""
    try:
        check_engine("spark")
    except MissingExtraError as error:
        pytest.skip(str(error))
    r, count = np.random.default_rng(2), 200_000
    names = [np.char.add(letter, (r.random(count) ** 2 * 10_000).astype(int).astype(str)) for letter in ("u", "i")]
    table = pa.table({"src": names[0], "dst": names[1], "t": r.integers(0, count // 2, count)})
    pq.write_table(table, tmp_path / "e.parquet")
    cluster = {"PYSPARK_SUBMIT_ARGS": "--master local-cluster[1,1,1024] pyspark-shell"}
    for engine in ("duckdb", "spark"):
        command = [sys.executable, "-m", "hopstate", "prepare", tmp_path / "e.parquet", "--out", tmp_path / engine]
        done = subprocess.run(
            [*command, "--engine", engine, "--memory", "1GiB"],
            capture_output=True, text=True, check=False, env=os.environ | cluster,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr[-2000:]
    assert files(tmp_path / "duckdb") == files(tmp_path / "spark")
