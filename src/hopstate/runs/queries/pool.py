"""Who can be met at all: the nodes that are candidates where a user names none."""

from __future__ import annotations

from typing import Any

import numpy as np

from hopstate.data.events import ADD
from hopstate.data.past import Past
from hopstate.data.past_deletions import still_gone


def usual_candidates(past: Past, t: Any) -> np.ndarray:
    """Return rising rows: the destinations before t where no node is source and destination, else all nodes met.

    Nodes that were deleted and have met nobody since are none.
    """
    sources, targets = [np.empty(0, np.int64)], [np.empty(0, np.int64)]
    for layer in past.layers:
        stop = int(np.searchsorted(layer.t, t, side="left"))
        added = slice(0, stop) if layer.kind is None else np.flatnonzero(layer.kind[:stop] == ADD)
        sources.append(np.unique(layer.src[added]))
        targets.append(np.unique(layer.dst[added]))
    src, dst = (np.unique(np.concatenate(part)) for part in (sources, targets))
    rows = np.union1d(src, dst) if len(np.intersect1d(src, dst)) else dst
    return rows[~still_gone(past.layers, past.num_nodes, rows)] if past.has_deletes else rows
