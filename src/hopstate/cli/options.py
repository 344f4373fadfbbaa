"""Parsers of the commands: errors suggest the nearest option, help ends with examples."""

from __future__ import annotations

import argparse
import textwrap
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar, NoReturn

from hopstate.cli.commands import examples_of
from hopstate.errors import ConfigError

if TYPE_CHECKING:
    from hopstate.methods.config import Parser
    from hopstate.methods.method import Method

# settings in the short help of `fit METHOD` and `tune METHOD`; `--help-all` shows all
_BASIC_KEYS = {
    *("data", "read.source_column", "read.target_column", "read.time_column", "read.features", "read.labels"),
    *("split.kind", "model.dim", "model.num_layers", "batch_size", "batching.batch_size"),
    *("loop.epochs", "loop.optim.lr", "loop.seed", "loop.device"),
    *("help", "config", "out", "resume", "dry_run", "no_auto", "trials", "space", "search_seed"),
}


class HelpRequest(Exception):  # noqa: N818 - not an error
    """`--help` was given; its text is the argument."""


class Options(argparse.ArgumentParser):
    """The parser of a command: it raises where argparse would print and exit."""

    made: ClassVar[dict[str, argparse.ArgumentParser]] = {}  # by `prog`, for shell completion
    _words: Sequence[str] = ()  # the words that are being parsed

    def __init__(self, prog: str, **settings: Any) -> None:
        super().__init__(prog, **settings)
        self.made[prog] = self

    def parse_known_args(self, args: Sequence[str] | None = None, namespace: Any = None) -> tuple[Any, list[str]]:  # type: ignore[override]
        self._words = [] if args is None else list(args)
        return super().parse_known_args(args, namespace)

    def error(self, message: str) -> NoReturn:
        from hopstate.methods.config import hint  # imports torch

        known = [flag.removeprefix("--") for flag in self._option_string_actions if flag.startswith("--")]
        if "arguments are required" in message:  # a required one may have been given under a mistyped name
            names = (word.removeprefix("--").partition("=")[0] for word in self._words if word.startswith("--"))
            others = [f"--{name}" for name in names if name and "." not in name and name not in known]
            message += f"; unrecognized arguments: {' '.join(others)}" if others else ""
        raise ConfigError(f"{self.prog}: {message}{hint(message, known)}")

    def format_help(self) -> str:
        return f"{super().format_help()}\n{examples_of(self.prog.removeprefix('hopstate '))}"

    def print_help(self, file: Any = None) -> NoReturn:
        raise HelpRequest(self.format_help())


def own_options(parser: Options, words: Sequence[str]) -> argparse.Namespace:
    """Return the options of a command whose runs take settings after `--`."""
    options, others = parser.parse_known_args(words)
    if others:
        given = " ".join(others)
        if others[0].startswith("--") and "." in others[0].partition("=")[0]:
            raise ConfigError(f"unrecognized arguments: {given}; settings of the runs stand after --: -- {given}")
        parser.error(f"unrecognized arguments: {given}")
    return options


def named_method(argv: Sequence[str]) -> Method:
    """Return the method that follows a command's name."""
    from hopstate.methods import MODULES, get_method  # imports torch

    command, name = argv[0], argv[1] if len(argv) > 1 else ""
    if not name.startswith("-") and name:
        return get_method(name)
    methods = textwrap.fill(f"methods: {', '.join(MODULES)}", 80, break_on_hyphens=False)
    usage = f"usage: hopstate {command} METHOD --data DATA [options]\n\n{methods}"
    if {"-h", "--help", "--help-all"} & set(argv):
        more = f"`hopstate {command} METHOD --help` shows the options of a method."
        raise HelpRequest(f"{usage}\n{more}\n\n{examples_of(command)}")
    raise ConfigError(f"which method? name it first. {usage}")


def show_settings_help(parser: Parser, command: str, words: Sequence[str]) -> None:
    """Raise HelpRequest if `--help` (the usual options) or `--help-all` is among the words."""
    if not {"-h", "--help", "--help-all"} & set(words):
        return
    more = ""
    parser.usage = f"{parser.prog} --data DATA [options]"
    if "--help-all" not in words:
        hidden = [action for action in parser._actions if action.dest not in _BASIC_KEYS]
        for action in hidden:
            action.help = argparse.SUPPRESS
        more = f"`{parser.prog} --help-all` shows {len(hidden)} more options.\n\n"
    raise HelpRequest(f"{parser.format_help()}\n{more}{examples_of(command)}")
