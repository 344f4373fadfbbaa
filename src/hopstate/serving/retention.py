"""What of a log may go: events older than asked that every snapshot has seen, where two or more are kept."""

from __future__ import annotations

import warnings
from pathlib import Path

from hopstate.data.event_splits import parse_duration
from hopstate.data.stream_state import StreamState
from hopstate.errors import CheckpointError, ConfigError, HopstateWarning
from hopstate.serving.event_log import EventLog
from hopstate.serving.logged import rows
from hopstate.serving.snapshots import double, kept_events, oldest


def check_retain(retain: str | int | None) -> None:
    """Refuse what is neither a number of events nor a duration.

    Raises:
        ConfigError: it is none.
    """
    text = "1" if retain is None else str(retain)
    if not (text.isdecimal() and int(text) > 0) and not (len(text) > 1 and text[-1] in "smhdw"):
        raise ConfigError(f"retain is a number of events, or a duration such as 30d; got {retain!r}")


def check_duration(past: StreamState, retain: str | int) -> None:
    """Refuse a duration that cannot be told in a past's unit of time.

    Raises:
        ConfigError: it is none, or the unit is unknown.
    """
    if not str(retain).isdecimal():
        parse_duration(past.events(len(past) - 1), str(retain))


def retained(log: EventLog, past: StreamState, state: Path, own_events: int, retain: str | int) -> int:
    """Cut a log; return where it begins now.

    Args:
        log: its writer's.
        past: what has been observed of it.
        state: the folder of snapshots.
        own_events: events that came before the log.
        retain: how many of the last events stay, or those of the last 30d (h, m, s, w), if not more must.

    Raises:
        ConfigError: a duration, and the run's unit of time is unknown.
        StorageError: the log cannot be written.

    Warns:
        HopstateWarning: a snapshot is damaged: all of the log stays, which has what it held.
    """
    try:
        double(state)  # what is cut stands nowhere else
    except CheckpointError as error:
        warnings.warn(f"the log is not cut: {error}", HopstateWarning, stacklevel=5)
        return log.start
    snapshots = kept_events(state)
    if len(snapshots) < 2 or len(log) == log.start:
        return log.start
    limit = min(snapshots) - own_events
    if str(retain).isdecimal():
        return log.cut(max(min(limit, len(log) - int(retain)), 0))
    since = past.last_time - parse_duration(past.events(len(past) - 1), retain)
    low, high = log.start, max(limit, log.start)
    while low < high:  # the first event that is young enough; times do not fall
        middle = (low + high) // 2
        if rows([log.bodies([middle])[middle]], middle, log.place)[0]["t"] >= since:
            high = middle
        else:
            low = middle + 1
    return log.cut(low)


def past_at_start(log: EventLog, state: Path, model: str, own_events: int) -> StreamState:
    """Return the earliest past that is kept from which a log that was cut can be replayed.

    Raises:
        CheckpointError: there is none.
    """
    found = oldest(state, model, own_events + log.start)
    if found is None:
        raise CheckpointError(
            f"the log begins at event {log.start}, what came before was cut (--retain), and {state} holds no whole "
            "snapshot from which the rest follows; put its files back"
        )
    return found
