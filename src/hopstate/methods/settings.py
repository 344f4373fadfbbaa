"""Configurations from run folders, Python dicts and words of a command line."""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from jsonargparse import ArgumentParser, Namespace

from hopstate.errors import ConfigError
from hopstate.io.opening import shown
from hopstate.methods.method import AnyMethod, Method, RunConfig, RunT
from hopstate.methods.parser import Parser, arguments_of, shared_parser
from hopstate.training.renamed import with_todays_names
from hopstate.training.run_folder import flatten

# settings that runs of 0.1.0 did not have, with what was done then
BEFORE = {"scale": "none", "task": "classification", "label_cells": "whole"}
BEFORE |= {"missing": "error"}
_LARGEST = {"layers": 10_000}  # by the end of a name; other sizes of a model go up to SIZE
SIZE = 1 << 20
_COUNTS = {"bootstrap": 1_000_000, "num_negatives": 10_000_000, "num_neighbors": SIZE}  # by the last of a name's parts
_GROUPS = ("model", "tokens", "encoding", "history")  # of sizes


def config_of(method: Method[Any, RunT, Any], parsed: Namespace, parser: ArgumentParser) -> RunT:
    """Return the method's configuration dataclass from parsed settings."""
    names = [f.name for f in dataclasses.fields(method.config)]
    try:
        built = parser.instantiate(parsed)
        config = method.config(**{name: built[name] for name in names})
        _check_sizes(as_dict(config))
    except ConfigError as error:
        raise ConfigError(f"{error}{parser.given_in()}" if isinstance(parser, Parser) else str(error)) from error
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
    parser = shared_parser(method)
    settings = with_todays_names(settings, "the settings", parser.keys(), values=parser.own)
    _check_plain(parser, settings)
    return config_of(method, parser.parse_args(arguments_of(settings)), parser)


def parse_given(method: Method[Any, RunT, Any], given: Mapping[str, Any]) -> Callable[[Mapping[str, Any]], RunT]:
    """Return defaults by dotted name → configuration with the given settings over them; see `config_from`."""
    return lambda defaults: config_from(method, {**defaults, **flatten(given)})


def parse_words(
    method: Method[Any, RunT, Any], parser: Parser, words: Sequence[str], own: Sequence[str] = ()
) -> Callable[[Mapping[str, Any]], RunT]:
    """Return defaults by dotted name → configuration with the words of a command line over them.

    Args:
        method: the method.
        parser: what `parser_of` made, and options of a command's own.
        words: of the command line.
        own: names of the command's own options.
    """

    def parse(defaults: Mapping[str, Any]) -> RunT:
        parser.set_defaults(dict(defaults))
        parsed = parser.parse_args(words)
        for name in own:
            parsed.pop(name)
        return config_of(method, parsed, parser)

    return parse


def with_earlier(method: AnyMethod, settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return a run folder's settings, those that did not exist when it was made at what they stood for then."""
    had = flatten(settings)
    filled = json.loads(json.dumps(dict(settings)))
    for name, value in method.earlier.items():
        *groups, last = name.split(".")
        if name not in had:
            place = filled
            for group in groups:
                place = place.setdefault(group, {})
                if not isinstance(place, dict):
                    raise ConfigError(f"{group} is a group of settings; got {shown(place)!r}")
            place[last] = value
    return filled


def resumed(method: Method[Any, RunT, Any], config: RunT, stored: Mapping[str, Any]) -> RunT:
    """Return config with what a run folder means by settings that came after it, where config has their defaults.

    Args:
        method: the run's.
        config: what it is to be resumed with.
        stored: its config.json, nested.
    """
    now, named = flatten(as_dict(config)), flatten(stored)
    default = flatten(as_dict(config_from(method, {"data": now["data"]})))
    changed = {k: v for k, v in method.earlier.items() if named.get(k, v) == v and now[k] == default[k] != v}
    return config_from(method, now | changed) if changed else config


def as_made(config: RunT, settings: Mapping[str, Any]) -> RunT:
    """Return a configuration in which reading options that are newer than a run mean what was done when it was made.

    Args:
        config: of the run's method.
        settings: the run's own, as its folder holds them.
    """
    read, reading = config.read, settings.get("read")
    if not isinstance(reading, Mapping):
        return config
    usual = {f.name: f.default for f in dataclasses.fields(read)}
    changes = {
        k: v for k, v in BEFORE.items() if k in usual and reading.get(k, v) == v and getattr(read, k) == usual[k]
    }
    return dataclasses.replace(config, read=dataclasses.replace(read, **changes)) if changes else config


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
            raise ConfigError(f"{key} takes a plain value or a list of them; got {shown(value)!r}")


def as_dict(config: RunConfig) -> dict[str, Any]:
    """Return a configuration dataclass as plain nested dicts, JSON-able."""
    return json.loads(json.dumps(dataclasses.asdict(config)))
