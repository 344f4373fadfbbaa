"""Events of a request on their way into a live run: read, scored and observed next to it, committed, then taken.

An event is known by its id. One that comes again changes nothing, and whether it is the same as before is reported.
"""

from __future__ import annotations

import json
import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from hopstate.data.events import EventStream
from hopstate.data.stream_state import StreamState
from hopstate.errors import HopstateError
from hopstate.serving.event_parser import Columns, EventParser, Note, event_id
from hopstate.serving.log import Entry, EventLog, parse_events


class Receipt(NamedTuple):
    """What became of an event."""

    position: int | None  # in the log; of one that was there already, the first; None of one that was kept aside
    score: float | None = None  # from what came before it; None of a duplicate or a deletion
    duplicate: bool = False  # it was there already
    note: Note | None = None  # why it was kept aside, or that what was there already "differs" from it

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
    """Events of a request that are about to be committed."""

    ids: Sequence[str | None]  # of all that were given, None for one without
    stream: EventStream | None = None  # the new ones, None if there are none
    logged_positions: Mapping[str, int] = field(default_factory=dict)  # of ids that the log holds already
    new: Sequence[int] = ()  # places, among all, of those that are to be committed
    columns: Columns | None = None  # those, as they are logged
    entries: Sequence[Entry] = ()  # the same for the log
    dead_letters: Mapping[int, tuple[Entry, Note]] = field(default_factory=dict)  # by place
    differing: Collection[int] = ()  # places of those whose id came before with other contents
    scores: np.ndarray = field(default_factory=lambda: np.empty(0))  # of the new ones, NaN for a deletion
    has_scores: bool = True  # whether receipts show them
    after: StreamState | None = None  # the state after them, None if there are none
    facts: Mapping[str, Any] = field(default_factory=dict)  # of the log, to be set in the same commit

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
        scores: list[float | None] = [None] * len(self.new)
        if self.has_scores:
            scores = [None if math.isnan(score) else score for score in self.scores.tolist()]
        if len(self.new) == len(self.ids):
            return [Receipt(first + k, score) for k, score in enumerate(scores)]
        made = {at: Receipt(first + k, score) for k, (at, score) in enumerate(zip(self.new, scores, strict=True))}
        made |= {at: Receipt(None, note=why) for at, (_, why) in self.dead_letters.items()}
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
    """Read events, without scores; an error names the event that cannot be read."""
    ids = [event_id(event) for event in events]
    known = [one for one in ids if one is not None]
    logged_positions = log.positions(known) if known else {}
    first = {one: k for k, one in reversed(list(enumerate(ids))) if one is not None} if known else {}
    fresh = [k for k, one in enumerate(ids) if one is None or (one not in logged_positions and first[one] == k)]
    differing = _differing(events, ids, logged_positions, first, past, parser, log) if len(fresh) < len(ids) else ()
    if not fresh:
        return Transaction(ids=ids, logged_positions=logged_positions, differing=differing)
    columns, aside = parser.in_order([events[k] for k in fresh], past, fresh, strict=strict)
    new = fresh
    if aside:
        rows = [i for i in range(len(fresh)) if i not in aside]
        new, columns = [fresh[i] for i in rows], columns.take(rows)
    return Transaction(
        ids=ids,
        stream=parser.stream(columns, past) if new else None,
        logged_positions=logged_positions,
        new=new,
        columns=columns,
        entries=[Entry(text, ids[k]) for k, text in zip(new, columns.texts(), strict=True)],
        dead_letters={
            fresh[i]: (Entry(json.dumps(dict(events[fresh[i]])), ids[fresh[i]]), why) for i, why in aside.items()
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
