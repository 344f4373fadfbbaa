"""A replica: it follows the log that another process writes, and answers as the writer does at the same position.

It takes no events and writes nothing into the log. Its snapshots lie in a folder of its own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from hopstate.errors import HopstateError, MissingFileError
from hopstate.serving.draft import Receipt
from hopstate.serving.event_log import EventLog
from hopstate.serving.live import LiveRun
from hopstate.serving.logs import open_log
from hopstate.serving.whose import OtherModelError


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

    def _check_model(self, told: Mapping[str, Any]) -> None:
        self.is_current = told.get("model", self.model) == self.model
        if not self.is_current:
            raise OtherModelError(
                f"the log serves model {told['model']} now, this replica has {self.model}: start it with the run that "
                "the writer serves"
            )

    def follow(self, most: int | None = None) -> int:
        """Do what `LiveRun.follow` does.

        Raises:
            OtherModelError: the writer has swapped its model; until it swaps back the replica is not current.
        """
        self._check_model(self.log.facts())
        return super().follow(most)

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
