"""Tables to files, atomically, by extension."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from hopstate.data.files import replace_file
from hopstate.errors import FormatError

if TYPE_CHECKING:
    import pandas as pd


def write_table(table: pd.DataFrame, path: Path) -> None:
    """Write a table as .csv, .csv.gz, .tsv or .parquet; an earlier file survives a failure.

    Raises:
        FormatError: another extension.
        StorageError: the file could not be written.
    """
    name = check_table_path(path)

    def write(part: Path) -> None:
        if name.endswith(".parquet"):
            table.to_parquet(part, index=False)
        else:
            packed: Any = "gzip" if name.endswith(".gz") else None  # the part's own name does not tell
            table.to_csv(part, index=False, sep="\t" if name.endswith(".tsv") else ",", compression=packed)

    replace_file(path, write)


def check_table_path(path: str | Path) -> str:
    """Return a file's name in lower case.

    Raises:
        FormatError: tables are not written with its extension.
    """
    name = Path(path).name.lower()
    if not name.endswith((".csv", ".csv.gz", ".tsv", ".parquet")):
        raise FormatError(f"cannot write a table as {Path(path).name!r}; use .csv, .csv.gz, .tsv or .parquet")
    return name
