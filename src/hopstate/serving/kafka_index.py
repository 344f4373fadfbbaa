"""What the messages of a log in Kafka mean: which of them count, and what follows from them but for the events."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping
from typing import Any


class Index:
    """What is known of a log from its messages in order, but for the events themselves."""

    def __init__(self) -> None:
        self.writer: str | None = None
        self.holder = "another"
        self.length = self.start = self.parked = 0
        self.firsts: list[int] = []  # of commits that count
        self.offsets: list[int] = []
        self.ids: dict[str, int] = {}
        self.parked_ids: set[str] = set()
        self.facts: dict[str, Any] = {}

    def take(self, offset: int, message: Mapping[str, Any]) -> bool:
        """Take the next message in; return whether it counts."""
        if "opened" in message:
            self.writer, self.holder = message["writer"], message["opened"]
            self.facts["format"] = message["format"]
            return True
        if self.writer is None:  # what came before was cut
            self.writer = message["writer"]
        if message["writer"] != self.writer:
            return False
        events = message.get("events", ())
        if events:
            if not self.firsts:
                self.start = self.length = message["first"]
            if message["first"] != self.length:
                return False
            self.firsts.append(self.length)
            self.offsets.append(offset)
            self.ids.update((one, self.length + k) for k, (one, _) in enumerate(events) if one is not None)
            self.length += len(events)
        self.facts |= message.get("facts", {})
        parked = message.get("parked", ())
        self.parked_ids |= {one for one, *_ in parked if one is not None}
        self.parked = message.get("parked_before", self.parked) + len(parked)
        return True

    def commit_of(self, position: int) -> int:
        """Return which of the commits holds a position."""
        return max(bisect_right(self.firsts, position) - 1, 0)

    def cut(self, position: int) -> None:
        """Forget commits that lie wholly before a position."""
        k = self.commit_of(position)
        del self.firsts[:k], self.offsets[:k]
        self.start = self.firsts[0] if self.firsts else 0
        self.ids = {one: at for one, at in self.ids.items() if at >= self.start}
