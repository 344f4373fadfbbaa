"""DuckDB in the process, within a limit of memory and with what does not fit in files beside its work."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hopstate.data.prepare.engine import BATCH, Engine, told
from hopstate.errors import DataError, StorageError

if TYPE_CHECKING:
    import pyarrow as pa


class DuckDBEngine(Engine):
    """DuckDB at work.

    Args:
        folder: for what does not fit in memory.
        memory: bytes.
        threads: at most so many; None for one a core.
    """

    def __init__(self, folder: Path, memory: int, threads: int | None) -> None:
        import ibis

        self._spill = folder / "spill"
        self.con = ibis.duckdb.connect()
        settings = {"memory_limit": f"{memory}B", "temp_directory": str(self._spill), "preserve_insertion_order": False}
        settings |= {"enable_progress_bar": False} | ({"threads": threads} if threads else {})
        for key, value in settings.items():
            self.con.con.execute(f"SET {key} = {value!r}" if isinstance(value, str) else f"SET {key} = {value}")

    def __exit__(self, *error: object) -> None:
        self.con.disconnect()
        shutil.rmtree(self._spill, ignore_errors=True)

    def _read(self, paths: Sequence[Path]) -> Any:
        return self.con.read_parquet([str(path) for path in paths])

    def _number(self, texts: Any) -> Any:
        return texts.cast("int64")

    def _batches(self, expression: Any, path: Path) -> Iterator[pa.RecordBatch]:
        with _named(path):
            yield from self.con.con.sql(self.con.compile(expression)).to_arrow_reader(BATCH)


@contextlib.contextmanager
def _named(path: Path) -> Iterator[None]:
    """Turn the engine's errors into ours."""
    import duckdb

    try:
        yield
    except duckdb.ConversionException as error:
        raise DataError(f"an id is beyond 2^63 - 1 ({told(error)}); give ids as strings, e.g. n7") from None
    except (duckdb.OutOfMemoryException, duckdb.IOException) as error:
        full = "No space" in str(error) or "temp_directory" in str(error)
        mend = "free some space there" if full else "give more --memory"
        raise StorageError(
            f"could not go on in {path.parent}: {told(error)}; {mend} and run the same command again: what is done "
            "is kept"
        ) from error
