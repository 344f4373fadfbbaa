"""Events of one form as columns: nearly all that come, read together.

What is read so is what reading one by one gives of the same events, to the bit. Where anything is unusual nothing is
read: one by one it is either read all the same, or said what is wrong with it.
"""

from __future__ import annotations

import json.encoder
from collections.abc import Callable, Mapping, Sequence
from itertools import chain
from operator import itemgetter
from typing import Any, NamedTuple

import numpy as np

from hopstate.data.stream_state import StreamState
from hopstate.data.vocabulary import Vocabulary
from hopstate.errors import HopstateError
from hopstate.io.files import is_broken
from hopstate.runs.query_inputs import times_in
from hopstate.serving.log import BETWEEN

REMEMBERED_IDS = (
    1 << 18
)  # ids of a run's own data up to which all are remembered; of more, those that came, up to so many
ID = "event_id"
LONGEST = 1_000  # characters of an id; each node's takes as much memory as the longest
INT64_MAX = int(np.iinfo(np.int64).max)  # of ids and times
_NUMBERS: set[type] = {int, float}
_quoted = json.encoder.encode_basestring_ascii


class KnownRows:
    """Rows in the vocabulary of a past that goes on: its rows stay what they are, and new ids come after them."""

    def __init__(self) -> None:
        self._seen: Vocabulary | None = None  # the one asked last
        self._base: Vocabulary | None = None  # one whose ids are not all remembered; of those after it all are
        self._rows: dict[Any, int] = {}

    def rows(
        self, past: StreamState, ids: Sequence[Any], fit: Callable[[Sequence[Any]], bool]
    ) -> tuple[np.ndarray, Vocabulary | None] | None:
        """Return (n,) rows of ids, and the vocabulary that has them all, None where rows are ids; None for no answer.

        Args:
            past: what the ids come after; new ones are remembered once it has them.
            ids: of the type of the past's.
            fit: whether some may be ids; there is no answer where they may not.
        """
        if past.node_ids is None:
            rows = np.array(ids)
            inside = rows.dtype == np.int64 and rows.min() >= 0 and rows.max() < past.num_nodes
            return (rows, None) if inside else own_rows(rows) if fit(ids) else None
        self._stand(past.node_ids)
        found, all_ids = list(map(self._rows.get, ids)), past.node_ids
        if None in found:
            missing = [k for k, row in enumerate(found) if row is None]
            other = dict.fromkeys(ids[k] for k in missing)
            if not fit(list(other)):
                return None
            all_ids = self._look_up(other, past.node_ids)
            for k in missing:
                found[k] = other[ids[k]]
        return np.array(found, np.int64), all_ids

    def _look_up(self, other: dict[Any, Any], vocabulary: Vocabulary) -> Vocabulary:
        fresh = list(other)
        if self._base is not None:
            other |= zip(fresh, self._base.rows(fresh).tolist(), strict=True)
            fresh = [one for one, row in other.items() if row < 0]
            if len(self._rows) < REMEMBERED_IDS:
                self._rows |= {one: row for one, row in other.items() if row >= 0}
        other |= zip(fresh, range(len(vocabulary), len(vocabulary) + len(fresh)), strict=True)
        return vocabulary.followed_by(fresh)

    def _stand(self, vocabulary: Vocabulary) -> None:
        if vocabulary is self._seen:
            return
        if self._seen is not None and vocabulary.is_of(self._seen):
            first = len(self._seen)
            fresh = vocabulary.take(np.arange(first, len(vocabulary))).tolist()
            self._rows |= zip(fresh, range(first, len(vocabulary)), strict=True)
        else:
            is_small = len(vocabulary) <= REMEMBERED_IDS
            self._base = None if is_small else vocabulary
            self._rows = dict(zip(vocabulary.ids.tolist(), range(len(vocabulary)))) if is_small else {}
        self._seen = vocabulary


def own_rows(ids: np.ndarray) -> tuple[np.ndarray, Vocabulary | None]:
    """Return (n,) rows of ids in a vocabulary of their own, and that; None where rows are ids."""
    names, rows = np.unique(ids, return_inverse=True)
    is_rows = names.dtype.kind == "i" and np.array_equal(names, np.arange(len(names)))
    return rows, None if is_rows else Vocabulary(names)


class Fields(NamedTuple):
    """Which fields of an event are source, target, time and kind, which are left, and the names of its features.

    `others` are those left that no run reads.
    """

    src: str
    dst: str
    t: str
    kinds: list[str]
    left: list[str]
    features: list[str]
    others: list[str]


class Columns(NamedTuple):
    """Events, none of which deletes anything.

    Args:
        src, dst: ids, all texts or all whole numbers.
        t: times in the past's unit and type, never decreasing.
        names: of features.
        values: (F, n) finite numbers.
        ids: of the events, None where they have none.
        rows: (2n,) of sources, then destinations, and the vocabulary that has them; see `KnownRows`.
    """

    src: Sequence[Any]
    dst: Sequence[Any]
    t: np.ndarray
    names: Sequence[str]
    values: np.ndarray
    ids: list[str] | None
    rows: tuple[np.ndarray, Vocabulary | None]

    def text(self) -> str:
        """Return events as JSON, each as `json.dumps` writes what `bodies` returns, with `BETWEEN` between them."""
        is_text = isinstance(self.src[0], str)
        ends = [list(map(_quoted, end)) if is_text else end for end in (self.src, self.dst)]
        columns = (*ends, self.t.tolist(), *self.values.tolist())
        names = [_quoted(name).replace("%", "%%") for name in ("src", "dst", "t", *self.names)]
        # a number is written as Python shows it
        kinds = ["%s" if is_text else "%r"] * 2 + ["%r"] * (len(names) - 2)
        form = "{" + ", ".join(f"{name}: {kind}" for name, kind in zip(names, kinds, strict=True)) + "}"
        flat = tuple(chain.from_iterable(zip(*columns, strict=True)))
        return BETWEEN.join([form] * len(self.src)) % flat

    def bodies(self) -> list[dict[str, Any]]:
        """Return events as `EventParser.in_order` does."""
        names = ("src", "dst", "t", *self.names)
        rows = zip(self.src, self.dst, self.t.tolist(), *self.values.tolist(), strict=True)
        return [dict(zip(names, row, strict=True)) for row in rows]


def columns(
    events: Sequence[Mapping[str, Any]],
    past: StreamState,
    fields: Callable[[Mapping[str, Any]], Fields],
    known: KnownRows,
) -> Columns | None:
    """Return events as columns, None where one has something unusual: its fields, a type, an end, a time, an id.

    Args:
        events: as they came.
        past: what they come after.
        fields: tells what the fields of an event without its own id are.
        known: finds the rows of ends.
    """
    try:
        return _columns(events, past, fields, known)
    except (HopstateError, KeyError, OverflowError, TypeError, ValueError):  # one by one they tell what is wrong
        return None


def _columns(
    events: Sequence[Mapping[str, Any]],
    past: StreamState,
    fields: Callable[[Mapping[str, Any]], Fields],
    known: KnownRows,
) -> Columns | None:
    if not events or set(map(type, events)) != {dict} or len(set(map(len, events))) > 1:
        return None
    names = tuple(events[0])
    read = fields({name: None for name in names if name != ID})
    if read.kinds or not {"src", "dst", "t"}.isdisjoint(read.features):
        return None
    found = {name: list(map(itemgetter(name), events)) for name in names}
    src, dst, t = found[read.src], found[read.dst], _times(found[read.t], past)
    is_text, ends = past.node_ids is not None and past.node_ids.is_text, src + dst
    if t is None or set(map(type, ends)) != ({str} if is_text else {int}):
        return None
    rows = known.rows(past, ends, _are_names if is_text else _are_numbers)
    values = [found[name] for name in read.features]
    if any(not _NUMBERS.issuperset(map(type, column)) for column in values):
        return None
    table = np.array(values, np.float64).reshape(len(values), len(events))
    ids = _own_ids(found[ID]) if ID in found else None
    if rows is None or not np.isfinite(table).all() or (ID in found and ids is None):
        return None
    return Columns(src, dst, t, read.features, table, ids, rows)


def _times(given: Sequence[Any], past: StreamState) -> np.ndarray | None:
    if set(map(type, given)) not in ({int}, {float}):
        return None
    t = np.array(given)
    if t.dtype not in (np.int64, np.float64):
        return None
    t = times_in(past, t, "", fractions=True)
    after = (t[1:] >= t[:-1]).all() and (not len(past) or t[0] >= past.last_time)
    return t if after and t.dtype.kind in "if" else None


def _are_texts(given: Sequence[Any], least: int) -> bool:
    if set(map(type, given)) != {str}:
        return False
    sizes, whole = set(map(len, given)), "".join(given)
    plain = whole.isascii() or not is_broken(whole)
    return plain and "\0" not in whole and least <= min(sizes) and max(sizes) <= LONGEST


def _are_names(given: Sequence[Any]) -> bool:
    return _are_texts(given, 1)


def _are_numbers(given: Sequence[Any]) -> bool:
    return set(map(type, given)) == {int} and min(given) >= 0 and max(given) < INT64_MAX


def _own_ids(given: Sequence[Any]) -> list[str] | None:
    if set(map(type, given)) == {int} and max(map(abs, given)) <= INT64_MAX:
        given = list(map(str, given))
    elif not _are_texts(given, 0):
        return None
    return list(given) if len(set(given)) == len(given) else None
