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
from hopstate.serving.event_parser import ID, EventParser, Note, event_id
from hopstate.serving.log import Entry, EventLog, parse_events


class Receipt(NamedTuple):
    """What became of an event.

    Args:
        position: in the log; of one that was there already, the first; None of one that was kept aside.
        score: from what came before it; None where it was there already, or nothing is scored (a deletion).
        duplicate: it was there already.
        note: why it was kept aside, or that what was there already "differs" from it.
    """

    position: int | None
    score: float | None = None
    duplicate: bool = False
    note: Note | None = None

    def to_json(self) -> dict[str, Any]:
        """Return the fields of a response; the note is in it only if there is one."""
        fields = {"position": self.position, "score": self.score, "duplicate": self.duplicate}
        return fields if self.note is None else fields | {"note": self.note}


@dataclass(frozen=True)
class Request:
    """Events of a request, and whether their scores are asked for."""

    events: list[dict[str, Any]]
    score: bool

    def receipt_for_client(self, receipt: Receipt) -> Receipt:
        return receipt if self.score else receipt._replace(score=None)


@dataclass(frozen=True, eq=False, kw_only=True)
class Transaction:
    """Events of a request that are about to be committed.

    Args:
        ids: of all that were given, None for one without.
        stream: the new ones, None if there are none.
        logged_positions: positions of ids that the log holds already.
        new: places, among all, of those that are to be committed.
        bodies: of those, as they are logged.
        entries: the same for the log.
        dead_letters: place to entry and reason of dead letters.
        differing: places of those whose id came before with other contents.
        scores, has_scores: of the new ones, NaN for a deletion; whether receipts show them.
        after: the state after them, None if there are none.
        facts: facts of the log to be set in the same commit.
    """

    ids: Sequence[str | None]
    stream: EventStream | None = None
    logged_positions: Mapping[str, int] = field(default_factory=dict)
    new: Sequence[int] = ()
    bodies: Sequence[Mapping[str, Any]] = ()
    entries: Sequence[Entry] = ()
    dead_letters: Mapping[int, tuple[Entry, Note]] = field(default_factory=dict)
    differing: Collection[int] = ()
    scores: np.ndarray = field(default_factory=lambda: np.empty(0))
    has_scores: bool = True
    after: StreamState | None = None
    facts: Mapping[str, Any] = field(default_factory=dict)

    def commit(self, log: EventLog) -> int:
        """Write it to the log; return the position of the first new event. Nothing of the run is touched."""
        first = 0
        if self.entries:
            first = log.append(self.entries, self.facts)
        elif self.facts:
            log.set_facts(self.facts)
        # last: a request that fails is sent again, and what has no id would be stored twice
        for reason in dict.fromkeys(why for _, why in self.dead_letters.values()):
            log.add_dead_letters([entry for entry, why in self.dead_letters.values() if why == reason], reason)
        return first

    def receipts(self, first: int) -> list[Receipt]:
        """Return what became of the events, committed from a position on."""
        last = first + len(self.new)
        scores = (
            [None if score != score else score for score in self.scores.tolist()] if self.has_scores else repeat(None)
        )
        # as Receipt(...) makes them, in half the time
        new = map(partial(tuple.__new__, Receipt), zip(range(first, last), scores, repeat(False), repeat(None)))
        if len(self.new) == len(self.ids):
            return list(new)
        made = dict(zip(self.new, new)) | {at: Receipt(None, note=why) for at, (_, why) in self.dead_letters.items()}
        first_of = {one: k for k, one in reversed(list(enumerate(self.ids))) if one is not None}
        found = []
        for k, one in enumerate(self.ids):
            if k in made:
                found.append(made[k])
            else:
                assert one is not None
                where = self.logged_positions[one] if one in self.logged_positions else made[first_of[one]].position
                found.append(Receipt(where, duplicate=True, note="differs" if k in self.differing else None))
        return found


def read(
    events: Sequence[Mapping[str, Any]],
    past: StreamState,
    parser: EventParser,
    log: EventLog,
    *,
    strict: bool = True,
) -> Transaction:
    """Read events, without scores; an error names the event that cannot be read.

    Args:
        events: as they came.
        past: what they come after.
        parser: reads them.
        log: knows ids.
        strict: refuse fields that the run does not read.
    """
    ids = [event_id(event) for event in events]
    logged_positions = log.positions([one for one in ids if one is not None])
    first = {one: k for k, one in reversed(list(enumerate(ids))) if one is not None}
    fresh = [k for k, one in enumerate(ids) if one is None or (one not in logged_positions and first[one] == k)]
    differing = _differing(events, ids, logged_positions, first, past, parser, log) if len(fresh) < len(ids) else ()
    named = [{key: value for key, value in events[k].items() if key != ID} for k in fresh]
    named, dead_letters = parser.in_order(named, past, fresh, strict=strict) if fresh else ([], {})
    new = {k: body for i, (k, body) in enumerate(zip(fresh, named, strict=True)) if i not in dead_letters}
    return Transaction(
        ids=ids,
        stream=parser.stream(list(new.values()), past) if new else None,
        logged_positions=logged_positions,
        new=list(new),
        bodies=list(new.values()),
        entries=[Entry(json.dumps(body), ids[k]) for k, body in new.items()],
        dead_letters={
            fresh[i]: (Entry(json.dumps(dict(events[fresh[i]])), ids[fresh[i]]), why) for i, why in dead_letters.items()
        },
        differing=differing,
    )


def _differing(
    events: Sequence[Mapping[str, Any]],
    ids: Sequence[str | None],
    logged_positions: Mapping[str, int],
    first: Mapping[str, int],
    past: StreamState,
    parser: EventParser,
    log: EventLog,
) -> set[int]:
    logged = log.bodies(sorted(set(logged_positions.values())))
    found = set()
    for k, one in enumerate(ids):
        if one is None or (one not in logged_positions and first[one] == k):
            continue
        if one in logged_positions and logged_positions[one] not in logged:  # its contents were cut from the log
            continue
        try:
            mine = parser.as_logged(events[k], past)
            if one in logged_positions:
                (before,) = parse_events([logged[logged_positions[one]]], logged_positions[one], log.place)
            else:
                before = parser.as_logged(events[first[one]], past)
        except (HopstateError, OverflowError, RecursionError, UnicodeError):  # it cannot be the same
            found.add(k)
            continue
        moved = parser.late == "clamp" and mine["t"] < before["t"]  # it may have been late
        if mine != (before | {"t": mine["t"]} if moved else before):
            found.add(k)
    return found
