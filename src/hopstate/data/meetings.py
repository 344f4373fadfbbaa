"""Whether a few pairs met before their times, in a stream that is too large to be indexed for their sake."""

from __future__ import annotations

import numpy as np

from hopstate.data.events import EventStream

_CHUNK = 1 << 22  # events looked at together


def met_before(stream: EventStream, src: np.ndarray, dst: np.ndarray, t: np.ndarray) -> np.ndarray:
    """Return (Q,) bool: whether pairs met, in either direction, in an event of a stream strictly before their times.

    A deletion is no meeting, and none that was deleted later is forgotten: as `NeighborStore.last_meeting` has it.

    Args:
        stream: E events; one pass over them, in chunks.
        src, dst: (Q,) int64 rows, perhaps beyond the stream's nodes.
        t: (Q,) times.
    """
    if not len(t):
        return np.zeros(0, bool)
    nodes = 1 + max(int(src.max()), int(dst.max()), stream.num_nodes - 1)
    asked, which = np.unique(_keys(src, dst, nodes), return_inverse=True)
    first = np.full(len(asked), len(stream))  # each pair's first meeting
    for start in range(0, len(stream), _CHUNK):
        rows = stream.additions(np.arange(start, min(start + _CHUNK, len(stream))))
        keys = _keys(stream.src[rows], stream.dst[rows], nodes)
        at = np.minimum(np.searchsorted(asked, keys), len(asked) - 1)
        same = asked[at] == keys
        np.minimum.at(first, at[same], rows[same])
    ever = first < len(stream)
    when = np.zeros(len(asked), stream.t.dtype)
    when[ever] = stream.t[first[ever]]
    which = which.reshape(-1)
    return ever[which] & (when[which] < t)


def _keys(src: np.ndarray, dst: np.ndarray, nodes: int) -> np.ndarray:
    return np.minimum(src, dst).astype(np.int64) * nodes + np.maximum(src, dst)


__all__ = ["met_before"]
