"""`hopstate compare METHOD,METHOD --data DATA`: methods over splits and seeds, one table."""

from __future__ import annotations

import json
import math
import sys
from dataclasses import dataclass, field
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

from hopstate.cli.commands import INTERRUPTED, CommandParser, CommandResult, command_options
from hopstate.errors import SHARED_ERRORS, ConfigError, described
from hopstate.io.files import locked, write_text
from hopstate.methods import get_method

NUMBER = {"graph": "--split.number", "graphs": "--fold"}  # what numbers the splits; a stream has one split, time's
EPILOG = """Settings after -- go to every method that knows them, e.g. -- --loop.epochs 50; settings of one method are
written with its name in front, e.g. -- --nagphormer.model.dim 64."""

Row = dict[str, Any]


def run(argv: list[str]) -> CommandResult:
    """Train what is not trained yet; status 130 where Ctrl-C stopped it."""
    words, run_settings = (argv[1 : argv.index("--")], argv[argv.index("--") + 1 :]) if "--" in argv else (argv[1:], [])
    parser = CommandParser(prog="hopstate compare", description=__doc__, epilog=EPILOG)
    parser.add_argument("methods", help="names joined by commas")
    parser.add_argument("--data", required=True, help="a file, a folder, or the name of a data set")
    parser.add_argument("--splits", default="0", help="numbers of splits of graphs, e.g. 0,1,2 or 0-9 (default: 0)")
    parser.add_argument("--seeds", default="0", help="seeds of training, e.g. 0-2 (default: 0)")
    parser.add_argument("--out", help="folder of all runs and of the table; an earlier one is continued")
    parser.add_argument("--device", help="where to train: auto, cpu, cuda, cuda:N (loop.device)")
    options = command_options(parser, words)
    run_settings = run_settings if options.device is None else [*run_settings, f"--loop.device={options.device}"]
    from hopstate.io.output import screen
    from hopstate.runs.report import collect, verdicts
    from hopstate.runs.run import output_folder

    comparison = Comparison(
        options.methods.split(","), numbers(options.splits), numbers(options.seeds), options.data, run_settings
    )
    with output_folder(options.out, "compare", options.data) as folder, locked(folder):
        rows = comparison.run(folder)
    failed = comparison.failed
    record = {"data": options.data, "folder": folder, "interrupted": rows is None, "methods": rows or []}
    record |= {"failed": failed}
    if rows is None:
        again = f"stopped; everything is saved. Go on with the same command and --out {folder}"
        return CommandResult(record, partial(print, again, file=sys.stderr), INTERRUPTED)

    def print_all() -> None:
        for text in verdicts(collect([folder])).values():
            screen().print(text, style="bold", highlight=False)
        show(rows, options.data)
        for one in failed:
            print(f"{one['method']}, split {one['split']}, seed {one['seed']} failed: {one['error']}")
        print(f"runs and table.json: {folder}")

    return CommandResult(record, print_all)


def numbers(text: str) -> list[int]:
    """Return the whole numbers of a list such as 0,2,5-7, each once.

    Raises:
        ConfigError: text is no such list.

    >>> numbers("0,2,5-7")
    [0, 2, 5, 6, 7]
    """
    found: list[int] = []
    try:
        for part in text.split(","):
            first, _, last = part.partition("-")
            span = range(int(first), int(last or first) + 1)
            if not span or len(span) > 100_000:
                raise ValueError(part)
            found += span
    except ValueError:
        raise ConfigError(f"{text!r} is no list of rising numbers; write for example 0,1,2 or 0-9") from None
    return list(dict.fromkeys(found))


# ---- runs ----------------------------------------------------------------------------------------------------------
@dataclass
class Comparison:
    """Runs of several methods on the same data, splits and seeds.

    Args:
        methods: their names.
        splits: numbers of splits.
        seeds: of training.
        data: a file, a folder, or the name of a data set.
        words: settings of the command line.
        failed: runs that ended in an error.
    """

    methods: list[str]
    splits: list[int]
    seeds: list[int]
    data: str
    words: list[str]
    failed: list[Row] = field(default_factory=list)
    _records: dict[str, Any] = field(default_factory=dict)
    _automatic: dict[str, dict[str, Any]] = field(default_factory=dict)  # one choice for all splits and seeds
    _shown: set[str] = field(default_factory=set)  # notes on the data
    _test_baselines: dict[str, Any] = field(default_factory=dict)
    _val_baselines: dict[int, dict[str, Any]] = field(default_factory=dict)  # of each split

    def __post_init__(self) -> None:
        for name in self.methods:
            if get_method(name).data not in NUMBER and self.splits != [0]:
                raise ConfigError(
                    f"--splits {','.join(map(str, self.splits))}: {name} works on data that have one split (a stream's "
                    f"is time's), so the runs would be one and the same; vary --seeds, "
                    f"e.g. --seeds 0-{max(1, len(self.splits) - 1)}"
                )

    def run(self, folder: Path) -> list[Row] | None:
        """Train what is not trained yet; return a row per method that has results, None if it was interrupted.

        Raises:
            HopstateError: no run could be finished; it is the first run's.
        """
        rows: list[Row] = []
        first_error = None
        for name in self.methods:
            results: list[Row | None] = []  # None of a run that failed
            runs = list(product(self.splits, self.seeds))
            for split, seed in runs:
                try:
                    results.append(self._one(name, split, seed, folder / f"{name}-split{split}-seed{seed}"))
                except KeyboardInterrupt:
                    return None
                except SHARED_ERRORS:
                    raise
                except Exception as error:
                    first_error = first_error or error
                    self.failed.append({"method": name, "split": split, "seed": seed, "error": described(error)})
                    results.append(None)
            if any(results):
                rows.append(self._row(name, runs, results))
                write_text(folder / "table.json", json.dumps(add_baselines(rows, self._test_baselines), indent=1))
        if not rows and first_error is not None:
            raise first_error
        return add_baselines(rows, self._test_baselines)

    def _one(self, name: str, split: int, seed: int, where: Path) -> Row:
        """Return the result of one run: an earlier one of the same settings and data, or a new or continued one.

        Raises:
            KeyboardInterrupt: it was interrupted, and saved.
        """
        from hopstate.methods.config import parse_words, parser_of
        from hopstate.runs.data import check_same_data, load_data, resolve_config
        from hopstate.runs.run import fit_config, stored_config
        from hopstate.training.run_folder import RunFolder

        method = get_method(name)
        arguments = [f"--data={self.data}", f"--loop.seed={seed}"]
        arguments += [f"{NUMBER[method.data]}={split}"] if method.data in NUMBER else []
        parser = parser_of(method, prog=f"hopstate compare: {name}")
        _, parse = parse_words(method, parser, [*arguments, *_settings(name, self.words, self.methods)])
        config, folder = parse({}), RunFolder(where)
        read = f"{method.data} {config.read!r}"
        if read not in self._records:
            self._records[read] = load_data(config.data, config.read, method.data)
        record, automatic = self._records[read], self._automatic.setdefault(name, {})
        config, _ = resolve_config(method, parse, record=record, automatic=automatic)
        if (where / "result.json").is_file() and folder.settings() == stored_config(method, config):
            check_same_data(folder, record)
        else:
            baselines = split not in self._val_baselines  # the same for every run on a split
            options: dict[str, Any] = {
                "record": record,
                "with_baselines": baselines,
                "automatic": automatic,
                "reported_notes": self._shown,
            }
            if fit_config(method, config, out=where, resume=True, **options).interrupted:
                raise KeyboardInterrupt
        if folder.baselines():
            self._val_baselines.setdefault(split, {}).update(folder.baselines("val"))
        if method.data not in NUMBER:
            self._test_baselines |= folder.baselines()
        return folder.result()

    def _row(self, name: str, runs: list[tuple[int, int]], results: list[Row | None]) -> Row:
        """Return the row of a method: means and deviations over its finished runs.

        Args:
            name: of the method.
            runs: split and seed of each run.
            results: of the runs, None of those that failed.
        """
        from hopstate.runs.summary import num_events, summary

        finished = [result for result in results if result is not None]
        first = finished[0]
        metric, kinds = first["metric"], [m for m in link_metrics() if m in first["metrics"]["test"]]

        def over(values: list[float | None]) -> tuple[float, float | None]:
            found = summary([math.nan if value is None else value for value in values])
            assert found is not None
            return found.mean, found.std

        values = {
            split: [None if one is None else one["metrics"][split][metric] for one in results]
            for split in ("test", "val")
        }
        test, val = (over([one["metrics"][split][metric] for one in finished]) for split in ("test", "val"))
        splits = [split for (split, _), result in zip(runs, results, strict=True) if result is not None]
        return {
            "method": name,
            "metric": metric,
            "positive_class": first.get("positive_class"),
            "runs": len(finished),
            "test_mean": test[0],
            "test_std": test[1],
            "val_mean": val[0],
            "val_std": val[1],
            "seconds_per_epoch": over([one["seconds_per_epoch"] for one in finished])[0],
            "seconds": over([one["seconds"] for one in finished])[0],
            "parameters": first["parameters"],
            "events": {m: num_events(m, first["metrics"]["test"]) for m in kinds},
            "kinds": {m: over([one["metrics"]["test"].get(m) for one in finished]) for m in kinds},
            "values": values,
            "not_outperformed_on_validation": self._no_better(name, metric, first["mode"], val[0], splits),
        }

    def _no_better(self, name: str, metric: str, mode: str, mean: float, splits: list[int]) -> list[str]:
        """Return the baselines that a method's mean does not exceed on validation, in the mean over its splits."""
        from hopstate.methods.shared.baselines import baselines_not_beaten

        baselines = [self._val_baselines.get(split, {}) for split in splits]
        means = {}
        for rival in baselines[0]:
            values = [found.get(rival, {}).get(metric) for found in baselines]
            if rival != name and None not in values:
                means[rival] = {metric: math.fsum(values) / len(values)}
        return baselines_not_beaten({metric: mean}, means, metric, mode)


def _settings(name: str, words: list[str], methods: list[str]) -> list[str]:
    """Return the settings of one method: those of all, and those that begin with its name."""
    kept, mine = [], True
    for word in words:
        if word.startswith("--"):
            first, _, tail = word[2:].partition(".")
            mine = first not in methods or first == name
            word = f"--{tail}" if first == name and tail else word
        if mine:
            kept.append(word)
    return kept


def link_metrics() -> list[str]:
    """Return the metric of every strategy of negatives, for all links and for those with new nodes."""
    from hopstate.sampling.negatives import STRATEGIES, metric_name

    metrics = {name: "mrr" if own.ranking else "average_precision" for name, own in STRATEGIES.items()}
    return [metric_name(metric, name, new_nodes=new) for name, metric in metrics.items() for new in (False, True)]


# ---- tables --------------------------------------------------------------------------------------------------------
def add_baselines(rows: list[Row], baselines: dict[str, dict[str, float | None]]) -> list[Row]:
    """Return the rows with the baselines that each does not exceed, then a row a baseline that is no method of them."""
    from hopstate.runs.summary import EVENT_BASELINES, baselines_not_exceeded_by_method

    means = {row["method"]: {m: mean for m, (mean, _) in row["kinds"].items()} for row in rows}
    kinds = dict.fromkeys(metric for own in means.values() for metric in own)
    others: dict[str, dict[str, float]] = {}
    for name, metrics in baselines.items():
        known = {m: value for m in kinds if (value := metrics.get(m)) is not None}
        if known and name not in means:
            others[name] = known
    baselines_not_beaten = baselines_not_exceeded_by_method(others | means, {*others, *EVENT_BASELINES})
    found = [row | {"below": baselines_not_beaten[row["method"]]} for row in rows]
    for name, values in others.items():
        kinds_of = {m: (value, None) for m, value in values.items()}
        found.append({"method": name, "baseline": True, "kinds": kinds_of, "below": baselines_not_beaten[name]})
    return found


def show(rows: list[Row], data: str) -> None:
    """Print a table for each metric, best mean first."""
    from rich.table import Table

    from hopstate.evaluation.labels import baseline_label, figure, is_error, metric_label, sort_key
    from hopstate.io.output import screen

    show_kinds(rows, data)
    rows = [row for row in rows if not row.get("baseline")]
    for metric in dict.fromkeys(row["metric"] for row in rows):
        unit = "" if is_error(metric) else " in percent"
        mine = [row for row in rows if row["metric"] == metric]
        events = next((count for row in mine if (count := row.get("events", {}).get(metric))), None)
        of = "" if events is None else f", of {events:,} test events"
        label = metric_label(metric, next((p for row in mine if (p := row.get("positive_class"))), None))
        table = Table(title=f"{data}: {label}{unit}{of}")
        for name in ("method", "test", "validation", "runs", "s/epoch", "parameters"):
            table.add_column(name, justify="left" if name == "method" else "right")
        for row in sorted(mine, key=lambda row: sort_key(metric, row["test_mean"])):
            table.add_row(
                row["method"] + ("*" if row.get("not_outperformed_on_validation") else ""),
                *(figure(metric, row[f"{split}_mean"], row[f"{split}_std"]) for split in ("test", "val")),
                str(row["runs"]),
                f"{row['seconds_per_epoch']:.2f}",
                f"{row['parameters']:,}",
            )
        screen().print(table)
        for row in mine:
            if row.get("not_outperformed_on_validation"):
                rivals = " and ".join(map(baseline_label, row["not_outperformed_on_validation"]))
                print(f"* {row['method']} does not exceed {rivals} on validation")
        _show_pairs(metric, mine)


def show_kinds(rows: list[Row], data: str) -> None:
    """Print links by kind of negatives, baselines below; the last row has the number of events behind each figure."""
    from rich.table import Table

    from hopstate.evaluation.labels import baseline_label, figure, links_label, negatives_label
    from hopstate.io.output import screen
    from hopstate.runs.summary import small_sample_note

    metrics = list(dict.fromkeys(metric for row in rows for metric in row.get("kinds", {})))
    if len(metrics) < 2:
        return
    table = Table(title=f"{data}: AP (ranking: MRR) in percent, by kind of negatives")
    table.add_column("method")
    for metric in metrics:
        table.add_column(negatives_label(metric), justify="right")
    table.add_column("no better than")
    for row in rows:
        figures = [figure(m, *row["kinds"][m]) if m in row["kinds"] else "" for m in metrics]
        name = f"{baseline_label(row['method'])} (baseline)" if row.get("baseline") else row["method"]
        table.add_row(name, *figures, row["below"])
    events = {m: count for row in rows for m, count in row.get("events", {}).items() if count is not None}
    if events:
        table.add_section()
        table.add_row("test events", *(f"{events[m]:,}" if m in events else "" for m in metrics), "")
    screen().print(table)
    new = {links_label(m): count for m, count in events.items() if m.startswith("new_")}  # the verdict has the others
    for label, count in new.items():
        note = small_sample_note(count, label)
        if note:
            print(note)


def _show_pairs(metric: str, rows: list[Row]) -> None:
    """Print how the method that validation puts first differs from each other one, run by run."""
    from hopstate.evaluation.labels import figure, sort_key
    from hopstate.runs.summary import paired

    if not all("values" in row for row in rows):
        return
    first, *others = sorted(rows, key=lambda row: sort_key(metric, row["val_mean"]))
    for other in others:
        for split, name in (("val", "validation"), ("test", "test")):
            values = [[math.nan if v is None else v for v in row["values"][split]] for row in (first, other)]
            found = paired(*values)
            if found is not None:
                p = "no spread" if found.p is None else f"paired t test p = {found.p:.2g}"
                text = figure(metric, found.difference, found.error)
                methods = f"{first['method']} - {other['method']}"
                print(f"{methods}, {name}: {text} (standard error), {found.runs} pairs, {p}")
