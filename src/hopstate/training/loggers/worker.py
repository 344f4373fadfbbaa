"""The loggers of one run, each in a thread of its own: what one of them is slow at, or fails at, stops no training."""

from __future__ import annotations

import queue
import threading
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from hopstate.errors import HopstateWarning
from hopstate.training.loggers.choose import make_logger
from hopstate.training.loggers.protocol import Logger, Row, Status, figures


class Loggers:
    """Hands a run's figures to its loggers.

    Args:
        names: of the loggers.
        folder: of the run; its last part names the run.
        settings: of the run, by dotted name.
        rows: metrics of the epochs behind a run that is taken up.

    Raises:
        MissingExtraError: a logger's library cannot be imported.
    """

    def __init__(
        self, names: Sequence[str], folder: Path, settings: Mapping[str, Any], rows: Sequence[Row] = ()
    ) -> None:
        self._workers = [_Worker(name, make_logger(name, folder)) for name in names]
        for worker in self._workers:
            worker.do(worker.logger.start, dict(settings), folder.resolve().name, list(rows))

    def log(self, row: Row) -> None:
        """Hand over the figures of a row of metrics, which has its epoch."""
        for worker in self._workers:
            worker.do(worker.logger.log, figures(row), int(row["epoch"]))
            worker.tell()

    def finish(self, status: Status) -> None:
        """End the run in every logger, and wait no longer for any of them than it says."""
        for worker in self._workers:
            worker.do(worker.logger.finish, status)
            worker.do(None)
        for worker in self._workers:
            worker.end()


class _Worker:
    """One logger, its thread, and what it still has to take."""

    def __init__(self, name: str, logger: Logger) -> None:
        self.name, self.logger = name, logger
        self._error: Exception | None = None
        self._told = False
        self._waiting: queue.SimpleQueue[tuple[Callable[..., None] | None, tuple[Any, ...]]] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._work, name=f"hopstate-{name}", daemon=True)
        self._thread.start()

    def do(self, call: Callable[..., None] | None, *given: Any) -> None:
        """Have the logger do something after all it was given before; None ends its thread."""
        self._waiting.put((call, given))

    def tell(self) -> None:
        """Warn once of what went wrong."""
        if self._error is not None and not self._told:
            self._told = True
            self._warn(f"takes no more figures: {type(self._error).__name__}: {self._error}")

    def end(self) -> None:
        """Wait for the logger, and warn where it failed or was too slow."""
        self._thread.join(self.logger.seconds)
        if self._thread.is_alive():
            self._warn(f"had not taken every figure {self.logger.seconds:g} s after the run's end")
        self.tell()

    def _warn(self, what: str) -> None:
        text = f"logger {self.name} {what}; the run is whole, and metrics.jsonl in its folder has every figure"
        warnings.warn(text, HopstateWarning, stacklevel=4)

    def _work(self) -> None:
        while True:
            call, given = self._waiting.get()
            if call is None:
                return
            if self._error is None:
                try:
                    call(*given)
                except Exception as error:  # whatever a library raises; it is told by `tell`
                    self._error = error
