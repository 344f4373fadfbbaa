"""What is told of ids and candidates beside an answer, once for all that were asked for."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from hopstate.errors import HopstateWarning, nearest
from hopstate.runs.queries.pool import only_targets

if TYPE_CHECKING:
    from hopstate.data.stream_state import StreamState
    from hopstate.runs.queries.names import Nodes

_NEAR = 5_000  # ids on either side, in their order, among which a suggestion is sought


def tell_unmet(past: StreamState, *groups: Nodes) -> None:
    """Warn of nodes that no event was of, and name the first, with the nearest id that is known."""
    names = list(dict.fromkeys(name for group in groups for name in group.names[~group.met].tolist()))
    if not names:
        return
    known: Sequence[str] = ()
    if past.node_ids is not None and past.node_ids.is_text:
        known = _beside(past.node_ids.ids, names[:5])
    shown = [f"{name!r}{nearest(str(name), known).replace('; did', ' (did').replace('?', '?)')}" for name in names[:5]]
    more = f" and {len(names) - 5} more" if len(names) > 5 else ""
    warnings.warn(
        f"{len(names)} of the ids asked for were never met: {', '.join(shown)}{more}; they are scored as new nodes, "
        "without a history and with features of zeros",
        HopstateWarning,
        stacklevel=4,
    )


def tell_targets(past: StreamState, sources: Nodes) -> None:
    """Warn of sources that were only ever targets where sources and targets are apart, and name the first."""
    only = only_targets(past, sources.rows)
    names = list(dict.fromkeys(sources.names[only].tolist()))
    if names:
        shown = ", ".join(map(repr, names[:5])) + (f" and {len(names) - 5} more" if len(names) > 5 else "")
        warnings.warn(
            f"{len(names)} of the sources asked for were only ever targets: {shown}; no node of these data is both, so "
            "that nothing was learned of whom they would meet as a source",
            HopstateWarning,
            stacklevel=4,
        )


def tell_few(top: int | None, names: np.ndarray, counts: Sequence[int], *, new_only: bool, stacklevel: int = 4) -> None:
    """Warn of sources with fewer candidates than asked for, once for all of them.

    Args:
        top: how many were asked for; None for all.
        names, counts: (S,) ids of the sources, and how many each was given.
        new_only: some were left out, since the source had met them.
        stacklevel: of the warning.
    """
    few = [] if top is None else [i for i, count in enumerate(counts) if count < top]
    if few:
        left = " left, since those it has met are left out" if new_only else ""
        more = f", and {len(few) - 1} more sources have too few" if len(few) > 1 else ""
        warnings.warn(
            f"{top} were asked for, but source {names[few[0]].item()!r} has {counts[few[0]]} candidates{left}{more}; "
            "all are given",
            HopstateWarning,
            stacklevel=stacklevel,
        )


def _beside(ids: np.ndarray, names: Sequence[Any]) -> list[str]:
    """Return texts among ids (N,) that may be meant by names: all, or of many those that begin or are like them."""
    if len(ids) <= 2 * _NEAR:
        return list(ids.tolist())
    ordered = np.sort(ids)
    places = [int(np.searchsorted(ordered, str(name))) for name in names]
    near = [ordered[max(place - _NEAR, 0) : place + _NEAR] for place in places]
    return list(dict.fromkeys(np.concatenate(near).tolist()))


__all__ = ["tell_few", "tell_targets", "tell_unmet"]
