"""Search for settings on validation data: Optuna's TPE over a method's space, each trial a run folder.

The search lives in its folder: `search.json` (what is searched, and the trials), a run folder a trial, `trials.csv` and
`best.yaml`. Trial n draws from (seed, n) and the trials before it alone, so that a search that was interrupted and goes
on equals one that was not. The trainer of a trial refuses to look at the test split.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import yaml

from hopstate.errors import (
    SHARED_ERRORS,
    CheckpointError,
    ConfigError,
    HopstateError,
    MissingExtraError,
    MissingFileError,
    described,
    nearest,
)
from hopstate.io.files import NAME as LOCK
from hopstate.io.files import locked, remove_file, write_text
from hopstate.io.opening import exists, read_json, read_text, shorten
from hopstate.io.output import write_table
from hopstate.methods import get_method
from hopstate.methods.config import SETTINGS_BYTES, as_dict, config_from, load_yaml, parse_given, parser_of
from hopstate.methods.method import Method, Range, RunConfig, Space, parse_values, printable, scalar
from hopstate.random import named_rng
from hopstate.runs.data import load_data, reader_kwargs
from hopstate.runs.in_memory import parse_inputs, record_of
from hopstate.runs.run import fit_config, output_folder, resolve_config, stored_config
from hopstate.training.run_folder import FREE, PATHS, RunFolder, flatten

if TYPE_CHECKING:
    from hopstate.methods.method import Record

FREE_FACTS = {f"config.{name}" for name in (*FREE, *PATHS)} - {"config.init"}  # content_hash stands for the paths
DRAWS = 50  # of TPE, of which one must be new, or the space counts as exhausted


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
        interrupted: Ctrl-C stopped it; the same call with out=path continues.
        positive_class: of two classes, which roc_auc and average_precision are of; None for other targets.
        exhausted: no new settings of the space were drawn, in fewer trials than allowed.
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
    features: Any = None,
    labels: Any = None,
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
        data, features, labels: as in `hopstate.fit`.
        trials: number of trials in total, including those of an earlier call.
        out: folder of the search. A search in it is continued. Default: a new folder under runs/.
        space: a mapping that replaces the method's own space ({"model.dim": [64, 128], "loop.optim.lr":
            "1e-4:1e-2:log"}), or texts as `hopstate.runs.tune.space_of` takes them.
        seed: seed of the search. The seed of training is loop__seed.
        config, settings: fixed settings, as in `hopstate.fit`.

    Raises:
        MissingExtraError: Optuna is not installed.
        ConfigError: a setting or a space that cannot work, or out holds another search.
        HopstateError: no trial could be finished; the message holds the first one's.

    Example:
        >>> space = {"model.num_trees": [4, 8]}
        >>> search = hopstate.tune("pair-trees", events, trials=2, space=space, loop__progress=False)
        >>> search.metric, len(search.trials)
        ('mean_average_precision', 2)
    """
    chosen = get_method(method)
    given = {**(config or {}), **{key.replace("__", "."): value for key, value in settings.items()}}
    inputs = parse_inputs(chosen.data, data, features, labels)
    parse = parse_given(chosen, {**flatten(given), **inputs.read, "data": inputs.source})
    record = None
    if inputs.record is not None or inputs.tables:
        record = record_of(chosen.data, data, inputs.tables, reader_kwargs(parse({}).read))
    built, record, _ = resolve_config(chosen, parse, record=record)
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
    """Search as `tune` does, with a method's own configuration dataclass and a space of `space_of`."""
    if trials < 1:
        raise ConfigError(f"a search has at least 1 trial; got {trials}")
    _optuna()
    record = load_data(config.data, config.read, method.data) if record is None else record
    facts = {
        "method": method.name,
        "config": stored_config(method, config),
        "space": printable(space),
        "seed": int(seed),
        "content_hash": record.content_hash,
    }
    with output_folder(out, f"tune-{method.name}", config.data) as folder, locked(folder):
        search = _open(folder, json.loads(json.dumps(facts)))
        try:
            return _search(search, method, config, space, trials, folder, record)
        except Exception:
            if not any("seconds" in row for row in search["trials"]):
                remove_file(folder / "search.json")  # what refuses every trial leaves no search
            raise


def _open(folder: Path, facts: dict[str, Any]) -> dict[str, Any]:
    """Return what search.json holds, with its trials; facts and no trials in a new folder."""
    path = folder / "search.json"
    if not exists(path):
        if any(entry.name != LOCK for entry in folder.iterdir()):
            raise ConfigError(f"{folder} is not empty and holds no search; choose another --out")
        return facts | {"trials": []}
    search = read_json(path)
    rows = search.pop("trials", None)
    if not isinstance(rows, list) or not all(map(_is_trial, rows)):
        raise CheckpointError(f"{path} is damaged: its trials cannot be read; choose another --out")
    old, new = flatten(search), flatten(facts)
    for key in sorted(key for key in (old.keys() | new.keys()) - FREE_FACTS if old.get(key) != new.get(key)):
        if key == "content_hash":
            raise CheckpointError(f"the data have changed since {folder} was begun; choose another --out")
        raise ConfigError(
            f"{folder} searched with {key}={old.get(key)!r}, now {new.get(key)!r}; continue with its settings "
            f"({path}) or choose another --out"
        )
    return search | {"trials": rows}


def _is_trial(row: Any) -> bool:
    kinds: dict[str, Any] = {"params": dict, "metric": str, "mode": str, "value": float, "seconds": float, "error": str}
    return isinstance(row, dict) and "params" in row and all(isinstance(row.get(k, t()), t) for k, t in kinds.items())


def _search(
    search: dict[str, Any], method: Method, config: RunConfig, space: Space, trials: int, folder: Path, record: Record
) -> Search:
    rows = search["trials"]
    reported_notes = set[str]()
    while len(rows) < trials or "seconds" not in rows[-1]:
        if not rows or "seconds" in rows[-1]:
            params = _draw(rows, space, search["seed"], method, config)
            if params is None:
                break
            rows.append({"params": params})
            write_text(folder / "search.json", json.dumps(search, indent=1) + "\n")
        start = time.perf_counter()
        trial = folder / f"trial-{len(rows) - 1:04d}"
        result = _run(method, config, settings_of(rows[-1]["params"]), trial, record, reported_notes)
        if result is None:
            return _found(rows, folder, interrupted=True)
        rows[-1] |= result | {"seconds": round(time.perf_counter() - start, 3)}
        write_text(folder / "search.json", json.dumps(search, indent=1) + "\n")
        _write_tables(_found(rows, folder), method, config)
    found = _found(rows, folder, exhausted=len(rows) < trials)
    if not found.best:
        raise HopstateError(f"none of {trials} trials could be finished; the first: {found.trials[0]['error']}")
    return found


def _draw(rows: list[dict[str, Any]], space: Space, seed: int, method: Method, config: RunConfig) -> Any:
    """Draw settings by TPE until their configuration is new; return None if no draw is."""
    optuna = _optuna()
    distributions = {key: _distribution(optuna, values) for key, values in space.items()}
    sampler = optuna.samplers.TPESampler(seed=int(named_rng(seed, "search", len(rows)).integers(2**32)))
    study = optuna.create_study(direction="maximize", sampler=sampler)
    for row in rows:
        result = {"value": _signed(row)} if "value" in row else {"state": optuna.trial.TrialState.FAIL}
        study.add_trial(optuna.trial.create_trial(params=row["params"], distributions=distributions, **result))

    def built(params: Mapping[str, Any]) -> dict[str, Any]:
        settings = settings_of(params)
        try:
            return as_dict(config_from(method, {**flatten(as_dict(config)), **settings}))
        except ConfigError:  # a trial that fails
            return settings

    tried = [built(row["params"]) for row in rows]
    for _ in range(DRAWS):
        params = study.ask(distributions).params
        if built(params) not in tried:
            return params
    return None


def _distribution(optuna: Any, values: Range | list[Any]) -> Any:
    if not isinstance(values, Range):
        return optuna.distributions.CategoricalDistribution(values)
    whole = isinstance(values.low, int) and isinstance(values.high, int)
    kind = "IntDistribution" if whole else "FloatDistribution"
    return getattr(optuna.distributions, kind)(values.low, values.high, log=values.log)


def settings_of(params: Mapping[str, Any]) -> dict[str, Any]:
    """Return drawn values by setting: a key may name several, joined by commas as its values are."""
    settings: dict[str, Any] = {}
    for key, value in params.items():
        names = key.split(",")
        values = [value] if len(names) == 1 else map(scalar, str(value).split(","))
        settings |= dict(zip(names, values, strict=True))
    return settings


def _run(
    method: Method, config: RunConfig, settings: dict[str, Any], folder: Path, record: Record, reported: set[str]
) -> dict[str, Any] | None:
    """Return a trial's validation metric and value, or its error; None where it was interrupted."""
    try:
        built = config_from(method, {**flatten(as_dict(config)), **settings})
        if (built.data, reader_kwargs(built.read)) != (config.data, reader_kwargs(config.read)):
            record = load_data(built.data, built.read, method.data)
        run = fit_config(
            method, built, out=folder, resume=True, record=record, splits=("val",), reported_notes=reported
        )
    except SHARED_ERRORS:
        raise
    except Exception as error:
        return {"error": described(error)}
    if run.interrupted:
        return None
    result = RunFolder(folder).result()
    metric, mode, found = result["metric"], result["mode"], result["metrics"]["val"]
    if found[metric] is None:  # undefined, and the loss has chosen the epoch
        metric, mode = "loss" if "loss" in found else "mae", "min"
    if found.get(metric) is None:
        return {"error": f"validation {result['metric']} is not a number"}
    value = float(found[metric])
    return {"metric": metric, "mode": mode, "value": value, "positive_class": result.get("positive_class")}


def _found(rows: list[dict[str, Any]], folder: Path, *, interrupted: bool = False, exhausted: bool = False) -> Search:
    trials = []
    for number, row in enumerate(rows):
        numbers = {key: row.get(key, math.nan) for key in ("value", "seconds")}
        trials.append({"trial": number, **numbers, **settings_of(row["params"]), "error": row.get("error", "")})
    finished = [row for row in rows if "value" in row]
    best: dict[str, Any] = max(finished, key=_signed, default={"params": {}})
    reached = {key: best[key] for key in ("metric", "mode", "value", "positive_class") if key in best}
    drawn = settings_of(best["params"])
    return Search(folder, best=drawn, trials=trials, interrupted=interrupted, exhausted=exhausted, **reached)


def _signed(row: dict[str, Any]) -> float:
    """Return the value of a finished trial, the larger the better."""
    return float(row["value"] if row["mode"] == "max" else -row["value"])


def _write_tables(search: Search, method: Method, config: RunConfig) -> None:
    """Write trials.csv, and best.yaml where there is a best trial."""
    import pandas as pd

    write_table(pd.DataFrame(search.trials), search.path / "trials.csv")
    if search.best:
        stored = stored_config(method, config_from(method, {**flatten(as_dict(config)), **search.best}))
        del stored["method"]
        head = f"# {method.name}: best of {len(search.trials)} trials, validation {search.metric} {search.value:.6g}\n"
        write_text(search.config, head + yaml.safe_dump(stored, sort_keys=False))


def _optuna() -> Any:
    try:
        import optuna
    except ImportError:
        raise MissingExtraError("hopstate tune needs Optuna: pip install 'hopstate[tune]'") from None
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    return optuna


def space_of(method: Method, given: Mapping[str, Any] | Iterable[str] = ()) -> Space:
    """Return the search space of a method as changed by what a user gives.

    Args:
        method: the method.
        given: a mapping that replaces the space; or texts in order: files (.yaml, .yml, .json) that replace the space,
            and "KEY=LOW:HIGH", "KEY=LOW:HIGH:log" or "KEY=A,B,C", which set one key of it.
    """
    space = dict(method.space)
    if isinstance(given, Mapping):
        space, given = {key: parse_values(key, values) for key, values in given.items()}, ()
    for text in given:
        key, sign, value = text.partition("=")
        if sign:
            space[key] = parse_values(key, value)
        else:
            space = _read_space(Path(text))
    if not space:
        raise ConfigError(
            f"no search space is known for {method.name}; give one, e.g. --space loop.optim.lr=1e-4:1e-2:log"
        )
    known = parser_of(method).keys()
    for key, values in space.items():
        names = key.split(",")
        for name in names:
            if name not in known:
                raise ConfigError(f"{method.name} has no setting {name!r} to search{nearest(name, known)}")
        if len(names) > 1 and (isinstance(values, Range) or any(str(v).count(",") != len(names) - 1 for v in values)):
            raise ConfigError(f"each value of {key} must hold {len(names)} values joined by commas; got {values}")
    return space


def _read_space(path: Path) -> Space:
    if not exists(path):
        raise MissingFileError(f"no file {shorten(path)}; --space takes a YAML file, or KEY=LOW:HIGH, or KEY=A,B,C")
    try:
        tree = load_yaml(read_text(path, max_bytes=SETTINGS_BYTES))
    except yaml.YAMLError as error:
        raise ConfigError(f"{path} is not YAML: {error}") from error
    if not isinstance(tree, Mapping):
        raise ConfigError(f"{path} must hold keys with their values, e.g. loop.optim.lr: 1e-4:1e-2:log")
    return {str(key): parse_values(str(key), value) for key, value in tree.items()}
