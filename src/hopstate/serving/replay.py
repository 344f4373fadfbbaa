"""What the events of a log were scored when they came, again: an audit of a live run."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from hopstate.data.dates import format_times
from hopstate.errors import ConfigError
from hopstate.runs.saved_run import SavedRun
from hopstate.serving.live import LiveRun, check_log
from hopstate.serving.log import commit_batches, corruption_errors, open_log, parse_events
from hopstate.serving.snapshots import state_at_log_start


def replayed(
    run: str | Path, folder: str | Path | None = None, *, log: str | None = None, **options: Any
) -> Iterator[pd.DataFrame]:
    """Yield what the events of a log were scored when they came, commit after commit.

    A log that was cut is replayed from the earliest snapshot that is kept. Options are those of `LiveRun`.

    Yields:
        Columns position, src, dst, t (dates where the run's own file has dates) and score.

    Raises:
        MissingFileError: there is no log.
        ConfigError: the log is another run's.
        CheckpointError: it was cut, and no snapshot leads on from there.
    """
    kept = open_log(log or folder or SavedRun.open(run).path / "live", read_only=True)
    facts, dates = kept.facts(), SavedRun.open(run).dates
    with tempfile.TemporaryDirectory(prefix="hopstate-") as scratch, LiveRun(run, folder=scratch, **options) as live:
        place = log or folder or live.run.path / "live"
        if check_log(facts, live.run, live.model, place) != live.own_events:
            raise ConfigError(f"the log in {place} was begun after other data than the run's")
        if kept.start:
            state = Path(folder or SavedRun.open(run).path / "live") / "state"
            live.past = state_at_log_start(kept, state, live.model, live.own_events)
        for bodies in commit_batches(kept, live.position, 1):
            first, events = live.position, parse_events(bodies, live.position, kept.place)
            with corruption_errors(kept.place, first, len(events)):
                scores, live.past = live._after(live._parser.columns(events), score=True)
            table = pd.DataFrame({name: [row[name] for row in events] for name in ("src", "dst", "t")})
            table["t"] = format_times(table["t"], live.past.time_unit or "", dates)
            yield table.assign(position=np.arange(first, first + len(events)), score=scores)
            live.snapshot_position = live.position  # nothing to be kept
    kept.close()
