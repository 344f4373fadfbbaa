"""Ids of a table column as the user wrote them: integers or texts.

Whole numbers are int64, whether written 5, +5 or 5.0, as tables with gaps have them. If one of a column is written with
leading zeros or is not a number, the whole column is text. Spaces around an id are not part of it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from hopstate.data.vocabulary import PRINTED, as_texts, consist_of, unusable_ids
from hopstate.errors import DataError

if TYPE_CHECKING:
    import pandas as pd

    from hopstate.data.readers.tables import Table

MISSING = ("", "NA", "N/A", "NaN", "nan", "NULL", "null", "None", "n/a", "-nan", "<NA>", "#N/A")
NO_ID = (r"\N", "NULL", "-", "--", "?", "<NA>", "#N/A")  # the others are names too: NA is Namibia
NO_LABEL = (*MISSING[1:], r"\N", "?")
EXACT = 2**53  # beyond it float64 does not tell whole numbers apart
INTEGER = r"[+-]?[0-9]+(?:\.0*)?"
LEADING_ZEROS = r"[+-]?0[0-9]"  # beginning of a number with leading zeros
NO_ID_REMEDY = "Fill it in or remove the row; call a node of that name otherwise."


def ids_of(table: Table, column: str) -> Any:
    """Return a column of ids as int64, or as a string array of pyarrow."""
    values = table.worded(column)
    table.check(values.isna(), column, "an id is missing", "Fill it in or remove the row.")
    if values.dtype == object and len(values) and isinstance(values.iloc[0], Decimal):
        values = _numbers(values)
    numeric = values.dtype.kind in "iuf"
    if values.dtype.kind in "mM":
        raise DataError(f"{table.path}: column {column!r} holds {values.dtype}, which are not ids; write texts")
    cells = table.written.get(column)
    if cells is None:
        if not numeric:
            return _texts(table, column, pa.array(as_text(values), pa.large_string()))
    elif table.text_ids or not numeric or pc.any(pc.match_substring_regex(cells, f"^{LEADING_ZEROS}")).as_py():
        return _texts(table, column, cells)
    elif values.dtype.kind == "f":
        remedy = "Write ids in full (a spreadsheet: format the column as text), or as strings."
        cut = pc.match_substring(cells, "e", ignore_case=True)
        table.check(cut, column, "an id with an exponent, by which long ids lose digits", remedy)
    kind = float if values.dtype.kind == "f" else np.uint64 if values.max() > np.iinfo(np.int64).max else np.int64
    numbers = values.to_numpy(kind, na_value=0)
    for wrong, what, remedy in unusable_numbers(numbers):
        table.check(wrong, column, what, remedy)
        numbers = np.where(wrong, 0, numbers)
    return numbers.astype(np.int64)


def _numbers(decimals: pd.Series) -> pd.Series:
    """Return decimals as integers if all are whole, such as 2.00, else as floats."""
    try:
        whole = decimals.astype(np.int64)
    except (OverflowError, ValueError):
        return decimals.astype(float)
    return whole if (whole == decimals).all() else decimals.astype(float)


def unusable_numbers(numbers: np.ndarray) -> Iterator[tuple[np.ndarray, str, str]]:
    """Yield which integers or floats cannot be ids, what is wrong with them, and what to do."""
    remedy = "Write ids as integers without a decimal point, or as strings such as n7."
    if numbers.dtype.kind == "f":
        as_written = "--read.text_ids true takes ids as they are written (text_ids=True in Python)."
        yield ~(np.isfinite(numbers) & (numbers == np.floor(numbers))), "an id that is not an integer", as_written
        yield np.abs(numbers) >= EXACT, "an id beyond 2^53 beside fractions or gaps, where neighbors become one", remedy
    else:
        yield numbers > np.iinfo(np.int64).max, "an id beyond 2^63 - 1", remedy


def to_integer_ids(array: np.ndarray, what: str, place: Callable[[int], str]) -> np.ndarray:
    """Return integers or floats that are ids as int64."""
    for wrong, why, remedy in unusable_numbers(array):
        if wrong.any():
            row = int(np.argmax(wrong))
            raise DataError(f"{what}: {why}: got {array[row]} in {place(row)}. {remedy}")
    return array.astype(np.int64)


def _texts(table: Table, column: str, texts: Any) -> Any:
    texts = texts.cast(pa.large_string())
    texts = texts.combine_chunks() if hasattr(texts, "chunks") else texts
    if not consist_of(texts, PRINTED):
        texts = pc.utf8_trim_whitespace(texts)
        quote = "Look for a quotation mark that is missing or too many."
        table.check(pc.match_substring_regex(texts, r"[\r\n]"), column, "an id over several lines", quote)
        separator = "Separate all cells by one sign, in a .tsv by tabs."
        table.check(pc.match_substring(texts, "\t"), column, "an id with a tab in it", separator)
    table.check(pc.equal(texts, ""), column, "an id is missing", "Fill it in or remove the row.")
    for wrong, what, remedy in unusable_ids(texts):
        table.check(wrong, column, what, remedy)
    if table.first_line is not None:
        _check_lines(table, column, texts)
    words = pc.is_in(texts, pa.array(NO_ID))
    replace(table, bad=None).check(words, column, "a word for nothing among ids", NO_ID_REMEDY)
    return texts


def _check_lines(table: Table, column: str, texts: Any) -> None:
    """Raise DataError for lines that are not rows: a repeated header, comments or missing-value markers."""
    for row in np.flatnonzero(pc.equal(texts, column))[:9].tolist():
        if all(str(cell).strip() == str(name) for name, cell in table.frame.iloc[row].items()):
            raise DataError(f"{table.path}: {table.place(row)} is the line of names once more; remove it")
    word, remark = pc.is_in(texts, pa.array(MISSING)), pc.match_substring_regex(texts, "^[#%]")
    odd = pc.or_(word, remark)
    if not pc.any(odd).as_py() or not pc.all(pc.or_(odd, pc.match_substring_regex(texts, f"^{INTEGER}$"))).as_py():
        return
    if not pc.all(odd).as_py():
        table.check(word, column, "a word for nothing among numbers", NO_ID_REMEDY)
        table.check(remark, column, "a remark among numbers", "Remarks stand before the table: remove it.")


def as_text(values: pd.Series) -> pd.Series:
    import pandas as pd

    # str would do, but pandas changes the warning settings of the process to look up what it means
    return values if values.dtype == "str" else values.astype(pd.StringDtype(na_value=np.nan))


def check_not_negative(table: Table, column: str, ids: Any) -> None:
    """Raise DataError for an id below 0, which could be meant as "no node"."""
    if isinstance(ids, np.ndarray) and ids.min(initial=0) < 0:
        table.check(ids < 0, column, "a negative id", "Ids are at least 0, or texts.")


def to_common_type(*columns: Any) -> list[Any]:
    """Return columns of ids, all as texts unless all are numbers."""
    if all(column is None or isinstance(column, np.ndarray) for column in columns):
        return list(columns)
    return [column if column is None or not isinstance(column, np.ndarray) else as_texts(column) for column in columns]
