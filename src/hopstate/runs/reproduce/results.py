"""The results file: one JSON line a run, only ever added to, whole or not at all, by any number of processes."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hopstate.errors import FormatError
from hopstate.io.files import file_lock, named_errors, replace_file
from hopstate.io.opening import exists, parse_json, read_text, shown
from hopstate.runs.reproduce.recipes import all_recipes
from hopstate.training.run_folder import is_number

Line = dict[str, Any]


def append(path: str | Path, line: Mapping[str, Any]) -> None:
    """Add one line to a results file.

    The file is written anew beside itself and renamed, under a lock: a crash leaves it as it was, and writers wait
    for each other.

    Raises:
        StorageError: it could not be written; it is as it was.
    """
    path = Path(path)
    text = json.dumps(_finite(dict(line)), ensure_ascii=False, allow_nan=False) + "\n"
    with file_lock(path, wait=True), named_errors(path):
        before = path.read_bytes() if path.is_file() else b""
        if before and not before.endswith(b"\n"):  # edited by hand
            before += b"\n"
        replace_file(path, lambda part: part.write_bytes(before + text.encode()))


# what a line holds; the second group has been added since the first version
_KINDS = {"recipe": str, "settings": str, "run": int, "metrics": dict}
_LATER = {"altered": {}, "method": "", "data": "", "metric": "", "version": "", "gpu": "", "processor": ""}
_NUMBERS = ("seconds", "wall_seconds", "cpu_seconds", "peak_memory_mb", "seconds_per_epoch", "parameters", "epochs")


def read(path: str | Path) -> list[Line]:
    """Return the lines of a results file, oldest first; none where there is no file.

    Raises:
        FormatError: a line is no result; the message names it.
    """
    path = Path(path)
    found = []
    for number, text in enumerate(read_text(path).splitlines() if exists(path) else [], 1):
        where = f"line {number} of {path}"
        line = parse_json(text, where)
        wrong = _wrong(line)
        if wrong is not None:
            raise FormatError(f"{where} is no result of a run: {wrong} is {shown(line.get(wrong))!r}; remove it")
        found.append(line)
    return found


def _wrong(line: Line) -> str | None:
    """Return the key of a line that is missing or of another kind than it must be, or None."""
    for key, kind in _KINDS.items():
        if type(line.get(key)) is not kind:
            return key
    for key, usual in _LATER.items():
        if line.get(key) is not None and type(line[key]) is not type(usual):
            return key
    parts = list(line["metrics"].values())
    numbers = [value for part in parts if isinstance(part, dict) for value in part.values()]
    if "test" not in line["metrics"] or not all(isinstance(part, dict) for part in parts):
        return "metrics"
    if not all(value is None or is_number(value) for value in numbers):
        return "metrics"
    return next((key for key in _NUMBERS if line.get(key) is not None and not is_number(line[key])), None)


@dataclass(frozen=True)
class Row:
    """The runs of one recipe with one set of settings.

    Args:
        recipe: name of the recipe.
        altered: settings that differ from the recipe's; empty where none does.
        lines: the latest line of each run.
    """

    recipe: str
    altered: dict[str, Any]
    lines: tuple[Line, ...]

    method = property(lambda self: self.lines[-1]["method"])
    data = property(lambda self: self.lines[-1]["data"])
    metric = property(lambda self: self.lines[-1]["metric"])

    @property
    def label(self) -> str:
        """The recipe's name, and what was altered."""
        changes = ", ".join(f"{key}={value}" for key, value in self.altered.items())
        return f"{self.recipe} (altered: {changes})" if changes else self.recipe

    def values(self, metric: str, split: str = "test") -> list[float]:
        """Return a metric of a split, one value a run; runs without it are left out."""
        found = (line["metrics"].get(split, {}).get(metric) for line in self.lines)
        return [float(value) for value in found if value is not None]

    def mean(self, key: str) -> float | None:
        """Return the mean of a number that lines hold, such as "seconds", or None where none does."""
        numbers = [float(line[key]) for line in self.lines if line.get(key) is not None]
        return sum(numbers) / len(numbers) if numbers else None


def rows(lines: Sequence[Line]) -> list[Row]:
    """Return lines grouped by recipe and settings, in the recipes' order.

    Where defaults have changed since, a recipe has unaltered runs of several settings: those run last are returned.
    """
    groups: dict[tuple[str, str], dict[int, Line]] = {}
    for line in lines:
        group = groups.setdefault((line["recipe"], line["settings"]), {})
        group.pop(line["run"], None)  # the latest comes last
        group[line["run"]] = line
    latest = {line["recipe"]: (line["recipe"], line["settings"]) for line in lines if not line["altered"]}
    order = {name: place for place, name in enumerate(all_recipes())}
    found = [
        Row(key[0], next(iter(group.values()))["altered"], tuple(group[run] for run in sorted(group)))
        for key, group in groups.items()
        if latest.get(key[0]) == key or next(iter(group.values()))["altered"]
    ]
    return sorted(found, key=lambda row: (order.get(row.recipe, len(order)), len(row.altered)))


def _finite(value: Any) -> Any:
    """Return value with NaN and infinities as None: JSON has neither."""
    if isinstance(value, dict):
        return {key: _finite(part) for key, part in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(part) for part in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
