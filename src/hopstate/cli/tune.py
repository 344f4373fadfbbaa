"""`hopstate tune METHOD --data DATA --trials N`: search settings on validation data."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from hopstate.cli.commands import INTERRUPTED, CommandResult, named_method, say, show_settings_help
from hopstate.methods.method import AnyMethod, printable

if TYPE_CHECKING:
    from hopstate.methods.config import Parser
    from hopstate.runs.tune import Search

_OWN = ("trials", "space", "search_seed", "out")  # options that are no settings of the method


def run(argv: list[str]) -> CommandResult:
    """Search; status 130 if Ctrl-C stopped it."""
    method = named_method(argv)
    parser = tune_parser(method)
    show_settings_help(parser, argv[2:])
    from hopstate.methods.config import parse_words
    from hopstate.runs.run import resolve_config
    from hopstate.runs.tune import space_of, tune_config

    options, parse = parse_words(method, parser, argv[2:], _OWN)
    space = space_of(method, options.space)
    print("space:", *(f"  {key}: {values}" for key, values in printable(space).items()), sep="\n")
    config, record, _ = resolve_config(method, parse)
    search = tune_config(
        method, config, space, trials=options.trials, out=options.out, seed=options.search_seed, record=record
    )
    keys = ("interrupted", "metric", "positive_class", "mode", "value", "best", "trials", "config")
    answer = {"method": method.name, "folder": search.path, **{key: getattr(search, key) for key in keys}}
    if search.interrupted:
        again = f"stopped; everything is saved. Continue with the same command and --out {search.path}"
        return CommandResult(answer, partial(say, again), INTERRUPTED)
    return CommandResult(answer, partial(show, search, method.name))


def tune_parser(method: AnyMethod) -> Parser:
    """Return the parser of `hopstate tune METHOD`."""
    from hopstate.methods.config import parser_of

    parser = parser_of(method, prog=f"hopstate tune {method.name}")
    parser.add_argument(
        "--trials",
        type=int,
        default=20,
        help="total number of trials, including those of an earlier call",
    )
    space = "KEY=LOW:HIGH, KEY=LOW:HIGH:log or KEY=A,B,C changes one key of the space, a YAML file replaces it; "
    space += "may be given several times"
    parser.add_argument("--space", action="append", default=[], help=space)
    parser.add_argument("--search_seed", type=int, default=0, help="seed of the search; --seed is the seed of training")
    parser.add_argument("--out", type=str, help="folder of the search; an existing one is continued")
    return parser


def show(search: Search, method: str) -> None:
    """Print the five best trials and how to train with the best."""
    from rich.table import Table

    from hopstate.evaluation.labels import figure, is_error, metric_label
    from hopstate.io.output import screen

    words = metric_label(search.metric, search.positive_class) + ("" if is_error(search.metric) else " in percent")
    table = Table(title=f"{method}: validation {words}, best of {len(search.trials)} trials")
    for name in ("trial", "value", "seconds"):
        table.add_column(name, justify="right")
    table.add_column("settings")
    done = [row for row in search.trials if not row["error"]]
    for row in sorted(done, key=lambda row: row["value"], reverse=search.mode == "max")[:5]:
        values = ((key, row[key]) for key in search.best)
        drawn = " ".join(
            f"{key}={value:.4g}" if isinstance(value, float) else f"{key}={value}" for key, value in values
        )
        table.add_row(str(row["trial"]), figure(search.metric, row["value"]), f"{row['seconds']:.1f}", drawn)
    console = screen()
    console.print(table)
    failed = len(search.trials) - len(done)
    if failed:
        console.print(f"{failed} trials failed; trials.csv holds the messages")
    if search.exhausted:
        console.print(f"no other settings than those of the {len(search.trials)} trials were drawn")
    console.print(f"all trials: {search.path / 'trials.csv'}", soft_wrap=True)
    console.print(f"train with the best: hopstate fit {method} --config {search.config}", soft_wrap=True)


__all__ = ["run", "show"]
