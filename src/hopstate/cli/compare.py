"""`hopstate compare METHOD,METHOD --data DATA`: methods over splits and seeds, one table."""

from __future__ import annotations

import json
import math
import sys
from functools import partial
from pathlib import Path
from typing import Any

from hopstate.cli.answer import INTERRUPTED, Answer
from hopstate.cli.options import Options, own_options
from hopstate.errors import ConfigError, DivergenceError, HopstateError
from hopstate.io.files import locked, write_text
from hopstate.methods import get_method


def link_metrics() -> list[str]:
    """Return the metric of every strategy of negatives, for all links and for those with new nodes."""
    from hopstate.sampling.negatives import STRATEGIES, metric_name

    metrics = {name: "mrr" if own.ranking else "average_precision" for name, own in STRATEGIES.items()}
    return [metric_name(metric, name, new_nodes=new) for name, metric in metrics.items() for new in (False, True)]


def with_floors(rows: list[dict[str, Any]], floors: dict[str, dict[str, float | None]]) -> list[dict[str, Any]]:
    """Return the rows with what each does not stand above, then a row a floor that is no method of them.

    Floors are told of one another.
    """
    from hopstate.runs.reproduce.tables import FLOORS, below_words

    names, events = {row["method"] for row in rows}, _events(rows)
    kinds = dict.fromkeys(metric for row in rows for metric in row["kinds"])
    others = {
        name: {m: value for m in kinds if (value := values.get(m)) is not None}
        for name, values in floors.items()
        if name not in names
    }
    rivals = others | {r["method"]: _means(r) for r in rows if r["method"] in FLOORS}

    def below(name: str, own: dict[str, float]) -> str:
        return below_words(own, {rival: values for rival, values in rivals.items() if rival != name}, events)

    return [row | {"below": below(row["method"], _means(row))} for row in rows] + [
        {
            "method": name,
            "floor": True,
            "kinds": {m: (value, None) for m, value in figures.items()},
            "below": below(name, figures),
        }
        for name, figures in others.items()
        if figures
    ]


def _events(rows: list[dict[str, Any]]) -> dict[str, int]:
    """Return how many events tell a metric, where a row says; those of earlier versions do not."""
    return {m: count for row in rows for m, count in row.get("events", {}).items() if count is not None}


def _means(row: dict[str, Any]) -> dict[str, float]:
    return {metric: mean for metric, (mean, _) in row["kinds"].items()}


def show_kinds(rows: list[dict[str, Any]], data: str) -> None:
    """Print links by kind of negatives, added floors below, and in words what each method does not stand above.

    The last row says how many events a figure is told from, and what of them are few is said below.
    """
    from rich.table import Table

    from hopstate.io.output import screen
    from hopstate.runs.reproduce import tables

    metrics = list(dict.fromkeys(metric for row in rows for metric in row.get("kinds", {})))
    if len(metrics) < 2:
        return
    table = Table(title=f"{data}: AP (many: MRR) in percent, by kind of negatives, mean ± standard deviation over runs")
    table.add_column("method")
    for metric in metrics:
        table.add_column(tables.kind_words(metric), justify="right")
    table.add_column("no better than")
    for row in rows:
        kinds = row["kinds"]
        figures = [tables.figure(m, *kinds[m]) if m in kinds else "" for m in metrics]
        # a floor that was asked for is a method like the others
        name = f"{tables.floor_words(row['method'])} (floor)" if row.get("floor") else row["method"]
        table.add_row(name, *figures, row["below"])
    events = _events(rows)
    if events:
        table.add_section()
        table.add_row("events judged", *(f"{events[m]:,}" if m in events else "" for m in metrics), "")
    screen().print(table)
    counts = {tables.setting_words(m): count for m, count in events.items()}
    for remark in filter(None, (tables.few_words(count, of) for of, count in counts.items())):
        print(remark)


NUMBER = {"graph": "--split.number", "graphs": "--fold"}  # what numbers the splits; a stream has one split, time's
EPILOG = """Settings after -- go to every method that knows them, e.g. -- --loop.epochs 50; settings of one method are
written with its name in front, e.g. -- --nagphormer.model.dim 64."""


def run(argv: list[str]) -> Answer:
    """Train what is not trained yet; status 130 where Ctrl-C stopped it."""
    own, rest = (argv[1 : argv.index("--")], argv[argv.index("--") + 1 :]) if "--" in argv else (argv[1:], [])
    parser = Options(prog="hopstate compare", description=__doc__, epilog=EPILOG)
    parser.add_argument("methods", help="names joined by commas")
    parser.add_argument("--data", required=True, help="a file, a folder, or the name of a data set")
    parser.add_argument("--splits", default="0", help="numbers of splits of graphs, e.g. 0,1,2 or 0-9 (default: 0)")
    parser.add_argument("--seeds", default="0", help="seeds of training, e.g. 0-2 (default: 0)")
    parser.add_argument("--out", default=None, help="folder of all runs and of the table; an earlier one is continued")
    parser.add_argument("--device", default=None, help="where to train: auto, cpu, cuda, cuda:N (loop.device)")
    options = own_options(parser, own)
    rest = rest if options.device is None else [*rest, f"--loop.device={options.device}"]
    from hopstate.runs.beginnings import begun

    names, splits, seeds = options.methods.split(","), numbers(options.splits), numbers(options.seeds)
    for name in names:  # before anything is trained
        _check_splits(name, splits)
    failed: list[dict[str, Any]] = []
    with begun(options.out, "compare", options.data) as folder, locked(folder):
        rows = _all(names, splits, seeds, options.data, rest, folder, failed)
    if rows == []:
        raise HopstateError(f"no run could be finished; the first: {failed[0]['error']}")
    record = {"data": options.data, "folder": folder, "interrupted": rows is None, "methods": rows or []}
    record |= {"failed": failed}
    if rows is None:
        again = f"stopped; everything is saved. Go on with the same command and --out {folder}"
        return Answer(record, partial(print, again, file=sys.stderr), INTERRUPTED)

    def shown() -> None:
        show(rows, options.data)
        for run in failed:
            print(f"{run['method']}, split {run['split']}, seed {run['seed']} failed: {run['error']}")
        print(f"runs and table.json: {folder}")

    return Answer(record, shown)


def _all(
    names: list[str],
    splits: list[int],
    seeds: list[int],
    data: str,
    rest: list[str],
    folder: Path,
    failed: list[dict[str, Any]],
) -> list[dict[str, Any]] | None:
    """Train what is not trained yet and return a row per method that has results; None if it was interrupted.

    Runs whose training diverges are added to `failed`, and the others continue.
    """
    from hopstate.training.run_folder import RunFolder

    rows: list[dict[str, Any]] = []
    records: dict[str, Any] = {}
    floors: dict[str, Any] = {}
    on_val: dict[int, dict[str, Any]] = {}  # of each split
    for name in names:
        results: list[dict[str, Any] | None] = []  # None of a run that failed
        judged: list[int] = []
        for split in splits:
            for seed in seeds:
                where = folder / f"{name}-split{split}-seed{seed}"
                fixed = [f"--data={data}", f"--loop.seed={seed}"]
                number = NUMBER.get(get_method(name).data)
                if number is not None:
                    fixed.append(f"{number}={split}")
                try:
                    result = _one(name, [*fixed, *_settings(name, rest, names)], where, records, split)
                except HopstateError as error:
                    # training whose loss is not a number raises the base class itself
                    if not (type(error) is HopstateError or isinstance(error, DivergenceError)):
                        raise
                    failed.append({"method": name, "split": split, "seed": seed, "error": str(error)})
                    results.append(None)
                    continue
                if result is None:
                    return None
                results.append(result)
                judged.append(split)
                if number is None:
                    floors |= RunFolder(where).floors()
                on_val.setdefault(split, {}).update(RunFolder(where).floors("val"))
        finished = [r for r in results if r is not None]
        if not finished:
            continue
        below = _no_better(name, finished, [on_val[split] for split in judged])
        values = {
            part: [None if r is None else r["metrics"][part][r["metric"]] for r in results] for part in ("test", "val")
        }
        rows.append(_row(name, finished) | {"values": values} | {"no_better_on_validation": below})
        write_text(folder / "table.json", json.dumps(with_floors(rows, floors), indent=1))
    return with_floors(rows, floors)


def _check_splits(name: str, splits: list[int]) -> None:
    """Raise ConfigError where a method has one split only and others are asked for."""
    if get_method(name).data not in NUMBER and splits != [0]:
        raise ConfigError(
            f"--splits {','.join(map(str, splits))}: {name} works on data that have one split (a stream's is time's), "
            f"so the runs would be one and the same; vary --seeds, e.g. --seeds 0-{max(1, len(splits) - 1)}"
        )


def _no_better(name: str, results: list[dict[str, Any]], floors: list[dict[str, Any]]) -> list[str]:
    """Return the baselines that a method does not outperform on validation, in the mean over its runs.

    Args:
        name: of the method.
        results: of its runs.
        floors: for each run, baselines → metrics of validation on the run's split.
    """
    from hopstate.methods.shared.baselines import below

    metric, mode = results[0]["metric"], results[0]["mode"]

    def mean(values: list[float | None]) -> float:
        return math.fsum(math.nan if value is None else value for value in values) / len(values)

    own = {metric: mean([r["metrics"]["val"][metric] for r in results])}
    known = [rival for rival in floors[0] if rival != name]
    rivals = {rival: {metric: mean([of.get(rival, {}).get(metric) for of in floors])} for rival in known}
    return below(own, rivals, metric, mode)


def _one(name: str, arguments: list[str], where: Path, records: dict[str, Any], split: int) -> dict[str, Any] | None:
    """Return the result of one run: an earlier one of the same settings and data, or a new or continued one.

    Args:
        name: of the method.
        arguments: its settings.
        where: the run folder.
        records: data that earlier runs read; those of this one are added.
        split: number of the split.
    """
    from hopstate.methods.parser import parser_of
    from hopstate.methods.settings import parse_words
    from hopstate.runs.data import check_same_data, load_data, settle
    from hopstate.runs.run import fit_config, stored_config
    from hopstate.training.run_folder import RunFolder

    method = get_method(name)
    parser = parser_of(method, prog=f"hopstate compare: {name}")
    _, parse = parse_words(method, parser, arguments)
    config, folder = parse({}), RunFolder(where)
    read = f"{method.data} {config.read!r}"
    if read not in records:
        records[read] = load_data(config.data, config.read, method.data)
    suited = records.setdefault(f"suited {name}", {})  # one choice for all splits and seeds
    config, _ = settle(method, parse, record=records[read], suited=suited)
    if (where / "result.json").is_file() and folder.settings() == stored_config(method, config):
        check_same_data(folder, records[read])
        return folder.result()
    judged = records.setdefault("floors", set())  # splits: the same for every run on these data
    how: dict[str, Any] = {"floors": split not in judged, "automatic": suited}
    done = fit_config(method, config, out=where, resume=True, record=records[read], **how)
    judged |= {split} if done.floors else set()
    return None if done.interrupted else folder.result()


def _settings(name: str, rest: list[str], methods: list[str]) -> list[str]:
    kept, mine = [], True
    for word in rest:
        if word.startswith("--"):
            first, _, tail = word[2:].partition(".")
            mine = first not in methods or first == name
            word = f"--{tail}" if first == name and tail else word
        if mine:
            kept.append(word)
    return kept


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


def _row(name: str, results: list[dict[str, Any]]) -> dict[str, Any]:
    from hopstate.runs.reproduce.statistics import summary
    from hopstate.runs.reproduce.tables import told_from

    metric, told = results[0]["metric"], results[0]["metrics"]["test"]

    def over(values: list[float | None]) -> tuple[float, float | None]:
        found = summary([math.nan if value is None else value for value in values])
        assert found is not None
        return found.mean, found.std

    test, val = (over([r["metrics"][split][metric] for r in results]) for split in ("test", "val"))
    return {
        "method": name,
        "metric": metric,
        "positive_class": results[0].get("positive_class"),
        "runs": len(results),
        "test_mean": test[0],
        "test_std": test[1],
        "val_mean": val[0],
        "val_std": val[1],
        "seconds_per_epoch": over([r["seconds_per_epoch"] for r in results])[0],
        "seconds": over([r["seconds"] for r in results])[0],
        "parameters": results[0]["parameters"],
        "events": {m: told_from(m, told) for m in link_metrics() if m in told},
        "kinds": {m: over([r["metrics"]["test"].get(m) for r in results]) for m in link_metrics() if m in told},
    }


def show(rows: list[dict[str, Any]], data: str) -> None:
    """Print a table for each metric, best mean first."""
    from rich.table import Table

    from hopstate.evaluation.metrics import of_class
    from hopstate.io.output import screen
    from hopstate.runs.reproduce import tables

    show_kinds(rows, data)
    rows = [row for row in rows if not row.get("floor")]
    for metric in dict.fromkeys(row["metric"] for row in rows):
        unit = "" if tables.is_error(metric) else " in percent"
        events = next((count for row in rows if (count := row.get("events", {}).get(metric))), None)
        of = "" if events is None else f", of {events:,} test events"
        mine = [row for row in rows if row["metric"] == metric]
        words = of_class(metric, next((p for row in mine if (p := row.get("positive_class"))), None))
        table = Table(title=f"{data}: {words}{unit}{of}, mean ± standard deviation over runs")
        for name in ("method", "test", "validation", "runs", "s/epoch", "parameters"):
            table.add_column(name, justify="left" if name == "method" else "right")
        for r in sorted(mine, key=lambda r: tables.rank(metric, r["test_mean"])):
            table.add_row(
                r["method"] + ("*" if r.get("no_better_on_validation") else ""),
                *(tables.figure(metric, r[f"{split}_mean"], r[f"{split}_std"]) for split in ("test", "val")),
                str(r["runs"]),
                f"{r['seconds_per_epoch']:.2f}",
                f"{r['parameters']:,}",
            )
        screen().print(table)
        for r in mine:
            if r.get("no_better_on_validation"):
                rivals = " and ".join(map(tables.floor_words, r["no_better_on_validation"]))
                print(f"* {r['method']} does not exceed {rivals} on validation")
        _show_pairs(metric, mine)


def _show_pairs(metric: str, rows: list[dict[str, Any]]) -> None:
    """Print how the method that validation puts first differs from each other one, run by run."""
    from hopstate.runs.reproduce import tables
    from hopstate.runs.reproduce.statistics import paired

    rows = [row for row in rows if "values" in row]  # tables of earlier versions hold means alone
    if len(rows) < 2:
        return
    first, *others = sorted(rows, key=lambda row: tables.rank(metric, row["val_mean"]))
    for other in others:
        for split, name in (("val", "validation"), ("test", "test")):
            values = [[math.nan if v is None else v for v in row["values"][split]] for row in (first, other)]
            found = paired(*values)
            if found is None:
                continue
            p = "no spread" if found.p is None else f"paired t test p = {found.p:.2g}"
            text = tables.figure(metric, found.difference, found.error)
            names = f"{first['method']} - {other['method']}"
            print(f"{names}, {name}: {text} (standard error), {found.runs} pairs, {p}")
