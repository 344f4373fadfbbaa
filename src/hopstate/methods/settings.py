"""Configurations from YAML, flags and Python dicts through one jsonargparse parser per method."""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import Any, NoReturn

import yaml
from jsonargparse import ActionConfigFile, ArgumentParser, Namespace, get_loader, set_dumper, set_loader

from hopstate.errors import ConfigError, FormatError, nearest
from hopstate.io.opening import exists, read_text, reading, shown
from hopstate.methods.method import Method
from hopstate.training.run_folder import flatten

# settings that runs of 0.1.0 did not have, with what was done then
BEFORE = {"scale": "none", "unlabelled": "0.1.0", "task": "classification", "label_cells": "whole"}
SETTINGS_BYTES = 4 << 20  # of a file of settings
_MOST_NODES = 100_000  # of a YAML document, its aliases followed
_LARGEST = {"layers": 10_000}  # by the end of a name; other sizes of a model go up to SIZE
SIZE = 1 << 20


def load_yaml(text: str) -> Any:
    """Return what YAML holds, JSON included; numbers as jsonargparse reads them.

    Raises:
        yaml.YAMLError: no YAML, nested too deep, larger than settings can be once its aliases are followed, or with a
            class to import (no option takes one).
    """
    if len(text) > SETTINGS_BYTES:
        raise yaml.YAMLError(f"{len(text):,} characters are more than settings take")
    try:
        if "*" in text and "&" in text:
            _check_aliases(text)
        found = get_loader("yaml")(text)
    except RecursionError:
        raise yaml.YAMLError("it is nested too deep") from None
    except (ValueError, OverflowError, TypeError) as error:  # dates and numbers that cannot be, keys that are lists
        raise yaml.YAMLError(str(error)) from None
    if isinstance(found, dict) and _names_class(found):
        raise yaml.YAMLError("class_path names code to import, which no setting takes")
    return found


def _names_class(tree: dict[Any, Any]) -> bool:
    return "class_path" in tree or any(isinstance(value, dict) and _names_class(value) for value in tree.values())


def _check_aliases(text: str) -> None:
    """Raise YAMLError where following the aliases would make very much of a little."""
    sizes: dict[int, int] = {}
    open_: set[int] = set()

    def size(node: Any) -> int:
        if id(node) in open_:
            raise yaml.YAMLError("an alias stands for what it is part of")
        if id(node) not in sizes:
            open_.add(id(node))
            parts = node.value if isinstance(node.value, list) else []
            sizes[id(node)] = 1 + sum(size(n) for part in parts for n in (part if isinstance(part, tuple) else (part,)))
            open_.remove(id(node))
        return sizes[id(node)]

    root = yaml.compose(text, Loader=yaml.SafeLoader)
    if root is not None and size(root) > _MOST_NODES:
        raise yaml.YAMLError(f"its aliases make more than {_MOST_NODES:,} values of it")


set_loader("hopstate", load_yaml, (yaml.YAMLError,))
set_dumper("hopstate", lambda tree: yaml.safe_dump(tree, default_flow_style=False, sort_keys=False))


def _settings_files(args: Sequence[str]) -> list[str]:
    """Return the files that --config names among arguments, where there are files of that name."""
    named = [after for arg, after in pairwise(args) if arg == "--config"]
    named += [arg.partition("=")[2] for arg in args if arg.startswith("--config=")]
    return [name for name in named if exists(name)]


def _check_group(parser: Parser, name: str, value: object) -> None:
    """Raise ConfigError for a group of settings that is given a word: jsonargparse would import it as a class."""
    keys = parser.keys()
    if not any(key.startswith(f"{name}.") for key in keys) or (isinstance(value, str) and value.startswith("{")):
        return
    if isinstance(value, str) and not (f"{name}.kind" in keys and re.fullmatch(r"[\w-]+", value)):
        raise ConfigError(
            f"{name} is a group of settings, such as --{name}.x 1; got {shown(value)!r}{parser.given_in()}"
        )


def _checked_settings(parser: Parser, path: str) -> str:
    """Return the path of a file of settings.

    Raises:
        ConfigError: it is no file, no text, no YAML, or holds something else than settings.
    """
    with reading(path, "settings", ConfigError):
        try:
            found = load_yaml(read_text(path, most=SETTINGS_BYTES))
        except (FormatError, OSError) as error:
            raise ConfigError(f"{error}") from None
        if not isinstance(found, dict):
            raise ConfigError(f"{path} holds {type(found).__name__}, not settings such as 'model: {{dim: 64}}'")
        for name, value in flatten(found).items():
            if isinstance(name, str):
                _check_group(parser, name, value)
    return path


class Parser(ArgumentParser):
    """A jsonargparse parser whose complaints are ConfigErrors that suggest the nearest name."""

    def error(self, message: str, ex: Exception | None = None) -> NoReturn:
        """Raise ConfigError in place of printing usage and leaving."""
        raise ConfigError(f"{self._plain(message)}{self._hint(message)}{self.given_in()}") from ex

    def given_in(self) -> str:
        """Return " (with the settings of FILE)" where a file of settings was given, else nothing."""
        files = ", ".join(getattr(self, "_settings", ()))
        return f" (with the settings of {files})" if files else ""

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
            self._settings = [_checked_settings(self, path) for path in _settings_files(args)]
            for arg, after in zip(args, [*args[1:], ""]):
                _check_group(self, *((arg[2:], after) if "=" not in arg else arg[2:].split("=", 1)))
            kinds = {f"--{key.removesuffix('.kind')}" for key in self.keys() if key.endswith(".kind")}
            args = [self._of_kind(arg, after, kinds) for arg, after in zip(args, [*args[1:], ""])]
            args = [
                "--freeze=true" if a == "--freeze" and b.startswith("-") else a for a, b in zip(args, [*args[1:], "-"])
            ]
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
        parser_mode="hopstate",
    )
    parser.add_argument(
        "--config", action=ActionConfigFile, help="YAML or JSON file of settings; later flags override it"
    )
    parser.add_class_arguments(method.config, nested_key=None, fail_untyped=False)
    return parser


def config_of(method: Method, parsed: Namespace, parser: ArgumentParser) -> Any:
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
        if value > most and key.partition(".")[0] in ("model", "tokens", "encoding"):
            raise ConfigError(f"{key}={value} is a size that no model has; at most {most:,}")


def config_from(method: Method, settings: Mapping[str, Any]) -> Any:
    """Return the method's configuration from nested or dotted settings, the rest at its defaults.

    Raises:
        ConfigError: an unknown key (the nearest is suggested) or a value of the wrong type.
    """
    parser = parser_of(method)
    _check_plain(parser, settings)
    return config_of(method, parser.parse_args(arguments_of(settings)), parser)


def parse_given(method: Method, given: Mapping[str, Any]) -> Callable[[Mapping[str, Any]], Any]:
    """Return defaults by dotted name → configuration with the given settings over them; see `config_from`."""
    return lambda defaults: config_from(method, {**defaults, **flatten(given)})


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


def resumed(method: Method, config: Any, stored: Mapping[str, Any]) -> Any:
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


def arguments_of(settings: Mapping[str, Any]) -> list[str]:
    """Return nested or dotted settings as arguments of the command line."""
    return [f"--{key}={_text(value)}" for key, value in flatten(settings).items()]


def as_dict(config: Any) -> dict[str, Any]:
    """Return a configuration dataclass as plain nested dicts, JSON-able."""
    return json.loads(json.dumps(dataclasses.asdict(config)))


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)
