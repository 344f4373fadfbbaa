"""A shadow: another run that follows the log of the one that serves, and can take its place.

Both observe the same events; which of the two serves stands in the log, so that a swap is one commit of it: a kill
leaves either the one or the other. What the new one scores from then on is what a replay of the whole log by it gives.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hopstate.errors import ConfigError
from hopstate.serving.event_log import EventLog
from hopstate.serving.live import LiveRun
from hopstate.serving.whose import OtherModelError, signed

NEAR = 5_000  # events that may come to be observed while others wait


class Shadow(LiveRun):
    """A run beside a live one, in its thread and on its log; it takes no events until it serves.

    Args:
        run: the run folder, of a temporal method for links; its own data end before the log begins.
        beside: the run that serves.
        device, method: as in `LiveRun`.

    Raises:
        ConfigError: it is the same model, or counts otherwise (matmul_precision, the unit of times).
        TimeOrderError: its own data reach beyond the log's first event.
        CheckpointError: the log was cut.
    """

    follows = True
    _lent = True
    _at_once = False  # the one that serves does not wait

    def __init__(
        self, run: str | Path, beside: LiveRun, *, device: str | None = None, method: str | None = None
    ) -> None:
        self._beside = beside
        options: dict[str, Any] = {"late": beside.late, "snapshot_every": beside.snapshot_every, "ahead": beside.ahead}
        options["other_fields"] = beside.other_fields
        super().__init__(run, folder=beside.folder / "shadow", device=device, method=method, **options)
        try:
            if self.precision != beside.precision:
                raise ConfigError(
                    f"the shadow was trained with matmul_precision {self.precision}, the run that serves with "
                    f"{beside.precision}; one process counts in one way"
                )
            units = [one.past.time_unit or "no unit that is known" for one in (self, beside)]
            if units[0] != units[1]:
                raise ConfigError(
                    f"the shadow's times are in {units[0]}, those of the run that serves in {units[1]}; a shadow reads "
                    "events as that does"
                )
            self.follow(1)  # tells whether it can
        except BaseException:
            self.close(snapshot=False)
            raise

    def _log_at(self, log: EventLog | str | None) -> EventLog:
        return self._beside.log

    @property
    def _states(self) -> Path:
        return self._beside.folder

    def _check_model(self, told: Mapping[str, Any]) -> None:
        if self.model == self._beside.model:
            raise ConfigError("the shadow has the weights of the run that serves; a shadow is another model")

    def _begin(self, facts: Mapping[str, Any]) -> None:
        self.log.tell({f"own_events {self.model}": facts["own_events"]} | signed(self.run, self.model))


class Pair:
    """Two runs on one log, of which one serves, as the log says.

    Args:
        run: the one that serves where the log says nothing.
        other: the one beside it.
        options: as in `LiveRun`.
    """

    def __init__(self, run: str | Path, other: str | Path, **options: Any) -> None:
        self._runs, self._options = (run, other), options

    def opened(self) -> LiveRun:
        """Return the run that serves."""
        home = self._options.get("folder") or Path(self._runs[0]) / LiveRun.home
        options: dict[str, Any] = {**self._options, "folder": home}
        try:
            return LiveRun(self._runs[0], **options)
        except OtherModelError:
            live = LiveRun(self._runs[1], **options)
            self._runs = self._runs[::-1]
            return live

    def beside(self, live: LiveRun) -> Shadow:
        """Return the other one."""
        options = {key: self._options.get(key) for key in ("device", "method")}
        return Shadow(self._runs[1], live, **options)


def swap(live: LiveRun, shadow: LiveRun) -> None:
    """Let a shadow take the place of the run that serves, which becomes the shadow.

    Raises:
        ConfigError: it has far to go yet.
        StorageError: the log or the sink cannot be written; the run that served goes on (if the log took it after all,
            the other one serves from the next start on).
    """
    if shadow.lag > NEAR:
        raise ConfigError(f"the shadow is {shadow.lag:,} events behind the log; ask again when it is near")
    live.follow()  # a commit of which we were told that it failed may be on the disk
    while shadow.lag:
        shadow.follow()
    if live.sink is not None:
        live.sink.flush()
    told = {"model": shadow.model, "own_events": shadow.own_events, f"own_events {live.model}": live.own_events}
    live.log.tell({**told, "begun": live.log.facts().get("begun", live.model)})
    shadow.sink, live.sink = live.sink, None
    shadow.follows, live.follows = False, True
