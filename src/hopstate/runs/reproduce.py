"""Reproduce published tables: run recipes, record results, compare them with the papers', print.

Recipes are entries of the methods' `recipes.yaml`, named "method/data", with "-variant" after it where there are
several. `base` names an earlier entry of the same file to inherit from: `settings` are merged, other fields are
replaced. Each run has its own folder and process and adds one JSON line to the results file.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import signal
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from hopstate.datasets.registry import Dataset, find_dataset, on_disk
from hopstate.errors import ConfigError, DownloadError, FormatError, HopstateError, MissingFileError, nearest
from hopstate.evaluation.labels import figure, metric_label
from hopstate.io.files import cache_folder, file_lock, named_errors, replace_file, write_text
from hopstate.io.opening import exists, parse_json, read_text
from hopstate.methods import get_method, recipe_files
from hopstate.methods.config import arguments_of, as_dict, config_from
from hopstate.runs.summary import Summary, megabytes, summary
from hopstate.training.progress import duration
from hopstate.training.run_folder import FREE, RunFolder, flatten, is_number, plain
from hopstate.training.trainer import signals_to

INIT = ("init", "freeze")  # of a recipe that begins from another's run
BEGIN, END = "<!-- results: begin -->", "<!-- results: end -->"
Line = dict[str, Any]


# ---- recipes -------------------------------------------------------------------------------------------------------
@dataclass(frozen=True, kw_only=True)
class Published:
    """A published result: a reference, never a target to be tuned to.

    Args:
        metric: the column of a run's test metrics that it is comparable with.
        mean: in the metric's own unit; accuracies and the like are shares of 1.
        std: over runs, or None if none was published.
        runs: how many it is the mean of; 0 if unknown.
        source: paper and table.
    """

    metric: str
    mean: float
    std: float | None = None
    runs: int = 0
    source: str


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """The run configuration of one row of a published table.

    Args:
        name: "method/data" or "method/data-variant".
        method: the method's name.
        data: name of the dataset.
        metric: the column of the test metrics that the row is about.
        settings: dotted settings of the run; the others have their defaults, the values that the paper states.
        published: results of papers; empty if no paper reports this row.
        other_protocol: whether these were evaluated by another protocol, so that no test compares them.
        vary: settings that take the number of the run, so that runs are independent.
        runs: how many runs the row is a mean of.
        note: what the paper leaves open, or does otherwise.
        first: name of the recipe whose run of the same number this one begins from and freezes; "" for none.
    """

    name: str
    method: str
    data: str
    metric: str = "average_precision"
    settings: Mapping[str, Any] = field(default_factory=dict)
    published: tuple[Published, ...] = ()
    other_protocol: bool = False
    vary: tuple[str, ...] = ("loop.seed",)
    runs: int = 10
    note: str = ""
    first: str = ""

    @property
    def reference(self) -> Published | None:
        return next((p for p in self.published if p.metric == self.metric), None)


@cache
def all_recipes() -> dict[str, Recipe]:
    """Return all recipes by name."""
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # libyaml is ten times as fast
    recipes: dict[str, Recipe] = {}
    for path in recipe_files():
        for name, entry in yaml.load(path.read_text("utf-8"), loader).items():
            if name in recipes:
                raise ConfigError(f"there are two recipes {name!r}; one is in {path}")
            try:
                recipes[name] = _recipe(name, entry, recipes)
            except (TypeError, KeyError) as error:
                raise ConfigError(f"recipe {name!r} in {path} cannot be read: {error}") from error
    return recipes


def _recipe(name: str, entry: Mapping[str, Any], recipes: Mapping[str, Recipe]) -> Recipe:
    fields = dict(entry)
    method, _, data = name.partition("/")
    base = recipes[fields.pop("base")] if "base" in fields else Recipe(name=name, method=method, data=data)
    fields["settings"] = {**base.settings, **fields.get("settings", {})}
    if "published" in fields:
        fields["published"] = tuple(Published(**one) for one in fields["published"])
    if "vary" in fields:
        fields["vary"] = tuple(fields["vary"])
    return replace(base, name=name, **fields)


def find_recipes(pattern: str) -> list[Recipe]:
    """Return the recipe of a name, or all whose name matches a pattern such as gmn/* or */minesweeper."""
    known = all_recipes()
    matching = [recipe for name, recipe in known.items() if fnmatchcase(name, pattern)]
    if not matching:
        part = pattern.strip("*/")
        similar = [name for name in known if part and part in name]
        hint = f"; {pattern!r} is part of {', '.join(similar[:5])}" if similar else nearest(pattern, known)
        raise ConfigError(f"there is no recipe {pattern!r}{hint}; `hopstate reproduce --list` shows all")
    return matching


# ---- data ----------------------------------------------------------------------------------------------------------
def missing(names: Iterable[str]) -> list[str]:
    """Return how to get the datasets that are not on disk, one text for those of one source."""
    same: dict[str, list[str]] = defaultdict(list)
    for data in dict.fromkeys(names):
        entry = find_dataset(data)
        if entry is not None and on_disk(entry) == "no":
            same[_instruction(entry)].append(data)
    return [f"{', '.join(group)}: {text}" for text, group in same.items()]


def _instruction(entry: Dataset) -> str:
    """Return how to get a dataset; NAME is the placeholder of its name."""
    if entry.fetchable:
        reader = "" if entry.file else f" by {entry.loader}"
        return f"downloaded on first use{reader} from {entry.address}"
    if entry.kind == "link":
        files = ", ".join(f"ml_NAME{ending}" for ending in (".csv", ".npy", "_node.npy"))
        folder = cache_folder() / "temporal" / "NAME"
        return f"get it from {entry.address}, run DyGLib's preprocessing, and put {files} into {folder}"
    return f"no reader for it yet; get it from {entry.address} and give your files to hopstate fit"


# ---- runs ----------------------------------------------------------------------------------------------------------
@dataclass(frozen=True, kw_only=True)
class Trial:
    """A recipe, with dotted settings that replace the recipe's, and the folder in which its run folders lie."""

    recipe: Recipe
    changes: Mapping[str, Any] = field(default_factory=dict)
    out: Path = Path("runs/reproduce")

    def __post_init__(self) -> None:
        for key in self.changes:
            if key in self.recipe.vary:
                raise ConfigError(f"{key} is the number of the run in {self.recipe.name}; choose runs with --seeds")

    @property
    def data(self) -> str:
        """Name of the dataset."""
        return self.changes.get("data", self.recipe.data)

    @property
    def first(self) -> Trial | None:
        """The recipe that this one begins from, with those of the changes that it has settings for."""
        if not self.recipe.first:
            return None
        (recipe,) = find_recipes(self.recipe.first)
        known = flatten(as_dict(Trial(recipe=recipe).config(0)))
        changes = {key: value for key, value in self.changes.items() if key in known}
        return Trial(recipe=recipe, changes=changes, out=self.out)

    def settings(self, run: int) -> dict[str, Any]:
        """Return the dotted settings of run number run, from 0."""
        numbered = dict.fromkeys(self.recipe.vary, run)
        init = {} if self.first is None else {"init": str(self.first.folder(run)), "freeze": True}
        return {"data": self.recipe.data, **self.recipe.settings, **numbered, **init, **self.changes}

    def config(self, run: int) -> Any:
        """Return the method's configuration of a run."""
        return config_from(get_method(self.recipe.method), self.settings(run))

    def folder(self, run: int) -> Path:
        return self.out / f"{self.recipe.name}-{self.hash}" / f"run-{run}"

    @property
    def altered(self) -> dict[str, Any]:
        """The changes that make it another configuration than the recipe's."""
        original = Trial(recipe=self.recipe)._deciding()
        return {key: value for key, value in self._deciding().items() if original.get(key) != value}

    @property
    def hash(self) -> str:
        """Names the resolved settings; runs of one trial share it."""
        settings = self._deciding() | ({} if self.first is None else {"first": self.first.hash})
        return hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()[:12]

    def _deciding(self) -> dict[str, Any]:
        """Return the flat settings that decide the result of every run."""
        alone = replace(self, recipe=replace(self.recipe, first=""))
        ignored = {*FREE, *self.recipe.vary, *(INIT if self.recipe.first else ())}
        return {key: value for key, value in flatten(as_dict(alone.config(0))).items() if key not in ignored}


def reproduce(
    recipe: str | Recipe,
    runs: Sequence[int],
    *,
    changes: Mapping[str, Any] | None = None,
    out: str | Path = "runs/reproduce",
    results_file: str | Path = "runs/results.jsonl",
    isolate: bool = True,
) -> list[Line] | None:
    """Train the runs of a recipe that are missing, and append each to the results file.

    Args:
        recipe: the name of a recipe, as `hopstate reproduce --list` prints it, or a recipe of your own.
        runs: numbers of runs. Run i has seed i, and split or fold i if the recipe has several.
        changes: dotted settings that replace the recipe's; results are then marked as altered.
        out: folder of the run folders. Unfinished runs of an earlier call are resumed.
        results_file: file that gets one line per run.
        isolate: train each run in its own process, to measure its peak memory.

    Returns:
        One line per run, or None if Ctrl-C stopped it; the same call continues.

    Example:
        >>> changes = {"read.count": 40, "loop.epochs": 1, "loop.progress": False}
        >>> (line,) = hopstate.reproduce("ctdg-ssm-sequences/length-3", [0], changes=changes, isolate=False)
        >>> line["recipe"], sorted(line["metrics"])
        ('ctdg-ssm-sequences/length-3', ['test', 'val'])
    """
    if isinstance(recipe, str):
        recipe, *others = find_recipes(recipe)
        if others:
            raise ConfigError(f"{recipe.name} and {len(others)} other recipes match. Call reproduce with one name")
    trial = Trial(recipe=recipe, changes=changes or {}, out=Path(out))
    entry = find_dataset(trial.data)
    if entry is not None and on_disk(entry) == "no" and not entry.fetchable:
        raise DownloadError(f"{trial.data}: {_instruction(entry).replace('NAME', trial.data)}")
    if trial.first is not None:
        options: dict[str, Any] = {"out": out, "results_file": results_file, "isolate": isolate}
        if reproduce(trial.first.recipe, runs, changes=trial.first.changes, **options) is None:
            return None
    lines = []
    for run in runs:
        folder, wall, cpu = trial.folder(run), None, None
        if not (folder / "result.json").is_file():
            fresh, start, before = not folder.exists(), time.perf_counter(), _children_cpu()
            if not (_run_in_process if isolate else _run_here)(trial, run):
                return None
            if fresh:  # else an earlier call trained a part
                wall = round(time.perf_counter() - start, 2)
                cpu = round(_children_cpu() - before, 2) if isolate else None
        line = _line(trial, run, RunFolder(folder), isolate) | {"wall_seconds": wall, "cpu_seconds": cpu}
        lines.append(_recorded(line, Path(results_file)))
    return lines


def _run_here(trial: Trial, run: int) -> bool:
    from hopstate.runs.run import fit_config

    method = get_method(trial.recipe.method)
    return not fit_config(method, trial.config(run), out=trial.folder(run), resume=True).interrupted


def _run_in_process(trial: Trial, run: int) -> bool:
    """Fit in a process of its own; return False where it was stopped."""
    command = [sys.executable, "-m", "hopstate.cli.main", "fit", trial.recipe.method]
    command += [*arguments_of(trial.settings(run)), f"--out={trial.folder(run)}", "--resume", "--no-auto"]
    child = subprocess.Popen(command, stdout=subprocess.DEVNULL, start_new_session=True)
    with signals_to(child.send_signal):  # it saves and leaves
        code = child.wait()
    if code in (130, -signal.SIGINT, -signal.SIGTERM):
        return False
    if code:
        raise HopstateError(f"run {run} of {trial.recipe.name} failed with status {code}; see its message above")
    return True


def _children_cpu() -> float:
    """Return the processor time of finished child processes in seconds."""
    used = os.times()
    return used.children_user + used.children_system


def _line(trial: Trial, run: int, folder: RunFolder, isolated: bool) -> Line:
    result, environment, config = folder.result(), folder.read_json("environment.json"), folder.settings()
    copied = ("best_epoch", "epochs", "parameters", "seconds", "seconds_per_epoch", "data_hash")
    machine = ("revision", "python", "processor", "threads", "gpu")
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
        **{key: result[key] for key in copied},
        "peak_memory_mb": result["peak_memory_mb"] if isolated else None,
        "version": environment["versions"]["hopstate"],
        "torch": environment["versions"]["torch"],
        **{key: environment[key] for key in machine},
        "cores": os.cpu_count(),
        "started": environment["time"],
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
    }


# ---- results file --------------------------------------------------------------------------------------------------
KINDS: dict[str, type] = {
    **dict.fromkeys(("recipe", "settings", "method", "data", "metric", "version"), str),
    "run": int,
    "metrics": dict,
    "altered": dict,
}
NUMBERS = ("seconds", "wall_seconds", "cpu_seconds", "peak_memory_mb")


def append_line(path: str | Path, line: Mapping[str, Any]) -> None:
    """Add one line to a results file: under a lock, and a crash leaves it as it was."""
    path = Path(path)
    text = json.dumps(plain(line), ensure_ascii=False, allow_nan=False) + "\n"
    with file_lock(path, wait=True), named_errors(path):
        before = path.read_bytes() if path.is_file() else b""
        if before and not before.endswith(b"\n"):  # edited by hand
            before += b"\n"
        replace_file(path, lambda part: part.write_bytes(before + text.encode()))


def _recorded(line: Line, path: Path) -> Line:
    """Append a line to a results file if it is not there yet; return the line that is there."""
    key = ("recipe", "settings", "run", "started")
    for known in read_lines(path):
        if all(known.get(name) == line[name] for name in key):
            return known
    append_line(path, line)
    return line


def read_lines(path: str | Path) -> list[Line]:
    """Return the lines of a results file, oldest first; empty if the file does not exist."""
    path = Path(path)
    lines = []
    for number, text in enumerate(read_text(path).splitlines() if exists(path) else [], 1):
        where = f"line {number} of {path}"
        line = parse_json(text, where)
        if not _is_result(line):
            raise FormatError(f"{where} is not a result of `hopstate reproduce`; remove it")
        lines.append(line)
    return lines


def _is_result(line: Line) -> bool:
    if any(type(line.get(key)) is not kind for key, kind in KINDS.items()):
        return False
    splits = line["metrics"].values()
    if "test" not in line["metrics"] or not all(isinstance(split, dict) for split in splits):
        return False
    figures = [line.get(key) for key in NUMBERS] + [value for split in splits for value in split.values()]
    return all(value is None or is_number(value) for value in figures)


@dataclass(frozen=True)
class Row:
    """The runs of one recipe with one set of settings: which of them are altered, and the latest line of each run."""

    recipe: str
    altered: dict[str, Any]
    lines: tuple[Line, ...]

    data = property(lambda self: self.lines[-1]["data"])
    metric = property(lambda self: self.lines[-1]["metric"])

    @property
    def label(self) -> str:
        """The recipe's name, and what was altered."""
        changes = ", ".join(f"{key}={value}" for key, value in self.altered.items())
        return f"{self.recipe} (altered: {changes})" if changes else self.recipe

    def values(self, metric: str) -> list[float]:
        """Return a test metric, one value a run; runs without it are left out."""
        found = (line["metrics"]["test"].get(metric) for line in self.lines)
        return [float(value) for value in found if value is not None]

    def mean(self, key: str) -> float | None:
        """Return the mean of a number that lines hold, such as "seconds", or None where none does."""
        numbers = [float(line[key]) for line in self.lines if line.get(key) is not None]
        return sum(numbers) / len(numbers) if numbers else None


def rows(lines: Sequence[Line]) -> list[Row]:
    """Return lines grouped by recipe and settings, in the recipes' order.

    A recipe can have unaltered runs of several settings, if defaults changed. Those of the latest run are returned.
    """
    groups: dict[tuple[str, str], dict[int, Line]] = defaultdict(dict)
    for line in lines:
        groups[line["recipe"], line["settings"]][line["run"]] = line
    latest = {line["recipe"]: line["settings"] for line in lines if not line["altered"]}
    order = {name: place for place, name in enumerate(all_recipes())}
    all_rows = []
    for (recipe, settings), group in groups.items():
        ordered = tuple(group[run] for run in sorted(group))
        if ordered[0]["altered"] or latest[recipe] == settings:
            all_rows.append(Row(recipe, ordered[0]["altered"], ordered))
    return sorted(all_rows, key=lambda row: (order.get(row.recipe, len(order)), len(row.altered)))


# ---- published against measured ------------------------------------------------------------------------------------
def compare(measured: Summary, published: Published) -> tuple[str, float | None]:
    """Test whether measured runs differ from a published result; return the test and p, or a reason and None.

    Welch's t test if the published result has a standard deviation and a number of runs. Otherwise Student's one-sample
    t test against the published mean. None for a single run, or if all standard deviations are 0.
    """
    if measured.std is None:
        return "one run", None
    both = published.std is not None and published.runs > 1
    if not measured.std and not (both and published.std):
        return "no spread", None
    from scipy import stats

    if both:
        welch = stats.ttest_ind_from_stats(
            measured.mean, measured.std, measured.runs, published.mean, published.std, published.runs, equal_var=False
        )
        return "Welch's t", float(welch.pvalue)
    t = (measured.mean - published.mean) / (measured.std / math.sqrt(measured.runs))
    return "one-sample t", float(2 * stats.t.sf(abs(t), measured.runs - 1))


@dataclass(frozen=True)
class Compared:
    """One result of a recipe: `published` is None if no paper reports it, `measured` is over the runs of `row`."""

    row: Row
    metric: str
    measured: Summary
    published: Published | None
    other_protocol: bool

    def test(self) -> str:
        """Return in words how measured and published were compared."""
        if self.published is None:
            return ""
        if self.other_protocol:
            return "another protocol"
        how, p = compare(self.measured, self.published)
        return "" if p is None else f"{how}, p = {p:.2g}"

    def table_row(self) -> dict[str, str]:
        row, published = self.row, self.published
        gpu = any(line.get("gpu") for line in row.lines)
        # the processor's time, which other work does not lengthen, but for a GPU
        seconds = (None if gpu else row.mean("cpu_seconds")) or row.mean("wall_seconds") or row.mean("seconds")
        return {
            "data": row.data,
            "recipe": row.label,
            "metric": metric_label(self.metric),
            "published": "" if published is None else figure(self.metric, published.mean, published.std),
            "measured": figure(self.metric, self.measured.mean, self.measured.std),
            "runs": str(self.measured.runs),
            "test": self.test(),
            "time a run": duration(seconds),
            "peak memory": megabytes(row.mean("peak_memory_mb")),
        }


def compared(lines: Sequence[Line]) -> list[Compared]:
    """Return each published result with the measured one, or the metrics of the recipe if none is published."""
    results = []
    for row in rows(lines):
        recipe = all_recipes().get(row.recipe)
        own = recipe is not None and recipe.data == row.data  # other data have other figures
        known = {p.metric: p for p in recipe.published} if recipe is not None and own else {}
        for metric in dict.fromkeys((row.metric, *known)):
            measured = summary(row.values(metric))
            if measured is not None:
                other_protocol = recipe is not None and recipe.other_protocol
                results.append(Compared(row, metric, measured, known.get(metric), other_protocol))
    return results


def show(lines: Sequence[Line]) -> None:
    """Print published and measured results."""
    from rich.table import Table
    from rich.text import Text

    from hopstate.io.output import screen

    table_rows: list[dict[str, str]] = []
    notes: dict[str, int] = {}
    for one in compared(lines):
        table_rows.append(one.table_row())
        if one.row.altered:
            table_rows[-1]["recipe"] = f"{one.row.recipe} [{notes.setdefault(one.row.label, len(notes) + 1)}]"
    console = screen()
    if not table_rows:
        console.print("no results yet")
        return
    table = Table(title="test metrics, mean ± standard deviation over runs; shares in percent")
    columns = [name for name in table_rows[0] if name != "data" and any(cells[name] for cells in table_rows)]
    for name in columns:
        table.add_column(name, no_wrap=name == "measured", overflow="fold")
    for cells in table_rows:
        table.add_row(*(Text(cells[name]) for name in columns))
    console.print(table)
    for note, place in notes.items():
        console.print(Text(f"[{place}] {note}"))


def markdown(lines: Sequence[Line]) -> str:
    """Return the table of unaltered runs, by dataset, as Markdown."""
    table_rows = [one.table_row() for one in compared([line for line in lines if not line["altered"]])]
    if not table_rows:
        return "No runs yet."
    marks = ["---"] * 3 + ["---:"] * 3 + ["---"] + ["---:"] * 2
    table_rows.sort(key=lambda row: row["data"])
    out = [f"| {' | '.join(row)} |" for row in (table_rows[0], marks, *(one.values() for one in table_rows))]
    hardware = sorted({f"{line['gpu'] or line['processor']}, {line['threads']} thread(s)" for line in lines})
    versions = sorted({line["version"] for line in lines})
    out += ["", f"hopstate {', '.join(versions)}; {'; '.join(hardware)}. Time is the processor's, loading included."]
    return "\n".join(out)


def write_markdown(path: str | Path, lines: Sequence[Line]) -> bool:
    """Put the table between the marks of a file; return whether it changed."""
    path = Path(path)
    if not exists(path):
        raise MissingFileError(f"there is no file {path}")
    text = read_text(path)
    if text.count(BEGIN) != 1 or text.count(END) != 1 or text.index(BEGIN) > text.index(END):
        raise FormatError(f"{path} does not say where the table goes; write {BEGIN} and {END} on lines of their own")
    head, rest = text.split(BEGIN)
    new = f"{head}{BEGIN}\n\n{markdown(lines)}\n\n{END}{rest.split(END)[1]}"
    if new != text:
        write_text(path, new)
    return new != text
