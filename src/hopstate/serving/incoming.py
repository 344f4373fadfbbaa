"""Events as they come in: JSON objects with the columns of a run's own file, in order of time."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np
import pandas as pd

from hopstate.data.dates import shown_time
from hopstate.data.events import EventStream
from hopstate.data.past import Past
from hopstate.data.readers.event_tables import SOURCES, TARGETS, TIMES
from hopstate.data.readers.read_events import read_events
from hopstate.errors import ConfigError, DataError, HopstateWarning, TimeOrderError
from hopstate.runs.asking import LAST, times_in
from hopstate.runs.data import config_of_run, known_data, reading, settings_of_run
from hopstate.runs.going_on import as_trained, own_reading
from hopstate.training.run_folder import RunFolder

Late = Literal["reject", "clamp", "park"]
_ENDS = (
    ("source", "source_column", "src", SOURCES),
    ("target", "target_column", "dst", TARGETS),
    ("time", "time_column", "t", TIMES),
)


class Incoming:
    """How a run's further events are read.

    Args:
        run: the run folder.
        method: as in `hopstate.evaluate`.
        late: what becomes of late ones; see `LiveRun`.
    """

    def __init__(self, run: RunFolder, method: str | None, late: Late) -> None:
        self.run, self.late = run, late
        self._columns, self._reading = _reading_of(run, method)
        self._dates = str(known_data(run).get("dates") or "")

    def stream(self, bodies: Sequence[Mapping[str, Any]], past: Past) -> EventStream:
        """Return events that `in_order` returned, as the run's own file was read."""
        unit = {"time_unit": past.time_unit} if past.time_unit else {}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", HopstateWarning)  # said of the run's own file
            return as_trained(
                self.run, read_events(pd.DataFrame(list(bodies)), from_start=False, **(self._reading | unit))
            )

    def in_order(self, bodies: list[dict[str, Any]], past: Past) -> tuple[list[dict[str, Any]], set[int]]:
        """Return events by the names src, dst and t, in the past's unit, and which of them are late and left out.

        Raises:
            TimeOrderError: one is late, and such are rejected.
            DataError: one has no source, target or time.
        """
        named = [self._named(body, k) for k, body in enumerate(bodies)]
        t = _times(past, [body["t"] for body in named])
        last, late = past.last_time if len(past) else None, set()
        for k, body in enumerate(named):
            now = t[k].item()
            if last is not None and now < last:
                if self.late == "reject":
                    raise TimeOrderError(
                        f"event {k} is of time {body['t']!r}, but the one before it is of "
                        f"{shown_time(last, past.time_unit or '', self._dates)}; events come in order of time (serve "
                        "with --late clamp or --late park to take others)"
                    )
                if self.late == "park":
                    late.add(k)
                    continue
                now = last
            body["t"] = last = now
        return named, late

    def _named(self, body: Mapping[str, Any], k: int) -> dict[str, Any]:
        """Return an event with its source, target and time under the names src, dst and t."""
        found = dict(body)
        for (what, _, usual, known), own in zip(_ENDS, self._columns, strict=True):
            names = [own] if own in found else [name for name in found if name.lower() in known]
            if len(names) != 1:
                told = "no " if not names else "more than one "
                raise DataError(f"event {k} has {told}{what} (a field {usual!r}{f' or {own!r}' if own else ''})")
            found[usual] = found.pop(names[0])
        for end in ("src", "dst"):
            if not isinstance(found[end], (str, int)) or isinstance(found[end], bool):
                raise DataError(f"event {k}: {end} is an id, text or a whole number; got {found[end]!r}")
        return found


def _times(past: Past, given: list[Any]) -> np.ndarray:
    for k, value in enumerate(given):
        if isinstance(value, bool) or not isinstance(value, (str, int, float)):
            raise DataError(f"event {k}: t is a number in the unit of the run's own data, or a date; got {value!r}")
        if isinstance(value, int) and abs(value) > LAST:
            raise DataError(f"event {k}: {value} is no time of this run, whose times are of 64 bits")
    texts = any(isinstance(value, str) for value in given)
    try:
        return times_in(past, np.array(given, object if texts else None))
    except ConfigError as error:
        raise DataError(str(error)) from None


def _reading_of(run: RunFolder, named: str | None) -> tuple[tuple[str | None, ...], dict[str, Any]]:
    """Return the columns of source, target and time in a run's own file, and how its later events are read."""
    method, settings = settings_of_run(run, named)
    own = own_reading(settings["read"], pd.DataFrame())
    names = tuple(own.get(option) for _, option, *_ in _ENDS)
    config = config_of_run(run, method, settings | {"read": own | {option: usual for _, option, usual, _ in _ENDS}})
    return names, {key: value for key, value in reading(config.read).items() if key != "label_column"}
