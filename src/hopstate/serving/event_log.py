"""The log of a live run: events in the order of their commits, each durable before it is acknowledged.

An event is a JSON object as text. A commit is a group of events that were taken together; its boundary is recorded. An
event with an id that the log holds already changes nothing and has the position of the first. There is one writer, and
readers see whole commits. What lies before a position may be cut off; ids are known as long as their events are kept.

Every log is held to the same checks (tests/serving/log_conformance.py).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, overload

from hopstate.errors import CheckpointError, DataError
from hopstate.io.files import is_broken

BETWEEN = "\x1e"  # no JSON holds it, so texts may stand together with it between them
PAGE = 1_000  # commits, or a few more events, that are read at a time


class Entry(NamedTuple):
    """An event to be logged.

    Args:
        body: a JSON object.
        id: tells it from others, None where nothing does.
    """

    body: str
    id: str | None = None


class Entries(Sequence[Entry]):
    """Entries as columns: to make each of them takes longer than to log them.

    Args:
        bodies: of all; or one text with `BETWEEN` between them.
        ids: of all, None where none has any.
    """

    def __init__(self, bodies: Sequence[str] | str, ids: Sequence[str | None] | None = None) -> None:
        self._bodies, self.ids = bodies, ids
        self._count = bodies.count(BETWEEN) + 1 if isinstance(bodies, str) else len(bodies)

    @property
    def bodies(self) -> Sequence[str]:
        """Each by itself."""
        if isinstance(self._bodies, str):
            self._bodies = self._bodies.split(BETWEEN)
        return self._bodies

    @property
    def together(self) -> str | None:
        """All in one text, None where they stand each by itself."""
        return self._bodies if isinstance(self._bodies, str) else None

    @classmethod
    def of(cls, entries: Sequence[Entry]) -> Entries:
        """Return entries as columns."""
        if isinstance(entries, Entries):
            return entries
        ids = [entry.id for entry in entries]
        return cls([entry.body for entry in entries], None if ids.count(None) == len(ids) else ids)

    def __len__(self) -> int:
        return self._count

    @overload
    def __getitem__(self, k: int) -> Entry: ...
    @overload
    def __getitem__(self, k: slice) -> Entries: ...
    def __getitem__(self, k: int | slice) -> Entry | Entries:
        if isinstance(k, slice):
            return Entries(self.bodies[k], None if self.ids is None else self.ids[k])
        return Entry(self.bodies[k], None if self.ids is None else self.ids[k])


@dataclass(frozen=True)
class Commit:
    """Events that were taken together.

    Args:
        first: position of the first in the log, from 0.
        bodies: of all, JSON objects.
    """

    first: int
    bodies: tuple[str, ...]


class EventLog(Protocol):
    """What a live run asks of a log; `place` names it in messages."""

    place: str

    def __len__(self) -> int:
        """Events that were ever taken: the position of the next one."""
        ...

    @property
    def start(self) -> int:
        """Position of the first event that is kept."""
        ...

    def append(self, entries: Sequence[Entry], facts: Mapping[str, Any] | None = None) -> int:
        """Make entries one commit, on the disk when this returns; return the position of the first.

        No entries make no commit.

        Args:
            entries: the events.
            facts: what is told (see `tell`) in the same commit, both or neither.

        Raises:
            DataError: an id that the log holds, or one twice, or a text that no file can hold; nothing was taken.
            BusyError: another writer has taken over; nothing was taken.
            StorageError: it could not be written; it may be there all the same, as a whole.
        """
        ...

    def positions(self, ids: Sequence[str]) -> dict[str, int]:
        """Return the positions of those ids that the log holds."""
        ...

    def bodies(self, positions: Sequence[int]) -> dict[int, str]:
        """Return the events at those positions that are kept."""
        ...

    def commits(self, first: int | None = None) -> Iterator[Commit]:
        """Yield what was committed from a position on, or all; of a commit that begins before it, the rest.

        Raises:
            CheckpointError: what stood there is not kept any more, or is missing.
        """
        ...

    def cut(self, position: int) -> int:
        """Drop commits that lie wholly before a position, the last one never; return where the log begins now."""
        ...

    def park(self, entries: Sequence[Entry], why: str) -> None:
        """Keep entries aside, each id once, on the disk when this returns."""
        ...

    def parked(self) -> int:
        """Return how many entries were kept aside."""
        ...

    def facts(self) -> dict[str, Any]:
        """Return what was told of the log as a whole."""
        ...

    def tell(self, facts: Mapping[str, Any]) -> None:
        """Keep facts of the log as a whole."""
        ...

    def close(self) -> None:
        """Let go of it."""
        ...


def check_entries(entries: Sequence[Entry]) -> Entries:
    """Return entries as columns, refusing what no log takes.

    Raises:
        DataError: an id stands twice, or a text is none that a file can hold, or not JSON's.
    """
    found = Entries.of(entries)
    ids = [] if found.ids is None else [one for one in found.ids if one is not None]
    if len(set(ids)) < len(ids):
        raise DataError(taken("the log"))
    bodies = found.together or "".join(found.bodies)
    if found.together is None and BETWEEN in bodies:
        wrong = next(body for body in found.bodies if BETWEEN in body)
        raise DataError(f"a text holds a bare control character, which no JSON does: {wrong[:40]!r}; nothing was taken")
    if bodies.isascii() and "".join(ids).isascii():
        return found
    for text in (*found.bodies, *ids):
        if not text.isascii() and is_broken(text):
            raise DataError(f"a text holds half a character, which no file can: {text[:40]!r}; nothing was taken")
    return found


def taken(place: object) -> str:
    """Return what is told of an id that comes twice."""
    return f"an event's id is in {place} already, or stands here twice; nothing was taken"


def paged(page: Callable[[int], list[Commit]], at: int) -> Iterator[Commit]:
    """Give commits from a position on, some at a time."""
    while found := page(at):
        yield from found
        at = found[-1].first + len(found[-1].bodies)


def check_start(first: int | None, start: int, place: object) -> int:
    """Return where to read from.

    Raises:
        CheckpointError: it lies before what is kept.
    """
    if first is not None and first < start:
        raise CheckpointError(
            f"{place} begins at event {start}; what came before was cut, and event {first} is asked for"
        )
    return start if first is None else first


def bulks(log: EventLog, first: int, least: int) -> Iterator[list[str]]:
    """Yield the events of a log from a position on, whole commits together until they are so many."""
    bodies: list[str] = []
    for commit in log.commits(first):
        bodies += commit.bodies
        if len(bodies) >= least:
            yield bodies
            bodies = []
    if bodies:
        yield bodies
