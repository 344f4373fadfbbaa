"""Finished runs combined into one: the Python call behind `hopstate ensemble`."""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from hopstate.errors import ConfigError
from hopstate.methods import get_method
from hopstate.methods.config import config_from
from hopstate.methods.shared.link import LinkRun
from hopstate.runs.data import load_data
from hopstate.runs.in_memory import FACTS, FOLDER, register
from hopstate.runs.run import Run, fit_config
from hopstate.runs.saved_run import SOURCES, SavedRun
from hopstate.training.run_folder import RunFolder, flatten


def ensemble(
    runs: Sequence[str | Path],
    *,
    out: str | Path | None = None,
    data: str | Path | None = None,
    config: Mapping[str, Any] | None = None,
) -> Run:
    """Combine finished link prediction runs by a logistic regression on their log-odds, fitted on validation.

    Args:
        runs: folders of at least two runs with the same data, split and reading options.
        out: the new run folder. Default: a new folder under runs/.
        data: path of the data, if they were moved. Default: the path of the first run.
        config: settings that differ from the first run's, such as {"evaluation.strategies": ["random"]}.

    Returns:
        The run. Its `baselines` have the test metrics of every member.

    Raises:
        ConfigError: fewer than two runs, or runs on other data or splits.
        CheckpointError: a run is not finished.

    Example:
        >>> events.to_csv("both.csv", index=False)
        >>> runs = [hopstate.fit(method, "both.csv", loop__progress=False).path for method in ("recency", "edgebank")]
        >>> hopstate.ensemble(runs).method
        'ensemble'
    """
    folders = [SavedRun.open(run) for run in runs]
    resolved = [(folder.method, folder.method_settings()) for folder in folders]
    if len(folders) < 2 or {method.data for method, _ in resolved} not in ({"events"}, {"graph"}):
        raise ConfigError(f"runs: an ensemble combines at least two runs on links of one kind of data; got {len(runs)}")
    for folder, (method, shared) in zip(folders, resolved, strict=True):
        if not issubclass(method.config, LinkRun) and shared.get("task") != "link":
            raise ConfigError(f"runs: an ensemble combines runs on links; {folder.path} ({method.name}) predicts nodes")
    first, kind = {**folders[0].settings()}, resolved[0][0].data
    method = get_method("ensemble" if kind == "events" else "link-ensemble")
    if kind == "events" and all("evaluation" in shared for _, shared in resolved):
        # a node memory moves by batches of its own size, and no other member depends on a size
        first["evaluation"] = first["evaluation"] | {
            "batch_size": min(s["evaluation"]["batch_size"] for _, s in resolved)
        }
    first["data"] = first["data"] if data is None else str(data)
    groups = {key: first[key] for key in ("data", "read", "split", "link", "evaluation") if key in first}
    shared = {key: value for key, value in groups.items() if key in method.config.__dataclass_fields__}
    combined = config_from(
        method, flatten({**shared, **(config or {}), "runs": [str(folder.path) for folder in folders]})
    )
    if data is not None:
        folders[0].check_sources([name for name in SOURCES if name != "data"])
    record = folders[0].load_data() if data is None else load_data(combined.data, combined.read, kind)
    for folder in folders:
        if not folder.was_trained_on(record):
            raise ConfigError(f"{folder.path} was trained on other data than {combined.data} holds now")
    in_memory = data is None and (folders[0].path / FACTS).is_file()
    save = partial(_copy_inputs, folders[0]) if in_memory else None
    return fit_config(method, combined, out=out, record=record, with_baselines=True, save_data=save)


def _copy_inputs(source: SavedRun, run: RunFolder, record: Any) -> str:
    register(run, record)
    shutil.copytree(source.path / FOLDER, run.path / FOLDER, dirs_exist_ok=True)
    return ""
