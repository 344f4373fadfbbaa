"""`prepare`: a table of events or edges of any size becomes a memory-mapped store, as if it was read in memory.

Steps lie in the folder `work` of the store: the files of the source as typed Parquet (`source`), then the nodes of
their ids (`engine`). Each file there is whole or absent, so that a run that was killed continues with the first absent
one. The arrays (`store`) follow, and last `events.json` or `graph.json`, which makes the store valid.
"""

from __future__ import annotations

import abc
import contextlib
import dataclasses
import errno
import importlib
import json
import logging
import os
import re
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import DTypeLike

from hopstate.data.dates import UNITS
from hopstate.data.labels import LabelOptions, LabelTable, read_labels
from hopstate.data.prepare.source import LARGEST
from hopstate.data.preprocessing import FeatureTable
from hopstate.data.readers.edge_list import count_of, node_features, rows_in_order
from hopstate.data.readers.ids import EXACT
from hopstate.data.readers.roles import ONE, TWO, shared_ids
from hopstate.data.readers.tables import stem_of
from hopstate.data.store import EVENTS_FILE, GRAPH_FILE, VERSION, WORK, id_arrays, table_arrays, table_facts
from hopstate.data.validate import check_ids
from hopstate.data.vocabulary import TEXT, Vocabulary, ids_array
from hopstate.errors import ConfigError, DataError, FormatError, HopstateError, MissingExtraError, StorageError, nearest
from hopstate.io.files import locked, make_folder, remove_stale, replace_file, save_array, sync_file, write_text
from hopstate.io.opening import exists, parse_bytes, read_json
from hopstate.io.output import write_table
from hopstate.io.tensors import load_npy

if TYPE_CHECKING:
    import pyarrow as pa


class Npy:
    """A .npy file that is written batch by batch."""

    def __init__(self, path: Path, shape: tuple[int, ...], dtype: DTypeLike) -> None:
        self.path, self.dtype, self._shape = path, np.dtype(dtype), shape
        self._file = path.open("wb")
        self._header(shape)
        self._rows = 0

    def _header(self, shape: tuple[int, ...]) -> None:
        facts = {"descr": np.lib.format.dtype_to_descr(self.dtype), "fortran_order": False, "shape": shape}
        np.lib.format.write_array_header_1_0(self._file, facts)

    def add(self, rows: np.ndarray) -> None:
        self._file.write(np.ascontiguousarray(rows, self.dtype).view(np.uint8).data)
        self._rows += len(rows)

    def close(self, count: int | None = None) -> None:
        """Close the file; count is the number of rows if fewer than announced are right.

        Raises:
            StorageError: the engine gave another number of rows.
        """
        expected = self._shape[0] if count is None else count
        if self._rows != expected:
            self._file.close()
            raise StorageError(f"{self.path}: the engine gave {self._rows:,} rows, not {expected:,}; take another one")
        if count is not None:
            self._file.seek(0)
            self._header((count, *self._shape[1:]))  # numpy pads the header, so that it keeps its length
        self._file.close()
        sync_file(self.path)


@dataclass
class Writer:
    """A store in the making.

    Args:
        out: the folder.
        width: columns of features.
        exact: whether float32 has all features as they are.
        names: of the arrays so far.
    """

    out: Path
    width: int
    exact: bool
    names: set[str]

    def save(self, name: str, array: np.ndarray | None) -> None:
        """Write an array that is in memory, if there is one."""
        if array is not None:
            path = self.out / f"{name}.npy"
            save_array(path, array)
            sync_file(path)
            self.names.add(name)

    def node_ids(self, path: Path) -> None:
        with pq.ParquetFile(path) as file:
            count, kind = file.metadata.num_rows, file.schema_arrow.field("id").type
            ids = lambda: (batch.column(0) for batch in file.iter_batches(1 << 16, columns=["id"]))  # noqa: E731
            if pa.types.is_integer(kind):
                array = Npy(self.out / "node_ids.npy", (count,), np.int64)
                for some in ids():
                    array.add(some.to_numpy())
                self._close({"node_ids": array})
                return
            size = sum(pc.sum(pc.binary_length(some)).as_py() or 0 for some in ids())
            texts = Npy(self.out / "node_ids.npy", (size,), np.uint8)
            offsets = Npy(self.out / "node_id_offsets.npy", (count + 1,), np.int64)
            end = np.zeros(1, np.int64)
            offsets.add(end)
            for some in ids():
                ends = end[-1] + np.cumsum(pc.binary_length(ids_array(some)).to_numpy())
                offsets.add(ends)
                texts.add(np.frombuffer("".join(some.to_pylist()).encode(), np.uint8))
                end = ends if len(ends) else end
        self._close({"node_ids": texts, "node_id_offsets": offsets})

    def _close(self, arrays: dict[str, Npy], count: int | None = None) -> None:
        for name, array in arrays.items():
            array.close(count)
            self.names.add(name)

    def events(self, batches: Iterator[pa.RecordBatch], count: int, time: Time, labels: Labels | None) -> None:
        """Write sorted events."""
        arrays = {name: Npy(self.out / f"{name}.npy", (count,), np.int64) for name in ("src", "dst")}
        arrays["t"] = Npy(self.out / "t.npy", (count,), time.dtype)
        if labels is not None:
            arrays["labels"] = Npy(self.out / "labels.npy", (count,), labels.dtype)
        arrays |= self._features(count, np.float64)
        if self.exact:
            arrays.pop("edge_table", None)
        for batch in batches:
            arrays["src"].add(batch["src"].to_numpy())
            arrays["dst"].add(batch["dst"].to_numpy())
            arrays["t"].add(batch["t"].to_numpy() // time.divisor if time.divisor > 1 else batch["t"].to_numpy())
            if labels is not None:
                arrays["labels"].add(labels.of(batch["label"]))
            if self.width:
                values = np.stack([batch[f"f{i}"].to_numpy() for i in range(self.width)], 1)
                for name in arrays.keys() & {"edge_attr", "edge_table"}:
                    arrays[name].add(values)
        self._close(arrays)

    def graph(self, batches: Iterator[pa.RecordBatch], edges: int, nodes: int, *, unique: bool) -> tuple[int, int]:
        """Write sorted edges as CSR; return how many came and how many were kept.

        Args:
            batches: by source and target.
            edges: at most.
            nodes: of the graph.
            unique: keep the first of edges that are the same.
        """
        arrays = {"indices": Npy(self.out / "indices.npy", (edges,), np.int64)}
        arrays |= self._features(edges, np.float32 if self.exact else np.float64)
        starts = np.zeros(nodes + 1, np.int64)
        seen = kept = 0
        last = (-1, -1)
        for batch in batches:
            source, target = batch["src"].to_numpy(), batch["dst"].to_numpy()
            if not len(source):
                continue
            first = np.ones(len(source), bool)
            if unique:
                first[1:] = (source[1:] != source[:-1]) | (target[1:] != target[:-1])
                first[0] = (int(source[0]), int(target[0])) != last
            last = int(source[-1]), int(target[-1])
            low = int(source[0])
            degrees = np.bincount(source[first] - low)
            starts[low + 1 : low + 1 + len(degrees)] += degrees
            seen, kept = seen + len(source), kept + int(first.sum())
            arrays["indices"].add(target[first])
            if self.width:
                values = np.stack([batch[f"f{i}"].to_numpy()[first] for i in range(self.width)], 1)
                arrays["edge_table"].add(values)
                arrays["edge_attr"].add(np.clip(values, -LARGEST, LARGEST))
        self._close(arrays, kept)
        self.save("indptr", np.cumsum(starts))
        return seen, kept

    def _features(self, count: int, kind: DTypeLike) -> dict[str, Npy]:
        shape, kinds = (count, self.width), {"edge_attr": np.float32, "edge_table": kind}
        return {name: Npy(self.out / f"{name}.npy", shape, kinds[name]) for name in kinds if self.width}


@dataclass(frozen=True)
class Time:
    """The times of a store.

    Args:
        dtype: of the array.
        unit: "" if unknown.
        divisor: nanoseconds of a unit for dates, else 1.
        zone: as `EventStream.dates`.
    """

    dtype: np.dtype[Any]
    unit: str
    divisor: int = 1
    zone: str = ""


@dataclass(frozen=True)
class Labels:
    """The labels of a store.

    Args:
        dtype: of the array.
        classes: in the order of their numbers; None if labels are numbers.
        names: classes, unless they are true and false.
    """

    dtype: np.dtype[Any]
    classes: tuple[str, ...] | None = None
    names: tuple[str, ...] | None = None

    def of(self, cells: pa.Array) -> np.ndarray:
        """Return a batch of labels; -1 is unknown."""
        if self.classes is not None:
            cells = pc.index_in(cells if self.names else pc.utf8_lower(cells), pa.array(self.classes))
        return pc.fill_null(cells, -1).to_numpy(zero_copy_only=False).astype(self.dtype)


# ---- tables of nodes --------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class NodeTables:
    """Features and labels of nodes, which are read in memory.

    Args:
        features: or None.
        ids: of the rows of features, if they say which nodes there are.
        labels: or None.
        count: nodes are rows 0..count-1; None if ids are names.
        files: of features and labels, for messages.
        notes: on both.
    """

    features: FeatureTable | None
    ids: np.ndarray | None
    labels: LabelTable | None
    count: int | None
    files: Mapping[str, str]
    notes: tuple[str, ...]

    @classmethod
    def read(cls, read: Mapping[str, Any]) -> NodeTables | None:
        """Return the tables that options name, as `read_edge_list` reads them; None if edges alone give the nodes."""
        features, labels, key, count = (read.get(n) for n in ("features", "labels", "id_column", "num_nodes"))
        options = LabelOptions(
            id_column=key, label_column=read.get("label_column"), split_column=read.get("split_column"),
            unlabelled=read.get("unlabelled"), task=read.get("task", "auto"), cells=read.get("label_cells", "ask"),
        )  # fmt: skip
        named = read_labels(labels, options)
        one = named is not None and features is not None and Path(features).resolve() == Path(str(labels)).resolve()
        without = named.columns if named is not None and one else ()
        x, ids, notes = node_features(features, key, "error", read.get("missing", "error"), without, {}, ())
        count = count_of(count, x, ids, named)
        if count is not None and x is not None and ids is not None:
            x, ids = x.take(rows_in_order(ids, count, str(features))), None
        if x is None and named is None and count is None:
            return None
        files = {"features": str(features), "labels": str(labels)}
        return cls(x, ids, named, count, files, (*notes, *(() if named is None else named.notes)))

    def place(self, met: np.ndarray, source: str) -> tuple[np.ndarray, Vocabulary | None, int, np.ndarray]:
        """Return the nodes of ids, the names of all nodes (None if they are rows), their number, and labels' nodes.

        Args:
            met: distinct ids of the edges, in order.
            source: of the edges, for messages.
        """
        labels = None if self.labels is None else self.labels.ids
        own = np.arange(0 if self.labels is None or labels is not None else len(self.labels.y))
        if self.count is not None:
            for ids, what in ((met, source), (own if labels is None else labels, self.files["labels"])):
                if ids.dtype.kind != "i" and len(ids):
                    raise DataError(
                        f"{what} has strings such as {ids[0]!s}, but nodes are the rows 0..{self.count - 1}"
                    )
                check_ids(ids, self.count, f"{what}: ids")
            return met, None, self.count, own if labels is None else labels
        known = self.ids
        if any(ids is not None and ids.dtype.kind != "i" for ids in (met, known, labels)):
            labels, known = (None if ids is None else ids.astype(TEXT) for ids in (labels, known))
            met = met.astype(TEXT)
        vocabulary = (
            Vocabulary(known) if known is not None else Vocabulary.of(met, *([] if labels is None else [labels]))
        )
        rows = vocabulary.rows(met)
        self._check_known(met, rows, source)
        if labels is not None:
            own = vocabulary.rows(labels)
            self._check_known(labels, own, self.files["labels"])
        plain = not vocabulary.is_text and np.array_equal(vocabulary.ids, np.arange(len(vocabulary)))
        return rows, None if plain else vocabulary, len(vocabulary), own

    def _check_known(self, ids: np.ndarray, rows: np.ndarray, what: str) -> None:
        bad = np.flatnonzero(rows < 0)
        if len(bad):
            raise DataError(
                f"{what}: id {ids[bad[:1]].tolist()[0]!r} is not in {self.files['features']} ({len(bad):,} such ids); "
                "add it there, or remove the rows"
            )

    def save(self, writer: Writer, labelled: np.ndarray, count: int) -> dict[str, Any]:
        """Write what nodes carry; return the facts of the store on it."""
        fields = {} if self.labels is None else self.labels.fields(labelled, count)
        classes = fields.pop("class_names", None)
        for name, mask in fields.pop("masks", {}).items():
            writer.save(f"mask_{name}", mask)
        writer.save("y", fields.get("y"))
        facts: dict[str, Any] = {"class_names": None if classes is None else list(map(str, classes))}
        table = self.features
        if table is not None:
            writer.save("x", table.plain())
            for name, array in table_arrays("table", table).items():
                writer.save(name, array)
            facts["tables"] = {"table": table_facts(table)}
        return facts


ENGINES = {"duckdb": ("prepare", ("duckdb", "ibis")), "spark": ("spark", ("ibis", "pyspark"))}  # extra, modules
_BATCH = 1 << 17  # rows that an engine returns at a time
_BEYOND = ("CAST_INVALID_INPUT", "CAST_OVERFLOW")  # Spark's names of a text that is no int64


# ---- expressions ------------------------------------------------------------------------------------------------
def with_keys(rows: Any, whole: tuple[bool, bool], text: bool, number: Callable[[Any], Any]) -> Any:
    """Return rows whose ids are equal if they name one node: int64, or text if text.

    Args:
        rows: with columns src and dst.
        whole: whether the ids of each are whole numbers, which may be written as 5, +5 or 5.0.
        text: whether ids are texts in the store.
        number: from texts of whole numbers to int64.
    """
    keys = {}
    for name, is_whole in zip(("src", "dst"), whole, strict=True):
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
class Engine(abc.ABC):
    """A connection that reads Parquet files of one folder; a context manager."""

    def __enter__(self) -> Engine:
        return self

    @abc.abstractmethod
    def __exit__(self, *error: object) -> None: ...

    @abc.abstractmethod
    def read(self, paths: Sequence[Path]) -> Any:
        """Return an Ibis table of the rows of Parquet files."""

    @abc.abstractmethod
    def number(self, texts: Any) -> Any:
        """Return int64 of texts of whole numbers."""

    @abc.abstractmethod
    def batches(self, expression: Any) -> Iterator[pa.RecordBatch]:
        """Return the rows of an expression in its order.

        Raises:
            DataError: an id beyond 2^63 - 1.
            StorageError: too little memory or disk.
        """


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


def open_engine(name: str, folder: Path, memory: int, threads: int | None) -> Engine:
    """Return an engine; memory (bytes) and threads limit DuckDB, and Spark has its own settings."""
    return _Spark(folder) if name == "spark" else _DuckDB(folder, memory, threads)


class _DuckDB(Engine):
    """DuckDB in this process; what does not fit in memory goes to a folder."""

    def __init__(self, folder: Path, memory: int, threads: int | None) -> None:
        import ibis

        self._folder = folder
        self._con = ibis.duckdb.connect()
        settings: dict[str, Any] = {"memory_limit": f"{memory}B", "temp_directory": str(folder / "spill")}
        settings |= {"preserve_insertion_order": False, "enable_progress_bar": False}
        for key, value in (settings | ({"threads": threads} if threads else {})).items():
            self._con.con.execute(f"SET {key} = {value!r}" if isinstance(value, str) else f"SET {key} = {value}")

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


class _Spark(Engine):
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
        import pyarrow.parquet as pq

        out = self._folder / "sorted"
        with self._named():
            self._session.sql(self._con.compile(expression)).write.mode("overwrite").parquet(_address(out))
        for part in sorted(out.glob("part-*.parquet")):
            with pq.ParquetFile(part) as file:
                yield from file.iter_batches(_BATCH, use_threads=False)
        shutil.rmtree(out)

    @contextlib.contextmanager
    def _named(self) -> Iterator[None]:
        """Turn Spark's errors into those of this package."""
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


def _address(path: Path) -> str:
    return f"file:{path.resolve()}"  # whatever Spark's default file system is


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0][:200]


def _stopped(folder: Path, error: Exception, remedy: str) -> StorageError:
    return StorageError(
        f"the engine stopped in {folder}: {_first_line(error)}; {remedy} and run the same command again: finished "
        "steps are kept"
    )


BAD_ROWS = "bad_rows.csv"
_MARKERS = {"events": EVENTS_FILE, "edges": GRAPH_FILE}  # written last
_LEAST = 512 << 20  # bytes of memory
_OWN = 256 << 20  # bytes of this process without its engine
_WORK_VERSION = 3
_CLASSES = 10_000  # most texts of a column of labels
_HOLE = 100  # times later than every earlier file: no file that follows them
_CALENDAR = (631_152_000, 4_102_444_800)  # 1990 and 2100, seconds since 1970
Fact = dict[str, Any]


@dataclass(frozen=True)
class Prepared:
    """A finished store.

    Args:
        path: the store.
        events, nodes: their numbers; for edges, the stored ones.
        bad: rows that were left out.
        bad_rows: the file with them, None if there are none.
        notes: sentences on how the table was read.
    """

    path: Path
    events: int
    nodes: int
    bad: int
    bad_rows: Path | None
    notes: tuple[str, ...] = ()


def prepare(
    source: str | Path,
    out: str | Path,
    *,
    kind: Literal["events", "edges"] = "events",
    engine: str = "duckdb",
    memory: int | str = "2GiB",
    threads: int | None = None,
    batch_rows: int | None = None,
    say: Callable[[str], None] | None = None,
    **read: Any,
) -> Prepared:
    """Make a store of a table; `read_events` or `read_graph` maps it into memory, and so does --data of every command.

    Arrays are those that `read_events` or `read_graph` gives for the same table; rows without ids, time or numbers of
    features, which it would refuse, are written to bad_rows.csv in the store.

    Args:
        source: a file or folder of CSV or Parquet; files follow each other in the order of their names.
        out: the store, a folder. The same call continues an unfinished store.
        kind: what a row is.
        engine: "duckdb" or "spark".
        memory: most bytes in use, at least 512MiB; Spark's own settings limit Spark.
        threads: of DuckDB; by default one a core.
        batch_rows: rows that are read at a time; by default by memory.
        say: takes lines of progress.
        read: options as `read_events` has them (`hopstate.data.prepare.source.OPTIONS`); for edges as `read_graph` has
            them (`EDGE_OPTIONS`). Tables of nodes are read in memory, features in a .npy file are mapped.

    Raises:
        ConfigError: less memory, an unknown engine or option.
        MissingExtraError: the engine is not installed.
        MissingFileError, FormatError, DataError: the source cannot be read; files that differ are named.
        StorageError: the store is of another source, or the disk is full; finished steps are kept.
        BusyError: another process prepares it.
    """
    budget = parse_bytes(memory)
    if budget < _LEAST:
        raise ConfigError(f"--memory {memory} is too little; prepare needs at least 512MiB")
    check_engine(engine)
    if kind not in _MARKERS:
        raise ConfigError(f"a row is one of {', '.join(_MARKERS)}; got {kind!r}")
    from hopstate.data.prepare.source import files_of, open_source  # needs pyarrow

    out = Path(out)
    nodes = NodeTables.read(read) if kind == "edges" else None
    _check_out(out, kind)
    paths = files_of(source)
    files, columns = open_source(paths, read, edges=kind == "edges")
    name = stem_of(paths[0] if len(paths) == 1 else Path(source))
    rows = batch_rows or min(1 << 19, max(1 << 14, budget >> 12))
    try:
        with _nothing_half(out), locked(out, "a store"):
            job = _Job(
                out, kind, files, columns, read, {"name": name, "source": str(source)}, say or (lambda text: None)
            )
            if not exists(job.marker):
                job.stage(rows)
                with open_engine(engine, job.work, budget - _OWN, threads) as opened:
                    job.finish(opened, nodes)
            shutil.rmtree(job.work, ignore_errors=True)
            return _prepared(out, kind)
    except OSError as error:
        if isinstance(error, StorageError) or error.errno not in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
            raise
        raise StorageError(
            f"could not write {out}: {error}; free some space there and run the same command again: finished steps "
            "are kept"
        ) from error


class _Job:
    """The steps from files to a store."""

    def __init__(
        self, out: Path, kind: str, files: Any, columns: Any, read: Mapping[str, Any], names: Fact, say: Any
    ) -> None:
        self.out, self.work, self.marker = out, out / WORK, out / _MARKERS[kind]
        self.edges, self.files, self.columns, self.names, self.say = kind == "edges", files, columns, names, say
        self.read = {key: value for key, value in read.items() if value is not None}
        used = [Path(self.read[name]) for name in ("features", "labels") if self.edges and self.read.get(name)]
        stats = [(str(path.resolve()), path.stat()) for path in (*(file.path for file in files), *used)]
        known = dataclasses.astuple(columns)[:5]
        self.plan: Fact = json.loads(json.dumps({
            "kind": kind, "work": _WORK_VERSION, "columns": known, "read": self.read,
            "files": [[name, stat.st_size, stat.st_mtime_ns] for name, stat in stats],
        }, default=str))  # fmt: skip
        plan = self.work / "plan.json"
        if exists(self.marker):
            made = read_json(self.marker).get("prepared")
            if not isinstance(made, dict) or made.get("plan") != self.plan:
                raise StorageError(f"{out} has {kind} of another source; choose another folder")
        elif plan.is_file():
            if read_json(plan) != self.plan:
                raise StorageError(
                    f"{out} is the unfinished store of another source or version, of files that have changed since, or "
                    "of other options; delete it, or choose another folder"
                )
            remove_stale(self.work)
        else:
            make_folder(self.work)
            write_text(plan, json.dumps(self.plan))

    def _path(self, number: int, ending: str) -> Path:
        return self.work / f"rows-{number:05d}.{ending}"

    # ---- steps ----
    def stage(self, rows: int) -> None:
        """Bring the files to the folder of work; begin again with a wider kind if a cell does not fit."""
        from hopstate.data.prepare.source import Wider, stage

        kinds = self.work / "kinds.json"
        if kinds.is_file():
            self.columns = dataclasses.replace(self.columns, kinds=tuple(map(tuple, json.loads(kinds.read_text()))))
        start = 0
        for number, file in enumerate(self.files):
            facts = self._path(number, "json")
            if not facts.is_file():
                try:
                    stage(file, self.columns, start, self._path(number, "parquet"), rows, self.say)
                except Wider as error:
                    self.columns = self.columns.wider(str(error))
                    for path in self.work.glob("rows-*"):
                        path.unlink()
                    write_text(kinds, json.dumps(self.columns.kinds))
                    self.stage(rows)
                    return
            start += read_json(facts)["rows"]

    def finish(self, engine: Engine, nodes: Any) -> None:
        """Write the arrays of the staged rows, then what makes the store valid."""
        facts = [read_json(self._path(number, "json")) for number in range(len(self.files))]
        bad = self._bad_rows(facts)
        some = [fact for fact in facts if fact["count"]]
        if not some:
            raise self._no_rows(facts)
        staged = engine.read([self._path(n, "parquet") for n, fact in enumerate(facts) if fact["count"]])
        whole = self._whole(some)
        text = not all(whole)
        rows = with_keys(staged, whole, text, engine.number)
        table = self._nodes(engine, rows, text)
        exact = all(fact["exact"] for fact in some)
        writer = Writer(self.out, len(self.columns.features), exact, set())
        count = sum(fact["count"] for fact in some)
        if self.edges:
            own = self._graph(engine, rows, table, writer, count, nodes)
        else:
            own = self._events(engine, rows, table, writer, some)
            self._check_sets(own["num_nodes"], text=text)
        notes = [*self.columns.notes, *own.pop("notes", ())]
        notes += [f"{bad:,} rows were left out; see {BAD_ROWS} in the store"] if bad else []
        meta = {"version": VERSION, **self.names, "published": False, **own, "notes": notes}
        meta |= {"arrays": sorted(writer.names), "prepared": {"plan": self.plan, "bad": bad}}
        write_text(self.marker, json.dumps(meta, indent=1))

    def _nodes(self, engine: Engine, rows: Any, text: bool) -> Path:
        import pyarrow as pa
        import pyarrow.parquet as pq

        path, kind = self.work / "nodes.parquet", pa.string() if text else pa.int64()
        schema = pa.schema([("id", kind), ("node", pa.int64())])

        def write(part: Path) -> None:
            count = 0
            with pq.ParquetWriter(part, schema, use_dictionary=False) as out:
                for batch in engine.batches(distinct_ids(rows)):
                    node = pa.array(np.arange(count, count + len(batch)))
                    out.write_batch(pa.record_batch([batch.column(0).cast(kind), node], schema=schema))
                    count += len(batch)

        if not path.is_file():
            self.say("numbering the ids")
            replace_file(path, write)
        return path

    def _events(self, engine: Engine, rows: Any, table: Path, writer: Any, facts: Sequence[Fact]) -> Fact:
        time, labels = self._time(facts), self._labels(engine, rows, facts)
        count, numbered = self._own_ids(table)
        if not numbered:
            writer.node_ids(table)
            rows = with_nodes(rows, engine.read([table]))
        if labels is None and self.columns.label:
            rows = rows.drop("label")
        self.say("sorting the events")
        writer.events(engine.batches(by_time(rows)), sum(fact["count"] for fact in facts), time, labels)
        names = None if labels is None or labels.names is None else list(labels.names)
        return {
            "num_nodes": count, "class_names": names, "time_unit": time.unit, "first_id": 0, "dates": time.zone,
            "two_sets": False, "tables": self._edge_tables(),
        }  # fmt: skip

    def _edge_tables(self) -> Fact:
        return {"edge_table": {"columns": list(self.columns.features), "texts": []}} if self.columns.features else {}

    def _graph(self, engine: Engine, rows: Any, table: Path, writer: Any, edges: int, nodes: Any) -> Fact:
        import pyarrow as pa
        import pyarrow.parquet as pq

        if nodes is None:
            count, numbered = self._own_ids(table)
            own: Fact = {"class_names": None}
            if not numbered:
                writer.node_ids(table)
        else:
            ids = pq.read_table(table, columns=["id"])["id"]
            met = np.array(ids.to_pylist(), TEXT) if pa.types.is_string(ids.type) else ids.to_numpy()
            places, names, count, labelled = nodes.place(met, self.names["source"])
            numbered, table = False, table.with_name("placed.parquet")
            pq.write_table(pa.table({"id": ids, "node": places}), table)
            for name, array in id_arrays(names).items():
                writer.save(name, array)
            own = nodes.save(writer, labelled, count)
        if not numbered:
            rows = with_nodes(rows, engine.read([table]))
        build = {"undirected": True, "duplicates": "drop", "self_loops": "keep"}
        build |= {key: self.read[key] for key in build.keys() & self.read.keys()}
        self.say("sorting the edges")
        loops, undirected = build["self_loops"] == "keep", bool(build["undirected"])
        batches = engine.batches(adjacency(rows, undirected=undirected, loops=loops))
        unique = build["duplicates"] == "drop"
        seen, kept = writer.graph(batches, edges * (2 if undirected else 1), count, unique=unique)
        notes = [*(() if nodes is None else nodes.notes)]
        notes += ["every edge is stored in both directions (--read.undirected false keeps one)"] if undirected else []
        notes += [f"{seen - kept:,} of {seen:,} stored edges were duplicates and left out"] if kept < seen else []
        own["tables"] = own.get("tables", {}) | self._edge_tables()
        return own | {"num_nodes": count, "notes": notes}

    def _own_ids(self, table: Path) -> tuple[int, bool]:
        """Return the number of nodes, and whether their ids are 0, 1, 2, ...

        Raises:
            DataError: a negative id.
        """
        import pyarrow.compute as pc
        import pyarrow.parquet as pq

        with pq.ParquetFile(table) as file:
            count = file.metadata.num_rows
            if str(file.schema_arrow.field("id").type) != "int64":
                return count, False
            last = pc.max(file.read_row_group(file.num_row_groups - 1, ["id"])["id"]).as_py()
            first = pc.min(file.read_row_group(0, ["id"])["id"]).as_py()
        if first < 0:
            raise DataError(f"{self.names['source']}: negative id {first}; ids are at least 0, or texts")
        return count, last == count - 1

    # ---- what the files hold together ----
    def _bad_rows(self, facts: Sequence[Fact]) -> int:
        import pandas as pd

        bad = sum(fact["bad"] for fact in facts)
        if bad:
            texts = (self._path(n, "bad").read_text("utf-8") for n, fact in enumerate(facts) if fact["bad"])
            rows = [json.loads(line) for text in texts for line in text.splitlines()]
            write_table(pd.DataFrame(rows, columns=["file", "line", "reason", "cells"]), self.out / BAD_ROWS)
        return bad

    def _no_rows(self, facts: Sequence[Fact]) -> DataError:
        what = "ids" if self.edges else "ids and a time"
        first = next((fact["first_bad"] for fact in facts if fact["first_bad"]), None)
        why = "" if first is None else "; the first, {0} line {1} ({3:.80}): {2}".format(*first)
        return DataError(f"{self.files[0].path}: no row has {what}{why}")

    def _whole(self, facts: Sequence[Fact]) -> tuple[bool, bool]:
        """Return whether the ids of each end are whole numbers.

        Raises:
            DataError: all ids but a few are whole numbers, and these are remarks or fractions; or a negative number.
        """
        found, path = [], facts[0]["path"]
        for side in (0, 1):
            total = {key: sum(fact["ids"][side][key] for fact in facts) for key in facts[0]["ids"][side]}
            rest = total["odd"] + total["fractions"] + total["other"]
            for key, what in (("odd", "missing values or remarks"), ("fractions", "fractions or exponents")):
                if total["whole"] and rest and rest == total[key]:
                    raise DataError(
                        f"{path}: {rest:,} ids are {what} among whole numbers; correct or remove those rows"
                    )
            found.append(not rest and not total["zeros"])
        for side, whole in enumerate(found):
            negative = next((fact["negative"][side] for fact in facts if fact["negative"][side]), "")
            if whole and negative and not (self.edges and not all(found)):  # edges then take them as texts
                raise DataError(f"{path}: negative id {negative}; ids are at least 0, or texts")
        return found[0], found[1]

    def _time(self, facts: Sequence[Fact]) -> Any:
        unit, kind, path = self.read.get("time_unit") or "", self.columns.kind("time"), facts[0]["path"]
        if kind != "date":
            if kind == "number" and max(max(abs(f["least"]), abs(f["most"])) for f in facts) >= EXACT:
                raise DataError(
                    f"{path}: times beyond 2^53 and fractions in column {self.columns.time!r}, where float64 does not "
                    "tell neighbours apart; write all times as whole numbers, or from a nearer start"
                )
            if not unit:
                _check_units(facts)
            return Time(np.dtype(np.int64 if kind == "integer" else np.float64), unit)
        exact = max((fact["unit"] for fact in facts), key=list(UNITS).index)
        unit = unit or exact
        if unit not in UNITS:
            raise ConfigError(f"{path} has dates, which are counted in {', '.join(UNITS)}, not in {unit!r}")
        if UNITS[unit] > UNITS[exact]:
            raise DataError(f"{path}: dates finer than a whole {unit}; take time_unit={exact} or round them")
        zones = {zone for fact in facts for zone in fact["zones"]}
        return Time(np.dtype(np.int64), unit, UNITS[unit], zones.pop() if len(zones) == 1 else "UTC")

    def _labels(self, engine: Engine, rows: Any, facts: Sequence[Fact]) -> Any:
        """Return labels as `hopstate.data.readers.event_labels.event_labels` has them; None if they are no classes."""
        column, path = self.columns.label, facts[0]["path"]
        if column is None:
            return None
        where, kind = f"{path}: column {column!r}", self.columns.kind("label")
        absent, minus = (sum(fact[key] for fact in facts) for key in ("unlabelled", "minus"))
        if minus:
            raise DataError(
                f"{where} has -1 in {minus:,} rows; leave those cells empty if that is 'no label', write classes from "
                "0 on if it is one, or read the table in memory with --read.unlabelled"
            )
        if kind == "integer" or (kind == "number" and absent < sum(fact["count"] for fact in facts)):
            if kind == "number" and absent:
                raise DataError(f"{where} has amounts, and none in {absent:,} rows; fill it in, or remove the rows")
            plain = np.dtype(facts[0]["label_type"] or np.int64)
            return Labels(np.dtype(np.float64) if kind == "number" and plain.kind != "f" else plain)
        if kind == "number":
            return Labels(np.dtype(np.int64))
        words = rows.filter(rows.label.notnull()).label.value_counts(name="count").limit(_CLASSES + 1)
        counts = {row["label"]: row["count"] for batch in engine.batches(words) for row in batch.to_pylist()}
        if len(counts) > _CLASSES:
            raise DataError(
                f"{where} has over {_CLASSES:,} different texts, which are no classes; --read.label_column ''"
            )
        if {word.lower() for word in counts} <= {"true", "false"}:
            return Labels(np.dtype(np.int64), ("false", "true"))
        total = sum(counts.values())
        if total >= 20 and len(counts) > 0.5 * total:
            return None
        classes = tuple(sorted(counts, key=lambda word: (-counts[word], word)))
        return Labels(np.dtype(np.int64), classes, classes)

    def _check_sets(self, num_nodes: int, *, text: bool) -> None:
        """Raise DataError if numbers may be nodes of two sets, which nothing tells apart."""
        if self.columns.sets == ONE or (text and self.columns.sets != TWO):
            return
        sent, size = np.zeros(num_nodes, bool), 1 << 20
        src, dst = (load_npy(self.out / f"{name}.npy", mmap=True) for name in ("src", "dst"))
        for start in range(0, len(src), size):
            sent[src[start : start + size]] = True
        if any(sent[dst[start : start + size]].any() for start in range(0, len(dst), size)):
            source, target = self.columns.source, self.columns.target
            raise shared_ids(f"{self.files[0].path}: columns {source!r}, {target!r}", "the same ids are in both")


def _check_units(facts: Sequence[Fact]) -> None:
    """Raise DataError if files count time in two units: apart by a factor of 100, and dates since 1970 in two units."""
    some = sorted((fact for fact in facts), key=lambda fact: fact["most"])
    for at in range(1, len(some)):
        low, high = some[:at], some[at:]
        ends = low[-1]["most"], min(fact["least"] for fact in high)
        units = [_calendar_unit(part) for part in (low, high)]
        if ends[0] > 0 and ends[1] >= _HOLE * ends[0] and all(units) and units[0] != units[1]:
            raise DataError(
                f"times of {high[0]['path']} look like {units[1]} since 1970 and those of {low[-1]['path']} like "
                f"{units[0]}; write all files in one unit, or give it if they are (--read.time_unit s)"
            )


def _calendar_unit(facts: Sequence[Fact]) -> str:
    """Return the unit in which all times are between 1990 and 2100, "" if there is none."""
    least, most = min(fact["least"] for fact in facts), max(fact["most"] for fact in facts)
    scales = {unit: UNITS["s"] // size for unit, size in UNITS.items()}
    return next((u for u, s in scales.items() if _CALENDAR[0] * s <= least and most <= _CALENDAR[1] * s), "")


# ---- the folder -------------------------------------------------------------------------------------------------
def _check_out(out: Path, kind: str) -> None:
    """Raise StorageError if a folder is neither a store of a kind, nor an unfinished one, nor empty."""
    if not out.exists() or exists(out / _MARKERS[kind]) or (out / WORK).is_dir():
        return
    if not out.is_dir():
        raise StorageError(f"{out} is a file; choose a folder for the store")
    for other, marker in _MARKERS.items():
        if exists(out / marker):
            raise StorageError(f"{out} is a store of {other}, not of {kind}; choose another folder")
    names = sorted(path.name for path in out.iterdir())
    parts = [name for name in names if name.endswith(".npy")]
    if parts:
        raise StorageError(
            f"{out} is a half-written store: it has {parts[0]}, but neither {_MARKERS[kind]}, which is written last, "
            f"nor the folder {WORK}, from which preparing continues; remove it and prepare again, or choose another one"
        )
    if names:
        raise StorageError(f"{out} exists and is no store; choose another folder")


@contextlib.contextmanager
def _nothing_half(out: Path) -> Iterator[None]:
    """Remove what was written if the source cannot become a store: other files or options begin anew."""
    before, whole = out.exists(), any(exists(out / marker) for marker in _MARKERS.values())
    try:
        yield
    except (DataError, FormatError, ConfigError):
        if not whole:
            shutil.rmtree(out / WORK, ignore_errors=True)
            for path in out.iterdir() if out.is_dir() else ():
                if path.suffix == ".npy" or path.name == BAD_ROWS:
                    path.unlink()
            if not before:
                with contextlib.suppress(OSError):  # what another process put there stays
                    out.rmdir()
        raise


def _prepared(out: Path, kind: str) -> Prepared:
    """Return what a finished store has; raise FormatError if it is damaged or of another version."""
    meta = read_json(out / _MARKERS[kind])
    if meta.get("version") != VERSION:
        raise FormatError(
            f"{out} is a store of format {meta.get('version')}; this hopstate writes {VERSION}: choose another folder"
        )
    try:
        arrays = {name: load_npy(out / f"{name}.npy", mmap=True) for name in meta["arrays"]}
        count = len(arrays["indices" if kind == "edges" else "t"])
    except (HopstateError, KeyError) as error:
        raise FormatError(
            f"{out} is no longer the store that was written: {error}; delete and prepare it again"
        ) from None
    bad = meta["prepared"]["bad"]
    return Prepared(out, count, meta["num_nodes"], bad, out / BAD_ROWS if bad else None, tuple(meta.get("notes", ())))
