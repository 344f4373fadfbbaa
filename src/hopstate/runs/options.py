"""Options of what a run is asked, as `Run`'s methods pass them on; what they mean stands at the functions themselves.

What a user may hand over as data, ids or times (a path, an array, a list, a table of pandas, a text) has no narrower
type than Any: the readers tell each by its content, and refuse the rest by a named error.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypedDict


class Common(TypedDict, total=False):
    """Options of all of them."""

    device: str | None
    method: str | None


class _Past(Common, total=False):
    fresh: bool
    own: Any


class NodeOptions(_Past, total=False):
    """Options of `hopstate.node_outputs`."""

    state: str | Path | None


class EvaluateOptions(Common, total=False):
    """Options of `hopstate.evaluate`."""

    split: str
    read: Mapping[str, Any] | None
    evaluation: Mapping[str, Any] | None
    fresh: bool


class _Table(_Past, total=False):
    read: Mapping[str, Any] | None
    out: str | Path | None
    raw: bool


class PredictOptions(_Table, total=False):
    """Options of `hopstate.predict`."""

    split: str


class StreamOptions(_Table, total=False):
    """Options of `hopstate.score_stream`."""

    state: str | Path | None
    save: str | Path | None
    again: bool


class ScoreOptions(_Table, total=False):
    """Options of `hopstate.score`."""

    events: Any
    explain: bool
    state: str | Path | None


class RankOptions(ScoreOptions, total=False):
    """Options of `hopstate.rank`."""

    top: int | None
    time: Any
    candidates: Any
    new_only: bool
    exclude_seen: bool
    first_stage: int | None


class VectorOptions(TypedDict, total=False):
    """Options of a run's `embeddings`."""

    data: Any
    device: str | None


__all__ = [
    "EvaluateOptions",
    "NodeOptions",
    "PredictOptions",
    "RankOptions",
    "ScoreOptions",
    "StreamOptions",
    "VectorOptions",
]
