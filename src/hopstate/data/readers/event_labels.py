"""Labels of events in a table: a column of classes or amounts, several columns, or several labels in a cell."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from hopstate.data.readers.class_order import numbered
from hopstate.data.readers.classes import AS_BEFORE, check_minus, check_words, is_unlabelled, numbers_beside
from hopstate.data.readers.local import check_numbers
from hopstate.data.readers.several import targets_of_cells, targets_of_columns
from hopstate.data.readers.tables import Table, is_numeric
from hopstate.errors import ConfigError, DataError

# labels, names of classes or targets, notes
Found = tuple[np.ndarray | None, tuple[str, ...] | None, tuple[str, ...]]


def labels_of_events(
    table: Table,
    columns: Sequence[str | None],
    task: str,
    cells: str,
    order: Sequence[str] | None,
    unlabelled: str | None = None,
) -> Found:
    """Return labels of events from one column or several, names of classes or targets, and notes.

    Args:
        unlabelled: as in `hopstate.data.readers.classes.LabelOptions`.

    Raises:
        DataError: -1 or a word for nothing, which may be "no label".
        ConfigError: an order of what is no class.
    """
    first = columns[0]
    if first is None:
        return None, None, ()
    if order is not None and (len(columns) > 1 or cells == "all" or task == "regression"):
        raise ConfigError("read.order is of classes, one to a row; amounts and several labels have none")
    if len(columns) > 1:
        return targets_of_columns(table, [str(name) for name in columns], amounts=task == "regression")
    if cells == "all":
        return targets_of_cells(table, first, unlabelled)
    if task != "regression":
        table, known = _labelled(table, first, unlabelled)
        if order is None and known is not None:
            codes, names, note = numbered(*known, f"{table.path}: column {first!r}", table.place, None)
            return codes, names, (note,)
    return event_labels(table, first, task, order)


def _labelled(table: Table, column: str, unlabelled: str | None) -> tuple[Table, tuple[np.ndarray, np.ndarray] | None]:
    """Return the table without what is said to be no label, and (found, known) of whole numbers of which -1 is a class.

    Raises:
        DataError: -1 or a word for nothing, of which nobody said what it is.
    """
    where, values = f"{table.path}: column {column!r}", table.worded(column)
    if unlabelled is None and not is_numeric(values):
        check_words(values, where, table.place)
    if unlabelled != AS_BEFORE:
        none = is_unlabelled(values, unlabelled)
        values = numbers_beside(values.where(~none), none | values.isna().to_numpy(bool)) if none.any() else values
        table = replace(table, frame=table.frame.assign(**{column: values}))
    if unlabelled == AS_BEFORE or not is_numeric(values) or values.dtype.kind == "b":
        return table, None
    numbers = values.to_numpy(np.float64, na_value=np.nan)
    known = np.isfinite(numbers)
    if not (numbers[known] == -1).any() or (numbers[known] != np.floor(numbers[known])).any():
        return table, None
    check_minus(numbers, known, where, table.place, unlabelled)
    return table, (numbers[known].astype(np.int64), known)


def event_labels(table: Table, column: str, task: str = "auto", order: Sequence[str] | None = None) -> Found:
    """Return labels of events, the names of their classes where they are text, and notes.

    Text is numbered from the most frequent on, so that of two classes the rarer is 1; an empty cell is -1, unknown.

    Args:
        table, column: where they stand.
        task: "regression" takes numbers as amounts, float64, NaN where a cell is empty; other things are refused.
        order: the classes from first to last, which are then numbered so.

    Raises:
        DataError: a class that the order does not name, or amounts with gaps.
    """
    if order is not None:
        return _ordered(table, column, tuple(order))
    if task == "regression":
        y = table.numbers([column], "labels", "error", "auto")[:, 0]
        told = f"; {int(np.isnan(y).sum()):,} of {len(y):,} events without" if np.isnan(y).any() else ""
        return y, None, (f"labels: column {column!r}, read as amounts (regression){told}",)
    values = table.frame[column]
    if values.dtype == bool:
        return values.to_numpy().astype(np.int64), None, ()
    if is_numeric(values):
        empty = values.isna().to_numpy()
        if empty.any():  # a class that nobody knows; of amounts there is none to take for it
            found = np.full(len(empty), -1) if empty.all() else values.fillna(-1).to_numpy()
            broken = np.flatnonzero(~empty & (found != np.floor(found)))
            if len(broken):
                raise DataError(
                    f"{table.path}: column {column!r} holds amounts, {found[broken[0]]} in {table.place(broken[0])}, "
                    f"and none in {table.place(int(np.argmax(empty)))}; fill it in, or remove the row; "
                    "amounts with gaps are learned with --read.task regression"
                )
            return np.where(empty, -1, found), None, ()
        return _numbers(table, column), None, ()
    text = values.dropna().astype(str).str.strip()
    check_numbers(values.where(values.notna(), "").astype(str).str.strip(), f"{table.path}: column {column!r}",
                  table.place, ", or name its classes: --read.order")  # fmt: skip
    if set(text.str.lower()) <= {"true", "false"}:  # beside gaps they are read as words
        truth = values.astype(str).str.strip().str.lower().map({"false": 0, "true": 1})
        return truth.fillna(-1).to_numpy(np.int64), None, ()
    counts = text.value_counts()
    if len(text) >= 20 and len(counts) > 0.5 * len(text):
        told = f"column {column!r} holds {len(counts):,} different texts, which are hardly classes; it is not used"
        return None, None, (told,)
    order = sorted(counts.index, key=lambda name: (-counts[name], name))
    place = {name: number for number, name in enumerate(order)}
    codes = values.astype(str).str.strip().map(place).fillna(-1).to_numpy(np.int64)
    codes = np.where(values.isna().to_numpy(), -1, codes)
    shown = ", ".join(f"{place[name]} = {name} ({counts[name]:,} events)" for name in order[:5])
    absent = f", {int((codes < 0).sum()):,} without" if (codes < 0).any() else ""
    return codes, tuple(order), (f"labels: column {column!r}, {shown}{', ...' * (len(order) > 5)}{absent}",)


def _ordered(table: Table, column: str, order: tuple[str, ...]) -> Found:
    """Return classes in an order that the user says; numbers are called as they are written, 3.0 as 3."""
    values = table.frame[column]
    known = values.notna().to_numpy()
    cells = values[known]
    if is_numeric(values):
        cells = cells.map(lambda number: int(number) if float(number).is_integer() else number)
    text = cells.astype(str).str.strip().to_numpy(str)
    codes, names, note = numbered(text, known, f"{table.path}: column {column!r}", table.place, order)
    return codes, names, (note,)


def _numbers(table: Table, column: str) -> np.ndarray:
    table.column(column, (), None, "edge_columns")
    values = table.frame[column].to_numpy()
    if values.dtype.kind not in "iufb":
        raise DataError(f"{table.path}: column {column!r} holds {values.dtype}, not numbers")
    if values.dtype.kind == "f" and np.isnan(values).any():
        raise DataError(
            f"{table.path}: no number in column {column!r}, {table.place(int(np.argmax(np.isnan(values))))}"
        )
    return values


__all__ = ["event_labels", "labels_of_events"]
