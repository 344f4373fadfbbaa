"""Weights & Biases: a run of a project, kept on this machine unless WANDB_MODE says otherwise.

The project is WANDB_PROJECT, else "hopstate"; files go to WANDB_DIR, else to `wandb` where one stands, from where
`wandb sync` sends them.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

os.environ.setdefault("WANDB_ERROR_REPORTING", "false")  # looked at when it is imported

import wandb

from hopstate.training.loggers.protocol import Kept, Row, Status

CODE = {"finished": 0, "interrupted": 130, "failed": 1}  # exit codes, by which a run is told as finished or failed


class WandB:
    """Writes one run; a resumed run has the same id, and where it is kept offline a file more."""

    def __init__(self, folder: Path) -> None:
        self._kept = Kept(folder, "wandb")
        self._mode: Any = os.environ.get("WANDB_MODE") or "offline"
        self.seconds = 5.0 if self._mode == "online" else 60.0

    def start(self, settings: Mapping[str, Any], name: str, rows: Sequence[Row]) -> None:
        """Begin the run, or go on in it; see `protocol.Logger`."""
        run = self._kept.read().get("run") or secrets.token_hex(4)
        self._kept.write(run=run)
        self._run = wandb.init(
            project=os.environ.get("WANDB_PROJECT") or "hopstate",
            name=name,
            id=run,
            mode=self._mode,
            resume="allow",
            reinit="create_new",
            config=dict(settings),
            settings=wandb.Settings(silent=True, console="off", x_disable_stats=True),
        )

    def log(self, metrics: Mapping[str, float], epoch: int) -> None:
        """Write figures at a step, the epoch."""
        self._run.log(dict(metrics), step=epoch)

    def finish(self, status: Status) -> None:
        """End the run, its status in the summary."""
        self._run.summary["status"] = status
        self._run.finish(exit_code=CODE[status])
