"""Options of `hopstate fit METHOD` without its parser: help, and names that are none, before torch is imported.

`option_table.json` beside this file holds what the help of the library's methods says. It is made from their parsers by
`python -m hopstate.cli.option_table`, and a test holds it to them. A method of one's own has no entry: its parser is
asked.
"""

from __future__ import annotations

import argparse
import json
import re
from collections.abc import Sequence
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hopstate.errors import ConfigError
from hopstate.methods.hints import hint

if TYPE_CHECKING:
    from hopstate.methods.method import AnyMethod
    from hopstate.methods.parser import Parser

PLACE = Path(__file__).with_name("option_table.json")
_HELP_AT = 24  # the column at which argparse begins to explain an option
_NO_NAMES = ("--help", "--config", "--print_config")


def fit_parser(method: AnyMethod) -> Parser:
    """Return the parser of `hopstate fit METHOD`: the method's configuration and the command's own options."""
    from hopstate.methods.parser import parser_of

    parser = parser_of(method, prog=f"hopstate fit {method.name}")
    parser.add_argument("--out", type=str, default=None, help="run folder; by default a new one under runs/")
    parser.add_argument("--resume", action="store_true", help="continue the run in --out where it stopped")
    said = "measure a few steps and print parameters, memory and seconds of an epoch; nothing is trained or written"
    parser.add_argument("--dry-run", action="store_true", help=said)
    said = "settings marked [auto] keep their defaults, the paper's; otherwise they follow from the data"
    parser.add_argument("--no-auto", action="store_true", help=said)
    return parser


def with_device(words: Sequence[str]) -> list[str]:
    """Return words in which --device, which other commands have, is the setting --loop.device."""
    return [re.sub(r"\A--device(?=\Z|=)", "--loop.device", word) for word in words]


@cache
def _table() -> dict[str, Any]:
    return json.loads(PLACE.read_text(encoding="utf-8"))


def listed(name: str) -> bool:
    """Return whether the table has a method."""
    return name in _table()["methods"]


class _Option(argparse.Action):
    """An option as help shows it; it parses nothing."""

    def __init__(self, flags: list[str], value: str, required: bool, help: str) -> None:
        super().__init__(flags, dest="", nargs=None if value else 0, required=required, help=help or None)
        self.value = value

    def __call__(self, *parsed: object) -> None:
        """Do nothing."""


class _Formatter(argparse.HelpFormatter):
    """Shows values and help of options as they stand, with no % in them to be filled in."""

    def _format_args(self, action: argparse.Action, default_metavar: str) -> str:
        return action.value if isinstance(action, _Option) else default_metavar

    def _expand_help(self, action: argparse.Action) -> str:
        return action.help or ""


def help_of(name: str) -> str:
    """Return the help of `hopstate fit METHOD` at the terminal's width, as the method's parser gives it."""
    entry, table = _table()["methods"][name], _table()["options"]
    options = {i: _Option(*table[i]) for _, members in entry["groups"] for i in members}
    formatter = _Formatter(f"hopstate fit {name}")
    formatter.add_usage(None, [options[i] for i in entry["usage"]], [])
    formatter.add_text(entry["description"])
    for title, members in entry["groups"]:
        formatter.start_section(title)
        formatter.add_arguments([options[i] for i in members])
        formatter.end_section()
    return formatter.format_help()


def names_of(name: str) -> list[str]:
    """Return the dotted names of a method's options, groups of them included, in the parser's order."""
    flags = (_table()["options"][i][0][-1] for i in _table()["methods"][name]["usage"])
    return [flag.removeprefix("--") for flag in flags if flag not in _NO_NAMES]


def check_names(name: str, words: Sequence[str]) -> None:
    """Raise ConfigError for options that a method does not have, as its parser says it.

    What the table cannot decide passes: settings in files, and names within an option's own value.
    """
    if any(word == "--" or word.partition("=")[0] in _NO_NAMES for word in words):
        return
    known = names_of(name)
    inner = tuple(f"{key}." for key in known if not any(other.startswith(f"{key}.") for other in known))
    bare = {option[0][-1] for option in _table()["options"] if not option[1]}  # that take no value
    wrong, room = [], False  # whether a value may come next
    for word in words:
        flag, sign, _ = word.partition("=")
        if not flag.startswith("--"):
            wrong += [] if room else [word]
            room = False
            continue
        option = flag.removeprefix("--").rstrip("+")
        right = option in known or option.startswith(inner)
        wrong += [] if right else [word]
        room = right and not sign and flag not in bare
    if wrong:
        message = f"unrecognized arguments: {' '.join(wrong)}"
        raise ConfigError(f"{message}{hint(message, known)}")


def table_of(methods: Sequence[AnyMethod]) -> dict[str, Any]:
    """Return {"options": rows of flags, value, whether required, help; "methods": what the help of each has}."""
    options: dict[tuple[Any, ...], int] = {}
    entries = {method.name: _entry(method, options) for method in methods}
    return {"options": [[list(flags), *rest] for flags, *rest in options], "methods": entries}


def _entry(method: AnyMethod, options: dict[tuple[Any, ...], int]) -> dict[str, Any]:
    """Return what the help of a method has, its options added to those that are there."""
    parser = fit_parser(method)
    parser.formatter_class = partial(parser.formatter_class, width=1_000_000)  # a line each
    usage, description, *sections = parser.format_help().strip("\n").split("\n\n")
    required = {flag for mark, flag in re.findall(r" (\[?)(--[\w.]+)", usage) if not mark}
    groups, place = [], {}
    for section in sections:
        title, *lines = re.split(r"\n(?= )", section)  # a title may be of several lines
        members = []
        for flags, value, help in _shown(lines):
            option = (flags, value, flags[-1] in required, help)
            place[flags[-1]] = options.setdefault(option, len(options))
            members.append(place[flags[-1]])
        groups.append([title.removesuffix(":"), members])
    used = [place[flag] for flag in re.findall(r" \[?(--[\w.-]+)", usage)]
    return {"description": description, "groups": groups, "usage": used}


def _shown(lines: Sequence[str]) -> list[tuple[tuple[str, ...], str, str]]:
    """Return (flags, value, help) of the options that lines of help show, each unbroken."""
    found: list[tuple[tuple[str, ...], str, str]] = []
    for line in lines:
        named, help = line[:_HELP_AT], line[_HELP_AT:]
        if not named.strip():  # what did not fit beside the name before
            found[-1] = (*found[-1][:2], help)
            continue
        if not named.endswith("  "):
            named, help = line, ""
        short, _, rest = named.strip().rpartition(", --")
        flag, _, value = rest.removeprefix("--").partition(" ")
        found.append(((*short.split(), f"--{flag}"), value, help))
    return found


def main() -> None:
    """Write the table of the library's methods."""
    from hopstate.io.files import replace_file
    from hopstate.methods import MODULES, get_method

    table = table_of([get_method(name) for name in MODULES])
    text = json.dumps(table, separators=(",", ":"))
    replace_file(PLACE, lambda part: part.write_text(f"{text}\n", encoding="utf-8"))


if __name__ == "__main__":
    main()
