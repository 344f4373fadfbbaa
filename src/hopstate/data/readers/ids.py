"""Ids of a table's column as the user wrote them: whole numbers or texts, none of which becomes another's.

Whole numbers are int64, whether written 5, +5 or 5.0, as tables with gaps have them. Where one of a column is written
with zeros in front all of it is text, and so it is where one is no number. Spaces around an id are not part of it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from hopstate.data.vocabulary import LONGEST, TEXT
from hopstate.errors import DataError

if TYPE_CHECKING:
    import pandas as pd

    from hopstate.data.readers.tables import Table

MISSING = ("", "NA", "N/A", "NaN", "nan", "NULL", "null", "None", "n/a", "-nan", "<NA>", "#N/A")
NO_ID = (r"\N", "NULL", "-", "--", "?", "<NA>", "#N/A")  # the others are names too: NA is Namibia
NO_LABEL = (*MISSING[1:], r"\N", "?")
EXACT = 2**53  # beyond it float64 does not tell whole numbers apart
_WHOLE = r"[+-]?[0-9]+(?:\.0*)?"


def ids_of(table: Table, column: str, *, text_ids: bool = False) -> np.ndarray:
    """Return a column of ids as int64 or as texts of variable length.

    Args:
        table, column: where they stand.
        text_ids: take them as they are written, whatever they look like; numbers of a table without text stay numbers.

    Raises:
        DataError: an id is missing, a fraction, or of digits that were lost on the way, or a line is none of the
            table's; its row is named.
    """
    values = table.worded(column)
    missing = np.flatnonzero(values.isna().to_numpy())
    if len(missing):
        raise _missing(table, column, int(missing[0]))
    if text_ids and (written := _written(table, column)) is not None:
        return _texts(table, column, written)
    array = values.to_numpy()
    kind = str(values.dtype)
    if array.dtype.kind in "iu" or kind.startswith(("Int", "UInt")):
        array = array.astype(np.uint64 if (array > np.iinfo(np.int64).max).any() else np.int64)
        if table.leading_zeros() and (text := _written(table, column)) is not None and _has_zeros(text):
            return _texts(table, column, text)
    elif array.dtype.kind == "f":
        text = _written(table, column)
        if text is not None and _has_zeros(text):
            return _texts(table, column, text)
        _check_digits(table, text)
    if array.dtype.kind in "iuf":
        return whole_numbers(array, f"{table.path}: id", table.place)
    text = _written(table, column) if array.dtype.kind == "b" else None  # True and true are two texts
    return _texts(table, column, as_text(values) if text is None else text)


def whole_numbers(array: np.ndarray, what: str, place: Callable[[int], str]) -> np.ndarray:
    """Return numbers that are ids as int64.

    Args:
        array: integers or floats.
        what: how messages call a number of it.
        place: from a row to how messages call it.

    Raises:
        DataError: a fraction, a number that float64 does not tell from its neighbours, or one beyond int64.
    """
    if array.dtype.kind == "f":
        broken = np.flatnonzero(~(np.isfinite(array) & (array == np.floor(array))))
        if len(broken):
            row = int(broken[0])
            raise DataError(
                f"{what} {array[row]} in {place(row)} is no integer and no string; --read.text_ids true takes ids "
                "as they are written (text_ids=True in Python)"
            )
        large = np.flatnonzero(np.abs(array) >= EXACT)
        if len(large):
            row = int(large[0])
            raise DataError(
                f"{what} {array[row]:.0f} in {place(row)} is read as a fraction, beyond 2^53, where neighbouring ids "
                "become one; write ids as integers without a decimal point, or as strings"
            )
    elif array.dtype.kind == "u" and array.size and int(array.max()) > np.iinfo(np.int64).max:
        row = int(np.argmax(array))
        raise DataError(
            f"{what} {array[row]} in {place(row)} is beyond 2^63 - 1; write ids as strings, e.g. n{array[row]}"
        )
    return array.astype(np.int64)


def _written(table: Table, column: str) -> pd.Series | None:
    text = table.text(column)
    return None if text is None else text.str.strip()


def _has_zeros(text: pd.Series) -> bool:
    return bool(text.str.match(r"[+-]?0[0-9]").any())


def _check_digits(table: Table, text: pd.Series | None) -> None:
    """Raise a DataError where an id is written with an exponent, as spreadsheets do with long ones."""
    cut = np.empty(0, np.int64) if text is None else np.flatnonzero(text.str.contains("e", case=False).to_numpy(bool))
    if text is not None and len(cut):
        row = int(cut[0])
        raise DataError(
            f"{table.path}: id {text.iloc[row]} in {table.place(row)} has an exponent, by which long ids lose digits "
            "and become one; write ids in full (a spreadsheet: format the column as text), or as strings"
        )


def _texts(table: Table, column: str, values: pd.Series) -> np.ndarray:
    text = values.str.strip()
    empty = np.flatnonzero((text == "").to_numpy(bool))
    if len(empty):
        raise _missing(table, column, int(empty[0]))
    broken = np.flatnonzero(text.str.contains(r"[\r\n]", regex=True).to_numpy(bool))
    if len(broken):
        row = int(broken[0])
        raise DataError(
            f"{table.path}: the id in column {column!r}, {table.place(row)}, goes over several lines, "
            f"{text.iloc[row][:60]!r}; a quotation mark is missing, or one too many"
        )
    tabs = np.flatnonzero(text.str.contains("\t", regex=False).to_numpy(bool))
    if len(tabs):
        row = int(tabs[0])
        raise DataError(
            f"{table.path}: the id in column {column!r}, {table.place(row)}, has a tab in it, {text.iloc[row][:60]!r}; "
            "separate all cells by one sign, in a .tsv by tabs"
        )
    for row in np.flatnonzero((text == column).to_numpy(bool))[:9].tolist():
        if all(str(cell).strip() == str(name) for name, cell in table.frame.iloc[row].items()):
            raise DataError(f"{table.path}: {table.place(row)} is the line of names once more; remove it")
    _check_odd(table, column, text)
    _check_sizes(table, column, text)
    return text.to_numpy(TEXT)


def as_text(values: pd.Series) -> pd.Series:
    import pandas as pd

    # str would do, but pandas changes the warning settings of the process to look up what it means
    return values if values.dtype == "str" else values.astype(pd.StringDtype(na_value=np.nan))


def _check_sizes(table: Table, column: str, text: pd.Series) -> None:
    """Raise DataError for an id that is too long."""
    import pyarrow as pa
    import pyarrow.compute as pc

    try:
        sizes = pc.binary_length(pa.array(text, pa.large_string())).to_numpy()
    except UnicodeError:
        raise DataError(f"{table.path}: an id in column {column!r} holds half of a character") from None
    if sizes.max(initial=0) > LONGEST:
        row = int(np.argmax(sizes))
        raise DataError(
            f"{table.path}: the id in column {column!r}, {table.place(row)}, {text.iloc[row][:40]!r}..., has "
            f"{sizes[row]:,} bytes; ids have at most {LONGEST:,}"
        )


def _check_odd(table: Table, column: str, text: pd.Series) -> None:
    """Raise a DataError for a word for nothing, or where all of a column are whole numbers but for such, or remarks."""
    nothing = np.flatnonzero(text.isin(NO_ID).to_numpy(bool))
    if len(nothing):
        raise no_id_but(f"{table.path}: ", text.iloc[int(nothing[0])], column, table.place(int(nothing[0])))
    odd = ~text.str.fullmatch(_WHOLE).to_numpy(bool)
    rows = np.flatnonzero(odd)
    if table.first_line is None or not len(rows) or len(rows) == len(odd):
        return
    rest = text[odd]
    if rest.isin(MISSING).all():
        raise no_id_but(f"{table.path}: ", rest.iloc[0], column, table.place(int(rows[0])))
    if rest.str.match("[#%]").all():
        row = int(rows[0])
        raise DataError(
            f"{table.path}: {rest.iloc[0][:60]!r} in column {column!r}, {table.place(row)}, is a remark among numbers; "
            "remarks stand before the table: remove it"
        )


def no_id_but(where: str, word: str, column: str, place: str) -> DataError:
    return DataError(
        f"{where}no id but '{word}' in column {column!r}, {place}; fill it in or remove the row (a node of that name: "
        "call it otherwise)"
    )


def _missing(table: Table, column: str, row: int) -> DataError:
    return DataError(f"{table.path}: no id in column {column!r}, {table.place(row)}; fill it in or remove it")
