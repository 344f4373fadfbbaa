"""Which graphs of a set a program is asked of."""

from __future__ import annotations

from typing import Any

import numpy as np

from hopstate.errors import DataError
from hopstate.training.tasks.graph import GraphTask

SAMPLE = 32  # graphs that a check asks of


def graphs_of(task: GraphTask, ids: Any) -> np.ndarray:
    """Return numbers of graphs, of all where ids is None.

    Raises:
        DataError: a number that the set does not have, or none at all.
    """
    count = task.graphs.num_graphs
    rows = np.arange(count) if ids is None else np.asarray(ids).reshape(-1)
    if rows.dtype.kind not in "iu" or len(rows) == 0 or rows.min() < 0 or rows.max() >= count:
        raise DataError(f"graphs are asked for by numbers 0..{count - 1}, at least one; got {ids!r}")
    return rows.astype(np.int64)


def sample_of(task: GraphTask) -> np.ndarray:
    """Return the graphs that a check asks of."""
    return np.arange(min(SAMPLE, task.graphs.num_graphs))
