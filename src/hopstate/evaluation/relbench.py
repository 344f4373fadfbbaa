"""RelBench's prediction tables and its three metrics, for predictions made by any run.

A board takes a CSV a task, `DATASET__TASK.csv`: the columns that name a row of the task's test table, and the
prediction. For recommendation a prediction is the list of the k destinations that come first, as JSON.

Source: Robinson et al. 2024, arXiv:2407.20060; the form is that of relbench 3.0.2 (`relbench.submit`).
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from hopstate.errors import DataError
from hopstate.evaluation.metrics import roc_auc
from hopstate.io.files import make_folder
from hopstate.io.output import write_table

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["mean_average_precision", "normalized_mae", "roc_auc", "write_prediction_table"]


def write_prediction_table(keys: pd.DataFrame, column: str, predictions: Iterable[Any], path: str | Path) -> Path:
    """Write a prediction table, atomically, and return its path.

    Args:
        keys: the key columns of the task's masked test table, in its order: (entity, time), or (source entity, time).
        column: the task's target column, or its destination column.
        predictions: one each row: a number, or the k ids of the destinations that come first.
        path: `DATASET__TASK.csv`.

    Raises:
        DataError: other numbers of rows, keys that are not distinct, or a prediction that is NaN or infinite.
        StorageError: the file could not be written.
    """
    rows = list(predictions)
    if len(rows) != len(keys):
        raise DataError(f"{len(rows)} predictions for the {len(keys)} rows of the test table")
    if keys.duplicated().any():
        raise DataError(f"row {int(np.argmax(keys.duplicated()))} of the test table has the keys of one above it")
    lists = bool(rows) and np.ndim(rows[0]) == 1
    if lists:
        cells: Any = [json.dumps([int(one) for one in row]) for row in rows]
    else:
        cells = np.asarray(rows).reshape(-1)
        bad = np.flatnonzero(~np.isfinite(cells.astype(np.float64)))
        if len(bad):
            raise DataError(f"the prediction of row {bad[0]} is {cells[bad[0]]}")
    make_folder(Path(path).parent)
    write_table(keys.assign(**{column: cells}), Path(path), csv_escape=False)
    return Path(path)


def mean_average_precision(hit: np.ndarray, count: np.ndarray) -> float:
    """Return MAP@k of recommendations; rows without a true destination do not count.

    Args:
        hit: (n, k) bool, whether the j-th of a row's list is one of its true destinations.
        count: (n,) int64 true destinations of a row.

    Raises:
        DataError: no row has a true destination.

    >>> mean_average_precision(np.array([[True, False, True], [False, False, False]]), np.array([2, 1]))
    0.41666666666666663
    """
    hit, count = np.asarray(hit)[np.asarray(count) > 0], np.asarray(count)[np.asarray(count) > 0]
    if not len(hit):
        raise DataError("no row has a true destination, so there is no average precision")
    precision = np.cumsum(hit, 1) / np.arange(1, hit.shape[1] + 1)
    return float(((precision * hit).sum(1) / np.minimum(count, hit.shape[1])).mean())


def normalized_mae(truth: np.ndarray, prediction: np.ndarray, train: np.ndarray) -> float:
    """Return the mean absolute error over the standard deviation (n - 1 below) of the training targets.

    Args:
        truth, prediction: (n,) numbers.
        train: (m,) targets of the training split, at least two that differ.

    Raises:
        DataError: shapes that disagree, or equal training targets.

    >>> normalized_mae(np.array([1.0, 3.0]), np.array([2.0, 3.0]), np.array([0.0, 2.0]))
    0.35355339059327373
    """
    if truth.shape != prediction.shape or not len(truth):
        raise DataError(f"{len(prediction)} predictions for {len(truth)} targets")
    deviation = float(np.std(train, ddof=1)) if len(train) > 1 else 0.0
    if not deviation > 0:
        raise DataError("the training targets are all equal")
    return float(np.abs(truth - prediction).mean() / deviation)
