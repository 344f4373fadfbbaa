"""Tables to files, atomically, by extension."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import TYPE_CHECKING

from hopstate.errors import FormatError, StorageError

if TYPE_CHECKING:
    import pandas as pd


def write_table(table: pd.DataFrame, path: Path) -> None:
    """Write a table as .csv, .csv.gz, .tsv or .parquet; an earlier file survives a failure.

    Raises:
        FormatError: another extension.
        StorageError: the file could not be written.
    """
    name = path.name.lower()
    if not name.endswith((".csv", ".csv.gz", ".tsv", ".parquet")):
        raise FormatError(f"cannot write a table as {path.name!r}; use .csv, .csv.gz, .tsv or .parquet")
    part = path.with_name(f".part-{path.name}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        if name.endswith(".parquet"):
            table.to_parquet(part, index=False)
        else:
            table.to_csv(part, index=False, sep="\t" if name.endswith(".tsv") else ",")
        part.replace(path)
    except OSError as error:
        with contextlib.suppress(OSError):
            part.unlink()
        raise StorageError(f"could not write {path}: {error}") from error
