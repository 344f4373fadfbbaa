"""Spark on the session that runs in the process, or on one that Spark's own settings describe.

Executors read the pieces in the folder of work and write what they sorted beside them, as files that follow each other:
so they must see that folder by the same path. Nothing but the names of files goes through the driver.
"""

from __future__ import annotations

import contextlib
import logging
import re
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hopstate.data.prepare.engine import BATCH, Engine, told
from hopstate.errors import ConfigError, DataError, StorageError

if TYPE_CHECKING:
    import pyarrow as pa

_BEYOND = ("CAST_INVALID_INPUT", "CAST_OVERFLOW")  # what Spark calls a text that is no int64
_QUIET = {"spark.ui.enabled": "false", "spark.ui.showConsoleProgress": "false", "spark.log.level": "OFF"}


class SparkEngine(Engine):
    """Spark at work; a session that was there already goes on afterwards, with its settings.

    Args:
        folder: of work.

    Raises:
        ConfigError: Spark does not start.
    """

    def __init__(self, folder: Path) -> None:
        import ibis
        from py4j.protocol import Py4JError
        from pyspark import SparkContext
        from pyspark.errors import PySparkException
        from pyspark.sql import SparkSession

        self._sorted = folder / "sorted"
        own = SparkContext._active_spark_context is None
        builder = SparkSession.builder.appName("hopstate prepare")
        for key, value in _QUIET.items() if own else ():
            builder = builder.config(key, value)
        try:
            session = builder.getOrCreate()
            self._session = session.newSession()  # settings and views of our own
        except (PySparkException, Py4JError, OSError) as error:
            raise ConfigError(
                f"Spark does not start: {told(error)}; mend its settings (PYSPARK_SUBMIT_ARGS, spark-defaults.conf)"
            ) from error
        self._own = session if own else None
        self._session.conf.set("spark.sql.ansi.enabled", "true")  # else an id that is too large would become null
        self.con = ibis.pyspark.connect(self._session)

    def __exit__(self, *error: object) -> None:
        shutil.rmtree(self._sorted, ignore_errors=True)
        if self._own is not None:
            self._own.stop()

    def _read(self, paths: Sequence[Path]) -> Any:
        import ibis

        view = ibis.util.gen_name("prepare")
        with _named(paths[0]):  # where it reads, Spark takes [a] for a pattern
            names = (re.sub(r"([\\*?\[\]{}])", r"\\\1", _address(path)) for path in paths)
            self._session.read.parquet(*names).createOrReplaceTempView(view)
        return self.con.table(view)

    def _number(self, texts: Any) -> Any:
        return texts.re_replace("[.]0*$", "").cast("int64")  # strict, Spark takes no 5.0

    def _batches(self, expression: Any, path: Path) -> Iterator[pa.RecordBatch]:
        import pyarrow.parquet as pq

        with _named(path):
            found = self._session.sql(self.con.compile(expression))
            found.write.mode("overwrite").parquet(_address(self._sorted))
        for part in sorted(self._sorted.glob("part-*.parquet")):
            with pq.ParquetFile(part) as file:
                yield from file.iter_batches(BATCH, use_threads=False)
        shutil.rmtree(self._sorted)


def _address(path: Path) -> str:
    return f"file:{path.resolve()}"  # whatever file system Spark takes by default


@contextlib.contextmanager
def _named(path: Path) -> Iterator[None]:
    """Turn Spark's errors into ours."""
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    logger = logging.getLogger("SQLQueryContextLogger")  # it writes the whole of an error to stderr beside raising it
    before, logger.disabled = logger.disabled, True
    try:
        yield
    except (PySparkException, Py4JError, OSError) as error:
        text = str(error)
        if any(word in text for word in _BEYOND):
            raise DataError(f"an id is beyond 2^63 - 1 ({told(error)}); give ids as strings, e.g. n7") from None
        full = "No space" in text or "quota" in text.lower()
        mend = "free some space there and in spark.local.dir" if full else "see Spark's log, mend its settings"
        raise StorageError(
            f"Spark could not go on in {path.parent}: {told(error)}; {mend} and run the same command again: what is "
            "done is kept"
        ) from error
    finally:
        logger.disabled = before
