"""What a logger is: told when a run starts, an epoch's figures, and how it ended."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, Protocol

from hopstate.errors import FormatError
from hopstate.io.files import write_text
from hopstate.io.opening import exists, read_json

Status = Literal["finished", "interrupted", "failed"]
Row = Mapping[str, Any]
_COUNTED = re.compile(r"^(epoch|step)$|_events$")


class Logger(Protocol):
    """Takes the figures of one run; used from one thread of its own."""

    seconds: float  # the longest that the end of a run waits for it

    def start(self, settings: Mapping[str, Any], name: str, rows: Sequence[Row]) -> None:
        """Begin a run, or go on in the one that `Kept` names.

        Args:
            settings: of the run, by dotted name.
            name: of the run.
            rows: metrics of the epochs that a run which is taken up has behind it, one mapping each.
        """
        ...

    def log(self, metrics: Mapping[str, float], epoch: int) -> None:
        """Take the figures of an epoch.

        Args:
            metrics: figures by name.
            epoch: counted from 1.
        """
        ...

    def finish(self, status: Status) -> None:
        """End the run: "finished", "interrupted" (it can be resumed) or "failed"."""
        ...


class Kept:
    """What a run folder keeps of a logger, so that a resumed run goes on in the same place: `logger-NAME.json`."""

    def __init__(self, folder: Path, name: str) -> None:
        self.path = folder / f"logger-{name}.json"

    def read(self) -> dict[str, str]:
        """Return what was kept; nothing where there is no file, or a damaged one: then a new place is made."""
        try:
            found = read_json(self.path) if exists(self.path) else {}
        except (FormatError, OSError):
            return {}
        return {str(k): v for k, v in found.items() if isinstance(v, str)} if isinstance(found, dict) else {}

    def write(self, **values: str) -> None:
        """Keep texts by name."""
        write_text(self.path, json.dumps(values) + "\n")


def figures(row: Row) -> dict[str, float]:
    """Return the figures of a row of metrics: numbers that are neither its epoch or step nor counts of events.

    How many events a figure is told from is the same at every epoch, and no curve.

    >>> figures({"epoch": 1, "step": 8, "train_loss": 0.5, "val_auc": None, "val_events": 900, "val_new_events": 11})
    {'train_loss': 0.5}
    """
    return {k: float(v) for k, v in row.items() if not _COUNTED.search(k) and isinstance(v, (int, float))}
