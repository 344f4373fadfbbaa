"""Labels as users write them: classes, multiple 0/1 labels (multilabel) or regression targets.

Labels of nodes, edges, events and graphs are arrays of one of three kinds: (n,) int64 classes, -1 where unknown;
(n, T) floats of 0 and 1, NaN where unknown (multilabel); (n,) or (n, T) floats, NaN where unknown (regression).
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from hopstate.data.events import not_none
from hopstate.data.readers.local import check_numbers
from hopstate.data.readers.tables import (
    EXACT,
    IDS,
    NO_LABEL,
    Table,
    as_frame,
    is_array,
    is_frame,
    is_numeric,
    node_ids,
    plain_array,
    read_npy,
    read_table,
    rows_are_nodes,
)
from hopstate.data.validate import SPLITS, as_regression_targets
from hopstate.data.vocabulary import TEXT
from hopstate.errors import ConfigError, DataError, listed, nearest

if TYPE_CHECKING:
    import pandas as pd

TASKS = ("auto", "classification", "regression")
MULTILABEL = ("error", "first", "whole", "all")
MAX_CLASS_CODES = 10  # whole numbers of at most so many values are classes
LABEL_COLUMNS = ("label", "y", "class", "target")
SPLIT_COLUMNS = ("split", "mask", "fold")
SPLIT_NAMES = {"train": "train", "training": "train", "val": "val", "valid": "val", "validation": "val", "test": "test"}
_SIMILAR = re.compile(r"(label|class|target|y)(e?s)?([_ .-]\w+|\d+)?", re.IGNORECASE)

Place = Callable[[int], str]  # row → how messages name it
ParsedLabels = tuple[np.ndarray, tuple[str, ...] | None, tuple[str, ...]]  # labels, names of classes or targets, notes


@dataclass(frozen=True, kw_only=True)
class LabelOptions:
    """How labels are read.

    Args:
        id_column, label_column, split_column: columns; None takes the usual names.
        unlabeled_value: the value that means "no label", as empty cells do; "none" if there is no such value. None
            raises an error if there are labels -1.
        task: "classification" takes every number as a class, "regression" as an amount; "auto" takes fractions as
            amounts, and raises an error if whole numbers look like amounts.
        multilabel: of text with several labels in a cell ("a;b"): "error" raises an error, "first" takes the first,
            "whole" takes the cell as a class, "all" makes a 0/1 label of each.
        text_ids: ids are texts, as they are written.
    """

    id_column: str | None = None
    label_column: str | None = None
    split_column: str | None = None
    unlabeled_value: str | None = None
    task: Literal["auto", "classification", "regression"] = "auto"
    multilabel: Literal["error", "first", "whole", "all"] = "error"
    text_ids: bool = False

    def __post_init__(self) -> None:
        for name, value, known in (("task", self.task, TASKS), ("multilabel", self.multilabel, MULTILABEL)):
            if value not in known:
                raise ConfigError(f"read.{name} is one of {', '.join(known)}; got {value!r}{nearest(value, known)}")


@dataclass(frozen=True)
class LabelTable:
    """Labels and splits by id."""

    ids: np.ndarray | None  # (n,), None if rows are the nodes
    y: np.ndarray  # (n,) or (n, T)
    names: tuple[str, ...] | None  # of classes, None if they are 0..C-1; of T labels
    splits: np.ndarray | None = None  # (n,) train, val, test or ""
    columns: tuple[str, ...] = ()  # those that were read, without the ids
    notes: tuple[str, ...] = ()  # how the labels were read

    def fields(self, rows: np.ndarray, num_nodes: int) -> dict[str, Any]:
        """Return y, class_names and masks of a graph in which label i belongs to node rows[i]."""
        unknown = -1 if self.y.dtype.kind == "i" else np.nan
        y = np.full((num_nodes, *self.y.shape[1:]), unknown, self.y.dtype)
        y[rows] = self.y
        masks = {}
        for name in SPLITS if self.splits is not None else ():
            mask = np.zeros(num_nodes, bool)
            mask[rows[self.splits == name]] = True
            if mask.any():
                masks[name] = mask
        return {"y": y, "class_names": self.names, "masks": masks}


# ---- labels of nodes ----------------------------------------------------------------------------------------
def read_labels(source: Any, options: LabelOptions) -> LabelTable | None:
    """Return the labels of a table, or of an array or .npy file for nodes 0..N-1; None without a source."""
    if source is None:
        return None
    source = as_frame(source)
    path = str(source) if isinstance(source, (str, os.PathLike)) else "the table of labels"
    if is_array(source) or path.endswith(".npy"):
        values = plain_array(source, path) if is_array(source) else np.array(read_npy(Path(path)))
        if values.ndim == 2 and values.shape[1] == 1:
            values = values[:, 0]
        if values.ndim != 1:
            raise DataError(f"{path} holds labels of shape {values.shape}; a node has one: save one column of them")
        y, names, notes = parse_labels(values, path, lambda row: f"row {row}", options, typed=True)
        return LabelTable(None, y, names, notes=notes)
    known = [*IDS, *LABEL_COLUMNS, *not_none(options.id_column), *(options.label_column or "").split(",")]
    table = replace(read_table(source, known, what=path), text_ids=options.text_ids)
    key = table.column(options.id_column, IDS, 0, "id_column")
    split = table.column(options.split_column, SPLIT_COLUMNS, None, "split_column")
    assert key is not None
    label_columns = [str(name) for name in table.frame.columns if name not in (key, split)]
    if not label_columns:
        raise DataError(f"{path} has no column of labels, only the ids {key!r}; {rows_are_nodes(path)}")
    chosen = split_column_names(table, options.label_column) or (
        _label_column(table, options.label_column, label_columns),
    )
    ids, id_notes = node_ids(table, key, options.id_column)
    y, names, notes = _labels_of_nodes(table, chosen, options)
    splits = None if split is None else _splits(table, split)
    if splits is not None and options.unlabeled_value not in (None, "none"):
        splits, notes = _without_unlabeled(splits, y, notes)
    return LabelTable(ids, y, names, splits, (*chosen, *not_none(split)), (*notes, *id_notes))


def has_column(path: Any, name: str) -> bool:
    """Return whether a table, in a file or in memory, has a column of that name; arrays and None have none."""
    if is_frame(path):
        return name in map(str, getattr(path, "column_names", path.columns))
    if path is None or is_array(path) or str(path).endswith(".npy"):
        return False
    return name in map(str, read_table(Path(path), [*IDS, *LABEL_COLUMNS, name]).frame.columns)


def _labels_of_nodes(table: Table, chosen: Sequence[str], options: LabelOptions) -> ParsedLabels:
    if len(chosen) > 1:
        return targets_from_columns(table, chosen, regression=options.task == "regression")
    if options.multilabel == "all":
        return parse_multilabel(table, chosen[0], options.unlabeled_value)
    if options.label_column is None:
        _check_texts_recur(table, chosen[0])
    where, values = f"{table.path}: column {chosen[0]!r}", table.keep_leading_zeros(chosen[0])
    return parse_labels(values, where, table.place, options, typed=not table.written)


def _label_column(table: Table, chosen: str | None, candidates: Sequence[str]) -> str:
    """Return the column of labels: the one given, the only one, or the only one with a usual name."""
    if chosen is not None:
        column = table.column(chosen, (), None, "label_column")
        assert column is not None
        return column
    usual = [name for name in candidates if name.lower() in LABEL_COLUMNS]
    similar = [name for name in candidates if _SIMILAR.fullmatch(name)]
    if len(usual) == 1 and len(similar) == 1:
        return usual[0]
    if len(candidates) == 1:
        return candidates[0]
    several = similar if len(similar) > 1 else candidates
    raise DataError(
        f"{table.path} has {len(several)} columns that may hold the labels: {', '.join(several)}; say which one is to "
        f"be predicted: --read.label_column NAME, e.g. {several[0]} (label_column in Python)"
    )


def _check_texts_recur(table: Table, column: str) -> None:
    """Raise DataError if texts of a column chosen by default rarely recur."""
    values = table.frame[column].dropna()
    if not is_numeric(values) and len(values) >= 2 * MAX_CLASS_CODES and values.nunique() > 0.5 * len(values):
        raise DataError(
            f"{table.path}: column {column!r} holds {values.nunique()} different texts in {len(values)} rows, which "
            f"are hardly classes; name the column of labels, this one too if it is meant: --read.label_column NAME"
        )


def _splits(table: Table, column: str) -> np.ndarray:
    text = table.frame[column].fillna("").astype(str).str.strip().str.lower()
    splits = text.map(SPLIT_NAMES).fillna("").to_numpy(str)
    bad = np.flatnonzero((splits == "") & (text != "").to_numpy(bool))
    if len(bad):
        value = text.iloc[int(bad[0])]
        raise DataError(
            f"{table.path}: split {value!r} in {table.place(int(bad[0]))}{nearest(value, SPLIT_NAMES)}; "
            f"use train, val, test or leave it empty"
        )
    return splits


def _without_unlabeled(splits: np.ndarray, y: np.ndarray, notes: tuple[str, ...]) -> tuple[Any, tuple[str, ...]]:
    none = (y < 0) if y.dtype.kind == "i" else np.isnan(y.reshape(len(y), -1)).all(1)
    left = int((none & (splits != "")).sum())
    if left:
        notes = (*notes, f"split: {left:,} rows without a label are left out of train, val and test")
    return np.where(none, "", splits), notes


# ---- one column: classes or amounts -------------------------------------------------------------------------
def parse_labels(values: Any, where: str, place: Place, options: LabelOptions, *, typed: bool) -> ParsedLabels:
    """Return labels, names of classes, and notes.

    Labels are classes or regression targets. Names are None for targets, and for classes 0..C-1. Texts of a typed table
    are classes; texts of a text file may be numbers.
    """
    import pandas as pd

    values, missing = _parse_values(
        pd.Series(values).reset_index(drop=True), where, place, options.unlabeled_value, typed=typed
    )
    if not is_numeric(values) and options.task == "auto":
        words = values.where(values.notna(), "").astype(str).str.strip()
        check_numbers(words, where, place, ", or say --read.task classification: each text is a class")
    missing_text = missing_note(int(missing.sum()), len(missing))
    if is_numeric(values):
        numbers = values.to_numpy(np.float64, na_value=np.nan)
        if _are_regression_targets(numbers, ~missing, where, place, options):
            amounts = as_regression_targets(np.where(missing, np.nan, numbers))
            return amounts, None, (f"labels: {where}, read as regression targets{missing_text}",)
        classes = numbers[~missing].astype(np.int64)
    else:
        if options.task == "regression":
            bad = int(np.argmax(~missing))
            raise DataError(
                f"{where} holds {values[bad]!r} in {place(bad)}, which is not a number; convert the labels to numbers"
            )
        classes = _class_names(values, missing, where, place, options.multilabel)
    if not len(classes):
        raise DataError(f"{where} has no labels")
    codes, names, note = encode_classes(classes, ~missing, where)
    return codes, names, (note + missing_text,)


def missing_note(missing: int, rows: int) -> str:
    """Return the end of a note on labels that says how many are unknown."""
    return f"; {missing:,} of {rows:,} rows without a label" if missing else ""


def _parse_values(
    values: pd.Series, where: str, place: Place, unlabeled_value: str | None, *, typed: bool
) -> tuple[pd.Series, np.ndarray]:
    """Return values, converted to numbers if possible, and a mask (n,) of missing ones."""
    if values.dtype == bool:
        values = values.astype(np.int64)
    missing = values.isna().to_numpy(bool) | is_unlabeled(values, unlabeled_value)
    if is_numeric(values):
        return values, missing
    if unlabeled_value is None:
        check_words(values, where, place)
    missing |= (values.astype(str).str.strip() == "").to_numpy(bool)
    return values if typed else numbers_if_all(values, missing), missing


def encode_classes(
    labels: np.ndarray, labeled: np.ndarray, where: str
) -> tuple[np.ndarray, tuple[str, ...] | None, str]:
    """Return (N,) classes, -1 unknown, their names in sorted order (None if they are 0..C-1), and a note.

    labels (n,) are those of the labeled rows (N,).
    """
    classes, y = np.unique(labels, return_inverse=True)
    codes = np.full(len(labeled), -1, np.int64)
    codes[labeled] = y
    plain = classes.dtype.kind == "i" and np.array_equal(classes, np.arange(len(classes)))
    note = f"labels: {where}, {len(classes)} classes ({listed(classes)})"
    return codes, None if plain else tuple(map(str, classes)), note


def check_words(values: pd.Series, where: str, place: Place) -> None:
    words = values.astype(str).str.strip().isin(NO_LABEL).to_numpy(bool) & values.notna().to_numpy(bool)
    if words.any():
        row = int(np.argmax(words))
        raise missing_word_error(where, str(values[row]).strip(), f"{int(words.sum())} rows, the first {place(row)}")


def missing_word_error(where: str, word: str, rows: str) -> DataError:
    option = f"--read.unlabeled_value {shlex.quote(word)}"
    return DataError(
        f"{where} holds {word!r} in {rows}; say whether that is 'no label' ({option}) or a class of that name "
        "(--read.unlabeled_value none)"
    )


def numbers_if_all(values: pd.Series, missing: np.ndarray) -> pd.Series:
    import pandas as pd

    known = values[~missing].astype(str).str.strip()
    if not missing.any() or known.str.match(r"[+-]?0[0-9]").any():
        return values
    numbers = pd.to_numeric(known, errors="coerce")
    return values if numbers.isna().any() or not len(known) else numbers.reindex(values.index)


def is_unlabeled(values: pd.Series, unlabeled_value: str | None) -> np.ndarray:
    """Return which values equal the marker of a missing label."""
    if unlabeled_value in (None, "none"):
        return np.zeros(len(values), bool)
    if not is_numeric(values):
        return (values.astype(str).str.strip() == unlabeled_value).to_numpy(bool)
    try:
        return values.to_numpy(np.float64, na_value=np.nan) == float(str(unlabeled_value))
    except ValueError:
        raise ConfigError(
            f"read.unlabeled_value={unlabeled_value!r} is not a number, but the labels are numbers"
        ) from None


def _are_regression_targets(
    numbers: np.ndarray, labeled: np.ndarray, where: str, place: Place, options: LabelOptions
) -> bool:
    """Return whether numbers (n,) are regression targets, not classes."""
    _check_exact(numbers, labeled, where, place, regression=options.task == "regression")
    broken = np.flatnonzero(labeled & (numbers != np.floor(numbers)))
    if len(broken) and options.task == "classification":
        bad = int(broken[0])
        raise DataError(
            f"{where} holds {numbers[bad]} in {place(bad)}, which is not a class; classes are integers or texts"
        )
    if len(broken) or options.task == "regression":
        return True
    check_minus_one(numbers, labeled, where, place, options.unlabeled_value)
    if options.task == "auto" and looks_like_regression(numbers[labeled]):
        present = np.unique(numbers[labeled])
        raise DataError(
            f"{where} holds {len(present)} different whole numbers from {present[0]:g} to {present[-1]:g} in "
            f"{int(labeled.sum())} rows, which look like regression targets rather than classes; choose: --read.task "
            f"classification (each number is a class) or --read.task regression"
        )
    return False


def _check_exact(
    numbers: np.ndarray, labeled: np.ndarray, where: str, place: Place, *, regression: bool = False
) -> None:
    """Raise DataError for infinite labels, and for classes so large that floats merge them."""
    infinite = np.flatnonzero(labeled & ~np.isfinite(numbers))
    if len(infinite):
        raise DataError(f"{where} holds {numbers[infinite[0]]} in {place(int(infinite[0]))}, which is not a label")
    large = np.flatnonzero(labeled & (np.abs(numbers) >= EXACT))
    if len(large) and not regression:
        bad = int(large[0])
        raise DataError(
            f"{where} holds {numbers[bad]:.0f} in {place(bad)}, beyond 2^53, where neighbouring numbers become one; "
            "write classes as text, or use --read.task regression"
        )


def check_minus_one(
    numbers: np.ndarray, labeled: np.ndarray, where: str, place: Place, unlabeled_value: str | None
) -> None:
    """Raise DataError if -1 may be a class or a missing label and `unlabeled_value` is not set."""
    minus = labeled & (numbers == -1)
    if minus.any() and unlabeled_value is None and not np.isin(numbers[labeled], (-1, 1)).all():
        raise DataError(
            f"{where} holds -1 in {int(minus.sum())} rows, the first {place(int(np.argmax(minus)))}; say whether that "
            f"is 'no label' (--read.unlabeled_value -1) or a label like the others (--read.unlabeled_value none)"
        )


def looks_like_regression(numbers: np.ndarray) -> bool:
    """Return whether integers look like regression targets rather than classes.

    Up to 10 different ones never do. Beyond, these do: fewer than five rows a value; values that fill an interval
    other than 0..C-1 or 1..C; values whose neighbours are about as frequent as themselves.

    >>> looks_like_regression(np.arange(400) % 40), looks_like_regression(20 + np.arange(400) % 40)
    (False, True)
    """
    values, counts = np.unique(numbers, return_counts=True)
    if len(values) <= MAX_CLASS_CODES:
        return False
    if len(numbers) < 5 * len(values):
        return True
    steps = np.diff(values)
    codes = np.rint((values - values[0]) / steps.min()).astype(np.int64)
    span = int(codes[-1]) + 1
    are_codes = values[0] in (0, 1) and span == len(values) and steps.min() == 1
    if not are_codes and len(values) >= 0.5 * span:
        return True
    if span > 10 * len(values):
        return False
    frequency = np.zeros(span)
    frequency[codes] = np.log1p(counts)
    a, b = frequency[1:] - frequency[1:].mean(), frequency[:-1] - frequency[:-1].mean()
    size = np.sqrt((a * a).sum() * (b * b).sum())
    return bool(size > 1e-9 and (a * b).sum() > 0.6 * size)


def _class_names(values: pd.Series, missing: np.ndarray, where: str, place: Place, multilabel: str) -> np.ndarray:
    text = values[~missing].astype(str).str.strip()
    cut = None if multilabel == "whole" or text.empty else find_separator(text.drop_duplicates())
    if cut is None:
        return text.to_numpy(TEXT)
    if multilabel == "first":
        return text.str.split(cut).str[0].str.strip().to_numpy(TEXT)
    several = text.str.contains(cut, regex=False)
    first = int(several.index[int(np.argmax(several.to_numpy()))])
    raise DataError(
        f"{where} holds several labels in one cell, {text[first]!r} in {place(first)} "
        f"({int(several.sum())} of {len(text)} rows), but a node has one class; give one, or say --read.multilabel "
        f"all (each label is a target of its own), first (the first of each cell) or whole (each combination is a "
        f"class)"
    )


# ---- several labels -----------------------------------------------------------------------------------------
def split_column_names(table: Table, chosen: str | None, option: str = "label_column") -> tuple[str, ...]:
    """Return the columns that "spam,bot" names; none if it names one column, or nothing."""
    names = [str(name) for name in table.frame.columns]
    if chosen is None or chosen in names or "," not in chosen:
        return ()
    parts = tuple(part.strip() for part in chosen.split(","))
    for part in parts:
        table.column(part, (), None, option)
    return parts


def targets_from_columns(table: Table, columns: Sequence[str], *, regression: bool = False) -> ParsedLabels:
    """Return columns of numbers as (n, T) targets, NaN in empty cells: multilabel if they hold 0 and 1 alone."""
    if len(set(columns)) < len(columns):
        raise DataError(f"{table.path}: label_column names a column twice: {', '.join(columns)}")
    y = table.numbers(columns, "labels", "auto")
    if np.isnan(y).all():
        raise DataError(f"{table.path}: columns {', '.join(columns)} hold no label at all")
    kind = "regression targets" if regression or not np.isin(y[~np.isnan(y)], (0, 1)).all() else "labels of 0 and 1"
    known = ", ".join(f"{name} {int((~np.isnan(column)).sum()):,}" for name, column in zip(columns, y.T))
    return as_regression_targets(y), tuple(columns), (f"labels: {len(columns)} columns of {kind}; labeled: {known}",)


def parse_multilabel(table: Table, column: str, unlabeled_value: str | None) -> ParsedLabels:
    """Return the labels that cells of a column list as 0/1 targets by name; a row with an empty cell is unknown."""
    import pandas as pd
    from sklearn.preprocessing import MultiLabelBinarizer

    values = table.keep_leading_zeros(column)
    text = values.where(values.notna(), "").astype(str).str.strip()
    if unlabeled_value not in (None, "none"):
        text = text.where(text != unlabeled_value, "")
    cut = find_separator(text[text != ""].drop_duplicates())
    cells = [{part.strip() for part in (cell.split(cut) if cut else [cell])} - {""} for cell in text]
    binarizer = MultiLabelBinarizer()
    y = binarizer.fit_transform(cells).astype(np.float32)
    names = tuple(map(str, binarizer.classes_))
    if not names:
        raise DataError(f"{table.path}: column {column!r} has no labels")
    missing = (text == "").to_numpy()
    y[missing] = np.nan
    missing_text = missing_note(int(missing.sum()), len(missing))
    counts = pd.DataFrame(y, columns=names).sum().astype(int)
    examples = listed(f"{name} {counts[name]:,}" for name in names)
    return y, names, (f"labels: column {column!r}, {len(names)} labels, several to a row ({examples}){missing_text}",)


def find_separator(different: pd.Series) -> str | None:
    """Return the separator of multiple labels in distinct texts, or None."""
    for cut in (";", "|", ","):
        split = [[part.strip() for part in text.split(cut)] for text in different]
        several = [parts for parts in split if len(parts) > 1 and all(parts)]
        alone = {parts[0] for parts in split if len(parts) == 1}
        if several and (cut != "," or any(part in alone for parts in several for part in parts)):
            return cut
    whole = set(different)
    for cut in (" ", "/", "+", "&"):  # these occur in names too: what they part must be labels of other cells
        split = [[part.strip() for part in text.split(cut)] for text in different]
        if any(len(parts) > 1 and whole.issuperset(parts) for parts in split):
            return cut
    return None


# ---- labels of events ---------------------------------------------------------------------------------------
def parse_event_labels(
    table: Table, columns: Sequence[str | None], task: str, multilabel: str, unlabeled_value: str | None = None
) -> tuple[np.ndarray | None, tuple[str, ...] | None, tuple[str, ...]]:
    """Return labels of events from one column or several, names of classes or targets, and notes.

    Texts are numbered from the most frequent on, so that of two classes the rarer is 1. Numbers are kept as they are.
    """
    first = columns[0]
    if first is None:
        return None, None, ()
    if len(columns) > 1:
        return targets_from_columns(table, [str(name) for name in columns], regression=task == "regression")
    if multilabel == "all":
        return parse_multilabel(table, first, unlabeled_value)
    if task == "regression":
        y = table.numbers([first], "labels", "auto")[:, 0]
        missing_text = missing_note(int(np.isnan(y).sum()), len(y))
        return y, None, (f"labels: column {first!r}, read as regression targets{missing_text}",)
    where = f"{table.path}: column {first!r}"
    values, missing = _parse_values(
        table.keep_leading_zeros(first), where, table.place, unlabeled_value, typed=not table.written
    )
    values = values.where(~missing) if missing.any() else values
    missing_text = missing_note(int(missing.sum()), len(missing))
    if is_numeric(values):
        return _event_numbers(values, where, table.place, unlabeled_value, missing_text)
    return _event_classes(values, where, table.place, missing_text)


def _event_numbers(
    values: pd.Series, where: str, place: Place, unlabeled_value: str | None, missing_text: str
) -> ParsedLabels:
    """Return numbers as they are, -1 in empty cells; numbered classes if -1 is one of them."""
    numbers = values.to_numpy(np.float64, na_value=np.nan)
    known = ~values.isna().to_numpy(bool)
    if values.dtype.kind != "i":
        _check_exact(numbers, known, where, place)
    fractional = np.flatnonzero(known & (numbers != np.floor(numbers)))
    if (numbers[known] == -1).any() and not len(fractional):
        check_minus_one(numbers, known, where, place, unlabeled_value)
        codes, names, note = encode_classes(values[known].to_numpy(np.int64), known, where)
        return codes, names, (note + missing_text,)
    if known.all():
        return values.to_numpy(), None, ()
    if len(fractional):  # an unknown class is -1; an amount has no such value
        raise DataError(
            f"{where} holds amounts, {numbers[fractional[0]]} in {place(int(fractional[0]))}, and none in "
            f"{place(int(np.argmin(known)))}; fill it in, or remove the row; amounts with gaps are learned with "
            "--read.task regression"
        )
    return values.fillna(-1).to_numpy(np.int64), None, (f"labels: {where}{missing_text}",)


def _event_classes(
    values: pd.Series, where: str, place: Place, missing_text: str
) -> tuple[np.ndarray | None, tuple[str, ...] | None, tuple[str, ...]]:
    """Return texts as classes by their frequency; None if they hardly recur."""
    text = values.astype(str).str.strip().where(values.notna(), "")
    check_numbers(text, where, place, ", or write its classes as other texts")
    known = text[text != ""]
    if set(known.str.lower()) <= {"true", "false"}:  # a column of truth values with gaps is read as texts
        truth = text.str.lower().map({"false": 0, "true": 1})
        return truth.fillna(-1).to_numpy(np.int64), None, (f"labels: {where}{missing_text}",)
    counts = known.value_counts()
    if len(known) >= 20 and len(counts) > 0.5 * len(known):
        return None, None, (f"{where} holds {len(counts):,} different texts, which are hardly classes; it is not used",)
    names = sorted(counts.index, key=lambda name: (-counts[name], name))
    codes = text.map({name: number for number, name in enumerate(names)}).fillna(-1).to_numpy(np.int64)
    examples = ", ".join(f"{code} = {name} ({counts[name]:,} events)" for code, name in enumerate(names[:5]))
    return codes, tuple(names), (f"labels: {where}, {examples}{', ...' * (len(names) > 5)}{missing_text}",)
