"""Shared code of all commands: the command table, the parser with its help, and the result."""

from __future__ import annotations

import argparse
import json
import sys
import textwrap
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, NoReturn, get_args

import yaml

from hopstate.errors import ConfigError, nearest
from hopstate.io.output import wrapped

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


class _NameMethod(argparse.Action):
    """Import a custom method; this process then opens runs of it."""

    def __call__(self, parser: Any, namespace: Any, values: Any, option_string: str | None = None) -> None:
        from hopstate.methods import get_method  # imports torch

        get_method(values)


_RUN_OPTIONS: dict[str, dict[str, Any]] = {
    "--data": {"help": "data to use instead of the training data: a file, a folder or a dataset name"},
    "--device": {"help": "auto, cpu, cuda or cuda:N (default: the setting of the run)"},
    "--method": {
        "action": _NameMethod,
        "metavar": "MODULE:NAME",
        "help": "the method of the run, if it is your own code",
    },
    "--state": {"help": "folder of the state to continue from (default: RUN/state, if it exists)"},
    "--ignore-state": {
        "action": "store_true",
        "help": "start after the training data of the run, also if a state exists",
    },
}


class HelpRequest(Exception):  # noqa: N818 - not an error
    """`--help` was given; its text is the argument."""


class CommandParser(argparse.ArgumentParser):
    """The parser of a command: it raises where argparse would print and exit."""

    made: ClassVar[dict[str, argparse.ArgumentParser]] = {}  # by `prog`, for shell completion
    _words: Sequence[str] = ()  # the words that are being parsed

    def __init__(self, prog: str, **settings: Any) -> None:
        super().__init__(prog, **settings)
        self.made[prog] = self

    def parse_known_args(self, args: Sequence[str] | None = None, namespace: Any = None) -> tuple[Any, list[str]]:  # type: ignore[override]
        self._words = [] if args is None else list(args)
        return super().parse_known_args(args, namespace)

    def add_run(self, *options: str) -> None:
        """Add the run folder, and some of the options that commands on runs share."""
        self.add_argument("run", help="run folder written by `hopstate fit`")
        self.add_shared(*options)

    def add_shared(self, *options: str) -> None:
        for name in options:
            self.add_argument(name, **_RUN_OPTIONS[name])

    def error(self, message: str) -> NoReturn:
        from hopstate.methods.config import hint  # imports torch

        known = [flag.removeprefix("--") for flag in self._option_string_actions if flag.startswith("--")]
        if "arguments are required" in message:  # a required one may have been given under a mistyped name
            names = (word.removeprefix("--").partition("=")[0] for word in self._words if word.startswith("--"))
            others = [f"--{name}" for name in names if name and "." not in name and name not in known]
            message += f"; unrecognized arguments: {' '.join(others)}" if others else ""
        raise ConfigError(f"{self.prog}: {message}{hint(message, known)}")

    def format_help(self) -> str:
        return f"{super().format_help()}\n{examples_of(self.prog)}"

    def print_help(self, file: Any = None) -> NoReturn:
        raise HelpRequest(self.format_help())


def command_options(parser: CommandParser, words: Sequence[str]) -> argparse.Namespace:
    """Return the options of a command whose runs take settings after `--`."""
    options, others = parser.parse_known_args(words)
    if others:
        given = " ".join(others)
        if others[0].startswith("--") and "." in others[0].partition("=")[0]:
            raise ConfigError(f"unrecognized arguments: {given}; put settings of the runs after --: -- {given}")
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
        raise HelpRequest(f"{usage}\n{more}\n\n{examples_of(f'hopstate {command}')}")
    raise ConfigError(f"missing METHOD after {command}. {usage}")


def show_settings_help(parser: Parser, words: Sequence[str]) -> None:
    """Raise HelpRequest if `--help` (the usual options) or `--help-all` is among the words."""
    if not {"-h", "--help", "--help-all"} & set(words):
        return
    more = ""
    parser.usage = f"{parser.prog} --data DATA [options]"
    parser.formatter_class = _settings_formatter()
    if "--help-all" not in words:
        hidden = [action for action in parser._actions if action.dest not in _BASIC_KEYS]
        for action in hidden:
            action.help = argparse.SUPPRESS
        more = f"`{parser.prog} --help-all` shows {len(hidden)} more options.\n\n"
    raise HelpRequest(f"{parser.format_help()}\n{more}{examples_of(parser.prog)}")


def _settings_formatter() -> type[argparse.HelpFormatter]:
    """Return a formatter of settings: types as placeholders of values, defaults unless null, names once."""
    from jsonargparse import DefaultHelpFormatter

    class SettingsFormatter(DefaultHelpFormatter):
        def start_section(self, heading: str | None) -> None:
            super().start_section(textwrap.fill(heading or "", self._width))

        def _get_help_string(self, action: argparse.Action) -> str:
            if action.nargs == 0 or action.default in (None, [], argparse.SUPPRESS):
                return action.help or ""
            default = json.dumps(action.default) if isinstance(action.default, (bool, tuple)) else "%(default)s"
            return f"{action.help} (default: {default})"

        def _format_action_invocation(self, action: argparse.Action) -> str:
            value = self._format_args(action, self._get_default_metavar_for_optional(action))
            # the "\b" of --print_config moves its value next to it on a terminal only
            return f"{', '.join(action.option_strings)} {value}".replace(" \b", "").rstrip()

        def _get_default_metavar_for_optional(self, action: argparse.Action) -> str:
            hint = getattr(action, "_typehint", None)
            types = {hint, *get_args(hint)}
            if str in types or not types & {int, float}:
                return super()._get_default_metavar_for_optional(action)
            return "NUMBER" if float in types else "INTEGER"

    return SettingsFormatter


DONE, FAILED, USAGE, INTERRUPTED = 0, 1, 2, 130


@dataclass(frozen=True)
class CommandResult:
    """The result of a command.

    Args:
        record: JSON output, with stable keys.
        show: prints the result as text.
        status: exit status of the process.
        then: a service to run after printing, which returns the exit status.
    """

    record: Mapping[str, Any]
    show: Callable[[], object]
    status: int = DONE
    then: Callable[[], int] | None = None


def say(text: str) -> None:
    """Print a line that is not the result to stderr."""
    print(wrapped(text, sys.stderr), file=sys.stderr, flush=True)


def lines(*texts: str) -> Callable[[], None]:
    return lambda: print(wrapped("\n".join(texts), sys.stdout))


def json_text(value: Any) -> str:
    """Return a value as one line of JSON; NaN and infinities become null, times and paths their text.

    >>> json_text({"a": float("nan"), "b": (1, 2)})
    '{"a": null, "b": [1, 2]}'
    """
    from hopstate.training.run_folder import plain  # imports numpy

    return json.dumps(plain(value), ensure_ascii=True)


def rows_of(table: Any) -> list[dict[str, Any]]:
    """Return a pandas table as records, missing values as None."""
    return [{key: None if cell != cell else cell for key, cell in row.items()} for row in table.to_dict("records")]


class Command(NamedTuple):
    """A command of the command line.

    Args:
        group: its heading in the main help.
        module: module with `run(argv) -> CommandResult`; imported only if the command runs.
        summary: one line for the main help.
        examples: command lines for the command's help, without `hopstate`.
    """

    group: str
    module: str
    summary: str
    examples: list[str]


def _read() -> dict[str, Command]:
    text = files("hopstate.cli").joinpath("commands.yaml").read_text("utf-8")
    groups = yaml.safe_load(text).items()
    return {name: Command(group, **facts) for group, commands in groups for name, facts in commands.items()}


COMMANDS = _read()
FLAGS = {
    "--json": "print one JSON object on stdout; everything else goes to stderr",
    "--quiet": "print only results and errors (-q)",
    "--verbose": "also print devices, operators and time used (-v)",
    "--debug": "print the traceback of an error",
}


def command_of(name: str) -> Command:
    if name not in COMMANDS:
        raise ConfigError(f"unknown command {name!r}{nearest(name, COMMANDS)}; known: {', '.join(COMMANDS)}")
    return COMMANDS[name]


def main_help() -> str:
    """Return the help of `hopstate` itself: commands by group."""
    lines = ["usage: hopstate COMMAND [options]"]
    for group in dict.fromkeys(command.group for command in COMMANDS.values()):
        lines += ["", f"{group}:"]
        lines += [f"  {name:<11} {c.summary}" for name, c in COMMANDS.items() if c.group == group]
    lines += ["", "Options of every command:", *(f"  {flag:<11} {text}" for flag, text in FLAGS.items())]
    return "\n".join([*lines, "", "hopstate COMMAND --help shows the options and examples of a command."])


def examples_of(prog: str) -> str:
    """Return the examples at the end of a command's help: those of the method if `prog` names one with examples."""
    examples = [f"hopstate {line}" for line in COMMANDS[prog.split()[1]].examples]
    own = [line for line in examples if f"{line} ".startswith(f"{prog} ")]
    return "\n".join(["Examples:", *(f"  {line}" for line in own or examples)])


def split_group(argv: list[str], start: str) -> tuple[list[str], dict[str, Any]]:
    """Split --GROUP.KEY VALUE or --GROUP.KEY=VALUE options off the words and return both."""
    words = [part for word in argv for part in (word.split("=", 1) if word.startswith(start) else [word])]
    words_left, options = [], {}
    remaining = iter(words)
    for word in remaining:
        if word.startswith(start):
            options[word.removeprefix(start)] = next(remaining, "")
        else:
            words_left.append(word)
    return words_left, options
