"""Search for settings on validation data: Optuna's trials over a method's space, each trial a run folder.

The search lives in its folder: `study.db` (Optuna, SQLite), `search.json` (what is searched), a run folder a trial,
`trials.csv` and `best.yaml`. Trial n draws from (seed, n) and the trials before it alone, so that a search that was
interrupted and goes on equals one that was not. The trainer of a trial refuses to look at the test split.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import torch
import yaml

from hopstate.errors import CheckpointError, ConfigError, DivergenceError, HopstateError, MissingExtraError
from hopstate.io.files import NAME as LOCK
from hopstate.io.files import locked, remove_file, write_text
from hopstate.io.opening import check_regular, exists, read_json, reading, shown
from hopstate.io.output import write_table
from hopstate.methods import get_method
from hopstate.methods.method import Method, RunConfig
from hopstate.methods.settings import as_dict, config_from, parse_given
from hopstate.methods.space import Space, printable
from hopstate.random import named_rng
from hopstate.runs.beginnings import begun
from hopstate.runs.data import load_data, settle
from hopstate.runs.in_memory import name_of
from hopstate.runs.run import fit_config, stored_config
from hopstate.runs.tune_spaces import choices_of, space_of, suggest
from hopstate.training.run_folder import PATHS, RunFolder, flatten

if TYPE_CHECKING:
    from hopstate.methods.method import Record

FREE = tuple(f"config.loop.{name}" for name in ("progress", "device", "tensorboard", "logger", "checkpoint_seconds"))
FREE += tuple(f"config.{name}" for name in PATHS if name != "init")  # content_hash decides
DRAWS = 50  # of TPE, before the first settings that were not tried are taken


@dataclass(frozen=True)
class Search:
    """A search after `tune`.

    Args:
        path: its folder.
        metric: what was compared, on validation.
        mode: "max" or "min", which of two values is the better.
        value: of the best trial; NaN where none was finished.
        best: the settings that the best trial drew.
        trials: one row a trial: number, value, seconds, the settings drawn, error.
        interrupted: Ctrl-C stopped it; the same call with out=path goes on.
        positive_class: of two classes, which roc_auc and average_precision are of; None for other targets.
        exhausted: all settings of the space were tried in fewer trials than allowed.
    """

    path: Path
    metric: str = ""
    mode: Literal["max", "min"] = "max"
    value: float = math.nan
    best: dict[str, Any] = field(default_factory=dict)
    trials: list[dict[str, Any]] = field(default_factory=list)
    interrupted: bool = False
    positive_class: str | None = None
    exhausted: bool = False

    @property
    def config(self) -> Path:
        """The best trial's whole configuration, for `hopstate fit METHOD --config`."""
        return self.path / "best.yaml"


def tune(
    method: str,
    data: Any,
    *,
    trials: int = 20,
    out: str | Path | None = None,
    space: Mapping[str, Any] | Iterable[str] = (),
    seed: int = 0,
    config: Mapping[str, Any] | None = None,
    **settings: Any,
) -> Search:
    """Search a method's settings for the best validation metric.

    Args:
        method: name of the method.
        data: a file, a folder, the name of a data set, or a record.
        trials: how many trials the search has in all, those of an earlier call included.
        out: folder of the search, continued where it holds one; by default a new one under runs/.
        space: a mapping that replaces the method's own space ({"model.dim": [64, 128], "loop.optim.lr":
            "1e-4:1e-2:log"}), or texts as `hopstate.runs.tune_spaces.space_of` takes them.
        seed: of the search; that of training is loop__seed.
        config, settings: what stays fixed, as in `hopstate.fit`.

    Raises:
        MissingExtraError: Optuna is not installed.
        ConfigError: a setting or a space that cannot work, or out holds another search.
        HopstateError: no trial could be finished; the message holds the first one's.
    """
    chosen = get_method(method)
    given = {**(config or {}), **{key.replace("__", "."): value for key, value in settings.items()}}
    by_name = isinstance(data, (str, Path))
    parse = parse_given(chosen, {**given, "data": str(data) if by_name else f"memory:{name_of(data)}"})
    built, record = settle(chosen, parse, record=None if by_name else data)
    return tune_config(chosen, built, space_of(chosen, space), trials=trials, out=out, seed=seed, record=record)


def tune_config(
    method: Method,
    config: RunConfig,
    space: Space,
    *,
    trials: int,
    out: str | Path | None = None,
    seed: int = 0,
    record: Record | None = None,
) -> Search:
    """Search with a method's own configuration dataclass.

    Args:
        method, config: the method and what stays fixed.
        space: what is drawn, of `hopstate.runs.tune_spaces.space_of`.
        trials, out, seed: as in `tune`.
        record: replaces reading config.data.

    Raises:
        BusyError: another process searches in that folder.
    """
    if trials < 1:
        raise ConfigError(f"a search has at least 1 trial; got {trials}")
    optuna = _optuna()
    record = load_data(config.data, config.read, method.data) if record is None else record
    stored = {"method": method.name, "config": stored_config(method, config)}
    facts = {**stored, "space": printable(space), "seed": seed, "content_hash": record.content_hash}
    with begun(out, f"tune-{method.name}", config.data) as folder, locked(folder):
        fresh = _same_search(folder, facts)
        try:
            return _go_on(optuna, method, config, space, trials, folder, seed, record)
        except Exception:
            for name in ("search.json", "study.db") if fresh and not exists(folder / "trials.csv") else ():
                remove_file(folder / name)  # what refuses every trial leaves no search
            raise


def _go_on(
    optuna: Any, method: Method, config: RunConfig, space: Space, trials: int, folder: Path, seed: int, record: Record
) -> Search:
    study = _study(optuna, folder / "study.db", method.name)
    while (number := _next(optuna, study, space, trials, seed)) is not None:
        trial = optuna.trial.Trial(study, study.trials[number]._trial_id)
        trial.set_user_attr("settings", suggest(trial, space))
        begin = time.perf_counter()
        value = _run(method, config, trial, folder / f"trial-{number:04d}", record)
        if value is None:
            return _search(study, folder, method, interrupted=True)
        trial.set_user_attr("seconds", round(time.perf_counter() - begin, 3))
        failed = math.isnan(value)
        study.tell(number, None if failed else value, state=optuna.trial.TrialState.FAIL if failed else None)
        _keep(_search(study, folder, method), method, config)
    found = replace(_search(study, folder, method), exhausted=len(study.trials) < trials)
    if not found.best:
        raise HopstateError(f"none of {trials} trials could be finished; the first: {found.trials[0]['error']}")
    return found


def _study(optuna: Any, path: Path, name: str) -> Any:
    """Return the study that a file holds, or a new one there.

    Raises:
        UnreadableFileError: a folder, a pipe or a device.
        CheckpointError: the file is damaged, or another search's.
    """
    if exists(path):
        check_regular(path)
    with reading(path, "a study of Optuna", CheckpointError):
        if exists(path):
            path.open("rb").close()  # SQLite's own words for a file that may not be read do not say so
        study = optuna.create_study(
            storage=f"sqlite:///{path}", study_name=name, direction="maximize", load_if_exists=True
        )
        for trial in study.trials:
            attributes = trial.user_attrs
            kinds: dict[str, Any] = {
                "settings": dict,
                "metric": str,
                "mode": str,
                "value": float,
                "seconds": float,
                "error": str,
                "positive_class": (str, type(None)),
            }
            wrong = [key for key, kind in kinds.items() if key in attributes and not isinstance(attributes[key], kind)]
            if wrong:
                raise CheckpointError(f"{path}: trial {trial.number} gives {wrong[0]} as {shown(attributes[wrong[0]])}")
    return study


def _optuna() -> Any:
    try:
        import optuna
    except ImportError:
        raise MissingExtraError("hopstate tune needs Optuna: pip install 'hopstate[tune]'") from None
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    return optuna


def _same_search(folder: Path, search: dict[str, Any]) -> bool:
    path, search = folder / "search.json", json.loads(json.dumps(search))
    if not path.is_file():
        if any(entry.name != LOCK for entry in folder.iterdir()):
            raise ConfigError(f"{folder} is not empty and holds no search; choose another --out")
        write_text(path, json.dumps(search, indent=1) + "\n")
        return True
    old, new = flatten(read_json(path)), flatten(search)
    for key in sorted(old.keys() | new.keys()):
        if old.get(key) == new.get(key) or key in FREE:
            continue
        if key == "content_hash":
            raise CheckpointError(f"the data have changed since {folder} was begun; choose another --out")
        raise ConfigError(
            f"{folder} searched with {key}={old.get(key)!r}, now {new.get(key)!r}; go on with its own settings "
            f"({path}) or choose another --out"
        )
    return False


def _next(optuna: Any, study: Any, space: Space, trials: int, seed: int) -> int | None:
    """Return the number of an interrupted or a new trial; None if all are done, or all settings were tried."""
    running = [t.number for t in study.trials if t.state == optuna.trial.TrialState.RUNNING]
    if running:
        return running[0]
    waiting = [t.number for t in study.trials if not t.state.is_finished()]
    if not waiting:
        if len(study.trials) >= trials:
            return None
        values = _untried(optuna, study, space, seed)
        if values is None:
            return None
        study.enqueue_trial(values)
    return study.ask().number


def _untried(optuna: Any, study: Any, space: Space, seed: int) -> dict[str, Any] | None:
    """Return values of the space that no trial has had, drawn by TPE; None if there are none left.

    The draws are made in a copy of the study, since a trial of the study itself cannot be drawn again.
    """
    number, tried = len(study.trials), [trial.user_attrs.get("settings") for trial in study.trials]
    sampler = optuna.samplers.TPESampler(seed=int(named_rng(seed, "search", number).integers(2**32)))
    drafts = optuna.create_study(direction="maximize", sampler=sampler)
    drafts.add_trials(study.trials)
    for _ in range(DRAWS):
        draft = drafts.ask()
        if suggest(draft, space) not in tried:
            return dict(draft.params)
    choices = (choices_of(values) for values in space.values())
    grid = (dict(zip(space, values, strict=True)) for values in product(*choices))
    return next((values for values in grid if suggest(optuna.trial.FixedTrial(values), space) not in tried), None)


def _run(method: Method, config: RunConfig, trial: Any, folder: Path, record: Record) -> float | None:
    """Return a trial's validation metric, larger being better; NaN where it failed, None where it was interrupted."""
    try:
        built = config_from(method, {**flatten(as_dict(config)), **trial.user_attrs["settings"]})
        run = fit_config(method, built, out=folder, resume=True, record=record, splits=("val",))
    except (HopstateError, MemoryError, torch.OutOfMemoryError) as error:
        # settings that cannot work and training that diverges are results; data, files and disks fail every trial
        expected = type(error) is HopstateError or isinstance(error, (ConfigError, DivergenceError))
        if isinstance(error, HopstateError) and not expected:
            raise
        trial.set_user_attr("error", str(error) or type(error).__name__)
        return math.nan
    if run.interrupted:
        return None
    result = RunFolder(folder).result()
    metric, mode, found = result["metric"], result["mode"], result["metrics"]["val"]
    if found[metric] is None:  # undefined, and the loss has chosen the epoch
        metric, mode = "loss" if "loss" in found else "mae", "min"
    if found.get(metric) is None:
        trial.set_user_attr("error", f"validation {result['metric']} is not a number")
        return math.nan
    kept = {"metric": metric, "mode": mode, "value": found[metric], "positive_class": result.get("positive_class")}
    for key, one in kept.items():
        trial.set_user_attr(key, one)
    return float(found[metric] if mode == "max" else -found[metric])


def _search(study: Any, folder: Path, method: Method, *, interrupted: bool = False) -> Search:
    rows, best, order = [], None, -math.inf
    for trial in study.trials:
        attributes = trial.user_attrs
        rows.append(
            {
                "trial": trial.number,
                "value": attributes.get("value", math.nan),
                "seconds": attributes.get("seconds", math.nan),
                **attributes.get("settings", {}),
                "error": attributes.get("error", ""),
            }
        )
        if trial.value is not None and trial.value > order:
            best, order = attributes, trial.value
    if best is None:
        return Search(folder, trials=rows, interrupted=interrupted)
    positive = best.get("positive_class")
    return Search(folder, best["metric"], best["mode"], best["value"], best["settings"], rows, interrupted, positive)


def _keep(found: Search, method: Method, config: RunConfig) -> None:
    """Write trials.csv, and best.yaml where there is a best trial."""
    import pandas as pd

    write_table(pd.DataFrame(found.trials), found.path / "trials.csv")
    if found.best:
        stored = stored_config(method, config_from(method, {**flatten(as_dict(config)), **found.best}))
        del stored["method"]
        head = f"# {method.name}: best of {len(found.trials)} trials, validation {found.metric} {found.value:.6g}\n"
        write_text(found.config, head + yaml.safe_dump(stored, sort_keys=False))
