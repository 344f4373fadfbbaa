"""What a report is made from: run folders, folders of them, tables of `hopstate explain`, lines of a results file."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from hopstate.errors import CheckpointError, FormatError, MissingFileError
from hopstate.io.opening import exists, read_text
from hopstate.runs.data import known_data
from hopstate.training.run_folder import RunFolder, flatten, is_number, kept_curves

INFLUENCE = ("end", "neighbor", "t", "event_id", "contribution")
# settings that number a run, or change no result
_NUMBERS = ("loop.seed", "split.number", "fold")
_FREE = ("loop.device", "loop.progress", "loop.tensorboard", "loop.logger", "loop.checkpoint_seconds", "method", "data")


@dataclass(frozen=True, kw_only=True)
class RunInfo:
    """One run folder.

    Args:
        path: the folder.
        method: its name.
        data: its name; with the folder, or with the number of its version, where the name alone is of several.
        source: where the data were, as in the configuration.
        content_hash: digest of the data; "" for a run that was stopped before it knew.
        metric: what chose the model; "" for a run that was not finished.
        number: seed, and split or fold where there is one, in words.
        settings: flat, without what numbers a run or changes no result.
        metrics: split → metric → value; empty for a run that was not finished.
        history: a row an epoch.
        result, environment: as in the folder.
        floors: what the method must stand above → test metrics.
        curves: what is kept of the test split to be drawn.
    """

    path: Path
    method: str
    data: str
    source: str
    content_hash: str
    metric: str
    number: str
    settings: dict[str, Any]
    metrics: dict[str, dict[str, float | None]]
    history: list[dict[str, Any]]
    result: dict[str, Any]
    environment: dict[str, Any]
    floors: dict[str, dict[str, float | None]] = field(default_factory=dict)
    curves: dict[str, Any] = field(default_factory=dict)


@dataclass
class Group:
    """Runs that differ in their numbers alone.

    Args:
        label: the method, and what tells it from other groups of the same method on the same data.
        runs: in the order of their folders.
    """

    label: str
    runs: list[RunInfo] = field(default_factory=list)

    method = property(lambda self: self.runs[0].method)
    data = property(lambda self: self.runs[0].data)
    metric = property(lambda self: next((run.metric for run in self.runs if run.metric), ""))
    positive = property(lambda self: next((p for run in self.runs if (p := run.result.get("positive_class"))), None))

    def values(self, metric: str, split: str = "test") -> list[float]:
        """Return a metric of a split, one value a run; runs without it are left out."""
        found = (run.metrics.get(split, {}).get(metric) for run in self.runs)
        return [float(value) for value in found if value is not None]

    def numbers(self, key: str) -> list[float]:
        """Return a number of result.json, one a run; runs without it are left out."""
        return [float(run.result[key]) for run in self.runs if run.result.get(key) is not None]


@dataclass(frozen=True)
class Influence:
    """A table of `hopstate explain`: rows with the keys of INFLUENCE, and `when`, t as the file has it.

    Args:
        path: the file.
        rows: t in seconds since 1970 where dated, by the clock of its zone.
        dated: whether the file has dates.
    """

    path: Path
    rows: list[dict[str, Any]]
    dated: bool = False


@dataclass(frozen=True)
class FeatureTable:
    """What features of trees added to a score (`hopstate explain`), or gained over all (`importances.csv` of a run).

    Args:
        path: the file.
        column: "contribution" or "gain".
        rows: (feature, amount), as they stand there.
    """

    path: Path
    column: str
    rows: list[tuple[str, float]]


def collect(paths: Iterable[str | Path]) -> tuple[list[Group], list[Influence | FeatureTable]]:
    """Return the runs of folders, grouped, and the tables of explanations among the files and in the run folders.

    Args:
        paths: run folders, folders that hold run folders at any depth, CSV files of `hopstate explain`.

    Raises:
        MissingFileError: nothing there, or no run in a folder.
        FormatError: a CSV file that `hopstate explain` did not write.
        CheckpointError: a run folder that is damaged.
    """
    runs: dict[Path, RunInfo] = {}
    tables: dict[Path, Influence | FeatureTable] = {}
    for path in map(Path, paths):
        if exists(path) and not path.is_dir():
            tables[path.resolve()] = feature_table(path) or influence(path)
            continue
        if not exists(path):
            raise MissingFileError(f"there is no run folder {path}")
        folders = [path] if exists(path / "config.json") else sorted(p.parent for p in path.rglob("config.json"))
        folders = [folder for folder in folders if not RunFolder(folder).never_trained()]
        if not folders:
            raise MissingFileError(f"{path} holds no run that began to train")
        for folder in folders:
            runs.setdefault(folder.resolve(), read_run(folder))
            for file in sorted(folder.glob("explain*.csv")):
                tables.setdefault(file.resolve(), feature_table(file) or influence(file))
            for file in folder.glob("importances.csv"):
                tables[file.resolve()] = feature_table(file) or influence(file)
    return grouped(by_protocol(told_apart(list(runs.values())))), list(tables.values())


def read_run(path: Path) -> RunInfo:
    """Return what a report says of a run folder, finished or not.

    Raises:
        CheckpointError: a file of it is missing or damaged.
    """
    folder = RunFolder.open(path)
    config = folder.settings()
    flat = flatten(config)
    result = folder.result() if exists(path / "result.json") else {}
    environment = folder.read_json("environment.json") if exists(path / "environment.json") else {}
    known = known_data(folder) if exists(path / "data.json") else {}
    if not isinstance(config.get("method"), str) or not isinstance(config.get("data"), str):
        raise CheckpointError(f"{path / 'config.json'} names no method or no data; it is of no hopstate run")
    _check_environment(environment, path)
    return RunInfo(
        path=path,
        method=config["method"],
        data=Path(str(config["data"])).name,
        source=str(config["data"]),
        content_hash=known.get("content_hash", ""),
        metric=result.get("metric", ""),
        number=", ".join(
            f"{key.split('.')[-2 if key.endswith('number') else -1]} {flat[key]}" for key in _NUMBERS if key in flat
        ),
        settings={key: value for key, value in flat.items() if key not in (*_NUMBERS, *_FREE)},
        metrics=result.get("metrics", {}),
        history=folder.history(),
        result=result,
        environment=environment,
        floors=folder.floors(),
        curves=kept_curves(folder),
    )


def _check_environment(environment: dict[str, Any], path: Path) -> None:
    """Raise CheckpointError where what a page says of the machine is no text."""
    versions = environment.get("versions", {})
    told = [environment.get(key) for key in ("time", "revision", "gpu", "processor")]
    if not isinstance(versions, dict) or not all(v is None or isinstance(v, str) for v in (*versions.values(), *told)):
        raise CheckpointError(f"{path / 'environment.json'} is damaged: versions and names in it are texts")


def told_apart(runs: Sequence[RunInfo]) -> list[RunInfo]:
    """Return runs with the folder, or a version's number, beside the names that differing data share."""
    alike: dict[str, list[RunInfo]] = {}
    for run in runs:
        alike.setdefault(run.data, []).append(run)
    return [run if len(_contents(alike[run.data])) < 2 else _named(run, alike[run.data]) for run in runs]


def by_protocol(runs: Sequence[RunInfo]) -> list[RunInfo]:
    """Return runs with the protocol beside the names of data that were split or judged in several ways."""
    ways: dict[str, dict[str, None]] = {}
    for run in runs:
        ways.setdefault(run.data, {})[protocol(run.settings)] = None
    several = {data for data, found in ways.items() if len(found) > 1}
    return [replace(run, data=f"{run.data}, {protocol(run.settings)}") if run.data in several else run for run in runs]


def protocol(settings: dict[str, Any]) -> str:
    """Return in words how data were split and judged."""
    kind, judged = settings.get("split.kind"), settings.get("evaluation.protocol")
    shares = settings.get("split.fractions") or [settings.get("split.val_ratio"), settings.get("split.test_ratio")]
    words = [] if kind in (None, "auto") else [f"{kind} split"]
    if all(is_number(share) for share in shares):
        words += ["/".join(f"{100 * share:g}" for share in shares)]
    words += [] if judged is None else [f"{judged} protocol"]
    return " ".join(words) or "its own split"


def _contents(runs: Sequence[RunInfo]) -> set[str]:
    return {run.content_hash for run in runs if run.content_hash}


def _named(run: RunInfo, alike: Sequence[RunInfo]) -> RunInfo:
    """Return run with its data named so that no other data of alike are named so."""

    def folder(one: RunInfo) -> str:
        return "/".join(Path(one.source).parts[-2:])

    same = [one for one in alike if folder(one) == folder(run)]
    contents = _in_order(same)
    if len(contents) < 2:
        return replace(run, data=folder(run))
    version = contents.index(run.content_hash) + 1 if run.content_hash else "unknown"
    return replace(run, data=f"{folder(run)} (version {version})")


def _in_order(runs: Sequence[RunInfo]) -> list[str]:
    first: dict[str, str] = {}
    for run in runs:
        if run.content_hash:
            time = str(run.environment.get("time", ""))
            first[run.content_hash] = min(time, first.get(run.content_hash, time))
    return sorted(first, key=lambda content: (first[content], content))


def grouped(runs: Sequence[RunInfo]) -> list[Group]:
    """Return runs grouped by method, data and settings, labelled by what tells the groups apart."""
    same: dict[tuple[str, str, str], list[RunInfo]] = {}
    for run in runs:
        same.setdefault((run.data, run.method, repr(sorted(run.settings.items()))), []).append(run)
    kin: dict[tuple[str, str], list[list[RunInfo]]] = {}
    for (data, method, _), members in same.items():
        kin.setdefault((data, method), []).append(members)
    found = []
    for (_, method), variants in kin.items():
        keys = _differing([members[0].settings for members in variants])
        for members in variants:
            what = ", ".join(f"{key}={members[0].settings.get(key)}" for key in keys)
            found.append(Group(f"{method} ({what})" if what else method, members))
    return sorted(found, key=lambda group: (group.data, group.label))


def _differing(settings: Sequence[dict[str, Any]]) -> list[str]:
    keys = dict.fromkeys(key for one in settings for key in one)
    return [key for key in keys if len({repr(one.get(key)) for one in settings}) > 1]


def feature_table(path: Path) -> FeatureTable | None:
    """Return a table by features, None where a file is none.

    Raises:
        FormatError: it begins like one and is damaged.
    """
    try:
        found = csv.DictReader(read_text(path).splitlines(keepends=True))
        column = next((c for c in ("contribution", "gain") if c in (found.fieldnames or ())), None)
        if column is None or "feature" not in (found.fieldnames or ()):
            return None
        rows = [(row["feature"], float(row[column])) for row in found]
        if not all(isinstance(name, str) and is_number(amount) for name, amount in rows):
            raise ValueError("a number that cannot be drawn")
    except (csv.Error, TypeError, ValueError) as error:
        raise FormatError(f"{path} is no whole table of features: {error!r}") from error
    return FeatureTable(path, column, rows)


def influence(path: Path) -> Influence:
    """Return a table that `hopstate explain --out` wrote.

    Raises:
        FormatError: another kind of file.
    """
    try:
        rows: list[dict[str, Any]] = list(csv.DictReader(read_text(path).splitlines(keepends=True)))
        dated = any("-" in row["t"][1:] and ":" in row["t"] for row in rows)
        for row in rows:
            row["when"] = row["t"]
            row["t"] = _seconds(row["t"]) if dated else float(row["t"])
            row |= {"event_id": int(row["event_id"]), "contribution": float(row["contribution"])}
            if not all(is_number(row[key]) for key in ("t", "event_id", "contribution")):
                raise ValueError(f"a number that cannot be drawn in {row}")
            if not all(isinstance(row[key], str) for key in ("end", "neighbor")):
                raise ValueError(f"a row that ends early: {row}")
    except (FormatError, csv.Error, KeyError, TypeError, ValueError) as error:
        raise FormatError(
            f"{path} is no table of `hopstate explain --out FILE.csv` (columns {', '.join(INFLUENCE)}): {error!r}"
        ) from error
    if not rows:
        raise FormatError(f"{path} holds no events")
    return Influence(path, rows, dated)


def _seconds(date: str) -> float:
    """Return a date as seconds since 1970 by the clock of its own zone, as a chart shows it."""
    return datetime.fromisoformat(date).replace(tzinfo=UTC).timestamp()
