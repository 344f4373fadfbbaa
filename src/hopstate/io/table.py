"""Tables to files, atomically, by extension."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hopstate.errors import FormatError
from hopstate.io.files import replace_file

if TYPE_CHECKING:
    import pandas as pd


NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")
RAW = "write texts as they are, also those that a spreadsheet would run as a formula"


def write_table(table: pd.DataFrame, path: Path, *, raw: bool = False) -> None:
    """Write a table as .csv, .csv.gz, .tsv, .parquet or .jsonl; an earlier file survives a failure.

    Args:
        table: the columns.
        path: the file.
        raw: as text, write cells as they are. Otherwise those that a spreadsheet would run as a formula, texts that
            begin with =, +, -, @, a tab or a line break and are no number, get an apostrophe in front.

    Raises:
        FormatError: another extension.
        StorageError: the file could not be written.
    """
    name = check_table_path(path)

    def write(part: Path) -> None:
        if name.endswith(".parquet"):
            table.to_parquet(part, index=False)
        elif name.endswith(".jsonl"):
            part.write_text(_lines(table), encoding="utf-8")
        else:
            packed: Any = "gzip" if name.endswith(".gz") else None  # the part's own name does not tell
            shown = table if raw else without_formulas(table)
            cells: Any = {"sep": "\t" if name.endswith(".tsv") else ",", "lineterminator": "\n"}  # on every system
            shown.to_csv(part, index=False, compression=packed, **cells)

    replace_file(path, write)


def _lines(table: pd.DataFrame) -> str:
    """Return a line of JSON a row; numbers keep all their digits, and NaN is null."""
    whole = table.astype(object).where(table.notna(), None)
    return "".join(json.dumps(row, ensure_ascii=False, default=str) + "\n" for row in whole.to_dict("records"))


def without_formulas(table: pd.DataFrame) -> pd.DataFrame:
    """Return a table in which no text, nor name of a column, is a formula to a spreadsheet."""
    texts = {name: column for name, column in table.items() if column.dtype.kind not in "biufMm"}
    changed = table.assign(**{str(name): column.map(_plain) for name, column in texts.items()}) if texts else table
    return changed.rename(columns=_plain)


def _plain(cell: Any) -> Any:
    if not isinstance(cell, str) or not cell.lstrip(" ").startswith(("=", "+", "-", "@", "\t", "\r", "\n")):
        return cell
    return cell if NUMBER.fullmatch(cell) else f"'{cell}"


def check_table_path(path: str | Path) -> str:
    """Return a file's name in lower case.

    Raises:
        FormatError: tables are not written with its extension.
    """
    name = Path(path).name.lower()
    if not name.endswith((".csv", ".csv.gz", ".tsv", ".parquet", ".jsonl")):
        raise FormatError(f"cannot write a table as {Path(path).name!r}; use .csv, .csv.gz, .tsv, .parquet or .jsonl")
    return name
