"""What a log holds, read again: an event that is damaged is told with the log's name and where it stands."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from hopstate.errors import CheckpointError, HopstateError

_DAMAGE = (LookupError, TypeError, ValueError, ArithmeticError, AttributeError, RecursionError)
_ENDS, _NUMBERS, _VALUES = {str, int}, {int, float}, {str, int, float, type(None)}


def rows(texts: Sequence[str], first: int, place: object) -> list[dict[str, Any]]:
    """Return events as they were logged, from a position on.

    Raises:
        CheckpointError: one is none.
    """
    with sound(place, first, len(texts)):
        found = [json.loads(text) for text in texts]
        if _are_events(found):
            return found
    wrong = next(k for k, row in enumerate(found) if not _are_events([row]))
    raise CheckpointError(f"{place} is damaged: event {first + wrong} is {str(texts[wrong])[:80]!r}; use a copy")


@contextmanager
def sound(place: object, first: int, many: int) -> Iterator[None]:
    """Within it what is wrong with so many logged events, from a position on, is told by the log's name.

    Raises:
        CheckpointError: in place of what is no error of this library.
    """
    try:
        yield
    except _DAMAGE as error:
        where = f"{place}, events {first} to {first + many - 1}"
        if isinstance(error, HopstateError):
            raise type(error)(f"{where}: {error}") from error
        raise CheckpointError(
            f"{where}: something else than was logged ({type(error).__name__}: {error}); use a copy, or move it away"
        ) from error


def _are_events(found: Sequence[Any]) -> bool:
    if not {dict}.issuperset(map(type, found)):
        return False
    try:
        ends = {type(row[end]) for row in found for end in ("src", "dst")}
        times = {type(row["t"]) for row in found}
    except KeyError:
        return False
    return ends <= _ENDS and times <= _NUMBERS and _VALUES.issuperset(type(v) for row in found for v in row.values())
