"""Run folders: configuration, environment, metrics, curves, checkpoint and result."""

from __future__ import annotations

import json
import math
import os
import platform
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import asdict, is_dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path, PurePath
from typing import Any, Self

import numpy as np

from hopstate.errors import CheckpointError, ConfigError, FormatError, MissingFileError
from hopstate.io.files import NAME as LOCK
from hopstate.io.files import append_file, is_temporary, make_folder, refuse_links, remove_file, sync_file, write_text
from hopstate.io.opening import exists, parse_json, read_json, read_text, shorten

CURVES = "curves.json"


def load_curves(folder: RunFolder) -> dict[str, Any]:
    """Return a run's "reliability" curves and test "intervals"; empty if there are none."""
    path = folder.path / CURVES
    curves = folder.read_json(CURVES) if exists(path) else {}
    try:
        for curve in curves.get("reliability", []):
            _check_curve(curve)
        for limits in curves.get("intervals", {}).values():
            if type(limits) is not list or len(limits) != 2 or not all(map(is_number, limits)):
                raise ValueError("invalid confidence limits")
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise CheckpointError(f"{path} is damaged: its curves are not lists of numbers; remove it") from error
    return curves


def _check_curve(curve: dict[str, Any]) -> None:
    lists = [curve[name] for name in ("prob_pred", "prob_true", "count")]
    if not all(type(curve[name]) is str for name in ("target", "calibration")):
        raise ValueError("invalid name")
    if not all(type(row) is list and len(row) == len(lists[0]) for row in lists):
        raise ValueError("lists of different lengths")
    if not all(is_number(value) and value >= 0 for row in [*lists, [curve["ece"]]] for value in row):
        raise ValueError("invalid number")
    if any(value > 1 for row in lists[:2] for value in row):
        raise ValueError("a share over 1")


# settings that do not change results
FREE = ("loop.device", "loop.progress", "loop.logger", "loop.checkpoint_seconds")
PATHS = ("data", "init", "read.features", "read.labels")  # settings that may name a file
RUN_FORMAT = 2  # version of the run folder; other versions are rejected
LIBRARIES = (
    "hopstate",
    "torch",
    "numpy",
    "scipy",
    "numba",
    "torch-geometric",
    "lightning-fabric",
    "scikit-learn",
)


# files that a run writes before its first step; MADE depends on the settings
MADE = ("data.json", "node_ids.npy", "split.npz", "negatives/*.npz")
LEFT = (
    *MADE,
    "config.json",
    "environment*.json",
    "tokens/hops_*.npy",
    "data/*.csv",  # in-memory input
    "data/*.npy",
    "data/kept.json",
    "data/record/*",
)


class RunFolder:
    """Files of one run.

    Folders with a trained epoch or a checkpoint are never deleted. Files are rewritten atomically.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)

    checkpoint = property(lambda self: self.path / "checkpoint.safetensors")
    weights = property(lambda self: self.path / "model.safetensors")
    curves = property(lambda self: self.path / "curves.png")

    @classmethod
    def create(
        cls,
        path: str | Path,
        config: dict[str, Any],
        *,
        resume: bool = False,
    ) -> RunFolder:
        """Create the folder, or resume a run with the same configuration.

        A folder whose earlier start failed before training counts as empty. The caller holds the folder's lock
        (`hopstate.io.files.locked`).
        """
        run = cls(path)
        config = json.loads(json.dumps(config))
        if run.never_trained():
            for leftover in (file for pattern in MADE for file in run.path.glob(pattern)):
                remove_file(leftover)
        elif not (run.path / "config.json").is_file():
            raise ConfigError(f"{path} is not empty and is not a run; choose another --out")
        elif not resume:
            raise ConfigError(f"{path} is not empty; add --resume to continue that run, or choose another --out")
        else:
            run._check_same(config)
        make_folder(run.path)
        run.write_json("config.json", {"format": RUN_FORMAT, "folder": str(run.path.resolve()), **config})
        number = len(list(run.path.glob("environment*.json"))) if resume else 0  # one file per start
        name = f"environment-{number}.json" if number else "environment.json"
        run.write_json(name, environment(config.get("loop", {}).get("seed")))
        return run

    @classmethod
    def open(cls, path: str | Path) -> Self:
        """Open a finished or interrupted run for reading."""
        run = cls(path)
        if not exists(run.path) or not run.path.is_dir():
            raise MissingFileError(f"no run folder at {shorten(path)}")
        refuse_links(run.path)
        if not exists(run.path / "config.json"):
            raise CheckpointError(f"{path} is not a hopstate run (config.json is missing)")
        return run

    def never_trained(self) -> bool:
        """Return whether the folder is empty or holds only files of a start that never trained."""
        if not self.path.is_dir():
            return True
        found = {file for file in self.path.rglob("*") if not file.is_dir() or file.is_symlink()}
        files = {file for file in found if not self._is_unfinished(file)}
        own = {file for pattern in LEFT for file in self.path.glob(pattern) if file.is_file() and not file.is_symlink()}
        return not files or (files <= own and self._started())

    def settings(self) -> dict[str, Any]:
        """Return the settings of the existing run, or {} if there is none.

        If the folder was moved together with its data, paths are adjusted.
        """
        path = self.path / "config.json"
        if not path.is_file():
            return {}
        stored = self.read_json("config.json")
        form = stored.pop("format", 1)
        if form != RUN_FORMAT:
            raise CheckpointError(
                f"{path}: the run folder has format {shorten(form)}, this version reads "
                f"format {RUN_FORMAT}; "
                "train again, or use the version that wrote it"
            )
        before = stored.pop("folder", None)
        return self._moved(stored, before) if isinstance(before, str) else stored

    def _moved(self, settings: dict[str, Any], before: str) -> dict[str, Any]:
        here = str(self.path.resolve())
        for name in PATHS if before != here else ():
            *groups, key = name.split(".")
            place = settings.get(groups[0]) if groups else settings
            path = place.get(key) if isinstance(place, dict) else None
            if isinstance(place, dict) and isinstance(path, str) and os.path.isabs(path) and not exists(path):
                found = os.path.normpath(os.path.join(here, os.path.relpath(path, before)))
                if exists(found):
                    place[key] = found
        return settings

    def _is_unfinished(self, file: Path) -> bool:
        if file == self.path / LOCK or (file.parent.name == "data" and file.name == f".record{LOCK}"):
            return True
        return any(is_temporary(Path(name)) for name in file.relative_to(self.path).parts)

    def _started(self) -> bool:
        """Return whether config.json belongs to a run; a start that failed early leaves no other files."""
        if (self.path / "environment.json").is_file():
            return (self.path / "config.json").is_file()
        try:
            config = self.read_json("config.json")
        except CheckpointError:
            return False
        return isinstance(config, dict) and {"method", "data", "loop"} <= config.keys()

    def _check_same(self, config: dict[str, Any]) -> None:
        free = [*FREE, "loop.patience"]
        optim = config.get("loop", {}).get("optim", {})
        if optim.get("schedule") == "constant" and not optim.get("warmup"):
            free.append("loop.epochs")  # a decaying schedule depends on the number of epochs
        old, new = flatten(self.settings()), flatten(config)
        if exists(self.path / "data.json"):  # the data's content matters, not their path
            old |= {
                name: new[name]
                for name in PATHS
                if name != "init" and _is_path(old.get(name)) and _is_path(new.get(name))
            }
        keys = sorted(old.keys() | new.keys(), key=lambda k: (k != "method", k))
        changed = [k for k in keys if old.get(k) != new.get(k) and k not in free]
        if changed:
            k = changed[0]
            more = f" and {len(changed) - 1} more" if len(changed) > 1 else ""
            raise ConfigError(
                f"{self.path} was run with {k}={old.get(k)!r}, now {new.get(k)!r}{more}; resume with its own "
                f"settings ({self.path / 'config.json'}) or choose another --out"
            )

    def write_json(self, name: str, value: Any) -> None:
        write_text(self.path / name, json_text(value))

    def read_json(self, name: str) -> Any:
        try:
            return read_json(self.path / name)
        except (FormatError, OSError) as error:
            raise CheckpointError(f"{self.path / name} cannot be read: {error}") from error

    def result(self) -> dict[str, Any]:
        """Return the validated content of result.json."""
        path, result = self.path / "result.json", self.read_json("result.json")
        metrics = result.get("metrics")
        parts = list(metrics.values()) if isinstance(metrics, dict) else [None]
        if not all(isinstance(part, dict) and all(v is None or is_number(v) for v in part.values()) for part in parts):
            raise CheckpointError(f"{path} is damaged: its metrics are not numbers by split; train again")
        for key, value in result.items():
            word = key in ("method", "data_hash", "metric", "mode", "positive_class")
            if key != "metrics" and not (type(value) is str if word else value is None or is_number(value)):
                raise CheckpointError(f"{path} gives {shorten(key)} as {shorten(value)!r}; train again")
        missing = {"method", "metric", "best_epoch"} - result.keys()
        if missing:
            raise CheckpointError(f"{path} has no {', '.join(sorted(missing))}; train again")
        return result

    def baselines(self, split: str = "test") -> dict[str, dict[str, float | None]]:
        """Return test metrics of the baselines by name, or their validation metrics for "val"."""
        path = self.path / "baselines.json"
        baselines = self.read_json("baselines.json") if exists(path) else {}
        parts = list(baselines.values()) if isinstance(baselines, dict) else [None]
        if not all(isinstance(of, dict) and all(v is None or is_number(v) for v in of.values()) for of in parts):
            raise CheckpointError(f"{path} is damaged: its metrics must be numbers by baseline; train again")
        return baselines_of(baselines, split)

    def history(self) -> list[dict[str, Any]]:
        """Return the metric rows so far; an incomplete last line is ignored."""
        path = self.path / "metrics.jsonl"
        rows = []
        text = read_text(path) if exists(path) else ""
        lines = text.splitlines()
        for number, line in enumerate(lines, 1):
            try:
                row = parse_json(line, f"line {number} of {path}")
            except FormatError as error:
                if number == len(lines) and not text.endswith("\n"):
                    break
                raise CheckpointError(f"{error}; remove the line") from None
            wrong = [key for key, value in row.items() if value is not None and not is_number(value)]
            if wrong or type(row.get("epoch")) is not int:
                raise CheckpointError(f"line {number} of {path} gives {wrong[0] if wrong else 'no epoch'} no number")
            rows.append(row)
        return rows

    def start_metrics(self, rows: list[dict[str, Any]]) -> None:
        """Rewrite metrics.jsonl with rows (those up to the checkpoint when resuming)."""
        write_text(self.path / "metrics.jsonl", "".join(json.dumps(plain(row)) + "\n" for row in rows))

    def append_metrics(self, row: dict[str, Any]) -> None:
        append_file(self.path / "metrics.jsonl", json.dumps(plain(row)) + "\n")

    def sync_metrics(self) -> None:
        """Flush the metric rows to disk, before a checkpoint that counts on them."""
        sync_file(self.path / "metrics.jsonl")

    def write_table(self, rows: list[dict[str, Any]]) -> None:
        """Write metric rows to metrics.csv."""
        import pandas as pd

        write_text(self.path / "metrics.csv", pd.DataFrame(rows, dtype=object).to_csv(index=False, lineterminator="\n"))


class ReadOnlyRunFolder(RunFolder):
    """A run folder on a rank other than 0, which does not write."""

    def write_json(self, name: str, value: Any) -> None: ...

    def start_metrics(self, rows: list[dict[str, Any]]) -> None: ...

    def append_metrics(self, row: dict[str, Any]) -> None: ...

    def sync_metrics(self) -> None: ...

    def history(self) -> list[dict[str, Any]]:
        return []


def baselines_of(found: Mapping[str, Mapping[str, Any]], split: str) -> dict[str, dict[str, Any]]:
    """Return baseline metrics of "test", or those of "val" (named "val_<metric>"), without empty baselines.

    >>> baselines_of({"mlp": {"accuracy": 0.5, "val_accuracy": 0.6}, "chance": {"val_accuracy": 0.2}}, "test")
    {'mlp': {'accuracy': 0.5}}
    """
    own = {
        name: {m.removeprefix("val_"): v for m, v in of.items() if m.startswith("val_") == (split == "val")}
        for name, of in found.items()
    }
    return {name: of for name, of in own.items() if of}


def json_text(value: Any) -> str:
    """Return a value as JSON text; NaN and infinities become null."""
    return json.dumps(plain(value), indent=1) + "\n"


def is_number(value: Any) -> bool:
    """Return whether a JSON value is a finite number."""
    return type(value) in (int, float) and abs(value) < 1e300  # neither NaN nor infinite


def plain(value: Any) -> Any:
    """Return a value for JSON: arrays as lists, dataclasses as mappings, NaN and infinities as None, others as text."""
    if isinstance(value, (np.generic, np.ndarray)):
        value = value.tolist()
    if is_dataclass(value) and not isinstance(value, type):
        value = asdict(value)
    if isinstance(value, Mapping):
        return {str(key): plain(inner) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(inner) for inner in value]
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return value if value is None or isinstance(value, (str, int)) else str(value)


def _is_path(value: Any) -> bool:
    return isinstance(value, str) and os.path.isabs(value)


def flatten(settings: Any, prefix: str = "") -> dict[str, Any]:
    """Return nested settings, mappings or dataclasses, by dotted name: {"a.b": value}."""
    tree = asdict(settings) if is_dataclass(settings) and not isinstance(settings, type) else settings
    flat: dict[str, Any] = {}
    for key, value in tree.items():
        group = isinstance(value, Mapping) or (is_dataclass(value) and not isinstance(value, type))
        flat |= flatten(value, f"{prefix}{key}.") if group else {f"{prefix}{key}": value}
    return flat


def plain_setting(value: Any) -> Any:
    """Convert a setting to a JSON-serializable value, for example NumPy numbers, paths, dates and durations.

    >>> plain_setting((np.float32(0.01), timedelta(hours=1), date(2024, 1, 31)))
    (0.01, '3600s', '2024-01-31')
    """
    if isinstance(value, np.timedelta64):
        value = value.astype("timedelta64[us]").item()
    if isinstance(value, timedelta):
        return f"{value.total_seconds():.15g}s"
    if isinstance(value, np.floating):
        return float(str(value))  # float32 as written: 0.01, not 0.00999999977648
    if isinstance(value, (date, np.datetime64, PurePath)):
        return str(value)
    if isinstance(value, (list, tuple)):
        return (
            type(value)(map(plain_setting, value)) if type(value) in (list, tuple) else list(map(plain_setting, value))
        )
    if isinstance(value, np.ndarray) and value.ndim:
        return list(map(plain_setting, value))
    if hasattr(value, "tolist"):  # of numpy, pandas and torch
        return plain_setting(value.tolist())
    return float(value) if isinstance(value, Decimal) else value


def environment(seed: int | None) -> dict[str, Any]:
    """Return versions, machine, seed, command line and the git revision if available."""
    return {
        "time": datetime.now(UTC).isoformat(timespec="seconds"),
        "python": platform.python_version(),
        "platform": platform.platform(),
        **machine(),
        "seed": seed,
        "command": sys.argv,
        "revision": _revision(),
    }


def machine() -> dict[str, Any]:
    """Return the properties that rounding depends on: processor, threads, GPU and library versions."""
    import torch

    versions = {}
    for name in LIBRARIES:
        try:
            versions[name] = version(name)
        except PackageNotFoundError:
            versions[name] = "not installed"
    return {
        "processor": processor(),
        "threads": torch.get_num_threads(),
        "gpu": torch.cuda.get_device_name() if torch.cuda.is_available() else None,
        "versions": versions,
    }


def processor() -> str:
    """Return the processor's model name."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
        return next(line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()


def _revision() -> str | None:
    here = Path(__file__).resolve()

    def git(*arguments: str) -> str | None:
        command = ["git", "-C", str(here.parent), *arguments]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=5, check=False)
        except (OSError, subprocess.TimeoutExpired):
            return None
        return done.stdout.strip() if done.returncode == 0 else None

    if git("ls-files", "--error-unmatch", here.name) is None:  # installed inside somebody else's checkout
        return None
    return git("describe", "--always", "--dirty", "--abbrev=12", "--exclude=*") or None
