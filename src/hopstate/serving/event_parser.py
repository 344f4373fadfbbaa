"""Events as they come in: JSON objects with the columns of a run's own file, in order of time.

Each is brought into one form by itself before it is logged (src, dst, t, kind where it deletes, the run's features as
numbers), so that what an event means does not depend on which others it is read with.

An event of the far future would make all that come after it late, for good. `ClockSkewLimit` says how far ahead one may
be. If times are those of a clock (dates, or numbers since 1970 in a unit that is known), they are compared with this
machine's; others with the event before them.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any, Literal, NamedTuple, get_args

import numpy as np
import pandas as pd

from hopstate.data.dates import format_time, out_of_range
from hopstate.data.events import ADD, EventStream, with_types_by_relation
from hopstate.data.preprocessing import FeatureTable
from hopstate.data.readers.encode import parse_column_specs
from hopstate.data.readers.event_tables import FEATURE, KINDS
from hopstate.data.readers.read_events import read_events
from hopstate.data.readers.roles import SOURCES, TARGETS, TIMES
from hopstate.data.readers.tables import EXACT
from hopstate.data.readers.text import role_name
from hopstate.data.splits import IN_SECOND, parse_duration
from hopstate.data.stream_state import StreamState
from hopstate.data.vocabulary import LONGEST, Vocabulary
from hopstate.errors import ConfigError, DataError, FutureTimeError, TimeOrderError, listed, muted_warnings, nearest
from hopstate.runs.data import (
    apply_scalers,
    preprocess_as,
    reader_kwargs,
)
from hopstate.runs.query_inputs import parse_query_times
from hopstate.runs.saved_run import SavedRun

ID = "event_id"
RELATION = "relation"  # field of a logged event, of a run whose events have relations
INT64_MAX = int(np.iinfo(np.int64).max)  # of ids and times
AUTO, NEVER = "auto", "never"
DEFAULT_SKEW = "1d"  # beyond the clock: zones that a date did not name, and clocks that are off
# numbers that all lie after it are no seconds from a start of 0
_EARLIEST_CLOCK_TIME = datetime(1990, 1, 1, tzinfo=UTC).timestamp()
Late = Literal["reject", "clamp", "dead-letter"]
Note = Literal["late", "future", "unreadable", "differs"]  # why an event was kept aside, or that it differs
UnknownFields = Literal["refuse", "ignore"]
_LARGEST = float(np.finfo(np.float32).max)
_MAX_CACHED_FIELDS = 256  # orders of fields
_USUAL = ("src", "dst", "t")
_ENDS = (
    ("source", "source_column", "src", SOURCES),
    ("target", "target_column", "dst", TARGETS),
    ("time", "time_column", "t", TIMES),
)


class Fields(NamedTuple):
    """Names of the fields of an event; unread are those that the run does not read."""

    src: str
    dst: str
    t: str
    kinds: list[str]
    features: list[str]
    unread: list[str]
    relation: str = ""


class Columns(NamedTuple):
    """Events as they are logged, in columns of equal length.

    Args:
        fields: src, dst, t, the relation and the features, in this order.
        deletes: which events delete an edge.
        kind: the field that is "delete" in those; others do not have it.
    """

    fields: dict[str, list[Any]]
    deletes: list[bool]
    kind: str

    def take(self, rows: Sequence[int]) -> Columns:
        """Return some of the events."""
        fields = {name: [column[k] for k in rows] for name, column in self.fields.items()}
        return self._replace(fields=fields, deletes=[self.deletes[k] for k in rows])

    def texts(self) -> list[str]:
        """Return the events as JSON objects; no JSON value has a line feed in it."""
        values = [json.dumps(column, separators=("\n", ": "))[1:-1].split("\n") for column in self.fields.values()]
        names = [json.dumps(name).replace("%", "%%") for name in self.fields]
        ends = [f', {json.dumps(self.kind)}: "delete"}}' if gone else "}" for gone in self.deletes]
        row = "{" + ", ".join(f"{name}: %s" for name in names) + "%s"
        return [row % event for event in zip(*values, ends)]  # of no events, a column gives one empty text


class ClockSkewLimit:
    """A bound on the times of events to come.

    Args:
        skew_limit: "auto" (one day past the clock if times are those of a clock, no limit otherwise), "never" for no
            limit, or a length: text such as 12h, or a number in the unit of the run's own times.
        num_run_events: how many first events of the past are the run's own data, which tell what times are.
    """

    def __init__(
        self,
        skew_limit: str | float,
        past: StreamState,
        num_run_events: int,
        dates: str,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._clock, self._unit, self._dates = clock, past.time_unit or "", dates
        self.by_clock = num_run_events > 0 and self._has_clock(past, num_run_events)
        self.length: int | float | None = None
        self.text = DEFAULT_SKEW if skew_limit == AUTO else str(skew_limit)
        if skew_limit != NEVER and len(past) and (self.by_clock or skew_limit != AUTO):
            self.length = parse_duration(past.events(len(past) - 1), self.text)

    def _has_clock(self, past: StreamState, num_run_events: int) -> bool:
        if self._unit not in IN_SECOND:
            return False
        first, last = (past.events(k, k + 1).t[0].item() for k in (0, num_run_events - 1))
        day = 86_400 * IN_SECOND[self._unit]
        return last <= self._now() + day and (
            bool(self._dates) or first >= _EARLIEST_CLOCK_TIME * IN_SECOND[self._unit]
        )

    def _now(self) -> int:
        return int(self._clock() * IN_SECOND[self._unit])

    def exceeded(self, t: float, last: float) -> bool:
        """Return whether a time is further ahead than it may be; last is that of the event before."""
        since = self._now() if self.by_clock else last
        return self.length is not None and t > since + self.length

    def explain(self, last: float) -> str:
        """Return what an event that is too far ahead is told."""
        since = self._now() if self.by_clock else last
        what = "this machine's clock" if self.by_clock else "the event before it"
        return (
            f"more than {self.text} after {what} ({format_time(since, self._unit, self._dates)}): taken, it would make "
            "all before it late; give times in the unit of the run's own (serve --max-clock-skew sets the limit)"
        )


def is_id(text: str, least: int = 1) -> bool:
    """Return whether a text may be an id: it has `least` to `LONGEST` bytes, and no NUL or half of a character."""
    if len(text) > LONGEST or "\0" in text:
        return False
    try:
        return least <= len(text.encode()) <= LONGEST
    except UnicodeEncodeError:
        return False


def unique_ids(ids: np.ndarray) -> tuple[np.ndarray, Vocabulary | None]:
    """Return (n,) rows of ids in a vocabulary of their own, and that; None where rows are ids."""
    names, rows = np.unique(ids, return_inverse=True)
    is_rows = names.dtype.kind == "i" and np.array_equal(names, np.arange(len(names)))
    return rows, None if is_rows else Vocabulary(names)


def read_ids(given: list[Any], end: str, places: Sequence[int], text: bool) -> list[Any]:
    """Return ids as the run has them, texts or whole numbers; a text is never read as a number it looks like."""
    if not text and set(map(type, given)) == {int} and min(given) >= 0 and max(given) < INT64_MAX:
        return given
    return [_read_id(value, end, k, text) for k, value in zip(places, given, strict=True)]


def _read_id(value: Any, end: str, k: int, text: bool) -> str | int:
    if isinstance(value, bool) or not isinstance(value, (str, int)):
        raise DataError(f"event {k}: {end} is an id, text or a whole number; got {value!r}")
    if text:
        found = str(value) if isinstance(value, str) or abs(value) <= INT64_MAX else ""
        if not is_id(found):
            raise DataError(f"event {k}: {end} is an id without NUL of 1 to {LONGEST} bytes; got {str(value)[:40]!r}")
        return found
    if isinstance(value, str) and not (value.isascii() and value.isdecimal() and str(int(value[:20])) == value):
        raise DataError(f"event {k}: {end}: ids of this run are whole numbers; got {value[:40]!r}")
    if not 0 <= int(value) < INT64_MAX:
        raise DataError(f"event {k}: {end}: {value} is not an id of this run: ids are whole numbers of 63 bits")
    return int(value)


def read_number(value: Any, name: str, k: int, deletes: bool) -> float | None:
    """Return a feature as a finite number; a deletion may leave it out."""
    if value is None and deletes:
        return None
    try:
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
            raise OverflowError
        return float(value)
    except OverflowError:
        raise DataError(f"event {k}: feature {name} is a finite number; got {value!r}") from None


def read_times(past: StreamState, given: list[Any], places: Sequence[int], dates: str) -> np.ndarray:
    """Return times (n,) in the past's unit and type, each read by itself."""
    types = set(map(type, given))
    if types != {int} or max(map(abs, given)) > INT64_MAX:
        for k, value in zip(places, given, strict=True):
            if isinstance(value, bool) or not isinstance(value, (str, int, float)):
                raise DataError(f"event {k}: t is a number in the unit of the run's own data, or a date; got {value!r}")
            if isinstance(value, int) and abs(value) > INT64_MAX:
                raise DataError(f"event {k}: {value} is not a time of this run: times have 64 bits")
    try:
        if len(types) == 1 and not isinstance(given[0], str):
            return parse_query_times(past, np.array(given), dates, fractions=True)
        # each by itself: whole numbers beside others would be rounded as these are
        arrays = [np.array([value], object if isinstance(value, str) else None) for value in given]
        each = [parse_query_times(past, array, dates, fractions=True) for array in arrays]
    except ConfigError as error:
        raise DataError(str(error)) from None
    found = np.concatenate(each)
    if found.dtype.kind == "f":
        for k, one in zip(places, each, strict=True):
            if one.dtype.kind == "i" and abs(int(one[0])) > EXACT:
                raise DataError(
                    f"event {k}: time {one[0]} is not exact in a request that also has fractions. Send it alone"
                )
    return found


def event_id(event: Mapping[str, Any]) -> str | None:
    """Return an event's own id, None where it has none."""
    if type(event) is not dict and not isinstance(event, Mapping):
        raise DataError(f"an event is an object with fields; got {event!r}")
    found = event.get(ID)
    if found is None:
        return None
    if isinstance(found, bool) or not isinstance(found, (str, int)):
        raise DataError(f"an event's {ID} is text or a whole number; got {found!r}")
    if isinstance(found, int) and abs(found) > INT64_MAX:
        raise DataError(f"an event's {ID} is text, or a whole number of 64 bits")
    if isinstance(found, str) and not is_id(found, 0):
        raise DataError(f"an event's {ID} has no NUL and up to {LONGEST} bytes; got {found[:40]!r}")
    return str(found)


def check_handling(late: str, unknown_fields: str) -> None:
    """Refuse what is no way to handle late events, or fields that are not read."""
    for name, given, known in (("late", late, Late), ("unknown_fields", unknown_fields, UnknownFields)):
        if given not in get_args(known):
            raise ConfigError(f"{name} is one of {', '.join(get_args(known))}; got {given!r}")


class EventParser:
    """How a run's further events are read; `LiveRun` has the options."""

    def __init__(self, run: SavedRun, late: Late) -> None:
        self.run, self.late = run, late
        self.skew_limit: ClockSkewLimit | None = None
        self._columns, self._reading = _reading_of(run)
        self._cached_fields = lru_cache(_MAX_CACHED_FIELDS)(self._read_fields)
        declared_columns = parse_column_specs(self._reading.get("columns"))
        self._texts = {name for name, one in declared_columns.items() if one.kind in ("category", "date")}
        features = {*declared_columns, *(self._reading.get("edge_columns") or ())}
        self._facts = run.facts
        self._relations: tuple[str, ...] = tuple(self._facts.get("relation_names") or ())
        if taken := sorted(features.intersection((*_USUAL, *([RELATION] if self._relations else [])))):
            raise ConfigError(
                f"a live run calls its fields src, dst, t and relation, and the run in {run.path} has features of "
                f"these names ({', '.join(taken)}). Give the columns other names and train again"
            )
        self._kinds = [name for name in KINDS if name not in features]  # others are features of the run
        self._kind = next(iter(self._kinds), "")
        self._allows_missing = self._reading.get("missing", "error") != "error"
        self._relation = str(self._reading.get("relation_column") or RELATION) if self._relations else ""
        self._reading = {k: v for k, v in self._reading.items() if k not in ("relation_column", "node_type_column")}
        self._dates = str(self._facts.get("dates") or "")
        self._scaling = self._facts.get("features") or {}
        self._width = int(self._facts.get("edge_columns") or 0)  # features of an event in the run's own file

    def columns(self, events: Sequence[Mapping[str, Any]]) -> Columns:
        """Return logged events as columns."""
        fields = {name: [event[name] for event in events] for name in events[0] if name != self._kind}
        return Columns(fields, [event.get(self._kind) == "delete" for event in events], self._kind)

    def stream(self, columns: Columns, past: StreamState) -> EventStream:
        """Return events that `in_order` returned, as the run's own file was read."""
        found = None if self._texts else self._numeric_stream(columns, past)
        found = self._table_stream(columns, past) if found is None else found
        if not self._relation:
            return found
        codes = np.array([self._relations.index(name) for name in columns.fields[RELATION]], np.int32)
        found = found.with_(relation=codes, relation_names=self._relations)
        return with_types_by_relation(found, self._facts.get("relation_types"), self._facts.get("node_type_names", ()))

    def _features_in(self, columns: Columns) -> list[str]:
        return [name for name in columns.fields if name not in _USUAL and not (self._relation and name == RELATION)]

    def _numeric_stream(self, columns: Columns, past: StreamState) -> EventStream | None:
        src, dst, t = (np.array(columns.fields[name]) for name in _USUAL)
        names = self._features_in(columns)
        values = np.array([columns.fields[name] for name in names], np.float64).reshape(len(names), len(t)).T.copy()
        kind = np.array(columns.deletes, np.int8)
        if kind.any():  # leave features empty
            values = np.where(np.isnan(values) & (kind != ADD)[:, None], 0, values)
        if t.dtype.kind not in "if" or out_of_range(t).any() or (np.abs(values) > _LARGEST).any():
            return None
        ends, known = np.stack([src, dst], 1).reshape(-1), past.node_ids
        if known is None or self._relation or ends.dtype.kind != ("U" if known.is_text else "i"):
            rows, ids = unique_ids(ends)
        else:  # in the past's vocabulary, where they are looked up once
            ids, rows = known.grown(ends)
        features = FeatureTable.of(tuple(names), values) if names else None
        events = EventStream(
            src=rows[::2].copy(),
            dst=rows[1::2].copy(),
            t=t,
            kind=kind if kind.any() else None,
            edge_attr=None if features is None else features.plain(),
            edge_table=features,
            node_ids=ids,
            time_unit=past.time_unit or self._reading.get("time_unit") or "",
            name="table",
            source="memory",
            from_start=False,
        )
        return apply_scalers(events, self._scaling)

    def _table_stream(self, columns: Columns, past: StreamState) -> EventStream:
        # events of one time come as they come, as do ids
        options = self._reading | {"tie_order": "file", "bipartite": False}
        options |= {"time_unit": past.time_unit} if past.time_unit else {}
        options["edge_columns"] = names = self._features_in(columns)
        frame = pd.DataFrame({name: columns.fields[name] for name in (*_USUAL, *names)})
        if any(columns.deletes):
            frame[self._kind] = np.where(columns.deletes, "delete", "add")
        ids = None
        if past.node_ids is not None and past.node_ids.is_text:  # texts that look like numbers stay texts
            ids, codes = np.unique(np.concatenate([frame["src"], frame["dst"]]).astype(str), return_inverse=True)
            frame["src"], frame["dst"] = codes[: len(frame)], codes[len(frame) :]
        with muted_warnings():  # the run's own file gave them
            events = read_events(frame, from_start=False, **options)
            if ids is not None:
                events = events.with_(node_ids=Vocabulary(ids))
            return preprocess_as(events, self._facts)

    def in_order(
        self, events: Sequence[Mapping[str, Any]], past: StreamState, places: Sequence[int], *, strict: bool = False
    ) -> tuple[Columns, dict[int, Note]]:
        """Return events with times in the past's unit, and which of them are kept aside: "late" or "future".

        places tell where each stands in its request; strict refuses fields that the run does not read.
        """
        columns, t = self._read(events, past, places, strict=strict)
        given, times = columns.fields["t"], t.tolist()
        last, aside, limit = past.last_time, dict[int, Note](), self.skew_limit
        is_limited = limit is not None and limit.length is not None
        for k, now in enumerate(times):
            why = None
            if is_limited or now < last:
                why = self._rejection_reason(now, last, given[k], places[k], past.time_unit or "")
            if why == "late" and self.late == "clamp":
                times[k] = last
            elif why:
                aside[k] = why
            else:
                last = now
        columns.fields["t"] = times
        return columns, aside

    def _rejection_reason(self, now: float, last: float, given: Any, place: int, unit: str) -> Note | None:
        if now < last:
            if self.late == "reject":
                shown = format_time(last, unit, self._dates)
                raise TimeOrderError(
                    f"event {place} is of time {given!r}, but the one before it is of {shown}; events come in order of "
                    "time (serve with --late clamp or --late dead-letter to take others)"
                )
            return "late"
        if self.skew_limit is not None and self.skew_limit.exceeded(now, last):
            if self.late != "dead-letter":
                raise FutureTimeError(f"event {place} is of time {given!r}, {self.skew_limit.explain(last)}")
            return "future"
        return None

    def as_logged(self, event: Mapping[str, Any], past: StreamState) -> dict[str, Any]:
        """Return an event as it would be logged, whatever came before it."""
        columns, t = self._read([event], past, [0])
        columns.fields["t"] = t.tolist()
        return json.loads(columns.texts()[0])  # type: ignore[no-any-return]

    def unread_fields(self, events: Sequence[Mapping[str, Any]]) -> list[str]:
        """Return the fields of events that the run does not read."""
        return sorted({name for event in events for name in self._fields_of(event, 0).unread})

    def _read(
        self, events: Sequence[Mapping[str, Any]], past: StreamState, places: Sequence[int], *, strict: bool = False
    ) -> tuple[Columns, np.ndarray]:
        """Return events with times as they were given, and times (n,) in the past's unit."""
        names = [self._fields_of(event, k, strict) for k, event in zip(places, events, strict=True)]
        each, text = list(zip(places, events, names)), past.node_ids is not None and past.node_ids.is_text
        fields: dict[str, list[Any]] = {
            "src": read_ids([event[own.src] for _, event, own in each], "src", places, text),
            "dst": read_ids([event[own.dst] for _, event, own in each], "dst", places, text),
            "t": [event[own.t] for _, event, own in each],
        }
        deletes = [bool(own.kinds) and self._is_deletion(event, own, k) for k, event, own in each]
        if self._relation:
            fields[RELATION] = [self._read_relation(event[own.relation], k) for k, event, own in each]
        for i, name in enumerate(names[0].features):
            fields[name] = [
                self._feature(event, own.features[i], k, gone)
                for (k, event, own), gone in zip(each, deletes, strict=True)
            ]
        return Columns(fields, deletes, self._kind), read_times(past, fields["t"], places, self._dates)

    def _is_deletion(self, event: Mapping[str, Any], names: Fields, k: int) -> bool:
        kinds = [event[name] for name in names.kinds]
        if len(kinds) > 1 or kinds[0] not in ("add", "delete"):
            raise DataError(f"event {k}: its kind is 'add' or 'delete'; got {kinds[-1]!r}")
        return bool(kinds[0] == "delete")

    def _read_relation(self, value: Any, k: int) -> str:
        name = str(value) if isinstance(value, (str, int)) and not isinstance(value, bool) else ""
        if name not in self._relations:
            known = ", ".join(self._relations[:10])
            raise DataError(
                f"event {k}: unknown {self._relation}: got {str(value)[:60]!r}{nearest(name, self._relations)}. "
                f"Known: {known}{', ...' * (len(self._relations) > 10)}"
            )
        return name

    def _fields_of(self, event: Mapping[str, Any], k: int, strict: bool = False) -> Fields:
        try:
            known = self._cached_fields(tuple(event))
        except DataError as error:
            raise DataError(f"event {k} has {error}") from None
        if strict and known.unread:
            typed = [self._relation] if self._relation else []
            read = ", ".join([known.src, known.dst, known.t, *typed, *self._kinds[:1], ID, *known.features])
            unread = listed(repr(name[:40]) for name in known.unread)
            raise DataError(
                f"event {k} has fields that this run does not read: {unread}; it reads {read}. Leave the others out "
                "(or serve with --unknown-fields ignore)"
            )
        return known

    def _read_fields(self, names: Sequence[str]) -> Fields:
        rest, ends = [name for name in names if name != ID], []
        for (what, _, usual, known), own in zip(_ENDS, self._columns, strict=True):
            found = [own] if own in rest else [name for name in rest if role_name(name) in known]
            if len(found) != 1:
                count = "more than one " if found else "no "
                raise DataError(f"{count}{what} (a field {usual!r}{f' or {own!r}' if own else ''})")
            ends.append(found[0])
            rest.remove(found[0])
        relation = ""
        if self._relation:
            relation = next((name for name in (self._relation, RELATION) if name in rest), "")
            if not relation:
                raise DataError(f"no relation (a field {self._relation!r}): the run's events have them")
            rest.remove(relation)
        kinds = [name for name in rest if name.lower() in self._kinds]
        left = [name for name in rest if name not in kinds]
        src, dst, t = ends
        features = self._features(left)
        unread = [name for name in left if name not in features]
        return Fields(src, dst, t, kinds, features, unread, relation)

    def _feature(self, event: Mapping[str, Any], name: str, k: int, deletes: bool) -> float | str | None:
        value = event.get(name)
        if name in self._texts and name in event and (value is None or isinstance(value, str)):
            if value is not None and not is_id(value, 0):
                raise DataError(f"event {k}: feature {name} is a text without NUL of at most {LONGEST} bytes")
            return value
        may_miss = value is None and self._allows_missing and name in event
        return None if may_miss else read_number(value, name, k, deletes)

    def _features(self, left: Sequence[str]) -> list[str]:
        named = self._reading.get("edge_columns")
        if named is None and self._texts:
            named = [
                name for name, one in parse_column_specs(self._reading.get("columns")).items() if one.kind != "drop"
            ]
        if named is not None:
            return list(named)
        if not self._width:
            return []
        found = sorted((name for name in left if FEATURE.fullmatch(name)), key=lambda name: (len(name), name))
        if len(found) != self._width:
            raise DataError(f"{len(found)} features ({', '.join(found)}), the run's own have {self._width}")
        return found


def _reading_of(run: SavedRun) -> tuple[tuple[str | None, ...], dict[str, Any]]:
    own = run.inherited_read_options(pd.DataFrame(), {})
    names = tuple(own.get(option) for _, option, *_ in _ENDS)
    config = run.config(run.method_settings() | {"read": own | {option: usual for _, option, usual, _ in _ENDS}})
    return names, {key: value for key, value in reader_kwargs(config.read).items() if key != "label_column"}
