"""What comes is judged while nobody waits for it."""

from __future__ import annotations

import asyncio

from hopstate.serving.desk import LATER, Desk
from hopstate.serving.lines import Lines
from hopstate.serving.live import LiveRun
from hopstate.serving.meters import Meters
from hopstate.serving.quality import Quality
from hopstate.streaming.slices import Steps


class Judge:
    """The quality of the run that serves.

    Args:
        live: the run.
        desk: whose thread judges.
        meters, lines: where figures and alarms are told.
    """

    def __init__(self, live: LiveRun, desk: Desk, meters: Meters, lines: Lines) -> None:
        self._live, self._desk, self._meters, self._lines = live, desk, meters, lines
        self.quality, self._before, self._told = Quality(live), live.past, 0
        self._under_way: asyncio.Future[None] | None = None

    async def done(self) -> None:
        """Wait until what is being judged is."""
        if self._under_way is not None:
            await self._under_way

    def let(self) -> None:
        """Let what came be judged, where it is not being done: nobody waits for it."""
        if self._under_way is None or self._under_way.done():
            self._under_way = asyncio.wrap_future(self._desk.give_steps(self._judging, LATER))

    def _judging(self) -> Steps[None]:
        before, self._before = self._before, self._live.past
        try:
            yield from self.quality.judging(before)
            self._meters.judged(self.quality)
        except Exception as error:  # of a figure: events are taken whatever becomes of it
            self.quality.alarm(f"quality is not judged: {error}")
        news, self._told = self.quality.raised - self._told, self.quality.raised
        self._meters.alarms.inc(news)
        for alarm in list(self.quality.alarms)[-news:] if news else ():
            self._lines("alarm", position=alarm.position, text=alarm.text)
