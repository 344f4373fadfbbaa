"""The search space of a run of `hopstate tune`: the method's own, as changed by what a user gives."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import yaml

from hopstate.errors import ConfigError, MissingFileError, nearest
from hopstate.io.opening import exists, read_text, shown
from hopstate.methods.config import SETTINGS_BYTES, load_yaml, parser_of
from hopstate.methods.method import Method
from hopstate.methods.space import Range, Space, parse_values, scalar


def space_of(method: Method, given: Mapping[str, Any] | Iterable[str] = ()) -> Space:
    """Return the search space of a method as changed by what a user gives.

    Args:
        method: the method.
        given: a mapping that replaces the space; or texts in order: files (.yaml, .yml, .json) that replace the space,
            and "KEY=LOW:HIGH", "KEY=LOW:HIGH:log" or "KEY=A,B,C",
            which set one key of it; in order.

    Raises:
        ConfigError: no space is known, a key is no setting of the method, or a value is no range and no list.
        MissingFileError: a file that is not there.
    """
    space = dict(method.space)
    if isinstance(given, Mapping):
        space, given = {key: parse_values(key, values) for key, values in given.items()}, ()
    for text in given:
        key, sign, value = text.partition("=")
        if sign:
            space[key] = parse_values(key, value)
        else:
            space = _read(Path(text))
    if not space:
        raise ConfigError(
            f"no search space is known for {method.name}; give one, e.g. --space loop.optim.lr=1e-4:1e-2:log"
        )
    _check(space, method)
    return space


def suggest(trial: Any, space: Space) -> dict[str, Any]:
    """Return one value for each setting of a space, drawn by an Optuna trial.

    Args:
        trial: an `optuna.trial.Trial`.
        space: the space.
    """
    drawn: dict[str, Any] = {}
    for key, values in space.items():
        if not isinstance(values, Range):
            value = trial.suggest_categorical(key, values)
        elif isinstance(values.low, int) and isinstance(values.high, int):
            value = trial.suggest_int(key, values.low, values.high, log=values.log)
        else:
            value = trial.suggest_float(key, values.low, values.high, log=values.log)
        names = key.split(",")
        drawn |= dict(zip(names, [value] if len(names) == 1 else map(scalar, str(value).split(",")), strict=True))
    return drawn


def choices_of(values: Range | list[Any]) -> list[Any] | range:
    """Return the values of a key; of a range of real numbers its ends."""
    if not isinstance(values, Range):
        return values
    if isinstance(values.low, int) and isinstance(values.high, int):
        return range(values.low, values.high + 1)
    return list(dict.fromkeys((values.low, values.high)))


def _read(path: Path) -> Space:
    if not exists(path):
        raise MissingFileError(f"no file {shown(path)}; --space takes a YAML file, or KEY=LOW:HIGH, or KEY=A,B,C")
    try:
        tree = load_yaml(read_text(path, most=SETTINGS_BYTES))
    except yaml.YAMLError as error:
        raise ConfigError(f"{path} is no YAML: {error}") from error
    if not isinstance(tree, Mapping):
        raise ConfigError(f"{path} must hold keys with their values, e.g. loop.optim.lr: 1e-4:1e-2:log")
    return {str(key): parse_values(str(key), value) for key, value in tree.items()}


def _check(space: Space, method: Method) -> None:
    known = parser_of(method).keys()
    for key, values in space.items():
        names = key.split(",")
        for name in names:
            if name not in known:
                raise ConfigError(f"{method.name} has no setting {name!r} to search{nearest(name, known)}")
        if len(names) > 1 and (isinstance(values, Range) or any(str(v).count(",") != len(names) - 1 for v in values)):
            raise ConfigError(f"each value of {key} must hold {len(names)} values joined by commas; got {values}")
