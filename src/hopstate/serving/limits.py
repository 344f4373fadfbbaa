"""What a service takes at most."""

from __future__ import annotations

from dataclasses import dataclass

from hopstate.errors import HopstateError


@dataclass(frozen=True, kw_only=True)
class Limits:
    """What a service takes at most.

    Args:
        body: bytes of a request.
        events: events of a request.
        waiting: requests that wait.
        together: events that are committed together.
        delay: seconds that events wait for others; they do while a commit is under way in any case.
        look: seconds between two looks of a replica into its log.
        tick: seconds between two looks for what is due without an event.
        arrival: seconds in which a request must have arrived, whole.
    """

    body: int = 8 << 20
    events: int = 10_000
    waiting: int = 256
    together: int = 5_000
    delay: float = 0.0
    look: float = 0.1
    tick: float = 1.0
    arrival: float = 30.0


class BusyServiceError(HopstateError):
    """Too many requests wait."""
