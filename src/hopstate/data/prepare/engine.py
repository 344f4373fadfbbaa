"""What needs all events at once, as expressions of Ibis: the distinct ids in order, the rows that they get, the order.

DuckDB runs them in the process, within a limit of memory and with what does not fit in files beside its work.
"""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hopstate.errors import ConfigError, DataError, MissingExtraError, StorageError, nearest

if TYPE_CHECKING:
    import pyarrow as pa

ENGINES = ("duckdb",)
_BATCH = 1 << 17  # rows that an engine hands over at a time


class Engine:
    """An engine at work in a folder.

    Args:
        name: of `ENGINES`.
        folder: for what does not fit in memory.
        memory: bytes.
        threads: at most so many; None for one a core.

    Raises:
        ConfigError: no such engine.
        MissingExtraError: it is not installed.
    """

    def __init__(self, name: str, folder: Path, memory: int, threads: int | None) -> None:
        check_engine(name)
        import ibis

        self._spill = folder / "spill"
        self.con = ibis.duckdb.connect()
        settings = {"memory_limit": f"{memory}B", "temp_directory": str(self._spill), "preserve_insertion_order": False}
        settings |= {"enable_progress_bar": False} | ({"threads": threads} if threads else {})
        for key, value in settings.items():
            self.con.con.execute(f"SET {key} = {value!r}" if isinstance(value, str) else f"SET {key} = {value}")

    def __enter__(self) -> Engine:
        return self

    def __exit__(self, *error: object) -> None:
        self.con.disconnect()
        shutil.rmtree(self._spill, ignore_errors=True)

    def vocabulary(self, ids: Sequence[Path], whole: tuple[bool, bool], text: bool, path: Path) -> None:
        """Write the distinct ids in order, with their rows, as a Parquet file.

        Args:
            ids: files of ids; see `staging.Staged`.
            whole: whether those of the sources and of the targets are whole numbers.
            text: the ids are texts in the end.
            path: of the file.
        """
        import ibis

        known = self._keys(ids, whole, text).select("id").distinct()
        numbered = known.mutate(row=ibis.row_number().over(order_by="id"))
        with _named(path):
            self.con.to_parquet(numbered.order_by("row"), path)

    def rows(self, ids: Sequence[Path], whole: tuple[bool, bool], text: bool, vocabulary: Path) -> Iterator[pa.Array]:
        """Return the rows of the ids, in the order of piece, side and code."""
        keys, known = self._keys(ids, whole, text), self.con.read_parquet(vocabulary)
        found = keys.join(known, "id").order_by("piece", "side", "code").select("row")
        yield from (batch.column(0) for batch in self._batches(found, vocabulary))

    def ordered(self, events: Sequence[Path]) -> Iterator[pa.RecordBatch]:
        """Return events by time, those of one time in the order of the source."""
        table = self.con.read_parquet([str(path) for path in events])
        yield from self._batches(table.order_by("t", "position"), events[0])

    def entries(self, edges: Sequence[Path], undirected: bool, loops: bool) -> Iterator[pa.RecordBatch]:
        """Return edges by source, target and place in the source, each in both directions where it is undirected.

        Args:
            edges: files of src, dst, position and what edges carry.
            undirected: every edge but those from a node to itself stands for its reverse too.
            loops: keep edges from a node to itself.
        """
        table = self.con.read_parquet([str(path) for path in edges])
        if not loops:
            table = table.filter(table.src != table.dst)
        if undirected:
            back = table.filter(table.src != table.dst).mutate(src=table.dst, dst=table.src)
            table = table.union(back.select(*table.columns))
        yield from self._batches(table.order_by("src", "dst", "position"), edges[0])

    def _keys(self, ids: Sequence[Path], whole: tuple[bool, bool], text: bool) -> Any:
        """Return ids as they are told apart: numbers written in two ways are one."""
        import ibis

        table = self.con.read_parquet([str(path) for path in ids])
        if table.id.type().is_string() and any(whole):
            number = table.id.cast("int64")
            number = number.cast("string") if text else number
            own = [number if one else table.id for one in whole]
            key = number if all(whole) else ibis.cases((table.side == 0, own[0]), else_=own[1])
        else:
            key = table.id.cast("string") if text else table.id
        return table.select("piece", "side", "code", id=key)

    def _batches(self, expression: Any, path: Path) -> Iterator[pa.RecordBatch]:
        with _named(path):
            yield from self.con.con.sql(self.con.compile(expression)).to_arrow_reader(_BATCH)


def check_engine(name: str) -> None:
    """Check that an engine is known and installed.

    Raises:
        ConfigError, MissingExtraError: it is not.
    """
    if name not in ENGINES:
        raise ConfigError(f"unknown engine {name!r}{nearest(name, ENGINES)}; known: {', '.join(ENGINES)}")
    try:
        import duckdb  # noqa: F401
        import ibis  # noqa: F401
    except ImportError as error:
        raise MissingExtraError(f"prepare needs {error.name}: pip install 'hopstate[prepare]'") from None


@contextlib.contextmanager
def _named(path: Path) -> Iterator[None]:
    """Turn the engine's errors into ours."""
    import duckdb

    try:
        yield
    except duckdb.ConversionException as error:
        raise DataError(f"an id is beyond 2^63 - 1 ({_first(error)}); give ids as strings, e.g. n7") from None
    except (duckdb.OutOfMemoryException, duckdb.IOException) as error:
        full = "No space" in str(error) or "temp_directory" in str(error)
        mend = "free some space there" if full else "give more --memory"
        raise StorageError(
            f"could not go on in {path.parent}: {_first(error)}; {mend} and run the same command again: what is done "
            "is kept"
        ) from error


def _first(error: Exception) -> str:
    return str(error).splitlines()[0][:200]
