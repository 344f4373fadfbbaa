"""Progress output of a run: a progress bar or lines, metrics to loggers, and learning curves as PNG."""

from __future__ import annotations

import time
from contextlib import AbstractContextManager
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
from rich.progress import Progress as Bar

from hopstate.evaluation.labels import figure, metric_label
from hopstate.io.output import draw_figure, progress_callback, screen
from hopstate.training.checkpoint import Progress
from hopstate.training.loggers import Loggers, logger_names
from hopstate.training.run_folder import RunFolder, flatten

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from hopstate.training.config import LoopConfig
    from hopstate.training.loggers import Status

QUIET_SECONDS = 10.0  # minimum time between epoch lines if the output is not a terminal
BATCH_SECONDS = 60.0  # maximum time without a line in a long epoch


def note(config: LoopConfig, text: str) -> None:
    """Print one line if the run shows its progress."""
    if config.progress:
        screen(stderr=True).print(text, highlight=False)


def evaluation_progress(config: LoopConfig, split: str) -> AbstractContextManager[None]:
    """Print the progress of a long evaluation inside the block."""
    last = time.monotonic()

    def report(done: int, total: int) -> None:
        nonlocal last
        if time.monotonic() - last > BATCH_SECONDS:
            last = time.monotonic()
            note(config, f"evaluating {split}: batch {done:,} of {total:,}")

    return progress_callback(report)


class Reporter:
    """Report the progress of one run; use it as a context manager."""

    def __init__(
        self,
        config: LoopConfig,
        run: RunFolder,
        metric: str,
        rows: list[dict[str, Any]],
        positive: str | None = None,
    ) -> None:
        self.config, self.run, self.metric, self.positive = config, run, metric, positive
        self.console = screen(stderr=True)
        self.live = config.progress and self.console.is_terminal and config.epochs > 0
        self._last_line = time.monotonic()
        self._status: Status = "interrupted"  # until `final`
        self._loggers = Loggers(logger_names(config.logger), run.path, flatten(run.settings()), len(rows))
        self._bar = Bar(
            TextColumn("epoch"),
            MofNCompleteColumn(),
            BarColumn(bar_width=None),  # what the rest leaves
            TextColumn("{task.fields[now]}"),
            TimeRemainingColumn(),
            TextColumn("left"),
            console=self.console,
            expand=True,
            disable=not self.live,
        )
        self._task = self._bar.add_task("train", total=config.epochs, completed=len(rows), now="")

    def __enter__(self) -> Reporter:
        self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._bar.stop()
        failed = error is not None and not isinstance(error, KeyboardInterrupt)
        self._loggers.finish("failed" if failed else self._status)

    def begin(self, parameters: int, steps: int, progress: Progress) -> None:
        """Print the size of the run before its first step."""
        again = f" ({progress.epoch} done)" if progress.epoch else ""
        self.note(
            f"{parameters:,} parameters; {steps:,} step{'s' * (steps != 1)} an epoch, at most {self.config.epochs} "
            f"epochs{again}"
        )

    def note(self, text: str) -> None:
        if self.config.progress:
            self.console.print(text, highlight=False)

    def step(self, progress: Progress, count: int) -> None:
        if self.live:
            self._bar.update(self._task, completed=progress.epoch + progress.step / count)
        elif self.config.progress and time.monotonic() - self._last_line > BATCH_SECONDS:
            self._last_line = time.monotonic()
            self.note(f"epoch {progress.epoch + 1}/{self.config.epochs}: batch {progress.step}/{count}")

    def epoch(self, row: dict[str, Any], progress: Progress) -> None:
        """Report a finished epoch and its metrics."""
        value = row.get(f"val_{self.metric}")
        best = f" (best {figure(self.metric, progress.best)})" if progress.best is not None else ""
        val = "" if value is None else f", val {metric_label(self.metric)} {figure(self.metric, value)}"
        now = f"loss {row['train_loss']:.3g}{val}"
        self._bar.update(self._task, completed=progress.epoch, now=f"{now}, {row['seconds']:.2g} s/epoch")
        if not self.live and time.monotonic() - self._last_line > QUIET_SECONDS:
            self._last_line = time.monotonic()
            self.note(f"epoch {row['epoch']}/{self.config.epochs}: {now}{best}, {row['seconds']:.2f} s")
        self._loggers.log(row)

    def final(self, metrics: dict[str, dict[str, float]], progress: Progress) -> None:
        """Log the final metrics of the selected weights by split, as `chosen/...`."""
        self._status = "finished"
        found = {f"chosen/{split}_{name}": v for split, values in metrics.items() for name, v in values.items()}
        self._loggers.log({"epoch": progress.epoch, "chosen/epoch": progress.best_epoch, **found})

    def log(self, row: dict[str, Any]) -> None:
        """Pass the metrics of a model fitted without gradients to the loggers."""
        self._loggers.log(row)

    def draw(self, rows: list[dict[str, Any]], progress: Progress) -> None:
        """Write metrics.csv, and draw loss and validation metric by epoch with the selected epoch."""
        if rows:
            self.run.write_table(rows)
            draw_curves(self.run.curves, rows, self.metric, progress.best_epoch, self.positive)


def duration(seconds: float | None) -> str:
    """Format seconds for people, "" if they are unknown.

    >>> duration(0.25), duration(42), duration(150), duration(5990), duration(9000)
    ('0.25 s', '42 s', '2.5 min', '100 min', '2.5 h')
    """
    if seconds is None:
        return ""
    value, unit = (seconds, "s") if seconds < 100 else (seconds / 60, "min")
    value, unit = (value, unit) if seconds < 6000 else (seconds / 3600, "h")
    return f"{value:.2g} {unit}" if value < 10 else f"{value:.0f} {unit}"


def draw_curves(
    path: Path, rows: list[dict[str, Any]], metric: str, best_epoch: int, positive: str | None = None
) -> None:
    """Write a PNG of losses and the validation metric by epoch."""

    def paint(figure: Figure) -> None:
        left, right = figure.subplots(1, 2)
        for axis, key, style in (
            (left, "train_loss", {"label": "training"}),
            (left, "val_loss", {"label": "validation"}),
            (right, f"val_{metric}", {"color": "tab:green"}),
        ):
            points = [(row["epoch"], row[key]) for row in rows if row.get(key) is not None]
            if points:
                axis.plot(*zip(*points, strict=True), marker="." if len(points) < 3 else "", **style)
        left.set(xlabel="epoch", ylabel="loss")
        if left.lines:  # models without gradients have no loss
            left.legend(frameon=False)
        if best_epoch:
            right.axvline(best_epoch, color="grey", lw=1, ls="--")
            right.set_title(f"chosen: epoch {best_epoch}", fontsize=10)
        right.set(xlabel="epoch", ylabel=f"validation {metric_label(metric, positive)}")
        for axis in (left, right):
            axis.spines[["top", "right"]].set_visible(False)

    draw_figure(path, (9, 3.6), paint)
