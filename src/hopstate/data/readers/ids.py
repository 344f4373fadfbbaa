"""Ids of a table's column as the user wrote them: whole numbers or texts, none of which becomes another's.

Whole numbers are int64, whether written 5, +5 or 5.0, as tables with gaps have them. If one of a column is written with
leading zeros or is no number, all of the column is text. Spaces around an id are not part of it.
"""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import numpy as np

from hopstate.data.vocabulary import TEXT, ids_array
from hopstate.errors import DataError

if TYPE_CHECKING:
    import pandas as pd

    from hopstate.data.readers.tables import Table

MISSING = ("", "NA", "N/A", "NaN", "nan", "NULL", "null", "None", "n/a", "-nan", "<NA>", "#N/A")
NO_ID = (r"\N", "NULL", "-", "--", "?", "<NA>", "#N/A")  # the others are names too: NA is Namibia
NO_LABEL = (*MISSING[1:], r"\N", "?")
EXACT = 2**53  # beyond it float64 does not tell whole numbers apart
WHOLE = r"[+-]?[0-9]+(?:\.0*)?"
ZEROS = r"[+-]?0[0-9]"  # beginning of a number with leading zeros
NO_ID_REMEDY = "Fill it in or remove the row; call a node of that name otherwise."


def ids_of(table: Table, column: str, *, text_ids: bool = False) -> np.ndarray:
    """Return a column of ids as int64 or as texts of variable length."""
    values = table.worded(column)
    table.check(values.isna(), column, "an id is missing", "Fill it in or remove the row.")
    if values.dtype == object and len(values) and isinstance(values.iloc[0], Decimal):
        values = values.astype(float)
    numeric = values.dtype.kind in "iuf"
    text = None
    if text_ids or values.dtype.kind in "fb" or (numeric and table.leading_zeros()):
        text = table.text(column)
    if text is not None:
        text = text.str.strip()
        if text_ids or not numeric or text.str.match(ZEROS).any():
            return _texts(table, column, text)
        cut = text.str.contains("e", case=False)
        remedy = "Write ids in full (a spreadsheet: format the column as text), or as strings."
        table.check(cut, column, "an id with an exponent, by which long ids lose digits", remedy)
    if numeric:
        kind = float if values.dtype.kind == "f" else np.uint64 if values.max() > np.iinfo(np.int64).max else np.int64
        return whole_numbers(values.to_numpy(kind), f"{table.path}: id", table.place)
    return _texts(table, column, as_text(values).str.strip())


def whole_numbers(array: np.ndarray, what: str, place: Callable[[int], str]) -> np.ndarray:
    """Return integers or floats that are ids as int64."""
    if array.dtype.kind == "f":
        fraction = ~(np.isfinite(array) & (array == np.floor(array)))
        if fraction.any():
            row = int(np.argmax(fraction))
            raise DataError(
                f"{what} {array[row]} in {place(row)} is no integer and no string; --read.text_ids true takes ids "
                "as they are written (text_ids=True in Python)"
            )
        large = np.abs(array) >= EXACT
    else:
        large = array > np.iinfo(np.int64).max
    if large.any():
        row = int(np.argmax(large))
        limit = "2^53 beside fractions or gaps" if array.dtype.kind == "f" else "2^63 - 1"
        raise DataError(
            f"{what} {array[row]:.0f} in {place(row)} is beyond {limit}, where neighbouring ids become one; write ids "
            f"as integers without a decimal point, or as strings such as n{array[row]:.0f}"
        )
    return array.astype(np.int64)


def _texts(table: Table, column: str, text: pd.Series) -> np.ndarray:
    table.check(text == "", column, "an id is missing", "Fill it in or remove the row.")
    lines = text.str.contains(r"[\r\n]", regex=True)
    table.check(lines, column, "an id over several lines", "Look for a quotation mark that is missing or too many.")
    tabs = text.str.contains("\t", regex=False)
    table.check(tabs, column, "an id with a tab in it", "Separate all cells by one sign, in a .tsv by tabs.")
    for row in np.flatnonzero(text == column)[:9].tolist():
        if all(str(cell).strip() == str(name) for name, cell in table.frame.iloc[row].items()):
            raise DataError(f"{table.path}: {table.place(row)} is the line of names once more; remove it")
    table.check(text.isin(NO_ID), column, "a word for nothing among ids", NO_ID_REMEDY)
    odd = ~text.str.fullmatch(WHOLE)
    if table.first_line is not None and odd.any() and not odd.all():  # numbers, but for some cells of a text file
        if text[odd].isin(MISSING).all():
            table.check(odd, column, "a word for nothing among numbers", NO_ID_REMEDY)
        if text[odd].str.match("[#%]").all():
            table.check(odd, column, "a remark among numbers", "Remarks stand before the table: remove it.")
    try:
        ids_array(text.array.__arrow_array__() if hasattr(text.array, "__arrow_array__") else text.to_numpy())
    except DataError as error:
        raise DataError(f"{table.path}, column {column!r}: {error}") from None
    return text.to_numpy(TEXT)


def as_text(values: pd.Series) -> pd.Series:
    import pandas as pd

    # str would do, but pandas changes the warning settings of the process to look up what it means
    return values if values.dtype == "str" else values.astype(pd.StringDtype(na_value=np.nan))


def check_not_negative(table: Table, column: str, ids: np.ndarray) -> None:
    """Raise DataError for an id below 0, which could be meant as "no node"."""
    if ids.dtype.kind == "i" and ids.min(initial=0) < 0:
        table.check(ids < 0, column, "a negative id", "Ids are at least 0, or texts.")


def of_one_kind(*columns: Any) -> list[Any]:
    """Return columns of ids, all as texts unless all are numbers."""
    if all(column is None or column.dtype.kind == "i" for column in columns):
        return list(columns)
    return [None if column is None else column.astype(TEXT) for column in columns]
