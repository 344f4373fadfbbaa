"""What a rank other than the first has of a run: it reads its folder, and writes and says nothing."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from hopstate.training.config import LoopConfig
from hopstate.training.run_folder import RunFolder


class Onlooker(RunFolder):
    """A run folder that another rank writes."""

    def write_json(self, name: str, value: Any) -> None:
        """Leave it to rank 0."""

    def start_metrics(self, rows: list[dict[str, Any]]) -> None:
        """Leave it to rank 0."""

    def append_metrics(self, row: dict[str, Any]) -> None:
        """Leave it to rank 0."""

    def sync_metrics(self) -> None:
        """Leave it to rank 0."""

    def history(self) -> list[dict[str, Any]]:
        """Return nothing: rank 0 draws the curves."""
        return []


def onlooking(config: LoopConfig) -> LoopConfig:
    """Return how the same loop runs without a word."""
    return replace(config, progress=False, logger="none", tensorboard="no")
