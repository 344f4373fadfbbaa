"""The engines of `prepare`: Ibis expressions that number ids, join and sort, on DuckDB or on Spark."""

from __future__ import annotations

import contextlib
import importlib
import logging
import os
import re
import shutil
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Self

import pyarrow as pa
import pyarrow.parquet as pq

from hopstate.errors import ConfigError, DataError, MissingExtraError, StorageError, nearest

ENGINES = {"duckdb": ("prepare", ("duckdb", "ibis")), "spark": ("spark", ("ibis", "pyspark"))}  # extra, modules
_BATCH = 1 << 17  # rows that an engine returns at a time
_BEYOND = ("CAST_INVALID_INPUT", "CAST_OVERFLOW")  # Spark's names of a text that is no int64


# ---- expressions ------------------------------------------------------------------------------------------------
def with_keys(rows: Any, are_integers: tuple[bool, bool], text: bool, number: Callable[[Any], Any]) -> Any:
    """Return rows with ids as node keys: text if text is true, otherwise int64."""
    keys = {}
    for name, is_whole in zip(("src", "dst"), are_integers, strict=True):
        key = number(rows[name]) if is_whole and rows[name].type().is_string() else rows[name]
        keys[name] = key.cast("string") if text else key
    return rows.mutate(**keys)


def distinct_ids(rows: Any) -> Any:
    """Return the ids of both ends, each once, in order."""
    return rows.select(id=rows.src).union(rows.select(id=rows.dst)).distinct().order_by("id")


def with_nodes(rows: Any, nodes: Any) -> Any:
    """Return rows with the nodes of their ids; nodes has columns id and node."""
    for name in ("src", "dst"):
        own = nodes.select(**{f"{name}_id": nodes.id, f"{name}_node": nodes.node})
        rows = rows.join(own, rows[name] == own[f"{name}_id"])
        rows = rows.mutate(**{name: rows[f"{name}_node"]}).drop(f"{name}_id", f"{name}_node")
    return rows


def by_time(rows: Any) -> Any:
    """Return events by time, those of one time in the order of the source."""
    return rows.order_by("t", "position").drop("position")


def adjacency(rows: Any, *, undirected: bool, loops: bool) -> Any:
    """Return edges by source and target, each in both directions if undirected; duplicates by position."""
    if not loops:
        rows = rows.filter(rows.src != rows.dst)
    if undirected:
        back = rows.filter(rows.src != rows.dst).mutate(src=rows.dst, dst=rows.src)
        rows = rows.union(back.select(*rows.columns))
    return rows.order_by("src", "dst", "position").drop("position")


# ---- engines ----------------------------------------------------------------------------------------------------
def check_engine(name: str) -> None:
    """Raise ConfigError or MissingExtraError if an engine is unknown or not installed."""
    if name not in ENGINES:
        raise ConfigError(f"unknown engine {name!r}{nearest(name, ENGINES)}; known: {', '.join(ENGINES)}")
    extra, modules = ENGINES[name]
    try:
        for module in modules:
            importlib.import_module(module)
    except ImportError as error:
        raise MissingExtraError(
            f"prepare with --engine {name} needs {error.name}: pip install 'hopstate[{extra}]'"
        ) from None
    home = os.environ.get("JAVA_HOME")
    if name == "spark" and not shutil.which(f"{home}/bin/java" if home else "java"):
        where = f"JAVA_HOME={home} has none" if home else "there is none on the path"
        raise MissingExtraError(
            f"prepare with --engine spark needs Java 17, and {where}: install it (Debian: openjdk-17-jre-headless) or "
            "set JAVA_HOME"
        )


class _DuckDB:
    """DuckDB in this process; what does not fit in memory goes to a folder."""

    def __init__(self, folder: Path, memory: int, threads: int | None) -> None:
        import ibis

        self._folder = folder
        self._con = ibis.duckdb.connect()
        settings: dict[str, Any] = {"memory_limit": f"{memory}B", "temp_directory": str(folder / "spill")}
        settings |= {"preserve_insertion_order": False, "enable_progress_bar": False}
        for key, value in (settings | ({"threads": threads} if threads else {})).items():
            self._con.con.execute(f"SET {key} = {value!r}" if isinstance(value, str) else f"SET {key} = {value}")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._con.disconnect()
        shutil.rmtree(self._folder / "spill", ignore_errors=True)

    def read(self, paths: Sequence[Path]) -> Any:
        return self._con.read_parquet([str(path) for path in paths])

    def number(self, texts: Any) -> Any:
        return texts.cast("int64")

    def batches(self, expression: Any) -> Iterator[pa.RecordBatch]:
        import duckdb

        try:
            yield from self._con.con.sql(self._con.compile(expression)).to_arrow_reader(_BATCH)
        except duckdb.ConversionException as error:
            raise DataError(f"an id is beyond 2^63 - 1 ({_first_line(error)}); write ids as strings, e.g. n7") from None
        except (duckdb.OutOfMemoryException, duckdb.IOException) as error:
            full = "No space" in str(error) or "temp_directory" in str(error)
            remedy = "free some space there" if full else "give more --memory"
            raise _stopped(self._folder, error, remedy) from error


class _Spark:
    """Spark on the session of this process, or on one that Spark's own settings describe.

    Executors read the folder of work and write what they sorted there as files that follow each other, so they must
    see that folder by the same path. Only names of files go through the driver.
    """

    def __init__(self, folder: Path) -> None:
        import ibis
        from py4j.protocol import Py4JError
        from pyspark import SparkContext
        from pyspark.errors import PySparkException
        from pyspark.sql import SparkSession

        self._folder, own = folder, SparkContext._active_spark_context is None
        builder = SparkSession.builder.appName("hopstate prepare")
        if own:
            builder = builder.config("spark.ui.enabled", "false").config("spark.ui.showConsoleProgress", "false")
            builder = builder.config("spark.log.level", "OFF")
        try:
            session = builder.getOrCreate()
            self._session = session.newSession()  # a session that was there keeps its settings and views
        except (PySparkException, Py4JError, OSError) as error:
            raise ConfigError(
                f"Spark does not start: {_first_line(error)}; see its settings (PYSPARK_SUBMIT_ARGS, "
                "spark-defaults.conf)"
            ) from error
        self._own = session if own else None
        self._session.conf.set("spark.sql.ansi.enabled", "true")  # otherwise an id that is too large becomes null
        self._con = ibis.pyspark.connect(self._session)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        shutil.rmtree(self._folder / "sorted", ignore_errors=True)
        if self._own is not None:
            self._own.stop()

    def read(self, paths: Sequence[Path]) -> Any:
        import ibis

        view = ibis.util.gen_name("prepare")
        with self._named():
            names = (re.sub(r"([\\*?\[\]{}])", r"\\\1", _address(path)) for path in paths)  # Spark takes [a] as a glob
            self._session.read.parquet(*names).createOrReplaceTempView(view)
        return self._con.table(view)

    def number(self, texts: Any) -> Any:
        return texts.re_replace("[.]0*$", "").cast("int64")

    def batches(self, expression: Any) -> Iterator[pa.RecordBatch]:

        out = self._folder / "sorted"
        with self._named():
            self._session.sql(self._con.compile(expression)).write.mode("overwrite").parquet(_address(out))
        for part in sorted(out.glob("part-*.parquet")):
            with pq.ParquetFile(part) as file:
                yield from file.iter_batches(_BATCH, use_threads=False)
        shutil.rmtree(out)

    @contextlib.contextmanager
    def _named(self) -> Iterator[None]:
        from py4j.protocol import Py4JError
        from pyspark.errors import PySparkException

        logger = logging.getLogger("SQLQueryContextLogger")  # it would write the whole error to stderr as well
        before, logger.disabled = logger.disabled, True
        try:
            yield
        except (PySparkException, Py4JError, OSError) as error:
            text = str(error)
            if any(word in text for word in _BEYOND):
                why = f"an id is beyond 2^63 - 1 ({_first_line(error)}); write ids as strings, e.g. n7"
                raise DataError(why) from None
            full = "No space" in text or "quota" in text.lower()
            remedy = "free some space there and in spark.local.dir" if full else "see Spark's log and settings"
            raise _stopped(self._folder, error, remedy) from error
        finally:
            logger.disabled = before


Engine = _DuckDB | _Spark


def open_engine(name: str, folder: Path, memory: int, threads: int | None) -> Engine:
    """Return an engine on Parquet files of a folder; memory (bytes) and threads limit DuckDB, Spark has settings."""
    return _Spark(folder) if name == "spark" else _DuckDB(folder, memory, threads)


def _address(path: Path) -> str:
    return f"file:{path.resolve()}"  # whatever Spark's default file system is


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0][:200]


def _stopped(folder: Path, error: Exception, remedy: str) -> StorageError:
    return StorageError(
        f"the engine stopped in {folder}: {_first_line(error)}; {remedy} and run the same command again: finished "
        "steps are kept"
    )
