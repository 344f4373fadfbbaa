"""Who can be met at all: the nodes that are candidates where a user names none."""

from __future__ import annotations

from typing import Any

import numpy as np

from hopstate.data.stream_state import StreamState


def usual_candidates(past: StreamState, t: Any) -> np.ndarray:
    """Return rising rows: the destinations before t where no node is source and destination, else all nodes met."""
    sent, received = past.ever_active(int(np.searchsorted(past.t, t, side="left")))
    return np.flatnonzero(sent | received if (sent & received).any() else received)


def only_targets(past: StreamState, rows: np.ndarray) -> np.ndarray:
    """Return (q,) whether nodes were targets and never sources, False for all where some node was both.

    Args:
        past: what is known.
        rows: (q,) int64, -1 for nodes that it does not hold.
    """
    sent, received = past.ever_active()
    if (sent & received).any():
        return np.zeros(len(rows), bool)
    known = rows >= 0
    known[known] = received[rows[known]]
    return known
