"""Events of a request read: which are new, as they are logged and as the model takes them; which came before.

An event is known by its id. One that comes again changes nothing, and whether it is the same as before is told.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from hopstate.data.events import EventStream
from hopstate.data.past import Past
from hopstate.errors import HopstateError
from hopstate.serving.draft import Aside
from hopstate.serving.event_values import ID, id_of
from hopstate.serving.incoming import Incoming
from hopstate.serving.log import Entries, Entry, EventLog, rows


class Read(NamedTuple):
    """Events that were read: the new ones as a stream, None where there are none, and what their `Draft` holds."""

    stream: EventStream | None
    facts: dict[str, Any]


def read(
    events: Sequence[Mapping[str, Any]],
    past: Past,
    incoming: Incoming,
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

    Raises:
        TimeOrderError, DataError: see `Incoming.in_order`.
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
    events: Sequence[Mapping[str, Any]], past: Past, incoming: Incoming, log: EventLog, strict: bool
) -> Read:
    """Do what `read` does, of events of any form; what is wrong with one is said."""
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
    told["aside"] = {fresh[k]: Aside(Entry(json.dumps(dict(events[fresh[k]])), ids[fresh[k]]), out[k]) for k in out}
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
    past: Past,
    incoming: Incoming,
    log: EventLog,
) -> set[int]:
    """Return the places of events that came before, in the log or among these, with other contents."""
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
