"""`hopstate completion SHELL`: print a script that completes commands, methods and options."""

from __future__ import annotations

import argparse
import contextlib
from collections.abc import Mapping
from importlib import import_module

import shtab

from hopstate.cli.commands import COMMANDS, FLAGS, CommandParser, CommandResult, HelpRequest, lines
from hopstate.cli.fit import fit_parser
from hopstate.cli.tune import tune_parser
from hopstate.methods import MODULES, get_method

SHELLS = ("bash", "zsh", "fish")


def run(argv: list[str]) -> CommandResult:
    how = 'bash: source <(hopstate completion bash) in ~/.bashrc; zsh: eval "$(hopstate completion zsh)" in ~/.zshrc'
    parser = CommandParser(prog="hopstate completion", description=__doc__, epilog=how, allow_abbrev=False)
    parser.add_argument("shell", choices=SHELLS, help="bash, zsh or fish")
    shell = parser.parse_args(argv[1:]).shell
    script = shtab.complete(_root(), shell)
    return CommandResult({"shell": shell, "script": script}, lines(script))


def _root() -> argparse.ArgumentParser:
    """Return one parser with the parsers of all commands below it."""
    return _above("hopstate", {name: (_parser(name), command.summary) for name, command in COMMANDS.items()})


def _above(prog: str, below: Mapping[str, tuple[argparse.ArgumentParser, str]]) -> argparse.ArgumentParser:
    """Return a parser with others, each with a line of help, as its subcommands."""
    parser = argparse.ArgumentParser(prog)
    parsers = parser.add_subparsers(parser_class=lambda prog, **_: below[prog.split()[-1]][0])  # type: ignore[call-overload]
    for name, (_, summary) in below.items():
        parsers.add_parser(name, help=summary)
    return parser


def _parser(command: str) -> argparse.ArgumentParser:
    if command in ("fit", "tune"):
        make = fit_parser if command == "fit" else tune_parser
        methods = {name: get_method(name) for name in MODULES}
        below = {name: (_with_flags(make(method)), method.summary) for name, method in methods.items()}
        return _above(f"hopstate {command}", below)
    if command != "completion":  # its parser is made already
        with contextlib.suppress(HelpRequest):
            import_module(COMMANDS[command].module).run([command, "--help"])
    return _with_flags(CommandParser.made[f"hopstate {command}"])


def _with_flags(parser: argparse.ArgumentParser) -> argparse.ArgumentParser:
    """Return a parser with the options of every command; values without choices are completed as files."""
    for flag, text in FLAGS.items():
        parser.add_argument(flag, action="store_true", help=text)
    for action in parser._actions:
        if action.nargs != 0 and action.choices is None:
            action.complete = shtab.FILE  # type: ignore[attr-defined]
    return parser
