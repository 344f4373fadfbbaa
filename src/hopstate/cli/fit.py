"""`hopstate fit METHOD --data DATA ...`: train, with every option of the method's configuration as a flag."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import asdict
from functools import partial
from typing import TYPE_CHECKING, Any

from hopstate.cli.commands import DONE, INTERRUPTED, CommandResult, lines, named_method, say, show_settings_help
from hopstate.errors import ConfigError
from hopstate.methods.method import AnyMethod, Method
from hopstate.training.run_folder import RunFolder

if TYPE_CHECKING:
    from rich.console import Console

    from hopstate.methods.config import Parser
    from hopstate.methods.method import Record, RunConfig
    from hopstate.runs.run import Run


def _with_data_of_run(method: str, words: Sequence[str]) -> list[str]:
    """Return the words of `fit METHOD` with the data of the run in --out if --resume names none."""
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False, exit_on_error=False)
    parser.add_argument("--resume", action="store_true")
    for name in ("--out", "--data", "--config"):
        parser.add_argument(name, nargs="?")
    given, _ = parser.parse_known_args(list(words))
    if not given.resume or given.out is None or not (settings := RunFolder(given.out).settings()):
        return list(words)
    trained_method, data = settings.get("method"), settings.get("data")
    if isinstance(trained_method, str) and trained_method != method:
        raise ConfigError(
            f"{given.out} is a run of {trained_method}. Continue it with: fit {trained_method} --resume --out "
            f"{given.out}"
        )
    if given.data is not None or given.config is not None or not isinstance(data, str):  # a file may name the data
        return list(words)
    from hopstate.runs.saved_run import SavedRun

    SavedRun(given.out).check_sources(("data",))
    return [*words, f"--data={data}"]


def run(argv: list[str]) -> CommandResult:
    """Train; status 130 where Ctrl-C stopped it."""
    method = named_method(argv)
    parser = fit_parser(method)
    show_settings_help(parser, argv[2:])
    words = _with_data_of_run(method.name, argv[2:])
    from hopstate.methods.config import parse_words
    from hopstate.runs.run import fit_config, resolve_config
    from hopstate.training.devices import current_ranks

    options, parse = parse_words(method, parser, words, ("out", "resume", "no_auto", "dry_run"))
    out, resume = options.out, options.resume
    config, record, automatic = resolve_config(method, parse, out=out, resume=resume, auto=not options.no_auto)
    if options.dry_run:
        return _dry_run(method, config, record)
    fit_options: dict[str, Any] = {"log": say, "with_baselines": True, "automatic": automatic}
    done = fit_config(method, config, out=out, resume=resume, record=record, **fit_options)
    if not current_ranks().is_first:
        return CommandResult({}, lambda: None, INTERRUPTED if done.interrupted else DONE)
    output = {"method": done.method, "run": done.path, "interrupted": done.interrupted, "best_epoch": done.best_epoch}
    output |= {"metrics": done.metrics, "baselines": done.baselines, "not_outperformed": not_outperformed(done)}
    output["positive_class"] = _result(done).get("positive_class")
    output["not_outperformed_on_validation"] = not_outperformed(done, "val")
    if done.interrupted:
        again = f"stopped; everything is saved. Continue with the same command and --resume --out {done.path}"
        return CommandResult(output, partial(say, again), INTERRUPTED)
    return CommandResult(output, partial(print_result, done))


def _dry_run(method: Method, config: RunConfig, record: Record | None) -> CommandResult:
    """Measure a few steps of the run that a command line describes."""
    from hopstate.runs.run import dry_run
    from hopstate.training.progress import duration

    cost = dry_run(method, config, record)
    messages = [f"{method.name}: {cost.parameters:,} parameters on {cost.device}"]
    if cost.seconds is None:
        messages.append("steps: none (this method is not trained by steps, or its steps cannot be measured alone)")
    else:
        messages.append(f"an epoch: {cost.steps:,} steps, {duration(cost.seconds)} without validation")
        messages.append(f"at most {cost.epochs:,} epochs: {duration(cost.epochs * cost.seconds)} without validation")
    memory = {"memory": cost.memory_mb, "memory of the device": cost.device_memory_mb}
    messages += [f"{name}: {megabytes:,.0f} MB" for name, megabytes in memory.items() if megabytes is not None]
    return CommandResult({"method": method.name, **asdict(cost)}, lines(*messages))


def fit_parser(method: AnyMethod) -> Parser:
    """Return the parser of `hopstate fit METHOD`: the method's configuration and the command's own options."""
    from hopstate.methods.config import parser_of

    parser = parser_of(method, prog=f"hopstate fit {method.name}")
    parser.add_argument("--out", type=str, help="run folder; by default a new one under runs/")
    parser.add_argument("--resume", action="store_true", help="continue the run in --out where it stopped")
    cost = "measure a few steps and print parameters, memory and seconds of an epoch; nothing is trained or written"
    parser.add_argument("--dry-run", action="store_true", help=cost)
    plain = "settings marked [auto] keep their defaults, the paper's; otherwise they follow from the data"
    parser.add_argument("--no-auto", action="store_true", help=plain)
    return parser


def print_result(done: Run) -> None:
    """Print the verdict on a finished run, its metrics with a column for each split, and where everything lies."""
    from rich.table import Table

    from hopstate.cli.report import print_verdicts
    from hopstate.evaluation.labels import cell, metric_label
    from hopstate.io.output import screen
    from hopstate.runs.report import collect, verdicts

    console, result = screen(), _result(done)
    print_verdicts(verdicts(collect([done.path])))
    advice = f"Use the simpler one, or search other settings: hopstate tune {done.method} --data ..."
    print_warning(done, console, advice)
    by = "validation" if result["metrics"].get("val", {}).get(result["metric"]) is not None else "validation loss"
    unchosen = "not chosen on validation" if result.get("parameters") else "nothing to train"
    when = f"epoch {done.best_epoch} (chosen on {by})" if done.best_epoch else unchosen
    table = Table(title=f"{done.method}, {when}")
    table.add_column("metric, in percent")
    for split in done.metrics:
        table.add_column(split, justify="right")
    for name in dict.fromkeys(name for values in done.metrics.values() for name in values):
        cells = (cell(name, v.get(name)) for v in done.metrics.values())
        table.add_row(metric_label(name, result.get("positive_class")), *cells)
    console.print(table)
    share = result.get("train_share", 1.0)
    if share < 1 and "train" in done.metrics:
        count = done.metrics["train"].get("num_events")
        which = "of the training links, a sample" if count is None else f"of the training events, the latest {count:,}"
        console.print(f"train: evaluated on {share:.1%} {which}", highlight=False)
    print_baselines(done, console)
    names = ("curves.png", "metrics.csv", "result.json", "model.safetensors")  # nothing trained, no curves
    saved_files = ", ".join(name for name in names if (done.path / name).is_file())
    console.print(f"run folder: {done.path}  ({saved_files})", soft_wrap=True)


def _result(done: Run) -> dict[str, Any]:
    """Return what result.json of a finished run holds; nothing of another."""
    return {} if done.interrupted or not done.metrics else RunFolder(done.path).result()


def print_warning(done: Run, console: Console, advice: str) -> None:
    """Print which baselines, chance among them, the run does not outperform on validation."""
    from hopstate.evaluation.labels import baseline_label, cell, metric_label

    result, baselines = _result(done), RunFolder(done.path).baselines("val")
    metric, names = result["metric"], not_outperformed(done, "val")
    if names:
        rivals = ", ".join(f"{baseline_label(name)} {cell(metric, baselines[name][metric])}" for name in names)
        value = f"{metric_label(metric)} {cell(metric, result['metrics']['val'][metric])}"
        console.print(
            f"warning: on validation, {value} of {done.method} does not exceed {rivals}. {advice}", highlight=False
        )


def not_outperformed(done: Run, split: str = "test") -> list[str]:
    from hopstate.methods.shared.baselines import baselines_not_beaten

    if not done.metrics.get(split) or not done.baselines:
        return []
    folder = RunFolder(done.path)
    result, baselines = folder.result(), done.baselines if split == "test" else folder.baselines(split)
    return baselines_not_beaten(done.metrics[split], baselines, result["metric"], result["mode"])


def print_baselines(done: Run, console: Console) -> None:
    """Print the test metric of each baseline."""
    from hopstate.evaluation.labels import baseline_label, cell, metric_label

    metric = RunFolder(done.path).result()["metric"]
    baselines = {name: values[metric] for name, values in done.baselines.items() if metric in values}
    if baselines:
        listed = ", ".join(f"{baseline_label(name)} {cell(metric, value)}" for name, value in baselines.items())
        console.print(f"baselines, test {metric_label(metric)}: {listed}", highlight=False)
