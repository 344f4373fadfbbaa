"""The commands of `hopstate`: where each one lives, what it does, and examples for its help."""

from __future__ import annotations

from typing import NamedTuple

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
    examples: tuple[str, ...]


COMMANDS = {
    "fit": Command(
        "Train",
        "hopstate.cli.fit",
        "train a method on a file or a named data set",
        (
            "fit dyg-mamba --data events.csv --epochs 20 --out runs/first",
            "fit nagphormer --data edges.csv --features features.csv --labels labels.csv",
            "fit dyg-mamba --data events.csv --dry-run",
        ),
    ),
    "compare": Command(
        "Train",
        "hopstate.cli.compare",
        "train several methods over splits and seeds; one table",
        (
            "compare gcn,nagphormer --data cora --splits 0-2",
            "compare recency,dyg-mamba --data events.csv -- --epochs 5",
        ),
    ),
    "tune": Command(
        "Train",
        "hopstate.cli.tune",
        "search a method's settings on validation data",
        ("tune gcn --data cora --trials 30", "tune gcn --data cora --space loop.optim.lr=1e-4:1e-2:log"),
    ),
    "reproduce": Command(
        "Train",
        "hopstate.cli.reproduce",
        "run rows of the papers' tables; published against measured values",
        ("reproduce --list", "reproduce nagphormer/photo-small"),
    ),
    "ensemble": Command(
        "Train",
        "hopstate.cli.ensemble",
        "combine finished link prediction runs into one",
        ("ensemble runs/a runs/b --out runs/both",),
    ),
    "predict": Command(
        "Use a run",
        "hopstate.cli.apply",
        "write predictions as CSV or Parquet",
        ("predict runs/first --out predictions.csv", "predict runs/first --data new.csv --out new-predictions.csv"),
    ),
    "score": Command(
        "Use a run",
        "hopstate.cli.ask",
        "how likely pairs are to meet, now or at a time",
        ("score runs/first --pairs alice,bob", "score runs/first --pairs pairs.csv --time 2026-01-31"),
    ),
    "rank": Command(
        "Use a run",
        "hopstate.cli.ask",
        "the most likely next partners of a node, best first",
        ("rank runs/first --source alice --top 10", "rank runs/first --source alice --new-only"),
    ),
    "evaluate": Command(
        "Use a run",
        "hopstate.cli.apply",
        "metrics of a run on a split, or on other data",
        ("evaluate runs/first --split val", "evaluate runs/first --data new.csv"),
    ),
    "explain": Command(
        "Use a run",
        "hopstate.cli.analysis",
        "what each past event added to a pair's score",
        ("explain runs/first --pair alice,bob --plot reasons.png",),
    ),
    "stream": Command(
        "Use a run",
        "hopstate.cli.apply",
        "score new events one by one and keep the model's state after them",
        ("stream runs/first --data later.csv --out scores.csv",),
    ),
    "serve": Command(
        "Use a run",
        "hopstate.cli.serve",
        "accept events durably and answer over HTTP",
        (
            "serve runs/first",
            "serve runs/first --log 'postgresql://USER@HOST/DATABASE?log=NAME' --sink scores/",
            "serve runs/first --host 0.0.0.0 --token-file token.txt",
        ),
    ),
    "replay": Command(
        "Use a run",
        "hopstate.cli.serve",
        "compute the scores of a live run's log again",
        ("replay runs/first --out scores.csv",),
    ),
    "inspect": Command(
        "Data",
        "hopstate.cli.inspect",
        "what a file or a run holds, and what looks suspicious",
        ("inspect events.csv --plot events.png", "inspect runs/first"),
    ),
    "prepare": Command(
        "Data",
        "hopstate.cli.prepare",
        "turn a large table of events into a store that --data maps into memory",
        ("prepare events.parquet --out store",),
    ),
    "datasets": Command(
        "Data",
        "hopstate.cli.datasets",
        "the data sets of the papers: source, licence, which are on disk",
        ("datasets", "datasets cora"),
    ),
    "report": Command(
        "Report",
        "hopstate.cli.report",
        "one HTML page of runs and results",
        ("report runs/first runs/second --out report.html",),
    ),
    "export": Command(
        "Report",
        "hopstate.cli.export",
        "a trained network as torch.export or ONNX",
        ("export runs/first --to onnx --out exported",),
    ),
    "check-leak": Command(
        "Check",
        "hopstate.cli.check_leak",
        "prove that no score of a run uses the future",
        ("check-leak runs/first", "check-leak runs/first --moments 20 --seed 1"),
    ),
    "info": Command("Check", "hopstate.cli.info", "versions, devices, and which fast paths are used", ("info --json",)),
    "completion": Command(
        "Check",
        "hopstate.cli.completion",
        "a script for the shell that completes commands and options",
        ("completion bash > ~/.local/share/bash-completion/completions/hopstate",),
    ),
}
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
