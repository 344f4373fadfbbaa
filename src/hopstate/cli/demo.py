"""Train methods on a synthetic graph and a synthetic event stream, rank next destinations, and write a report."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from hopstate.cli.commands import INTERRUPTED, CommandParser, CommandResult, lines, rows_of
from hopstate.errors import HopstateError

if TYPE_CHECKING:
    from rich.console import Console

    from hopstate.training.run_folder import RunFolder

SECONDS = 0.25  # between two looks at the run folders


def run(argv: list[str]) -> CommandResult:
    """Train, query and report; status 130 if Ctrl-C stopped it."""
    parser = CommandParser(prog="hopstate demo", description=__doc__, allow_abbrev=False)
    parser.add_argument("--out", help="new folder of the runs and the report (default: one under runs/)")
    options = parser.parse_args(argv[1:])
    from hopstate.cli.query import show_queries
    from hopstate.cli.report import open_page, print_verdicts
    from hopstate.io.output import screen
    from hopstate.runs.queries import rank
    from hopstate.runs.report import collect, verdicts, write_report
    from hopstate.runs.run import output_folder

    recipe = read_recipe()
    question = recipe["question"]
    with output_folder(options.out, "demo", "data") as folder:
        if not _train(recipe["tasks"], folder, screen(stderr=True)):
            record = {"folder": folder, "interrupted": True, "verdicts": {}, "report": None, "rows": None}
            return CommandResult(record, lines(f"stopped; runs: {folder}"), INTERRUPTED)
        texts = verdicts(collect([folder]))
        page = write_report([folder], folder / "report.html", title="hopstate demo")
    trained = folder / question["run"]
    ranking = rank(trained, question["source"], top=3, explain=True)

    def show() -> None:
        console = screen()
        print_verdicts(texts)
        console.print(f"\nWho is next for node {question['source']}, and why? (hopstate rank {trained})", style="bold")
        show_queries(ranking)
        console.print(f"\nreport: {page}", soft_wrap=True, highlight=False)
        open_page(page)

    record = {"folder": folder, "interrupted": False, "verdicts": texts, "report": page, "rows": rows_of(ranking)}
    return CommandResult(record, show)


def read_recipe() -> dict[str, Any]:
    """Return the tasks of the demo and its question."""
    recipe: dict[str, Any] = yaml.safe_load(files("hopstate.cli").joinpath("demo.yaml").read_text("utf-8"))
    return recipe


def commands_of(task: Mapping[str, Any], folder: Path) -> list[list[str]]:
    """Return the words of a task's commands, without `hopstate`."""
    return [[word.replace("FOLDER", str(folder)) for word in shlex.split(line)] for line in task["commands"]]


# ---- training ------------------------------------------------------------------------------------------------------
@dataclass
class _Task:
    """Commands that run one after another, each in a process of its own with one thread."""

    commands: list[list[str]]
    log: Path
    process: subprocess.Popen[bytes] | None = None

    @property
    def status(self) -> int | None:
        """Exit status of the last command, None while it runs."""
        return 0 if self.process is None else self.process.poll()

    def advance(self) -> bool:
        """Start the next command if none runs; return whether one runs."""
        status = self.status
        if status == 0 and self.commands:
            words = [sys.executable, "-m", "hopstate.cli.main", *self.commands.pop(0)]
            environment = {**os.environ, "OMP_NUM_THREADS": "1"}
            with self.log.open("ab") as log:  # a session of its own: the terminal's Ctrl-C comes through `stop`
                self.process = subprocess.Popen(words, stdout=log, stderr=log, env=environment, start_new_session=True)
            return True
        return status is None

    def stop(self) -> None:
        """Let the running command save and end, and start no other."""
        self.commands.clear()
        if self.process is not None:
            self.process.send_signal(signal.SIGINT)


def _train(recipe: Mapping[str, Any], folder: Path, console: Console) -> bool:
    """Run all tasks side by side; return False if Ctrl-C stopped them."""
    from hopstate.io.files import make_folder
    from hopstate.training.trainer import signals_to

    make_folder(folder)
    for name, task in recipe.items():
        console.print(f"{name}: {task['about']}", highlight=False)
    tasks = [_Task(commands_of(task, folder), folder / f"{name}.log") for name, task in recipe.items()]
    signals: list[int] = []

    def stop(number: int) -> None:
        signals.append(number)
        for task in tasks:
            task.stop()

    with signals_to(stop), _Board(folder, console) as board:
        while sum(task.advance() for task in tasks):
            if not signals and any(task.status for task in tasks):
                for task in tasks:
                    task.stop()
            time.sleep(SECONDS)
            board.update()
    failed = [task for task in tasks if task.status]
    if failed and not signals:
        raise HopstateError(f"a command ended with status {failed[0].status}. Its messages are in {failed[0].log}")
    return not signals


class _Board:
    """A progress bar for each run in a folder that is being trained, and a line for each that is finished."""

    def __init__(self, folder: Path, console: Console) -> None:
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

        self.folder, self.console = folder, console
        columns = (
            TextColumn("{task.description}"),
            BarColumn(bar_width=20),
            MofNCompleteColumn(),
            TimeRemainingColumn(),
        )
        self._bars = Progress(*columns, console=console, disable=not console.is_terminal)
        self._rows: dict[Path, Any] = {}
        self._finished: set[Path] = set()

    def __enter__(self) -> _Board:
        self._bars.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._bars.stop()

    def update(self) -> None:
        """Look at the run folders again."""
        from hopstate.training.run_folder import RunFolder

        for path in sorted(self.folder.glob("*/*/config.json")):
            run = RunFolder(path.parent)
            if run.path in self._finished:
                continue
            if run.path not in self._rows:
                total = run.settings()["loop"]["epochs"]
                self._rows[run.path] = self._bars.add_task(f"{_label(run.path):<24}", total=total)
            self._bars.update(self._rows[run.path], completed=len(run.history()))
            if (run.path / "result.json").is_file():
                self._finish(run)

    def _finish(self, run: RunFolder) -> None:
        from hopstate.evaluation.labels import figure, metric_label
        from hopstate.training.progress import duration

        self._finished.add(run.path)
        self._bars.remove_task(self._rows[run.path])
        result = run.result()
        metric = result["metric"]
        value = f"test {metric_label(metric)} {figure(metric, result['metrics']['test'][metric])}"
        self.console.print(f"{_label(run.path):<24} {value:<24} {duration(result['seconds']):>8}", highlight=False)


def _label(path: Path) -> str:
    return f"{path.parent.name}: {path.name.partition('-split')[0]}"
