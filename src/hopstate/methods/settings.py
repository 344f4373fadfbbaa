"""Configurations from run folders, Python dicts and words of a command line."""

from __future__ import annotations

import dataclasses
import gc
import json
import re
from collections.abc import Callable, Mapping, Sequence
from datetime import date
from pathlib import PurePath
from typing import Any

import numpy as np
from jsonargparse import ArgumentParser, Namespace

from hopstate.errors import ConfigError
from hopstate.io.opening import shown
from hopstate.methods.method import Method, RunConfig, RunT
from hopstate.methods.parser import Parser, arguments_of, shared_parser
from hopstate.training.run_folder import flatten

_LARGEST = {"layers": 10_000}  # by the end of a name; other sizes of a model go up to SIZE
SIZE = 1 << 20
_COUNTS = {"bootstrap": 1_000_000, "num_negatives": 10_000_000, "num_neighbors": SIZE}  # by the last of a name's parts
_GROUPS = ("model", "tokens", "encoding", "history")  # of sizes


def config_of(method: Method[Any, RunT, Any], parsed: Namespace, parser: ArgumentParser) -> RunT:
    names = [f.name for f in dataclasses.fields(method.config)]
    try:
        built = parser.instantiate(parsed)
        config = method.config(**{name: built[name] for name in names})
        _check_sizes(as_dict(config))
    except ConfigError as error:
        raise ConfigError(f"{error}{parser.given_in()}" if isinstance(parser, Parser) else str(error)) from error
    # jsonargparse keeps exceptions of unions in cycles, and their frames lead to the data of the calls around them
    gc.collect(1)
    return config


def _check_sizes(tree: Mapping[str, Any]) -> None:
    """Raise ConfigError for sizes that cannot be meant, before a model of them is begun."""
    for key, value in flatten(tree).items():
        if type(value) is not int:
            continue
        if not -(2**63) <= value < 2**63:
            raise ConfigError(f"{key} must lie within 64 bits; got {shown(value)}")
        most = next((most for end, most in _LARGEST.items() if key.endswith(end)), SIZE)
        if value > most and key.partition(".")[0] in _GROUPS:
            raise ConfigError(f"{key}={value} is a size that no model has; at most {most:,}")
        most = _COUNTS.get(key.rpartition(".")[2], value)
        if value > most:
            raise ConfigError(f"{key}={value} is more than any command would end with; at most {most:,}")


def config_from(method: Method[Any, RunT, Any], settings: Mapping[str, Any]) -> RunT:
    """Return the method's configuration from nested or dotted settings, the rest at its defaults.

    Raises:
        ConfigError: an unknown key (the nearest is suggested) or a value of the wrong type.
    """
    return parse_given(method, settings)({})


def parse_given(method: Method[Any, RunT, Any], given: Mapping[str, Any]) -> Callable[[Mapping[str, Any]], RunT]:
    """Return defaults by dotted name → configuration with the given settings over them; see `config_from`."""
    parser = shared_parser(method)
    parsed = _parsed(parser, given)
    return lambda defaults: _config(method, parser, defaults, parsed)


def parse_words(
    method: Method[Any, RunT, Any], parser: Parser, words: Sequence[str], own: Sequence[str] = ()
) -> tuple[Namespace, Callable[[Mapping[str, Any]], RunT]]:
    """Return a command's own options, and defaults by dotted name → configuration with the words given over them.

    Args:
        method: the method.
        parser: what `parser_of` made, and options of a command's own.
        words: of the command line.
        own: names of the command's own options.
    """
    if any(word.startswith("--print_config") for word in words):
        parser.parse_args(words)  # prints every setting, defaults included, and ends the command
    given = parser.parse_args(words, defaults=False)
    options = Namespace({name: given.pop(name, parser.get_default(name)) for name in own})
    return options, lambda defaults: _config(method, parser, defaults, given)


def _parsed(parser: Parser, settings: Mapping[str, Any]) -> Namespace:
    """Return settings by nested or dotted name as the parser has them; nothing for those that are not given."""
    plain = {key: _plain(value) for key, value in flatten(settings).items()}
    _check_plain(parser, plain)
    return parser.parse_args(arguments_of(plain), defaults=False)


def _config(method: Method[Any, RunT, Any], parser: Parser, defaults: Mapping[str, Any], given: Namespace) -> RunT:
    settings = parser.get_defaults()
    if defaults:
        settings.update(_parsed(parser, {**defaults, "data": given["data"]}))  # a parser wants data
    settings.update(given)
    return config_of(method, settings, parser)


def _plain(value: Any) -> Any:
    """Return a setting as JSON has it: numpy's numbers and arrays, paths and dates become plain values."""
    if isinstance(value, np.floating):
        return float(str(value))  # of float32 the number as it is written: 0.01, not 0.00999999977648
    if isinstance(value, (date, np.datetime64)):
        return str(value)
    if isinstance(value, np.generic):
        return _plain(value.item())
    if isinstance(value, np.ndarray):
        return [_plain(part) for part in value] if value.ndim else _plain(value[()])
    if isinstance(value, (list, tuple)):
        return type(value)(map(_plain, value)) if type(value) in (list, tuple) else list(map(_plain, value))
    return str(value) if isinstance(value, PurePath) else value


def _check_plain(parser: Parser, settings: Mapping[str, Any]) -> None:
    """Raise ConfigError for settings that are no option with a plain value: no files, no classes, no whole groups.

    A run folder's settings come this way, and jsonargparse would import what a group is given as its class, and read
    the file that it is given as its path.
    """
    known = parser.keys()
    groups = {key.rpartition(".")[0] for key in known if "." in key}
    for key, value in flatten(settings).items():
        if not isinstance(key, str) or key not in known:
            parser.error(f"unrecognized arguments: --{shown(key)}")
        if key in groups:
            kind = f"{key}.kind" in known and isinstance(value, str) and re.fullmatch(r"[\w-]+", value)
            if not kind and value != {}:
                raise ConfigError(f"{key} is a group of settings; got {shown(value)!r}")
        parts = value if isinstance(value, (list, tuple)) else [value]
        if not all(part is None or isinstance(part, (bool, int, float, str)) for part in parts):
            raise ConfigError(
                f"{key} takes a plain value or a list of them, not {type(value).__name__}: {shown(value)}"
            )


def as_dict(config: RunConfig) -> dict[str, Any]:
    """Return a configuration dataclass as plain nested dicts, JSON-able."""
    return json.loads(json.dumps(dataclasses.asdict(config)))
