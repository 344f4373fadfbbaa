"""Several targets of each node: a column of labels that a sign separates ("ML; NLP"), or several columns of numbers."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from hopstate.data.amounts import as_amounts
from hopstate.data.readers.classes import separator_of
from hopstate.data.readers.tables import Table, is_numeric
from hopstate.errors import DataError

Targets = tuple[np.ndarray, tuple[str, ...], tuple[str, ...]]  # (n, T) floats, T names, notes


def named_columns(table: Table, chosen: str | None) -> tuple[str, ...]:
    """Return the columns that "spam,bot" names; none where it names one column, or nothing.

    Raises:
        DataError: one of them is not there.
    """
    names = [str(name) for name in table.frame.columns]
    if chosen is None or chosen in names or "," not in chosen:
        return ()
    parts = tuple(part.strip() for part in chosen.split(","))
    for part in parts:
        table.column(part, (), None, "label_column")
    return parts


def targets_of_columns(table: Table, columns: Sequence[str], *, amounts: bool = False) -> Targets:
    """Return columns of numbers as targets, NaN where a cell is empty: 0/1 labels where nothing else occurs.

    Args:
        table, columns: where they stand.
        amounts: they are amounts even where they are all 0 and 1.

    Raises:
        DataError: a column twice, a text, or an infinity; its row is named.
    """
    if len(set(columns)) < len(columns):
        raise DataError(f"{table.path}: label_column names a column twice: {', '.join(columns)}")
    y = np.stack([_numbers(table, name) for name in columns], 1)
    endless = np.argwhere(np.isinf(y))
    if len(endless):
        row, at = map(int, endless[0])
        raise DataError(
            f"{table.path}: column {columns[at]!r} holds {y[row, at]} in {table.place(row)}; it is no label"
        )
    if np.isnan(y).all():
        raise DataError(f"{table.path}: columns {', '.join(columns)} hold no label at all")
    kind = "amounts" if amounts or not np.isin(y[~np.isnan(y)], (0, 1)).all() else "labels of 0 and 1"
    known = ", ".join(f"{name} {int((~np.isnan(column)).sum()):,}" for name, column in zip(columns, y.T))
    return as_amounts(y), tuple(columns), (f"labels: {len(columns)} columns of {kind}; known: {known}",)


def _numbers(table: Table, name: str) -> np.ndarray:
    """Return a column (n,) as float64, NaN where a cell is empty.

    Raises:
        DataError: a text.
    """
    import pandas as pd

    column = table.frame[name]
    if is_numeric(column):
        return column.to_numpy(np.float64, na_value=np.nan)
    found = pd.to_numeric(column.astype(str).str.strip().where(column.notna()), errors="coerce")
    bad = np.flatnonzero((found.isna() & column.notna()).to_numpy())
    if len(bad):
        row = int(bad[0])
        raise DataError(
            f"{table.path}: column {name!r} of labels holds {column.iloc[row]!r} in {table.place(row)}; several labels "
            "are columns of numbers: 0 and 1 of yes-or-no labels, empty where one is unknown"
        )
    return found.to_numpy(np.float64, na_value=np.nan)


def targets_of_cells(table: Table, column: str, unlabelled: str | None) -> Targets:
    """Return the labels that cells of a column list as 0/1 targets by name; a row whose cell is empty is unknown.

    Raises:
        DataError: no cell holds a label.
    """
    values = table.kept(column)
    text = values.where(values.notna(), "").astype(str).str.strip()
    if unlabelled not in (None, "none"):
        text = text.where(text != unlabelled, "")
    cut = separator_of(text[text != ""].drop_duplicates())
    cells = [[part.strip() for part in (cell.split(cut) if cut else [cell])] if cell else [] for cell in text]
    names = tuple(sorted({part for cell in cells for part in cell if part}))
    if not names:
        raise DataError(f"{table.path}: column {column!r} holds no label at all")
    place = {name: at for at, name in enumerate(names)}
    y = np.zeros((len(cells), len(names)), np.float32)
    rows = np.repeat(np.arange(len(cells)), [sum(map(bool, cell)) for cell in cells])
    y[rows, [place[part] for cell in cells for part in cell if part]] = 1
    unknown = (text == "").to_numpy()
    y[unknown] = np.nan
    shown = ", ".join(f"{name} {int(np.nansum(y[:, at])):,}" for at, name in enumerate(names[:5]))
    told = f"labels: column {column!r}, {len(names)} labels, several to a row ({shown}{', ...' * (len(names) > 5)})"
    return y, names, (told + (f"; {int(unknown.sum()):,} rows without any" if unknown.any() else ""),)


__all__ = ["named_columns", "targets_of_cells", "targets_of_columns"]
