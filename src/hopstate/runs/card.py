"""The page of a run: its method and data, its metrics next to those of baselines, and commands that query it."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hopstate.data.readers.roles import READ_AS
from hopstate.errors import CheckpointError, listed
from hopstate.evaluation.labels import baseline_label, cell, metric_label
from hopstate.io.opening import reading
from hopstate.runs.load import saved_state_folder
from hopstate.runs.queries import CALIBRATION_FILE
from hopstate.runs.saved_run import SavedRun
from hopstate.sampling.partition import NAMES as PARTITIONERS


def run_card(path: str | Path) -> str:
    """Return what a run is, on what data, how good, and commands that use it."""
    run = SavedRun.open(path)
    with reading(path, "a run", CheckpointError):
        done, settings = (run.path / "result.json").is_file(), run.method_settings()
        parts = [_head(run), _of_data(run, settings)]
        parts.append(_metrics(run) if done else ["not finished: hopstate fit with --resume continues it"])
        parts.append(["use it:", *(f"  {command}" for command in _commands(run, settings, done=done))])
        return "\n\n".join("\n".join(part) for part in parts)


def _head(run: SavedRun) -> list[str]:
    environment = run.read_json("environment.json") if (run.path / "environment.json").is_file() else {}
    versions = environment.get("versions") or {}
    lines = [f"run {run.path}", f"method  {run.method.name}: {run.method.summary} ({run.method.source})"]
    if versions:
        trained = f"trained {environment.get('time', '?')} with hopstate {versions.get('hopstate', '?')}"
        lines.append(f"{trained}, seed {environment.get('seed')}")
    return lines


def _of_data(run: SavedRun, settings: Mapping[str, Any]) -> list[str]:
    known = run.facts
    lines = [f"data    {settings.get('data')}", f"nodes   {known.get('num_nodes', '?'):,}"]
    lines += [note for note in known.get("notes") or () if str(note).startswith(READ_AS)]
    dims = known.get("feature_dims") or {}
    if dims:
        lines.append("features " + ", ".join(f"{key} {value}" for key, value in dims.items()))
    if known.get("time_unit"):
        lines.append(f"times   {'dates, counted ' if known.get('dates') else ''}in {known['time_unit']}")
    lines += target_lines(known, settings)
    split = settings.get("split")
    if isinstance(split, Mapping) and "kind" in split:
        lines.append(f"split   {split['kind']}")
    if known.get("partitioner"):
        lines.append(f"clusters by {PARTITIONERS.get(str(known['partitioner']), known['partitioner'])}")
    state = saved_state_folder(run)
    if state is not None:
        lines.append(f"state   {state}: events that were streamed since are known")
    if (run.path / CALIBRATION_FILE).is_file():
        lines.append(f"probabilities of {CALIBRATION_FILE}")
    return lines


def target_lines(data_facts: Mapping[str, Any], settings: Mapping[str, Any]) -> list[str]:
    """Return what is predicted: classes, labels of yes or no, or amounts with their scale in the unit of the file."""
    target = data_facts.get("target") or {"goal": "classes", "names": data_facts.get("class_names") or ()}
    names = [str(name) for name in target["names"]]
    shown = listed(names, 10)
    if settings.get("task") == "link" or not names:
        return []
    if target["goal"] == "classes":
        return [f"classes {shown}" + (f" (positive: {names[1]})" if len(names) == 2 else "")]
    if target["goal"] == "labels":
        return [f"labels  {shown}: a probability each, as a row may have several or none"]
    read = settings.get("read")
    column = (read.get("label_column") if isinstance(read, Mapping) else None) or "the label"
    targets = [column] if len(names) == 1 else names
    centers, scales = (target.get(key) or [float("nan")] * len(targets) for key in ("center", "scale"))
    amounts = [
        f"{name} (mean {center:.6g}, deviation {scale:.6g} of the training rows)"
        for name, center, scale in zip(targets, centers, scales, strict=True)
    ]
    return [f"target  amounts: {listed(amounts, 10)}; answers and errors are in the unit of the file"]


def _metrics(run: SavedRun) -> list[str]:
    result = run.result()
    columns = {split: found for split, found in result["metrics"].items() if found}
    names = list(dict.fromkeys(name for found in columns.values() for name in found))
    positive = result.get("positive_class")
    rows = [["", *columns]]
    rows += [
        [metric_label(name, positive), *(cell(name, found.get(name)) for found in columns.values())] for name in names
    ]
    first, *widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    lines = [
        f"metrics in percent (chosen on validation by {metric_label(result['metric'])}, epoch {result['best_epoch']})"
    ]
    for label, *cells in rows:
        numbers = [text.rjust(width) for text, width in zip(cells, widths, strict=True)]
        lines.append("  ".join([label.ljust(first), *numbers]).rstrip())
    metric = result["metric"]
    baselines = {name: found[metric] for name, found in run.baselines().items() if metric in found}
    if baselines:
        listed = ", ".join(f"{baseline_label(name)} {cell(metric, value)}" for name, value in baselines.items())
        lines.append(f"baselines, test {metric_label(metric)}: {listed}")
    return lines


def _commands(run: SavedRun, settings: Mapping[str, Any], *, done: bool) -> list[str]:
    path, method = shlex.quote(str(run.path)), run.method
    if not done:
        return [f"hopstate fit {method.name} --data {shlex.quote(str(settings.get('data')))} --resume --out {path}"]
    lines = [f"hopstate evaluate {path}", f"hopstate predict {path} --out predictions.csv"]
    score = [f"hopstate score {path} --pairs SOURCE,TARGET", f"hopstate rank {path} --source SOURCE --top 10"]
    if settings.get("task") == "link":
        return [*lines, *score]
    if method.data != "events":
        return lines
    lines.append(f"hopstate stream {path} --data new-events.csv --out scores.csv")
    if "evaluation" not in settings:
        return lines
    return [*lines, *score, f"hopstate explain {path} --pair SOURCE,TARGET", f"hopstate check-leak {path}"]
