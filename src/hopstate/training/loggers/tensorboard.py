"""TensorBoard: event files in the run's folder under `tensorboard`."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from torch.utils.tensorboard import SummaryWriter

from hopstate.training.loggers.protocol import Row, Status


class TensorBoard:
    """Writes event files; a resumed run goes on in the same folder, and what was written past it is hidden."""

    seconds = 60.0

    def __init__(self, folder: Path) -> None:
        self._folder = folder / "tensorboard"
        self._last = 0

    def start(self, settings: Mapping[str, Any], name: str, rows: Sequence[Row]) -> None:
        """Begin a file of events; see `protocol.Logger`."""
        self._last = int(rows[-1]["epoch"]) if rows else 0
        self._writer: Any = SummaryWriter(str(self._folder), purge_step=self._last + 1 if rows else None)
        self._writer.add_text("settings", f"```json\n{json.dumps(settings, indent=1, default=str)}\n```", self._last)

    def log(self, metrics: Mapping[str, float], epoch: int) -> None:
        """Write one point a figure."""
        self._last = epoch
        for name, value in metrics.items():
            self._writer.add_scalar(name, value, epoch)
        self._writer.flush()

    def finish(self, status: Status) -> None:
        """Write the status as a text, and close the file."""
        self._writer.add_text("status", status, self._last)
        self._writer.close()
