"""Runs of recipes: each in a folder and a process of its own, resumed where interrupted, noted in the results file."""

from __future__ import annotations

import hashlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from hopstate.errors import ConfigError, DownloadError, HopstateError
from hopstate.methods import get_method
from hopstate.methods.parser import arguments_of
from hopstate.methods.settings import as_dict, config_from
from hopstate.runs.reproduce import results
from hopstate.runs.reproduce.recipes import Recipe, find_recipes, how_to_get
from hopstate.runs.run import fit_config
from hopstate.training.interrupts import signals_to
from hopstate.training.run_folder import RunFolder, flatten

FREE = (
    "loop.device",
    "loop.progress",
    "loop.tensorboard",
    "loop.logger",
    "loop.checkpoint_seconds",
)  # change no result
INIT = ("init", "freeze")  # of a recipe that begins from another's run


@dataclass(frozen=True, kw_only=True)
class Trial:
    """A recipe with the settings it is run with.

    Args:
        recipe: the row.
        changes: dotted settings that replace the recipe's.
        out: where run folders lie.
    """

    recipe: Recipe
    changes: Mapping[str, Any] = field(default_factory=dict)
    out: Path = Path("runs/reproduce")

    def __post_init__(self) -> None:
        for key in self.changes:
            if key in self.recipe.vary:
                raise ConfigError(f"{key} is the number of the run in {self.recipe.name}; choose runs with --seeds")

    @property
    def data(self) -> str:
        """Name of the data set."""
        return self.changes.get("data", self.recipe.data)

    def settings(self, run: int) -> dict[str, Any]:
        """Return the dotted settings of run number run, from 0."""
        numbered = dict.fromkeys(self.recipe.vary, run)
        begun = {} if self.first is None else {"init": str(self.first.home / f"run-{run}"), "freeze": True}
        return {"data": self.recipe.data, **self.recipe.settings, **numbered, **begun, **self.changes}

    @property
    def first(self) -> Trial | None:
        """The recipe that this one begins from, with those of the changes that it has settings for."""
        if not self.recipe.first:
            return None
        (recipe,) = find_recipes(self.recipe.first)
        known = flatten(as_dict(Trial(recipe=recipe).config(0)))
        kept = {k: v for k, v in self.changes.items() if k in known}
        return Trial(recipe=recipe, changes=kept, out=self.out)

    @property
    def home(self) -> Path:
        """The folder of all runs."""
        return self.out / f"{self.recipe.name}-{self.hash}"

    def config(self, run: int) -> Any:
        """Return the method's configuration of a run.

        Raises:
            ConfigError: an unknown setting, or one that cannot work.
        """
        return config_from(get_method(self.recipe.method), self.settings(run))

    @property
    def altered(self) -> dict[str, Any]:
        """The changes that make it another configuration than the recipe's."""
        own, now = self._flat(Trial(recipe=self.recipe)), self._flat(self)
        return {key: value for key, value in now.items() if own.get(key) != value}

    @property
    def hash(self) -> str:
        """Names the resolved settings; runs of one trial share it."""
        told = self._flat(self) | ({} if self.first is None else {"first": self.first.hash})
        return hashlib.sha256(json.dumps(told, sort_keys=True).encode()).hexdigest()[:12]

    @staticmethod
    def _flat(trial: Trial) -> dict[str, Any]:
        method, bare = get_method(trial.recipe.method), replace(trial.recipe, first="")
        flat = flatten(as_dict(config_from(method, Trial(recipe=bare, changes=trial.changes).settings(0))))
        own = INIT if trial.recipe.first else ()
        return {key: value for key, value in flat.items() if key not in (*FREE, *own, *trial.recipe.vary)}


def reproduce(
    recipe: Recipe,
    runs: Sequence[int],
    *,
    changes: Mapping[str, Any] | None = None,
    out: str | Path = "runs/reproduce",
    results_file: str | Path = "runs/results.jsonl",
    isolate: bool = True,
) -> list[results.Line] | None:
    """Make the runs of a recipe that are not there yet, and note each in the results file.

    Args:
        recipe: the row.
        runs: numbers of runs; number i is seed i, and split or fold i where the recipe has several.
        changes: dotted settings that replace the recipe's; results are then marked as altered.
        out: where run folders lie; those of an earlier call are taken up where they stopped.
        results_file: gets one line a run.
        isolate: each run in a process of its own, so that its peak memory is its own.

    Returns:
        One line a run, or None where Ctrl-C stopped it; the same call continues.

    Raises:
        ConfigError: a setting that does not exist or cannot work.
        DownloadError: the data are not here and cannot be fetched; the message says how to get them.
        HopstateError: a run failed.
    """
    trial = Trial(recipe=recipe, changes=changes or {}, out=Path(out))
    missing = how_to_get(trial.data, fetchable=False)
    if missing:
        raise DownloadError(missing)
    if trial.first is not None:
        before: dict[str, Any] = {
            "changes": trial.first.changes,
            "out": out,
            "results_file": results_file,
            "isolate": isolate,
        }
        if reproduce(trial.first.recipe, runs, **before) is None:
            return None
    lines = []
    for run in runs:
        where = trial.home / f"run-{run}"
        spent: dict[str, float | None] = {"wall_seconds": None, "cpu_seconds": None}
        if not (where / "result.json").is_file():
            fresh, start, cpu = not where.exists(), time.perf_counter(), _children_cpu()
            if not (_in_process if isolate else _here)(trial, run, where):
                return None
            if fresh:
                spent["wall_seconds"] = round(time.perf_counter() - start, 2)
            if fresh and isolate and cpu is not None:
                spent["cpu_seconds"] = round((_children_cpu() or cpu) - cpu, 2)
        line = _line(trial, run, RunFolder(where), isolate) | spent
        lines.append(_noted(line, Path(results_file)))
    return lines


def _here(trial: Trial, run: int, where: Path) -> bool:
    method = get_method(trial.recipe.method)
    return not fit_config(method, trial.config(run), out=where, resume=True).interrupted


def _in_process(trial: Trial, run: int, where: Path) -> bool:
    """Fit in a process of its own; return False where it was stopped."""
    command = [sys.executable, "-m", "hopstate.cli.main", "fit", trial.recipe.method]
    command += [*arguments_of(trial.settings(run)), f"--out={where}", "--resume", "--no-auto"]
    child = subprocess.Popen(command, stdout=subprocess.DEVNULL, start_new_session=True)
    with signals_to(child.send_signal):  # it saves and leaves
        code = child.wait()
    if code in (130, -signal.SIGINT, -signal.SIGTERM):
        return False
    if code:
        raise HopstateError(f"run {run} of {trial.recipe.name} failed with status {code}; its message stands above")
    return True


def _children_cpu() -> float | None:
    """Return the processor time of finished child processes in seconds, where the system tells it."""
    try:
        import resource
    except ImportError:
        return None
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _line(trial: Trial, run: int, folder: RunFolder, isolated: bool) -> results.Line:
    result, environment = folder.result(), folder.read_json("environment.json")
    config = folder.settings()
    return {
        "recipe": trial.recipe.name,
        "method": trial.recipe.method,
        "data": trial.data,
        "metric": trial.recipe.metric,
        "settings": trial.hash,
        "altered": trial.altered,
        "run": run,
        "seed": config["loop"]["seed"],
        "split": config.get("split", {}).get("number", config.get("fold")),
        "metrics": {split: result["metrics"][split] for split in ("val", "test")},
        "best_epoch": result["best_epoch"],
        "epochs": result["epochs"],
        "parameters": result["parameters"],
        "seconds": result["seconds"],
        "seconds_per_epoch": result["seconds_per_epoch"],
        "peak_memory_mb": result["peak_memory_mb"] if isolated else None,
        "version": environment["versions"]["hopstate"],
        "revision": environment["revision"],
        "torch": environment["versions"]["torch"],
        "python": environment["python"],
        "processor": environment["processor"],
        "cores": os.cpu_count(),
        "threads": environment["threads"],
        "gpu": environment["gpu"],
        "data_hash": result["data_hash"],
        "started": environment["time"],
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
    }


def _noted(line: results.Line, path: Path) -> results.Line:
    key = ("recipe", "settings", "run", "started")
    for known in results.read(path):
        if all(known[name] == line[name] for name in key):
            return known
    results.append(path, line)
    return line
