"""Who can be met at all: the nodes that are candidates where a user names none."""

from __future__ import annotations

from typing import Any

import numpy as np

from hopstate.data.past import Past
from hopstate.data.past_deletions import still_gone


def usual_candidates(past: Past, t: Any) -> np.ndarray:
    """Return rising rows: the destinations before t where no node is source and destination, else all nodes met.

    Nodes that were deleted and have met nobody since are none.
    """
    src, dst = np.zeros((2, past.num_nodes), bool)
    for layer in past.layers:
        stop = int(np.searchsorted(layer.t, t, side="left"))
        sources, targets = layer.ends if stop == len(layer) else layer.ends_of(slice(0, stop))
        src[sources] = dst[targets] = True
    rows = np.flatnonzero(src | dst if (src & dst).any() else dst)
    return rows[~still_gone(past.layers, past.num_nodes, rows)] if past.has_deletes else rows


def only_targets(past: Past, rows: np.ndarray) -> np.ndarray:
    """Return (q,) whether nodes were targets and never sources, False for all where some node was both.

    Args:
        past: what is known.
        rows: (q,) int64, -1 for nodes that it does not hold.
    """
    src, dst = np.zeros((2, len(rows)), bool)
    for layer in past.layers:
        src |= _among(rows, layer.ends[0])
        dst |= _among(rows, layer.ends[1])
    found = dst & ~src
    if not found.any():
        return found
    ends = np.zeros((2, past.num_nodes), bool)
    for layer in past.layers:
        for side, nodes in zip(ends, layer.ends, strict=True):
            side[nodes] = True
    return found & ~ends.all(0).any()


def _among(rows: np.ndarray, rising: np.ndarray) -> np.ndarray:
    """Return (q,) which rows are among rising ones, of which there may be very many."""
    if not len(rising):
        return np.zeros(len(rows), bool)
    return rising[np.minimum(np.searchsorted(rising, rows), len(rising) - 1)] == rows
