"""A table of a user's: ids as they are written, columns of numbers, and where a row stands in the file."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from hopstate.data.features import MISSING
from hopstate.data.readers.ids import ids_of
from hopstate.errors import ConfigError, DataError, FormatError, nearest
from hopstate.io.opening import bounded

if TYPE_CHECKING:
    import pandas as pd

SEPARATORS = "cells are parted by a comma, a tab, a semicolon or spaces"
_LARGEST = float(np.finfo(np.float32).max)


@dataclass(frozen=True)
class Text:
    """How a table lies in a text file, to be read once more as it is written.

    Args:
        path: the file.
        names: of its columns.
        options: of pandas' reader.
        notes: sentences on what is not sure of it.
    """

    path: Path
    names: tuple[str, ...]
    options: dict[str, Any]
    notes: tuple[str, ...] = ()

    def frame(self, **options: Any) -> pd.DataFrame:
        """Return the table as pandas reads it."""
        import pandas as pd

        with warnings.catch_warnings(), bounded(self.path, text=True) as file:
            warnings.simplefilter("error", pd.errors.ParserWarning)  # a line with more fields than the header
            return pd.read_csv(file, header=None, names=list(self.names), index_col=False, **self.options, **options)

    def column(self, name: str) -> pd.Series:
        """Return a column as it is written."""
        return self.frame(usecols=[name], dtype=str, na_filter=False)[name]

    @cached_property
    def leading_zeros(self) -> bool:
        """Whether a number with zeros in front may stand anywhere."""
        with bounded(self.path) as file:
            last = b"\n\n"
            while block := file.read(1 << 22):
                text = np.frombuffer(last + block, np.uint8)
                at = np.flatnonzero(text[2:-1] == ord("0")) + 2
                at = at[(text[at + 1] >= ord("0")) & (text[at + 1] <= ord("9"))]
                signed = _SIGNS[text[at - 1]]
                if (_BEFORE[text[at - 1]] | (signed & _BEFORE[text[at - 2]])).any():
                    return True
                last = (last + block)[-3:]
        return False


_SIGNS, _BEFORE = (np.isin(np.arange(256), np.frombuffer(chars, np.uint8)) for chars in (b"+-", b'\r\n\t ,;"'))


@dataclass(frozen=True)
class Table:
    """A table and where it came from.

    Args:
        frame: the columns; ids are int64 or str.
        path: the file.
        first_line: line of the file, from 1, that row 0 stands in; None where the file has no lines.
        rows: the file's own rows of those in frame, where some were left out; None where none was.
        source: the text that it was read from, None where there is none.
        text_ids: ids are texts even where all of a column look like numbers.
        filled: columns as they are written but for cells that were filled in, by name.
        notes: sentences on how the file was read.
    """

    frame: pd.DataFrame
    path: Path
    first_line: int | None
    rows: np.ndarray | None = None
    source: Text | None = None
    text_ids: bool = False
    filled: Mapping[str, pd.Series] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    def origin(self, rows: np.ndarray) -> np.ndarray:
        """Return the file's own numbers of rows of the frame."""
        return rows if self.rows is None else self.rows[rows]

    def place(self, row: int) -> str:
        """Return "row 3 (line 5)" for messages."""
        row = int(self.origin(np.asarray(row)))
        return f"row {row}" if self.first_line is None else f"row {row} (line {row + self.first_line})"

    def column(self, given: str | None, known: Sequence[str], otherwise: int | None, option: str) -> str | None:
        """Return the name of a column: the one given, else one of the known names, else the one at a position.

        Raises:
            DataError: the given column does not exist, or the table has too few.
        """
        names = [str(name) for name in self.frame.columns]
        if given is not None:
            if given not in names:
                hint = nearest(given, names)
                raise DataError(f"{self.path} has no column {given!r} ({option}){hint}; it has: {', '.join(names)}")
            return given
        found = next((name for want in known for name in names if name.lower() == want), None)
        if found is not None or otherwise is None:
            return found
        if otherwise >= len(names):
            raise self.too_narrow(option)
        return names[otherwise]

    def too_narrow(self, option: str) -> FormatError:
        """Return the error of a table that has too few columns for that of an option."""
        names = [str(name) for name in self.frame.columns]
        hint = f"; {SEPARATORS}" if len(names) == 1 else ""
        return FormatError(f"{self.path} has only {len(names)} columns ({', '.join(names)}); {option} is missing{hint}")

    def ids(self, column: str) -> np.ndarray:
        """Return a column of ids as int64 or str; see `hopstate.data.readers.ids.ids_of`."""
        return ids_of(self, column, text_ids=self.text_ids)

    def text(self, column: str) -> pd.Series | None:
        """Return a column as it is written, row by row; None where the file is no text."""
        if column in self.filled:
            return self.filled[column]
        if self.source is None:
            return None
        found = self.source.column(column)
        return found if self.rows is None else found.iloc[self.rows].reset_index(drop=True)

    def worded(self, column: str) -> pd.Series:
        """Return a column in which words for nothing, such as NA, are texts; what is empty stays missing."""
        values = self.frame[column]
        if self.source is None or not values.isna().any() or (text := self.text(column)) is None:
            return values
        text = text.str.strip()
        words = values.isna() & (text != "")
        return text.where(text != "") if words.any() else values

    def kept(self, column: str) -> pd.Series:
        """Return a column, as it is written where a number of it has zeros in front."""
        values = self.worded(column)
        if values.dtype.kind not in "iuf" or not self.leading_zeros():
            return values
        text = self.text(column)
        zeros = text is not None and bool(text.str.match(r"\s*[+-]?0[0-9]").any())
        return text.str.strip().replace("", None) if text is not None and zeros else values

    def leading_zeros(self) -> bool:
        """Return whether anything in the file may be a number with zeros in front."""
        return self.source is not None and self.source.leading_zeros

    def numbers(self, columns: Sequence[str], what: str, nan: str, missing: str) -> np.ndarray:
        """Return columns of numbers as (rows, columns) float64.

        Args:
            columns: their names.
            what: how messages call them.
            nan: "zero" puts 0 for what is missing or infinite.
            missing: "error" refuses what is missing or infinite, "auto" what is infinite; others leave it as it is.

        Raises:
            DataError: text in a column, or a missing number; column and row are named.
            ConfigError: another nan or missing.
        """
        if nan not in ("error", "zero"):
            raise ConfigError(f"nan is 'error' or 'zero'; got {nan!r}")
        if missing not in MISSING:
            raise ConfigError(f"missing is one of {', '.join(MISSING)}; got {missing!r}")
        for name in columns:
            if not is_numeric(self.frame[name]):
                self._refuse_text(name, what)
        values = self.frame[list(columns)].to_numpy(np.float64, na_value=np.nan)
        bad = ~np.isfinite(values)
        if nan == "zero":
            return np.where(bad, 0, values)
        large = np.isfinite(values) & (np.abs(values) > _LARGEST)
        if large.any():
            row, at = map(int, np.argwhere(large)[0])
            raise DataError(
                f"{self.path}: {what} hold {values[row, at]:g} in {self.place(row)} of column {columns[at]!r}, beyond "
                f"{_LARGEST:.1e}, the largest number of 32 bits; scale the column"
            )
        refused = bad if missing == "error" else np.isinf(values) & (missing == "auto")
        if refused.any():
            named = f"{', '.join(columns[:3])}{', ...' * (len(columns) > 3)}"
            unusable = "NaN or infinities" if missing == "error" else "infinities"
            fill = "say how: --read.missing mean, median (of the training rows) or zero, with a column that marks them"
            either = f"{fill}, or --read.nan zero"
            hints = {"node features": either, "edge features": either, "event features": fill}
            raise DataError(
                f"{self.path}: {what} ({named}) hold {unusable} in {self._gaps(refused, columns)}; fill them in, "
                f"or {hints.get(what, '--read.nan zero')}"
            )
        return values

    def _refuse_text(self, name: str, what: str) -> None:
        import pandas as pd

        bad = pd.to_numeric(self.frame[name], errors="coerce").isna() & self.frame[name].notna()
        row = int(np.argmax(bad.to_numpy()))
        raise DataError(
            f"{self.path}: column {name!r} of {what} holds {self.frame[name].iloc[row]!r} in {self.place(row)}; "
            f"mend it, or say what the column holds: --read.columns '[{name}=category]' or '[{name}=drop]'"
        )

    def _gaps(self, bad: np.ndarray, columns: Sequence[str]) -> str:
        """Return "row 3 (line 5) of column 'age' (12 rows in all)" for the columns that bad (rows, columns) marks."""
        counts = bad.sum(0)
        where = np.flatnonzero(counts)
        parts = []
        for at in where[:5].tolist():
            rows = np.flatnonzero(bad[:, at])
            more = f" ({len(rows)} rows in all)" if len(rows) > 1 else ""
            parts.append(f"{', '.join(self.place(int(row)) for row in rows[:3])} of column {columns[at]!r}{more}")
        return "; ".join(parts) + (f"; and {len(where) - 5} more columns" if len(where) > 5 else "")


def is_numeric(values: pd.Series) -> bool:
    """Return whether a column holds numbers, or nothing."""
    import pandas as pd

    return pd.api.types.is_numeric_dtype(values.dtype) or bool(values.isna().all())
