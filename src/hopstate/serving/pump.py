"""From a source into a live run: what was read is committed together with how far, so that a kill doubles nothing.

What cannot be read is kept aside in the log, with the reason.
"""

from __future__ import annotations

import json
import warnings

from hopstate.errors import ConfigError, HopstateError, HopstateWarning, StorageError
from hopstate.serving.draft import Receipt
from hopstate.serving.live import LiveRun
from hopstate.serving.log import Entry
from hopstate.serving.sources import Arrived, Source, named

MOST = 500  # events that are committed together


class Pump:
    """A source beside a live run, in its thread.

    Args:
        live: the run.
        source: where events come from.
        score: whether they are scored.

    Raises:
        ConfigError: late events are rejected, of which no source could be told.
    """

    def __init__(self, live: LiveRun, source: Source, *, score: bool = True) -> None:
        if live.late == "reject":
            raise ConfigError("a source cannot be told that an event is late: give --late clamp or --late park")
        self.live, self.source, self.score = live, source, score
        self._held: list[Arrived] = []
        self._others: set[str] = set()  # fields that were told of

    def step(self) -> list[Receipt]:
        """Take what comes next; return receipts, none where nothing came.

        Raises:
            StorageError: source or log cannot be reached; the same is taken again with the next step.
        """
        self._held = self._held or self.source.read(MOST)
        if not self._held:
            return []
        try:
            if any(one.event is None for one in self._held):
                found = self._one_by_one()
            else:
                found = self._take(self._held)
        except StorageError:
            raise
        except (HopstateError, RecursionError, OverflowError, UnicodeError):
            found = self._one_by_one()
        self._held = []
        return found

    def behind(self) -> int | None:
        """Return how far the run is behind the source, what was read and not taken counted; None if unknown."""
        left = self.source.behind()
        return None if left is None else left + len(self._held)

    def _take(self, arrived: list[Arrived]) -> list[Receipt]:
        facts = {self.source.key: arrived[-1].offset}
        events = [named(one) for one in arrived]
        found = self.live.take(events, score=self.score, facts=facts, strict=False)
        if new := set(self.live.others(events)) - self._others:
            self._others |= new
            told = f"fields of the source that the run does not read are left out: {', '.join(sorted(new))[:500]}"
            warnings.warn(told, HopstateWarning, stacklevel=4)
        return found

    def _one_by_one(self) -> list[Receipt]:
        found = []
        for one in self._held:
            try:
                if one.event is None:
                    raise ConfigError("no JSON object")
                found += self._take([one])
            except StorageError:
                raise
            except (HopstateError, RecursionError, OverflowError, UnicodeError) as error:
                body = json.dumps({"text": one.text, "error": str(error)})
                self.live.log.park([Entry(body, one.id)], "unreadable")
                self.live.log.tell({self.source.key: one.offset})
                found.append(Receipt(None, note="unreadable"))
        return found
