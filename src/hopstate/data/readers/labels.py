"""What is to be predicted, as a user's tables hold it: which column, which kind, and what is never guessed of it."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from hopstate.data.readers.classes import AS_BEFORE, FEW, LabelOptions, classes_of
from hopstate.data.readers.several import named_columns, targets_of_cells, targets_of_columns
from hopstate.data.readers.tables import (
    IDS,
    Table,
    given,
    is_array,
    is_frame,
    is_numeric,
    node_ids,
    plain_array,
    read_npy,
    read_table,
    rows_are_nodes,
)
from hopstate.data.validate import SPLITS
from hopstate.errors import ConfigError, DataError, nearest

if TYPE_CHECKING:
    pass

LABELS = ("label", "y", "class", "target")
ALIKE = re.compile(r"(label|class|target|y)(e?s)?([_ .-]\w+|\d+)?", re.IGNORECASE)
SPLIT_NAMES = {"train": "train", "training": "train", "val": "val", "valid": "val", "validation": "val", "test": "test"}


@dataclass(frozen=True)
class LabelTable:
    """Labels and splits by id.

    Args:
        ids: (n,) ids, or None where rows are the nodes.
        y: (n,) int64 classes with -1 unknown, or (n,) or (n, T) float32 amounts or 0/1 labels with NaN unknown.
        names: names of the classes, or None where they are 0..C-1; of T labels.
        splits: (n,) train, val, test or "", or None.
        columns: those that were read beside the ids.
        notes: what was taken for what.
    """

    ids: np.ndarray | None
    y: np.ndarray
    names: tuple[str, ...] | None
    splits: np.ndarray | None = None
    columns: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

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


def read_labels(source: Any, options: LabelOptions) -> LabelTable | None:
    """Return the labels of a table, or of an array or .npy file for nodes 0..N-1; None without a source.

    Raises:
        DataError: several columns could be meant, or values could mean several things; the message names the options
            that say which.
    """
    if source is None:
        return None
    path = str(source) if isinstance(source, (str, os.PathLike)) else "the table of labels"
    if is_array(source) or path.endswith(".npy"):
        values = plain_array(source, path) if is_array(source) else np.array(read_npy(Path(path)))
        if values.ndim == 2 and values.shape[1] == 1:
            values = values[:, 0]
        if values.ndim != 1:
            raise DataError(f"{path} holds labels of shape {values.shape}; a node has one: save one column of them")
        y, names, notes = classes_of(values, str(path), lambda row: f"row {row}", options)
        return LabelTable(None, y, names, notes=notes)
    known = [*IDS, *LABELS, *given(options.id_column), *(options.label_column or "").split(",")]
    table = read_table(source, known, what=path)
    table = replace(table, text_ids=options.text_ids)
    key = table.column(options.id_column, IDS, 0, "id_column")
    split = table.column(options.split_column, ("split", "mask", "fold"), None, "split_column")
    assert key is not None
    rest = [str(name) for name in table.frame.columns if name not in (key, split)]
    if not rest:
        raise DataError(f"{path} has no column of labels beside {key!r}, which holds ids; {rows_are_nodes(path)}")
    chosen = named_columns(table, options.label_column) or (_column(table, options.label_column, rest),)
    ids, told = node_ids(table, key, options.id_column)
    y, names, notes = _targets(table, chosen, options)
    splits = None if split is None else _splits(table, split)
    if splits is not None and options.unlabelled not in (None, "none", AS_BEFORE):
        splits, notes = _of_labelled(splits, y, notes)
    return LabelTable(ids, y, names, splits, (*chosen, *given(split)), (*notes, *told))


def _targets(
    table: Table, chosen: Sequence[str], options: LabelOptions
) -> tuple[np.ndarray, tuple[str, ...] | None, tuple[str, ...]]:
    """Return the targets that columns hold, the names of classes or of several targets, and notes."""
    if len(chosen) > 1 and options.order is not None:
        raise ConfigError(f"read.order is of one column of classes; {', '.join(chosen)} are several targets")
    if len(chosen) > 1:
        return targets_of_columns(table, chosen, amounts=options.task == "regression")
    if options.cells == "all":
        return targets_of_cells(table, chosen[0], options.unlabelled)
    if options.label_column is None:
        _check_no_names(table, chosen[0])
    return classes_of(table.kept(chosen[0]), f"{table.path}: column {chosen[0]!r}", table.place, options)


def _of_labelled(splits: np.ndarray, y: np.ndarray, notes: tuple[str, ...]) -> tuple[np.ndarray, tuple[str, ...]]:
    """Return the split without rows that are said to have no label, and notes that tell how many those are."""
    none = (y < 0) if y.dtype.kind == "i" else np.isnan(y.reshape(len(y), -1)).all(1)
    left = int((none & (splits != "")).sum())
    if left:
        notes = (*notes, f"split: {left:,} rows without a label are left out of train, val and test")
    return np.where(none, "", splits), notes


def has_column(path: Any, name: str) -> bool:
    """Return whether a table, in a file or in memory, has a column of that name; arrays and no path have none."""
    if is_frame(path):
        return name in map(str, getattr(path, "column_names", path.columns))
    if path is None or is_array(path) or str(path).endswith(".npy"):
        return False
    return name in map(str, read_table(Path(path), [*IDS, *LABELS, name]).frame.columns)


def _column(table: Table, chosen: str | None, rest: Sequence[str]) -> str:
    """Return the column of labels: the one given, the only one, or the only one that is called so."""
    if chosen is not None:
        found = table.column(chosen, (), None, "label_column")
        assert found is not None
        return found
    called = [name for name in rest if name.lower() in LABELS]
    alike = [name for name in rest if ALIKE.fullmatch(name)]
    if len(called) == 1 and len(alike) == 1:
        return called[0]
    if len(rest) == 1:
        return rest[0]
    several = alike if len(alike) > 1 else rest
    raise DataError(
        f"{table.path} has {len(several)} columns that may hold the labels: {', '.join(several)}; say which one is to "
        f"be predicted: --read.label_column NAME, e.g. {several[0]} (label_column in Python)"
    )


def _check_no_names(table: Table, label: str) -> None:
    """Raise DataError where the texts of a column that nobody named hardly ever recur."""
    values = table.frame[label].dropna()
    if is_numeric(values) or len(values) < 2 * FEW:
        return
    different = values.nunique()
    if different > 0.5 * len(values):
        raise DataError(
            f"{table.path}: column {label!r} holds {different} different texts in {len(values)} rows, which are hardly "
            f"classes; name the column of labels, this one too if it is meant: --read.label_column NAME"
        )


def _splits(table: Table, column: str) -> np.ndarray:
    """Return train, val, test or "" for each row of a label table."""
    values = table.frame[column]
    text = values.fillna("").astype(str).str.strip().str.lower()
    splits = text.map(SPLIT_NAMES).fillna("").to_numpy(str)
    bad = np.flatnonzero((splits == "") & (text.to_numpy(str) != ""))
    if len(bad):
        value = text.iloc[int(bad[0])]
        raise DataError(
            f"{table.path}: split {value!r} in {table.place(int(bad[0]))}{nearest(value, SPLIT_NAMES)}; "
            f"use train, val, test or leave it empty"
        )
    return splits
