"""A replica: it follows the log that another process writes, and answers as the writer does at the same position.

It takes no events and writes nothing into the log. Its snapshots lie in a folder of its own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from hopstate.errors import HopstateError, MissingFileError
from hopstate.serving.draft import Receipt
from hopstate.serving.live import LiveRun
from hopstate.serving.log import EventLog, open_log


class ReplicaError(HopstateError):
    """Events were given to a replica."""


class Replica(LiveRun):
    """A live run that follows a log; arguments are those of `LiveRun`.

    Args:
        folder: where its own snapshots lie; RUN/replica by default.
        log: place of the writer's log; RUN/live by default.
    """

    home = "replica"
    follows = True

    def _log_at(self, log: EventLog | str | None) -> EventLog:
        place = log or str(self.run.path / "live")
        return open_log(place, read_only=True) if isinstance(place, str) else place

    def _begin(self, facts: Mapping[str, Any]) -> None:
        if "own_events" not in self.log.facts():
            raise MissingFileError(f"the log of {self.run.path} has not been begun; start its writer first")

    def take(
        self,
        events: Sequence[Mapping[str, Any]],
        *,
        score: bool = True,
        facts: Mapping[str, Any] | None = None,
        strict: bool = True,
    ) -> list[Receipt]:
        """Refuse events.

        Raises:
            ReplicaError: always.
        """
        raise ReplicaError("this is a replica, which takes no events: give them to the service that writes the log")
