"""Configurations from YAML, flags and Python dicts through one jsonargparse parser per method."""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NoReturn

from jsonargparse import ActionConfigFile, ArgumentParser, Namespace

from hopstate.errors import ConfigError, nearest
from hopstate.methods.base import Method

# settings that runs of 0.1.0 did not have, with what was done then
BEFORE = {"scale": "none", "unlabelled": "0.1.0", "task": "classification", "label_cells": "whole"}


class Parser(ArgumentParser):
    """A jsonargparse parser whose complaints are ConfigErrors that suggest the nearest name."""

    def error(self, message: str, ex: Exception | None = None) -> NoReturn:
        """Raise ConfigError in place of printing usage and leaving."""
        raise ConfigError(f"{self._plain(message)}{self._hint(message)}") from ex

    def _plain(self, message: str) -> str:
        return re.sub(r"\s+", " ", re.sub(r"^Parser key \"?'?([\w.]+)'?\"?:", r"\1:", message)).strip()

    def _hint(self, message: str) -> str:
        unknown = re.search(r"nrecognized arguments: --([\w.]+)", message)
        inside = re.search(r"Group '([\w.]+)' does not accept option '([\w.]+)'", message)
        if not unknown and not inside:
            return ""
        name = unknown[1] if unknown else f"{inside[1]}.{inside[2]}" if inside else ""
        known = self.keys()
        last = {key.rsplit(".", 1)[-1]: key for key in known}
        return nearest(name, known) or nearest(name.rsplit(".", 1)[-1], last) or "; --help lists all options"

    def parse_args(self, args: Sequence[str] | None = None, *more: Any, **settings: Any) -> Namespace:
        """Parse arguments; a group that has a kind may be named by it alone: --batching top, --split=random."""
        if args is not None:
            kinds = {f"--{key.removesuffix('.kind')}" for key in self.keys() if key.endswith(".kind")}
            args = [self._of_kind(arg, after, kinds) for arg, after in zip(args, [*args[1:], ""])]
        return super().parse_args(args, *more, **settings)

    def _of_kind(self, argument: str, after: str, kinds: set[str]) -> str:
        name, sign, value = argument.partition("=")
        word = value if sign else after
        return f"{name}.kind{sign}{value}" if name in kinds and re.fullmatch(r"[\w-]+", word) else argument

    def keys(self) -> list[str]:
        """Return the dotted names of all options."""
        return [action.dest for action in self._actions if action.dest not in ("help", "config", "print_config")]


def parser_of(method: Method, prog: str | None = None) -> Parser:
    """Return the parser of a method's whole run configuration."""
    parser = Parser(
        prog=prog,
        description=f"{method.name}: {method.summary} ({method.source})",
        exit_on_error=False,
        allow_abbrev=False,
    )
    parser.add_argument(
        "--config", action=ActionConfigFile, help="YAML or JSON file of settings; later flags override it"
    )
    parser.add_class_arguments(method.config, nested_key=None, fail_untyped=False)
    return parser


def config_of(method: Method, parsed: Namespace, parser: ArgumentParser) -> Any:
    """Return the method's configuration dataclass from parsed settings."""
    built = parser.instantiate(parsed)
    names = [f.name for f in dataclasses.fields(method.config)]
    return method.config(**{name: built[name] for name in names})


def config_from(method: Method, settings: Mapping[str, Any]) -> Any:
    """Return the method's configuration from nested or dotted settings, the rest at its defaults.

    Raises:
        ConfigError: an unknown key (the nearest is suggested) or a value of the wrong type.
    """
    parser = parser_of(method)
    return config_of(method, parser.parse_args(arguments_of(settings)), parser)


def parse_given(method: Method, given: Mapping[str, Any]) -> Callable[[Mapping[str, Any]], Any]:
    """Return defaults by dotted name → configuration with the given settings over them; see `config_from`."""
    return lambda defaults: config_from(method, {**defaults, **flat(given)})


def parse_words(
    method: Method, parser: Parser, words: Sequence[str], own: Sequence[str] = ()
) -> Callable[[Mapping[str, Any]], Any]:
    """Return defaults by dotted name → configuration with the words of a command line over them.

    Args:
        method: the method.
        parser: what `parser_of` made, and options of a command's own.
        words: of the command line.
        own: names of the command's own options.
    """

    def parse(defaults: Mapping[str, Any]) -> Any:
        parser.set_defaults(dict(defaults))
        parsed = parser.parse_args(words)
        for name in own:
            parsed.pop(name)
        return config_of(method, parsed, parser)

    return parse


def with_earlier(method: Method, settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return a run folder's settings, those that did not exist when it was made at what they stood for then."""
    had = flat(settings)
    filled = json.loads(json.dumps(dict(settings)))
    for name, value in method.earlier.items():
        *groups, last = name.split(".")
        if name not in had:
            place = filled
            for group in groups:
                place = place.setdefault(group, {})
            place[last] = value
    return filled


def resumed(method: Method, config: Any, stored: Mapping[str, Any]) -> Any:
    """Return config with what a run folder means by settings that came after it, where config has their defaults.

    Args:
        method: the run's.
        config: what it is to be resumed with.
        stored: its config.json, nested.
    """
    now, named = flat(as_dict(config)), flat(stored)
    default = flat(as_dict(config_from(method, {"data": now["data"]})))
    changed = {k: v for k, v in method.earlier.items() if named.get(k, v) == v and now[k] == default[k] != v}
    return config_from(method, now | changed) if changed else config


def as_made(config: Any, settings: Mapping[str, Any]) -> Any:
    """Return a configuration in which reading options that are newer than a run mean what was done when it was made.

    Args:
        config: of the run's method.
        settings: the run's own, as its folder holds them.
    """
    read, held = getattr(config, "read", None), settings.get("read")
    if not dataclasses.is_dataclass(read) or isinstance(read, type) or not isinstance(held, Mapping):
        return config
    usual = {f.name: f.default for f in dataclasses.fields(read)}
    changes = {k: v for k, v in BEFORE.items() if k in usual and held.get(k, v) == v and getattr(read, k) == usual[k]}
    return dataclasses.replace(config, read=dataclasses.replace(read, **changes)) if changes else config


def arguments_of(settings: Mapping[str, Any]) -> list[str]:
    """Return nested or dotted settings as arguments of the command line."""
    return [f"--{key}={_text(value)}" for key, value in flat(settings).items()]


def as_dict(config: Any) -> dict[str, Any]:
    """Return a configuration dataclass as plain nested dicts, JSON-able."""
    return json.loads(json.dumps(dataclasses.asdict(config)))


def flat(tree: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Return nested settings by dotted name."""
    found: dict[str, Any] = {}
    for key, value in tree.items():
        if dataclasses.is_dataclass(value) and not isinstance(value, type):
            value = dataclasses.asdict(value)
        found |= flat(value, f"{prefix}{key}.") if isinstance(value, Mapping) else {prefix + key: value}
    return found


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)
