"""The commands of `hopstate`, read from `commands.yaml`, and the help of the main command."""

from __future__ import annotations

from importlib.resources import files
from typing import NamedTuple

import yaml

from hopstate.errors import ConfigError, nearest


class Command(NamedTuple):
    """A command of the command line.

    Args:
        group: heading of the main help under which it stands.
        module: module with `run(argv) -> Answer`; imported only if the command runs.
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


def examples_of(name: str) -> str:
    """Return the block of examples at the end of a command's help."""
    return "\n".join(["Examples:", *(f"  hopstate {line}" for line in COMMANDS[name].examples)])
