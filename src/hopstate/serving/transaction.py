"""Events of a request on their way into a live run: read, scored and observed next to it, committed, then taken.

An event is known by its id. One that comes again changes nothing, and whether it is the same as before is reported.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import repeat
from typing import Any, NamedTuple

import numpy as np

from hopstate.data.events import EventStream
from hopstate.data.stream_state import StreamState
from hopstate.errors import HopstateError
from hopstate.serving.event_parser import ID, EventParser, Note, id_of
from hopstate.serving.log import Entries, Entry, EventLog, rows


class Receipt(NamedTuple):
    """What became of an event.

    Args:
        position: in the log; of one that was there already, the first; None of one that was kept aside.
        score: from what came before it; None where it was there already, or nothing is scored (a deletion).
        again: it was there already.
        note: why it was kept aside, or that what was there already "differs" from it.
    """

    position: int | None
    score: float | None = None
    again: bool = False
    note: Note | None = None

    def shown(self) -> dict[str, Any]:
        """Return it as a request is told it: the note where there is one."""
        told = {"position": self.position, "score": self.score, "again": self.again}
        return told if self.note is None else told | {"note": self.note}


class DeadLetter(NamedTuple):
    """An event that is kept aside, and why."""

    entry: Entry
    why: Note


@dataclass(frozen=True)
class Request:
    """Events of a request, and whether their scores are asked for."""

    events: list[dict[str, Any]]
    score: bool

    def told(self, receipt: Receipt) -> Receipt:
        return receipt if self.score else receipt._replace(score=None)


@dataclass(frozen=True, eq=False, kw_only=True)
class Transaction:
    """Events that are about to be committed.

    Args:
        ids: of all that were given, None where one has none.
        known: positions of those that the log holds already.
        new: places, among all, of those that are to be committed.
        bodies: of those, as they are logged; none where nobody asks for them.
        entries: the same for the log.
        aside: what is kept aside, and at which places it stood.
        differing: places of those whose id came before with other contents.
        scores: of the new ones, NaN where none is.
        told: whether scores are told.
        after: the past after them, None where there are none.
        facts: what the log is told in the same commit.
    """

    ids: Sequence[str | None]
    known: Mapping[str, int]
    new: Sequence[int] = ()
    bodies: Sequence[Mapping[str, Any]] = ()
    entries: Sequence[Entry] = ()
    aside: Mapping[int, DeadLetter] = field(default_factory=dict)
    differing: Collection[int] = ()
    scores: np.ndarray = field(default_factory=lambda: np.empty(0))
    told: bool = True
    after: StreamState | None = None
    facts: Mapping[str, Any] = field(default_factory=dict)

    def written(self, log: EventLog) -> int:
        """Commit it; return the position of the first new event. Nothing of the run is touched."""
        first = 0
        if self.entries:
            first = log.append(self.entries, self.facts)
        elif self.facts:
            log.tell(self.facts)
        for why in dict.fromkeys(one.why for one in self.aside.values()):
            # last: a request that fails is sent again, and what has no id would be kept twice
            log.park([one.entry for one in self.aside.values() if one.why == why], why)
        return first

    def receipts(self, first: int) -> list[Receipt]:
        """Return what became of the events, committed from a position on."""
        last = first + len(self.new)
        scores = [None if score != score else score for score in self.scores.tolist()] if self.told else repeat(None)
        # as Receipt(...) makes them, in half the time
        new = map(partial(tuple.__new__, Receipt), zip(range(first, last), scores, repeat(False), repeat(None)))
        if len(self.new) == len(self.ids):
            return list(new)
        made = dict(zip(self.new, new)) | {at: Receipt(None, note=one.why) for at, one in self.aside.items()}
        first_of = {one: k for k, one in reversed(list(enumerate(self.ids))) if one is not None}
        found = []
        for k, one in enumerate(self.ids):
            if k in made:
                found.append(made[k])
            else:
                assert one is not None
                where = self.known[one] if one in self.known else made[first_of[one]].position
                found.append(Receipt(where, again=True, note="differs" if k in self.differing else None))
        return found


class Read(NamedTuple):
    """Events that were read: the new ones as a stream, None if there are none, and fields of their `Transaction`."""

    stream: EventStream | None
    facts: dict[str, Any]


def read(
    events: Sequence[Mapping[str, Any]],
    past: StreamState,
    incoming: EventParser,
    log: EventLog,
    *,
    strict: bool = True,
    bodies: bool = False,
) -> Read:
    """Read events of any form.

    Args:
        events: as they came.
        past: what they come after.
        incoming: how events are read.
        log: which ids are known.
        strict: refuse fields that the run does not read.
        bodies: new ones are wanted as they are logged, too.
    """
    if (found := incoming.together(events, past, strict=strict)) is not None:
        columns, stream = found
        if columns.ids is None or not log.positions(columns.ids):
            ids: Sequence[str | None] = columns.ids or [None] * len(events)
            facts = {
                "ids": ids,
                "known": {},
                "new": range(len(events)),
                "entries": Entries(columns.text(), columns.ids),
            }
            return Read(stream, facts | {"bodies": columns.bodies() if bodies else ()})
    return _one_by_one(events, past, incoming, log, strict)


def _one_by_one(
    events: Sequence[Mapping[str, Any]], past: StreamState, incoming: EventParser, log: EventLog, strict: bool
) -> Read:
    ids = [id_of(event) for event in events]
    known = log.positions([i for i in ids if i is not None])
    first = {one: k for k, one in reversed(list(enumerate(ids))) if one is not None}
    fresh = [k for k, one in enumerate(ids) if one is None or (one not in known and first[one] == k)]
    told: dict[str, Any] = {"ids": ids, "known": known}
    if len(fresh) < len(ids):
        told["differing"] = _differing(events, ids, known, first, past, incoming, log)
    if not fresh:
        return Read(None, told)
    named = [{key: value for key, value in events[k].items() if key != ID} for k in fresh]
    named, out = incoming.in_order(named, past, fresh, strict=strict)
    told["aside"] = {
        fresh[k]: DeadLetter(Entry(json.dumps(dict(events[fresh[k]])), ids[fresh[k]]), out[k]) for k in out
    }
    rest = [k for k in range(len(fresh)) if k not in out]
    if not rest:
        return Read(None, told)
    new = [named[k] for k in rest]
    told |= {"entries": [Entry(json.dumps(named[k]), ids[fresh[k]]) for k in rest]}
    return Read(incoming.stream(new, past), told | {"new": [fresh[k] for k in rest], "bodies": new})


def _differing(
    events: Sequence[Mapping[str, Any]],
    ids: Sequence[str | None],
    known: Mapping[str, int],
    first: Mapping[str, int],
    past: StreamState,
    incoming: EventParser,
    log: EventLog,
) -> set[int]:
    logged = log.bodies(sorted(set(known.values())))
    found = set()
    for k, one in enumerate(ids):
        if one is None or (one not in known and first[one] == k):
            continue
        if one in known and known[one] not in logged:  # of what is no longer kept nothing can be told
            continue
        try:
            mine = incoming.as_logged(events[k], past)
            if one in known:
                (before,) = rows([logged[known[one]]], known[one], log.place)
            else:
                before = incoming.as_logged(events[first[one]], past)
        except (HopstateError, OverflowError, RecursionError, UnicodeError):  # it cannot be the same
            found.add(k)
            continue
        moved = incoming.late == "clamp" and mine["t"] < before["t"]  # it may have been late
        if mine != (before | {"t": mine["t"]} if moved else before):
            found.add(k)
    return found
