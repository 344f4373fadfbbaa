"""The command line's parser of a method's configuration; what files of settings may hold."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any, NoReturn

import yaml
from jsonargparse import ActionConfigFile, ArgumentParser, Namespace, get_loader, set_dumper, set_loader

from hopstate.errors import ConfigError, FormatError
from hopstate.io.opening import exists, read_text, reading, shown
from hopstate.methods.hints import hint, in_words
from hopstate.methods.method import AnyMethod
from hopstate.training.run_folder import flatten

SETTINGS_BYTES = 4 << 20  # of a file of settings
_MOST_NODES = 100_000  # of a YAML document, its aliases followed


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
    named = [after for arg, after in pairwise(args) if arg == "--config"]
    named += [arg.partition("=")[2] for arg in args if arg.startswith("--config=")]
    return [name for name in named if exists(name)]


def _check_group(parser: Parser, name: str, value: object, *, word: bool = False) -> None:
    """Raise ConfigError for a group of settings that is given something else: jsonargparse would import it as a class.

    Args:
        parser: of the group.
        name: of any setting.
        value: as a file has it, or a word of the command line.
        word: it is one, which may be settings such as {x: 1}, or the kind alone of a group that has one.
    """
    keys = parser.keys()
    if not any(key.startswith(f"{name}.") for key in keys) or value == {}:
        return
    kind = f"{name}.kind" in keys and isinstance(value, str) and re.fullmatch(r"[\w-]+", value)
    if (word and kind) or (value is None and "." not in name):  # a heading of a file with nothing below it
        return
    if word and isinstance(value, str) and value.startswith("{"):
        try:
            inside = load_yaml(value)
        except yaml.YAMLError:
            inside = None
        if isinstance(inside, dict):
            for inner, one in flatten(inside).items():
                _check_group(parser, f"{name}.{inner}", one)
            return
    such = f"kind {value}" if kind else "x 1"
    raise ConfigError(
        f"{name} is a group of settings, such as --{name}.{such}; got {shown(value)!r}{parser.given_in()}"
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


# what people type → the settings, the first one that a method has
SHORT_OPTIONS = {
    "--epochs": ("--loop.epochs",),
    "--lr": ("--loop.optim.lr",),
    "--seed": ("--loop.seed",),
    "--device": ("--loop.device",),
    "--features": ("--read.features",),
    "--labels": ("--read.labels",),
    "--batch-size": ("--batch_size", "--batching.batch_size"),
}


class Parser(ArgumentParser):
    """A jsonargparse parser whose complaints are ConfigErrors that suggest the nearest name."""

    _settings: Sequence[str] = ()  # files of settings that were given

    def error(self, message: str, ex: Exception | None = None) -> NoReturn:
        """Raise ConfigError in place of printing usage and leaving."""
        raise ConfigError(f"{self._plain(message)}{hint(message, self.keys())}{self.given_in()}") from ex

    def given_in(self) -> str:
        """Return " (with the settings of FILE)" where a file of settings was given, else nothing."""
        files = ", ".join(self._settings)
        return f" (with the settings of {files})" if files else ""

    def _plain(self, message: str) -> str:
        return in_words(re.sub(r"\s+", " ", re.sub(r"^Parser key \"?'?([\w.]+)'?\"?:", r"\1:", message)).strip())

    def parse_args(self, args: Sequence[str] | None = None, *more: Any, **settings: Any) -> Namespace:
        """Parse arguments; a group that has a kind may be named by it alone: --batching top, --split=random."""
        if args is not None:
            self._check_short_options(args)
            self._settings = [_checked_settings(self, path) for path in _settings_files(args)]
            for arg, after in zip(args, [*args[1:], ""]):
                if arg.startswith("--"):
                    _check_group(self, *((arg[2:], after) if "=" not in arg else arg[2:].split("=", 1)), word=True)
            kinds = {f"--{key.removesuffix('.kind')}" for key in self.keys() if key.endswith(".kind")}
            args = [self._of_kind(arg, after, kinds) for arg, after in zip(args, [*args[1:], ""])]
            args = [
                "--freeze=true" if a == "--freeze" and b.startswith("-") else a for a, b in zip(args, [*args[1:], "-"])
            ]
        return super().parse_args(args, *more, **settings)

    def add_short_options(self) -> None:
        """Let settings that people set often be given by `SHORT_OPTIONS` too."""
        known = self._option_string_actions
        for short, names in SHORT_OPTIONS.items():
            for name in names:
                if name in known:
                    known[name].option_strings.insert(0, short)
                    known[short] = known[name]
                    break

    def _check_short_options(self, args: Sequence[str]) -> None:
        """Raise ConfigError if a short option and its setting are given with different values."""
        given: dict[str, tuple[str, str]] = {}
        for arg, after in zip(args, [*args[1:], ""]):
            name, sign, value = arg.partition("=")
            action = self._option_string_actions.get(name)
            if action is None or not SHORT_OPTIONS.keys() & set(action.option_strings):
                continue
            value = value if sign else after
            other, before = given.setdefault(action.dest, (name, value))
            if name != other and value != before:
                raise ConfigError(f"{other} {before} and {name} {value} are the same setting; give one of them")

    def _of_kind(self, argument: str, after: str, kinds: set[str]) -> str:
        name, sign, value = argument.partition("=")
        word = value if sign else after
        return f"{name}.kind{sign}{value}" if name in kinds and re.fullmatch(r"[\w-]+", word) else argument

    def keys(self) -> list[str]:
        """Return the dotted names of all options."""
        own = [action for action in self._actions if action.dest not in ("help", "config", "print_config")]
        return [[action.dest, *action.option_strings][-1].removeprefix("--") for action in own]


def parser_of(method: AnyMethod, prog: str | None = None) -> Parser:
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
    parser.add_short_options()
    for action in parser._actions:
        if action.dest in method.automatic:
            action.help = f"{action.help or ''} [auto]".lstrip()
    return parser


_parsers: dict[tuple[str, type], Parser] = {}  # building one takes longer than loading a small run


def shared_parser(method: AnyMethod) -> Parser:
    """Return what `parser_of` returns, built once per process; nobody may add to it or change its defaults."""
    key = method.name, method.config
    if key not in _parsers:
        _parsers[key] = parser_of(method)
    return _parsers[key]


def arguments_of(settings: Mapping[str, Any]) -> list[str]:
    return [
        f"--{key}={value if isinstance(value, str) else json.dumps(value)}" for key, value in flatten(settings).items()
    ]
