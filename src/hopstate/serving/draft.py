"""Events on their way into a live run: scored and observed beside it, committed next, then taken."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import repeat
from typing import Any, Literal, NamedTuple

import numpy as np

from hopstate.data.past import Past
from hopstate.serving.log import Entry, EventLog

Note = Literal["late", "ahead", "unreadable", "differs"]


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


class Aside(NamedTuple):
    """An event that is kept aside, and why."""

    entry: Entry
    why: Note


@dataclass(frozen=True)
class Request:
    """Events of a request, and whether their scores are asked for."""

    events: list[dict[str, Any]]
    score: bool

    def told(self, receipt: Receipt) -> Receipt:
        """Return what is told of one of them."""
        return receipt if self.score else receipt._replace(score=None)


@dataclass(frozen=True, eq=False, kw_only=True)
class Draft:
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
    aside: Mapping[int, Aside] = field(default_factory=dict)
    differing: Collection[int] = ()
    scores: np.ndarray = field(default_factory=lambda: np.empty(0))
    told: bool = True
    after: Past | None = None
    facts: Mapping[str, Any] = field(default_factory=dict)

    def written(self, log: EventLog) -> int:
        """Commit it; return the position of the first new event. Nothing of the run is touched.

        Raises:
            StorageError: the log cannot be written.
        """
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
