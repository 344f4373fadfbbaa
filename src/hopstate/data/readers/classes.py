"""What a column of labels means: classes, amounts, words, several in a cell."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from hopstate.data.amounts import as_amounts
from hopstate.data.readers.class_order import Place, numbered
from hopstate.data.readers.ids import EXACT, NO_LABEL
from hopstate.data.readers.local import check_numbers
from hopstate.data.readers.tables import is_numeric
from hopstate.errors import ConfigError, DataError, nearest

if TYPE_CHECKING:
    import pandas as pd

AS_BEFORE = "0.1.0"  # of unlabelled: -1 is no label, unless the only labels are -1 and 1
TASKS = ("auto", "classification", "regression")
CELLS = ("ask", "first", "whole", "all")
FEW = 10  # whole numbers of at most so many values are classes


@dataclass(frozen=True, kw_only=True)
class LabelOptions:
    """How labels are read.

    Args:
        id_column, label_column, split_column: columns; None takes the usual names.
        unlabelled: the value that stands for "no label", besides empty cells; "none" where there is none; None asks
            where there are labels -1. "0.1.0" takes -1 so unless the only labels are -1 and 1.
        task: "classification" takes every number as a class, "regression" as an amount; "auto" takes fractions as
            amounts, and asks where whole numbers look like amounts.
        cells: of text with several labels in a cell ("a;b"): "ask", take the "first", the "whole" cell as a class, or
            "all" as a 0/1 label each.
        order: the classes from first to last; None takes numbers by size and texts by alphabet.
        text_ids: ids are texts, as they are written.

    Raises:
        ConfigError: another task or another way with cells.
    """

    id_column: str | None = None
    label_column: str | None = None
    split_column: str | None = None
    unlabelled: str | None = None
    task: Literal["auto", "classification", "regression"] = "auto"
    cells: Literal["ask", "first", "whole", "all"] = "ask"
    order: tuple[str, ...] | None = None
    text_ids: bool = False

    def __post_init__(self) -> None:
        for name, value, known in (("task", self.task, TASKS), ("label_cells", self.cells, CELLS)):
            if value not in known:
                raise ConfigError(f"read.{name} is one of {', '.join(known)}; got {value!r}{nearest(value, known)}")
        if self.order is not None and len(set(self.order)) < len(self.order):
            raise ConfigError(f"read.order names a class twice: {', '.join(self.order)}")
        if self.order is not None and (self.task == "regression" or self.cells == "all"):
            raise ConfigError("read.order is of classes, one to a row; amounts and several labels have none")


def classes_of(
    values: Any, where: str, place: Place, options: LabelOptions
) -> tuple[np.ndarray, tuple[str, ...] | None, tuple[str, ...]]:
    """Return (int64 classes with -1 unknown, their names or None) or (amounts with NaN, None), and notes.

    Args:
        values: one for each row, numbers or text.
        where: file and column, for messages.
        place: row → how messages name it.
        options: see `LabelOptions`.

    Raises:
        DataError: values that could mean several things, or no label at all.
    """
    import pandas as pd

    values = pd.Series(values).reset_index(drop=True)
    if values.dtype == bool:
        values = values.astype(np.int64)
    missing = values.isna().to_numpy() | is_unlabelled(values, options.unlabelled)
    if not is_numeric(values):
        if options.unlabelled is None:
            check_words(values, where, place)
        if options.task == "auto" and options.order is None:
            words = values.where(values.notna(), "").astype(str).str.strip()
            check_numbers(words, where, place, ", or say --read.task classification: each text is a class")
        values = numbers_beside(values, missing)
    told = [f"{int(missing.sum()):,} of {len(missing):,} rows without a label"] if missing.any() else []
    if is_numeric(values):
        numbers = values.to_numpy(np.float64, na_value=np.nan)
        amounts, missing = _amounts(numbers, missing, where, place, options)
        if amounts and options.order is not None:
            raise ConfigError(f"read.order is of classes, but {where} holds amounts; leave it out")
        if amounts:
            return (
                as_amounts(np.where(missing, np.nan, numbers)),
                None,
                ("; ".join([f"labels: {where}, read as amounts (regression)", *told]),),
            )
        found = numbers[~missing].astype(np.int64)
    else:
        if options.task == "regression":
            bad = int(np.argmax(~missing))
            raise DataError(f"{where} holds {values[bad]!r} in {place(bad)}, which is no amount; convert it to numbers")
        found = _texts(values, missing, where, place, options.cells)
    if not len(found):
        raise DataError(f"{where} holds no label at all")
    codes, names, note = numbered(found, ~missing, where, place, options.order)
    return codes, names, ("; ".join([note, *told]),)


def check_words(values: pd.Series, where: str, place: Place) -> None:
    """Raise DataError where a label is a word for nothing, as R and pandas write it."""
    words = values.astype(str).str.strip().isin(NO_LABEL).to_numpy(bool) & values.notna().to_numpy(bool)
    if words.any():
        row = int(np.argmax(words))
        word = str(values[row]).strip()
        raise DataError(
            f"{where} holds {word!r} in {int(words.sum())} rows, the first {place(row)}; say whether that is 'no "
            f"label' (--read.unlabelled {word}) or a class of that name (--read.unlabelled none)"
        )


def numbers_beside(values: pd.Series, missing: np.ndarray) -> pd.Series:
    """Return texts as numbers where all are numbers but those that are missing."""
    import pandas as pd

    known = values[~missing].astype(str).str.strip()
    if not missing.any() or known.str.match(r"[+-]?0[0-9]").any():
        return values
    numbers = pd.to_numeric(known, errors="coerce")
    return values if numbers.isna().any() or not len(known) else numbers.reindex(values.index)


def is_unlabelled(values: pd.Series, said: str | None) -> np.ndarray:
    """Return where values equal the one that stands for "no label"."""
    if said in (None, "none", AS_BEFORE):
        return np.zeros(len(values), bool)
    if not is_numeric(values):
        return (values.astype(str).str.strip() == said).to_numpy(bool)
    try:
        return values.to_numpy(np.float64, na_value=np.nan) == float(str(said))
    except ValueError:
        raise ConfigError(f"read.unlabelled={said!r} is no number, but the labels are numbers") from None


def _amounts(
    numbers: np.ndarray, missing: np.ndarray, where: str, place: Place, options: LabelOptions
) -> tuple[bool, np.ndarray]:
    """Return whether numbers (n,) are amounts, not classes; and where no label is known."""
    known = ~missing
    infinite = np.flatnonzero(known & ~np.isfinite(numbers))
    if len(infinite):
        raise DataError(f"{where} holds {numbers[infinite[0]]} in {place(int(infinite[0]))}, which is no label")
    large = np.flatnonzero(known & (np.abs(numbers) >= EXACT))
    if len(large) and options.task != "regression":
        bad = int(large[0])
        raise DataError(
            f"{where} holds {numbers[bad]:.0f} in {place(bad)}, beyond 2^53, where neighbouring numbers become one; "
            "write classes as text, or say --read.task regression (amounts)"
        )
    broken = np.flatnonzero(known & (numbers != np.floor(numbers)))
    if len(broken) and options.task == "classification":
        bad = int(broken[0])
        raise DataError(f"{where} holds {numbers[bad]} in {place(bad)}, which is no class; classes are whole or text")
    if len(broken) or options.task == "regression":
        return True, missing
    present = np.unique(numbers[known])
    minus = known & (numbers == -1)
    if minus.any() and options.unlabelled == AS_BEFORE and not np.array_equal(present, [-1, 1]):
        return False, missing | minus
    check_minus(numbers, known, where, place, options.unlabelled)
    if options.task == "auto" and look_like_amounts(numbers[known]):
        raise DataError(
            f"{where} holds {len(present)} different whole numbers from {present[0]:g} to {present[-1]:g} in "
            f"{int(known.sum())} rows, which look like amounts rather than classes; say which: --read.task "
            f"classification (each number is a class of its own) or --read.task regression (amounts)"
        )
    return False, missing


def check_minus(numbers: np.ndarray, known: np.ndarray, where: str, place: Place, unlabelled: str | None) -> None:
    """Raise DataError where -1 is among whole numbers, not beside 1 alone, and nobody said whether it is a label."""
    minus = known & (numbers == -1)
    if minus.any() and unlabelled is None and not np.isin(numbers[known], (-1, 1)).all():
        raise DataError(
            f"{where} holds -1 in {int(minus.sum())} rows, the first {place(int(np.argmax(minus)))}; say whether that "
            f"is 'no label' (--read.unlabelled -1) or a label like the others (--read.unlabelled none)"
        )


def look_like_amounts(numbers: np.ndarray) -> bool:
    """Return whether whole numbers look like rounded amounts or counts rather than numbered classes.

    Up to 10 different ones never do. Beyond, these do: fewer than five rows a value; values that fill an interval
    other than 0..C-1 or 1..C; values whose neighbours are about as frequent as themselves.

    >>> look_like_amounts(np.arange(400) % 40), look_like_amounts(20 + np.arange(400) % 40)
    (False, True)
    """
    values, counts = np.unique(numbers, return_counts=True)
    if len(values) <= FEW:
        return False
    if len(numbers) < 5 * len(values):
        return True
    steps = np.diff(values)
    codes = np.rint((values - values[0]) / steps.min()).astype(np.int64)
    span = int(codes[-1]) + 1
    numbered = values[0] in (0, 1) and span == len(values) and steps.min() == 1
    if not numbered and len(values) >= 0.5 * span:
        return True
    if span > 10 * len(values):
        return False
    frequency = np.zeros(span)
    frequency[codes] = np.log1p(counts)
    a, b = frequency[1:] - frequency[1:].mean(), frequency[:-1] - frequency[:-1].mean()
    size = np.sqrt((a * a).sum() * (b * b).sum())
    return bool(size > 1e-9 and (a * b).sum() > 0.6 * size)


def _texts(values: pd.Series, missing: np.ndarray, where: str, place: Place, cells: str) -> np.ndarray:
    """Return the known labels as text, one in a cell."""
    text = values[~missing].astype(str).str.strip()
    if cells == "whole" or text.empty:
        return text.to_numpy(str)
    different = text.drop_duplicates()
    cut = separator_of(different)
    if cut is None:
        return text.to_numpy(str)
    if cells == "first":
        return text.str.split(cut).str[0].str.strip().to_numpy(str)
    many = text.str.contains(cut, regex=False)
    first = int(many.index[int(np.argmax(many.to_numpy()))])
    raise DataError(
        f"{where} holds several labels in one cell, {text[first]!r} in {place(first)} "
        f"({int(many.sum())} of {len(text)} rows), but a node has one class; give one, or say --read.label_cells all "
        f"(each label is a target of its own), first (the first of each cell) or whole (each combination is a class)"
    )


def separator_of(different: pd.Series) -> str | None:
    """Return what separates several labels in some of the different texts, or None."""
    for cut in (";", "|", ","):
        split = [[part.strip() for part in text.split(cut)] for text in different]
        many = [parts for parts in split if len(parts) > 1 and all(parts)]
        alone = {parts[0] for parts in split if len(parts) == 1}
        if many and (cut != "," or any(part in alone for parts in many for part in parts)):
            return cut
    whole = set(different)
    for cut in (" ", "/", "+", "&"):  # these stand in names too: what they part must be labels of other cells
        split = [[part.strip() for part in text.split(cut)] for text in different]
        if any(len(parts) > 1 and whole.issuperset(parts) for parts in split):
            return cut
    return None
