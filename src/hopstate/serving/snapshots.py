"""Snapshots of a live run: its state after some event of the log, the last three of them; cutting the log.

Snapshots lie in one folder and share files (`data.stream_checkpoint`). Each file has a checksum. A start reads all
files of the newest snapshot, and takes the one before it if one is damaged.
"""

from __future__ import annotations

import contextlib
import warnings
from pathlib import Path

from hopstate.data.splits import parse_duration
from hopstate.data.stream_checkpoint import (
    EARLIER,
    HEAD,
    earlier_heads,
    load_stream_state,
    num_events_of,
    save_stream_state,
)
from hopstate.data.stream_state import StreamState
from hopstate.errors import CheckpointError, ConfigError, DataError, HopstateWarning, MissingFileError
from hopstate.io.files import remove_file, write_text
from hopstate.serving.log import EventLog, parse_events

NUM_SNAPSHOTS = 3


def save_snapshot(past: StreamState, folder: Path) -> StreamState:
    """Save a state as the newest snapshot; return it with its files."""
    return save_stream_state(past, folder, before=lambda: _rotate(folder))


def _rotate(folder: Path) -> None:
    """Put the newest snapshot among the earlier ones, and remove the oldest beyond `NUM_SNAPSHOTS`."""
    with contextlib.suppress(DataError, LookupError, TypeError):  # a damaged one is of no use
        if (folder / HEAD).is_file() and (events := num_events_of(folder / HEAD)):
            write_text(folder / EARLIER.format(f"{events:012}"), (folder / HEAD).read_text("utf-8"))
    for path in earlier_heads(folder)[NUM_SNAPSHOTS - 1 :]:
        remove_file(path)


def latest_snapshot(folder: Path, model: str) -> StreamState | None:
    """Return the newest snapshot that is whole, None where there is none; it is the one that counts from here on.

    Args:
        folder: where they lie.
        model: the fingerprint that it must have.
    """
    heads = [folder / HEAD, *earlier_heads(folder)]
    for place, path in enumerate(heads):
        try:
            past = load_stream_state(folder, model=model, head=path.name, verify=True)
        except MissingFileError:
            continue
        except CheckpointError as error:
            left = "the one before it is taken" if place + 1 < len(heads) else "the log is read from its beginning"
            warnings.warn(f"{error}: {left}", HopstateWarning, stacklevel=6)
            continue
        if place:
            write_text(folder / HEAD, path.read_text("utf-8"))
        return past
    return None


def snapshot_sizes(folder: Path) -> list[int]:
    """Return how many events each snapshot has seen, as their files say."""
    found = [int(path.stem.partition("-")[2]) for path in earlier_heads(folder)]
    with contextlib.suppress(DataError, LookupError, TypeError, MissingFileError):
        found.append(num_events_of(folder / HEAD))
    return found


def latest_snapshot_time(folder: Path) -> float | None:
    """Return when the newest snapshot was kept, Unix seconds, None where there is none."""
    try:
        return (folder / HEAD).stat().st_mtime
    except OSError:
        return None


def check_retain(retain: str | int | None) -> None:
    """Refuse what is neither a number of events nor a duration."""
    text = "1" if retain is None else str(retain)
    if not (text.isdecimal() and int(text) > 0) and not (len(text) > 1 and text[-1] in "smhdw"):
        raise ConfigError(f"retain is a number of events, or a duration such as 30d; got {retain!r}")


def check_duration(past: StreamState, retain: str | int) -> None:
    """Refuse a duration that cannot be told in a past's unit of time."""
    if not str(retain).isdecimal():
        parse_duration(past.events(len(past) - 1), str(retain))


def apply_retention(log: EventLog, past: StreamState, state: Path, num_run_events: int, retain: str | int) -> int:
    """Cut a log; return where it begins now.

    Args:
        log: its writer's.
        past: what has been observed of it.
        state: the folder of snapshots.
        num_run_events: events that came before the log.
        retain: how many of the last events stay, or those of the last 30d (h, m, s, w), if not more must.
    """
    snapshots = snapshot_sizes(state)
    if len(snapshots) < 2 or len(log) == log.start:
        return log.start
    limit = min(snapshots) - num_run_events
    if str(retain).isdecimal():
        return log.cut(max(min(limit, len(log) - int(retain)), 0))
    since = past.last_time - parse_duration(past.events(len(past) - 1), retain)
    low, high = log.start, max(limit, log.start)
    while low < high:  # the first event that is young enough; times do not fall
        middle = (low + high) // 2
        if parse_events([log.bodies([middle])[middle]], middle, log.place)[0]["t"] >= since:
            high = middle
        else:
            low = middle + 1
    return log.cut(low)


def state_at_log_start(log: EventLog, state: Path, model: str, num_run_events: int) -> StreamState:
    """Return the earliest snapshot from which a log that was cut can be replayed; nothing is changed."""
    for head in [*(path.name for path in reversed(earlier_heads(state))), HEAD]:
        with contextlib.suppress(MissingFileError, CheckpointError):
            past = load_stream_state(state, model=model, head=head, verify=True)
            if len(past) >= num_run_events + log.start:
                return past
    raise CheckpointError(
        f"the log begins at event {log.start}, what came before was cut (--retain), and {state} holds no whole "
        "snapshot from which the rest follows; put its files back"
    )
