"""`hopstate completion SHELL`: a script that completes commands, methods and options; all else as files.

Our own and not argcomplete or shtab: argcomplete would start Python for each Tab, and shtab takes one parser, where
these commands have parsers of their own that import what they look at. The names are written into the script instead.
"""

from __future__ import annotations

import contextlib
import io
import re
from collections.abc import Mapping, Sequence
from importlib import import_module

from hopstate.cli.answer import Answer, lines
from hopstate.cli.fit import fit_parser
from hopstate.cli.main import COMMANDS
from hopstate.cli.manner import FLAGS
from hopstate.cli.options import Options
from hopstate.methods import MODULES, get_method

SHELLS = ("bash", "zsh", "fish")
OF_METHODS = {"fit": (), "tune": ("--trials", "--space", "--search_seed")}  # with options that tune alone has
_BASH = """_hopstate() {{
  local cur=${{COMP_WORDS[COMP_CWORD]}} words=
  if [ "$COMP_CWORD" -eq 1 ]; then
    words="{commands}"
  elif [ "$COMP_CWORD" -eq 2 ] && [[ " {of_methods} " == *" ${{COMP_WORDS[1]}} "* ]] && [[ $cur != -* ]]; then
    words="{methods}"
  elif [[ $cur == -* ]]; then
    case "${{COMP_WORDS[1]}} ${{COMP_WORDS[2]}}" in
{cases}
    esac
    words="$words {flags}"
  fi
  COMPREPLY=($(compgen -W "$words" -- "$cur"))
}}
complete -o default -F _hopstate hopstate"""


def run(argv: list[str]) -> Answer:
    how = (
        "source <(hopstate completion bash), in ~/.bashrc; of zsh, in ~/.zshrc; of fish, into its folder of completions"
    )
    parser = Options(prog="hopstate completion", description=__doc__, epilog=how, allow_abbrev=False)
    parser.add_argument("shell", choices=SHELLS, help="bash, zsh or fish")
    shell = parser.parse_args(argv[1:]).shell
    options = {(command, ""): _options(command) for command in COMMANDS if command not in OF_METHODS}
    keys = {name: fit_parser(get_method(name)).keys() for name in MODULES}
    for command, own in OF_METHODS.items():
        options |= {(command, name): [*(f"--{key}" for key in keys[name]), "--config", *own] for name in MODULES}
    script = _fish(options) if shell == "fish" else _bash(options)
    if shell == "zsh":
        script = f"autoload -Uz compinit bashcompinit && compinit && bashcompinit\n{script}"
    return Answer({"shell": shell, "script": script}, lines(script))


def _options(command: str) -> list[str]:
    if command == "completion":
        return []
    told = io.StringIO()
    with contextlib.redirect_stdout(told), contextlib.suppress(SystemExit):
        import_module(COMMANDS[command][0]).run([command, "--help"])
    shown = told.getvalue().partition("\n\n")[0]  # the line of usage
    return sorted(set(re.findall(r"--[a-z][\w-]*", shown)))


def _bash(options: Mapping[tuple[str, str], Sequence[str]]) -> str:
    cases = [
        f'      "{command} {method or "*"}") words="{" ".join(words)}" ;;'.replace('*")', '"*)')
        for (command, method), words in options.items()
    ]
    return _BASH.format(
        commands=" ".join(COMMANDS),
        of_methods=" ".join(OF_METHODS),
        methods=" ".join(MODULES),
        cases="\n".join(cases),
        flags=" ".join(FLAGS),
    )


def _fish(options: Mapping[tuple[str, str], Sequence[str]]) -> str:
    made = [f"complete -c hopstate -n __fish_use_subcommand -f -a {name} -d '{_quoted(name)}'" for name in COMMANDS]
    second = "test (count (commandline -opc)) -eq 2; and __fish_seen_subcommand_from"
    made += [f"complete -c hopstate -n '{second} {name}' -f -a '{' '.join(MODULES)}'" for name in OF_METHODS]
    for (command, method), words in options.items():
        seen = f"__fish_seen_subcommand_from {command}" + (f"; and __fish_seen_subcommand_from {method}" * bool(method))
        made += [f"complete -c hopstate -n '{seen}' -l {word.removeprefix('--')}" for word in words]
    long = [flag.removeprefix("--") for flag in FLAGS if flag.startswith("--")]
    return "\n".join([*made, *(f"complete -c hopstate -l {flag}" for flag in long)])


def _quoted(name: str) -> str:
    return COMMANDS[name][1].replace("'", "\\'")
