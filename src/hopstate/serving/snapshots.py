"""Snapshots of a live run, and the truncation of its log.

A snapshot is the state after some event of the log. The last three are stored in one folder and share files
(`data.stream_checkpoint`). Each file has a checksum. At the start all files of the newest snapshot are read. If one of
them is corrupt, the snapshot before it is used.
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
    """Store the newest snapshot as an earlier one, and remove the oldest ones beyond `NUM_SNAPSHOTS`."""
    with contextlib.suppress(DataError, LookupError, TypeError):  # a damaged one is of no use
        if (folder / HEAD).is_file() and (events := num_events_of(folder / HEAD)):
            write_text(folder / EARLIER.format(f"{events:012}"), (folder / HEAD).read_text("utf-8"))
    for path in earlier_heads(folder)[NUM_SNAPSHOTS - 1 :]:
        remove_file(path)


def latest_snapshot(folder: Path, model: str) -> StreamState | None:
    """Return the newest intact snapshot of a model and make it the current one; return None if there is none."""
    heads = [folder / HEAD, *earlier_heads(folder)]
    for place, path in enumerate(heads):
        try:
            past = load_stream_state(folder, model=model, head=path.name)
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
    """Return the number of events that each snapshot covers, from file names and headers."""
    found = [int(path.stem.partition("-")[2]) for path in earlier_heads(folder)]
    with contextlib.suppress(DataError, LookupError, TypeError, MissingFileError):
        found.append(num_events_of(folder / HEAD))
    return found


def latest_snapshot_time(folder: Path) -> float | None:
    """Return the Unix time at which the newest snapshot was saved, None if there is none."""
    try:
        return (folder / HEAD).stat().st_mtime
    except OSError:
        return None


def check_retention(retention: str | int | None) -> None:
    """Raise ConfigError if `retention` is neither a number of events nor a duration."""
    text = "1" if retention is None else str(retention)
    if not (text.isdecimal() and int(text) > 0) and not (len(text) > 1 and text[-1] in "smhdw"):
        raise ConfigError(f"retention is a number of events, or a duration such as 30d; got {retention!r}")


def check_duration(past: StreamState, retention: str | int) -> None:
    """Raise an error if a duration cannot be expressed in the time unit of a state."""
    if not str(retention).isdecimal():
        parse_duration(past.events(len(past) - 1), str(retention))


def apply_retention(log: EventLog, past: StreamState, state: Path, num_run_events: int, retention: str | int) -> int:
    """Truncate a log at its beginning, as far as snapshots do not need its events; return its new first position."""
    snapshots = snapshot_sizes(state)
    if len(snapshots) < 2 or len(log) == log.start:
        return log.start
    limit = min(snapshots) - num_run_events
    if str(retention).isdecimal():
        return log.cut(max(min(limit, len(log) - int(retention)), 0))
    since = past.last_time - parse_duration(past.events(len(past) - 1), retention)
    low, high = log.start, max(limit, log.start)
    while low < high:  # the first event that is young enough; times do not fall
        middle = (low + high) // 2
        if parse_events([log.bodies([middle])[middle]], middle, log.place)[0]["t"] >= since:
            high = middle
        else:
            low = middle + 1
    return log.cut(low)


def state_at_log_start(log: EventLog, state: Path, model: str, num_run_events: int) -> StreamState:
    """Return the earliest snapshot from which a truncated log can be replayed."""
    for head in [*(path.name for path in reversed(earlier_heads(state))), HEAD]:
        with contextlib.suppress(MissingFileError, CheckpointError):
            past = load_stream_state(state, model=model, head=head)
            if len(past) >= num_run_events + log.start:
                return past
    raise CheckpointError(
        f"the log begins at event {log.start}, what came before was cut (--retention), and {state} holds no whole "
        "snapshot from which the rest follows; put its files back"
    )
