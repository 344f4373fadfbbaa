"""Events in few rows: those without ids stand together in one text, which is written in about half of the time."""

from __future__ import annotations

from collections.abc import Iterable

from hopstate.serving.event_log import BETWEEN, Entries

MOST = 1_000  # events in a row, all of which are read for one of them


def packed(entries: Entries, first: int) -> Iterable[tuple[str, str | None, int]]:
    """Return rows of (texts, id, position of the first), from a position on; an id has its row alone."""
    if entries.ids is not None:
        return zip(entries.bodies, entries.ids, range(first, first + len(entries)))
    if entries.together is not None and len(entries) <= MOST:
        return [(entries.together, None, first)]
    cuts = range(0, len(entries), MOST)
    return [(BETWEEN.join(entries.bodies[cut : cut + MOST]), None, first + cut) for cut in cuts]


def texts(row: object) -> list[str]:
    """Return the texts of a row.

    Raises:
        ValueError: it holds something else.
    """
    if not isinstance(row, str):
        raise ValueError(f"{str(row)[:40]!r} is no text")
    return row.split(BETWEEN)


def from_rows(rows: Iterable[tuple[int, object]], at: int, end: int) -> tuple[str, ...] | None:
    """Return the texts of positions at .. end-1, None where some are missing.

    Args:
        rows: positions of their first texts, rising, and rows; the first one may begin earlier.
        at, end: positions.
    """
    found: list[str] = []
    for position, row in rows:
        skipped = at + len(found) - position
        if skipped < 0 or (found and skipped):
            return None
        found += texts(row)[skipped:]
    return tuple(found) if len(found) == end - at else None
