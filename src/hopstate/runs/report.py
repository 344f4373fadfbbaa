"""One self-contained HTML page of runs and results, for a screen, a phone or paper.

Run folders and a file of results are read; the page needs no other file and no network.
The best method is chosen on validation; test results choose nothing.
"""

from __future__ import annotations

import base64
import io
import math
import re
import shlex
import warnings
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hopstate.errors import CheckpointError, ConfigError, MissingFileError
from hopstate.evaluation.labels import baseline_label, figure, is_error, links_label, metric_label, sort_key
from hopstate.io.files import write_text
from hopstate.io.opening import exists
from hopstate.runs.reproduce import Line, compared, read_lines
from hopstate.runs.saved_run import SavedRun
from hopstate.runs.summary import (
    EVENT_BASELINES,
    Summary,
    baselines_not_exceeded_by_method,
    megabytes,
    num_events,
    self_negative_note,
    small_sample_note,
    summary,
)
from hopstate.sampling.negatives import STRATEGIES, metric_name
from hopstate.training.progress import duration
from hopstate.training.run_folder import FREE, RunFolder, flatten, is_number, load_curves, machine

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

BASELINE = "baseline"
NUMBERS = {"loop.seed": "seed", "split.number": "split", "fold": "fold"}  # settings that number a run, by their names
GRAY = "#6b7480"  # of baselines that were not run as methods
COLORS = (  # of methods
    *("#2563a8", "#c2571a", "#2a7f4f", "#7a4fa3", "#b0343c"),
    *("#0f7c8a", "#a8428a", "#7a5c3a", "#6f7a14", "#3f4fb0"),
)
STYLE = {
    "svg.fonttype": "none",
    "svg.hashsalt": "hopstate",
    "text.parse_math": False,
    "axes.unicode_minus": False,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.grid.axis": "y",
    "grid.color": "#c9ced6",
    "font.family": "sans-serif",
    "legend.frameon": False,
}


def write_report(
    runs: Iterable[str | Path],
    out: str | Path,
    *,
    results_file: str | Path | None = None,
    title: str = "hopstate report",
) -> Path:
    """Write a report of runs as one HTML page that needs no other file and no network, and return its path.

    Args:
        runs: run folders, and folders of runs (of compare, tune or reproduce).
        out: the page. If it cannot be written, an existing page stays unchanged.
        results_file: results of `hopstate reproduce`, to compare published and measured results.
        title: title of the page.

    Example:
        >>> hopstate.report([run.path], "report.html").name
        'report.html'
    """
    from jinja2 import Environment, StrictUndefined

    groups = collect(runs)
    lines: list[Line] = []
    if results_file is not None:
        if not Path(results_file).is_file():
            raise MissingFileError(f"there is no results file {results_file}; `hopstate reproduce` makes one")
        lines = read_lines(results_file)
    if not (groups or lines):
        raise ConfigError("nothing to report: name run folders, or a file of results with --results")
    sections = [
        _verdict(groups),
        _results(groups),
        _published(lines),
        _curves(groups),
        _links(groups),
        _reliability(groups),
        _runs(groups),
    ]
    template = Environment(autoescape=True, undefined=StrictUndefined, finalize=_printable).from_string(
        Path(__file__).with_name("report.html").read_text("utf-8")
    )
    page = template.render(
        title=title,
        count=sum(len(group.runs) for group in groups) + len(lines),
        sections=[section for section in sections if section.blocks],
        now=datetime.now(UTC),
        version=machine()["versions"]["hopstate"],
    )
    write_text(Path(out), page)
    return Path(out)


# ---- run folders ---------------------------------------------------------------------------------------------------
@dataclass(kw_only=True)
class RunInfo:
    """One run folder; `data` also has what distinguishes data of the same name, `number` is seed and split."""

    path: Path
    method: str
    data: str
    source: str
    content_hash: str
    number: str
    settings: dict[str, Any]
    history: list[dict[str, Any]]
    result: dict[str, Any]
    environment: dict[str, Any]
    baselines: dict[str, dict[str, float | None]]
    curves: dict[str, Any]


@dataclass(eq=False)
class Group:
    """Runs that differ in their numbers alone; `label` is the method and what distinguishes the group.

    Baselines that were computed next to runs are groups, too, of the method BASELINE. `color` belongs to the label.
    """

    label: str
    runs: list[RunInfo]
    color: str = GRAY

    method = property(lambda self: self.runs[0].method)
    is_baseline = property(lambda self: self.method in (BASELINE, *EVENT_BASELINES))
    data = property(lambda self: self.runs[0].data)
    metric = property(lambda self: next((run.result["metric"] for run in self.runs if run.result), ""))
    positive = property(lambda self: next((p for run in self.runs if (p := run.result.get("positive_class"))), None))

    def values(self, metric: str, split: str = "test") -> list[float]:
        """Return one value of a metric per run that has it."""
        found = (run.result.get("metrics", {}).get(split, {}).get(metric) for run in self.runs)
        return [float(value) for value in found if value is not None]

    def summary(self, metric: str, split: str = "test") -> Summary | None:
        return summary(self.values(metric, split))

    def mean(self, key: str) -> float | None:
        """Return the mean of a number of result.json, None where no run has it."""
        numbers = [float(run.result[key]) for run in self.runs if run.result.get(key) is not None]
        return sum(numbers) / len(numbers) if numbers else None

    def interval(self, metric: str) -> tuple[float, float] | None:
        """Return the 95% interval of a test metric: of the mean over runs, or a single run's bootstrap."""
        found = self.summary(metric)
        limits = None if found is None else found.interval()
        if limits is None and len(self.runs) == 1:
            low, high = self.values(f"{metric}_low"), self.values(f"{metric}_high")
            limits = (low[0], high[0]) if low and high else self.runs[0].curves.get("intervals", {}).get(metric)
        return limits


def collect(paths: Iterable[str | Path]) -> list[Group]:
    """Return the runs of folders, grouped."""
    runs: dict[Path, RunInfo] = {}
    for path in map(Path, paths):
        if not exists(path):
            raise MissingFileError(f"there is no run folder {path}")
        folders = [path] if exists(path / "config.json") else sorted(p.parent for p in path.rglob("config.json"))
        folders = [folder for folder in folders if not RunFolder(folder).never_trained()]
        if not folders:
            raise MissingFileError(f"{path} holds no run that began to train")
        for folder in folders:
            runs.setdefault(folder.resolve(), read_run(folder))
    return _grouped(list(runs.values()))


def read_run(path: Path) -> RunInfo:
    """Return what a report says of a run folder, finished or not."""
    folder = SavedRun.open(path)
    config = folder.settings()
    flat = flatten(config)
    environment = folder.read_json("environment.json") if exists(path / "environment.json") else {}
    if not isinstance(config.get("method"), str) or not isinstance(config.get("data"), str):
        raise CheckpointError(f"{path / 'config.json'} names no method or no data; it is of no hopstate run")
    if not (isinstance(environment.get("versions", {}), dict) and isinstance(environment.get("command", []), list)):
        raise CheckpointError(
            f"{path / 'environment.json'} is damaged: its versions are not a mapping or its command is not a list"
        )
    return RunInfo(
        path=path,
        method=config["method"],
        data=Path(config["data"]).name,
        source=config["data"],
        content_hash=folder.facts.get("content_hash", "") if exists(path / "data.json") else "",
        number=", ".join(f"{name} {flat[key]}" for key, name in NUMBERS.items() if key in flat),
        settings={key: value for key, value in flat.items() if key not in (*NUMBERS, *FREE, "method", "data")},
        history=folder.history(),
        result=folder.result() if exists(path / "result.json") else {},
        environment=environment,
        baselines=folder.baselines(),
        curves=load_curves(folder),
    )


def _grouped(runs: Sequence[RunInfo]) -> list[Group]:
    """Return runs grouped by method, data and settings, labeled by the settings that differ."""
    _name_data(runs)
    same: dict[tuple[str, str], dict[str, list[RunInfo]]] = defaultdict(lambda: defaultdict(list))
    for run in runs:
        same[run.data, run.method][repr(sorted(run.settings.items()))].append(run)
    groups = []
    for (_, method), variants in same.items():
        settings = [members[0].settings for members in variants.values()]
        keys = dict.fromkeys(key for one in settings for key in one)
        differing = [key for key in keys if len({repr(one.get(key)) for one in settings}) > 1]
        for members in variants.values():
            values = {key: members[0].settings.get(key) for key in differing}
            what = ", ".join(str(v) if key.endswith(".kind") else f"{key}={v}" for key, v in values.items())
            groups.append(Group(f"{method} ({what})" if what else method, members))
    labels = sorted({group.label for group in groups})
    for group in groups:
        group.color = COLORS[labels.index(group.label) % len(COLORS)]
    return sorted(groups, key=lambda group: (group.data, group.label))


def _name_data(runs: Sequence[RunInfo]) -> None:
    """Add folder, version and protocol to the names of data that other data, versions or protocols share."""

    def add(label: Callable[[RunInfo], str], differs: Callable[[RunInfo], str]) -> None:
        differences_of = defaultdict(set)
        for run in runs:
            differences_of[run.data].add(differs(run))
        for run in runs:
            if len(differences_of[run.data] - {""}) > 1:
                run.data = label(run)

    add(lambda run: "/".join(Path(run.source).parts[-2:]), lambda run: run.content_hash)
    add(lambda run: f"{run.data} (contents {run.content_hash[:8] or 'unknown'})", lambda run: run.content_hash)
    add(lambda run: f"{run.data}, {_protocol(run.settings)}", lambda run: _protocol(run.settings))


def _protocol(settings: dict[str, Any]) -> str:
    """Return in words how data were split and evaluated."""
    kind, evaluated = settings.get("split.kind"), settings.get("evaluation.protocol")
    shares = settings.get("split.fractions") or [settings.get("split.val_ratio"), settings.get("split.test_ratio")]
    words = [] if kind in (None, "auto") else [f"{kind} split"]
    if all(is_number(share) for share in shares):
        words += ["/".join(f"{100 * share:g}" for share in shares)]
    words += [] if evaluated is None else [f"{evaluated} protocol"]
    return " ".join(words) or "its own split"


# ---- page ----------------------------------------------------------------------------------------------------------
class Section:
    """A section of the page, which the template renders; without any block it is left out."""

    def __init__(self, heading: str, about: str = "") -> None:
        self.heading, self.about = heading, about
        self.blocks: list[dict[str, Any]] = []

    def paragraph(self, text: str) -> None:
        if text:
            self.blocks.append({"kind": "paragraph", "text": text})

    def table(
        self,
        caption: str,
        columns: Sequence[str],
        rows: Sequence[Sequence[str]],
        marks: Sequence[str] = (),
        colors: Sequence[str] = (),
    ) -> None:
        """Add a table without the columns in which no row says anything."""
        if not rows:
            return
        filled = [i for i in range(len(columns)) if i == 0 or any(row[i] for row in rows)]
        cells = [[row[i] for i in filled] for row in rows]
        none = [""] * len(rows)
        marked = [
            {"cells": row, "mark": mark, "color": color}
            for row, mark, color in zip(cells, marks or none, colors or none, strict=True)
        ]
        names = [columns[i] for i in filled]
        self.blocks.append({"kind": "table", "caption": caption, "columns": names, "rows": marked})

    def hero(
        self, heading: str, sentences: Sequence[str], title: str, bars: Sequence[dict[str, Any]], command: str
    ) -> None:
        """Add a verdict, bars of all methods with their title, and the command of the best run."""
        self.blocks.append(
            {"kind": "hero", "heading": heading, "sentences": sentences, "title": title, "bars": bars}
            | {"command": command}
        )

    def chart(self, title: str, about: str, draw: Callable[[Axes], None]) -> None:
        """Add a chart that draw paints; about says in words what it shows."""
        self.blocks.append({"kind": "chart", "title": title, "about": about, "image": _image(draw)})


def _printable(value: Any) -> Any:
    """Replace control characters of a text, which HTML and SVG do not allow; return other values unchanged."""
    if not isinstance(value, str):
        return value
    return type(value)(re.sub(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]", "\N{REPLACEMENT CHARACTER}", value))


def _image(draw: Callable[[Axes], None]) -> str:
    """Return what draw paints on axes as the address of an SVG image that holds its own data."""
    import matplotlib as mpl
    from matplotlib.backends.backend_svg import FigureCanvasSVG
    from matplotlib.figure import Figure

    buffer = io.BytesIO()
    with mpl.rc_context({**mpl.rcParamsDefault, **STYLE}), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph .* missing")  # the reader's browser has other fonts
        chart = Figure(figsize=(6, 3.5), layout="constrained")
        FigureCanvasSVG(chart)
        axes = chart.add_subplot()
        draw(axes)
        names = axes.get_legend_handles_labels()[1]
        if names:
            columns = 2 if max(map(len, names)) < 32 else 1  # what the width of the chart has room for
            chart.set_figheight(3.5 + 0.25 * math.ceil(len(names) / columns))
            chart.legend(loc="outside lower left", ncols=columns)
        chart.savefig(buffer, format="svg", metadata={"Date": None}, transparent=True)
    return f"data:image/svg+xml;base64,{base64.b64encode(buffer.getvalue()).decode()}"


def _name(label: str) -> str:
    """Return a label for the legend of a chart."""
    text = _printable(label if len(label) <= 70 else f"{label[:69]}…")
    return text if not text.startswith("_") else f" {text}"  # matplotlib hides names that begin so


def _by_data(groups: Sequence[Group]) -> dict[str, list[Group]]:
    by_data = defaultdict(list)
    for group in groups:
        by_data[group.data].append(group)
    return by_data


def _limits(metric: str, limits: tuple[float, float] | None) -> str:
    return "" if limits is None else " to ".join(figure(metric, end) for end in limits)


def _figure(metric: str, found: Summary | None) -> str:
    return "" if found is None else figure(metric, found.mean, found.std)


# ---- which group is best -------------------------------------------------------------------------------------------
def _ranked(groups: Sequence[Group], metric: str) -> list[Group]:
    """Return the groups that have a validation metric, best first."""
    measured = [group for group in groups if group.values(metric, "val")]
    return sorted(
        measured, key=lambda group: (sort_key(metric, _existing_summary(group, metric, "val").mean), group.label)
    )


def _best(groups: Sequence[Group], metric: str) -> Group | None:
    """Return the best group on validation, or None if there is only one or none has a validation metric."""
    ranked = _ranked(groups, metric)
    return ranked[0] if ranked and len(groups) > 1 else None


def _baselines(groups: Sequence[Group], metrics: Iterable[str]) -> list[Group]:
    """Return the baselines of runs of these groups that are not among their methods and have one of the metrics."""
    methods = {group.method for group in groups}
    runs_by_name: dict[tuple[str, str], list[RunInfo]] = defaultdict(list)
    for run in (run for group in groups for run in group.runs):
        for name in run.baselines.keys() - methods:
            result = {"metric": run.result.get("metric", ""), "metrics": {"test": run.baselines[name]}}
            positive = run.result.get("positive_class")
            baseline = replace(run, method=BASELINE, result=result | {"positive_class": positive}, curves={})
            runs_by_name[baseline_label(name), result["metric"]].append(baseline)
    baselines = [Group(name, runs_by_name[name, metric]) for name, metric in sorted(runs_by_name)]
    return [baseline for baseline in baselines if any(baseline.values(metric) for metric in metrics)]


def _mark(group: Group, best: Sequence[Group | None]) -> str:
    return "best" if group in best else "baseline" if group.is_baseline else ""


# ---- sections ------------------------------------------------------------------------------------------------------
def verdicts(groups: Sequence[Group]) -> dict[str, list[str]]:
    """Return sentences per dataset: the best method and its test metric, the baselines below it, and its cost."""
    sets: dict[tuple[str, str], list[Group]] = {}
    for group in groups:
        if group.values(group.metric):
            sets.setdefault((group.data, group.metric), []).append(group)
    texts: dict[str, list[str]] = defaultdict(list)
    for (data, metric), members in sets.items():
        texts[data] += filter(None, _verdict_sentences(metric, members))
    for data, sentences in texts.items():
        unfinished = sum(not run.result for group in groups if group.data == data for run in group.runs)
        if unfinished:
            sentences.append(f"{unfinished} {'run was' if unfinished == 1 else 'runs were'} not finished.")
    return texts


def _verdict(groups: Sequence[Group]) -> Section:
    """The verdict on each dataset with bars of all methods, and the command of the best run."""
    section = Section("Verdict")
    texts = verdicts(groups)
    for data, members in _by_data([group for group in groups if group.data in texts]).items():
        metric = next(group.metric for group in members if group.values(group.metric))
        ranked = _best_first(members, metric)
        command = _command(ranked[0].runs[0])
        title = metric_label(metric, ranked[0].positive)
        section.hero(data, texts[data], f"test {title}", _bars(ranked, metric), command)
    return section


def _command(run: RunInfo) -> str:
    """Return the command line that started a run, "" if it is unknown."""
    words = [str(word) for word in run.environment.get("command", [])]
    if words and Path(words[0]).parts[-2:] in (("cli", "main.py"), ("bin", "hopstate")):
        words[0] = "hopstate"
    return shlex.join(words)


def _best_first(groups: Sequence[Group], metric: str) -> list[Group]:
    """Return the groups and baselines that have a test metric: the best on validation, then by the test metric."""
    measured = [group for group in groups if group.values(metric)]
    best = _best(measured, metric)
    groups_shown = [*measured, *_baselines(measured, [metric])]
    return sorted(
        groups_shown, key=lambda group: (group is not best, sort_key(metric, _existing_summary(group, metric).mean))
    )


def _bars(groups: Sequence[Group], metric: str) -> list[dict[str, Any]]:
    """Return the rows of a bar chart, which begins at 0."""
    means = [_existing_summary(group, metric).mean for group in groups]
    whole = max([1.0, *means]) if not is_error(metric) else max([*means, 1e-12])
    best = [_best([group for group in groups if group.method != BASELINE], metric)]
    return [
        {
            "label": group.label,
            "mark": _mark(group, best),
            "value": _figure(metric, group.summary(metric)),
            "width": f"{100 * max(0.0, mean) / whole:.1f}" if math.isfinite(mean) else "0",
            "color": group.color,
        }
        for group, mean in zip(groups, means, strict=True)
    ]


def _verdict_sentences(metric: str, groups: Sequence[Group]) -> list[str]:
    ranked = _ranked(groups, metric)
    if not ranked and len(groups) > 1:
        return ["No run has a validation metric, so none is called best: choosing by test would be selection on test."]
    best = (ranked or groups)[0]
    tests = {group.label: _existing_summary(group, metric) for group in groups}
    test, val, limits = tests[best.label], best.summary(metric, "val"), _limits(metric, best.interval(metric))
    start = f"{best.label} reached"
    if val is not None and len(groups) > 1:
        start = f"{best.label} is best by validation ({_figure(metric, val)})"
    start += f": test {metric_label(metric, best.positive)} {_figure(metric, test)}"
    events, seconds = _events(groups, metric), best.mean("seconds")
    memory = megabytes(best.mean("peak_memory_mb"))
    sentences = [
        start
        + (f" (95% interval {limits})" if limits else "")
        + ("." if events is None else f" of {events:,} events."),
        _above_baselines(metric, best, groups),
        f"Training took {duration(seconds)}{' and ' if memory else ''}{memory}." if seconds else "",
    ]
    if len(ranked) > 1:
        sentences.append(_second(metric, ranked[1].label, tests[ranked[1].label], test))
        first = min(groups, key=lambda group: sort_key(metric, tests[group.label].mean)).label
        if sort_key(metric, tests[first].mean) < sort_key(metric, test.mean):
            highest = figure(metric, tests[first].mean)
            sentences.append(f"The best test figure is that of {first} ({highest}); validation did not choose it.")
    elif test.runs == 1:
        sentences.append("One run: its variance is unknown.")
    sentences.append(small_sample_note(events, "test metrics"))
    sentences.append(self_negative_note(best.runs[0].result.get("metrics", {}).get("test", {})))
    return sentences


def _existing_summary(group: Group, metric: str, split: str = "test") -> Summary:
    summary = group.summary(metric, split)
    assert summary is not None
    return summary


def _events(groups: Sequence[Group], metric: str) -> int | None:
    """Return how many test events a metric of links is measured on; None where no run says."""
    counts = (num_events(metric, run.result.get("metrics", {}).get("test", {})) for g in groups for run in g.runs)
    return next((count for count in counts if count is not None), None)


def _above_baselines(metric: str, best: Group, groups: Sequence[Group]) -> str:
    baselines = [*_baselines(groups, [metric]), *(group for group in groups if group.is_baseline and group is not best)]
    if not baselines:
        return ""
    mean = _existing_summary(best, metric).mean
    first = min(baselines, key=lambda group: sort_key(metric, _existing_summary(group, metric).mean))
    value = _existing_summary(first, metric).mean
    shown = f"{first.label} ({figure(metric, value)})"
    if sort_key(metric, mean) < sort_key(metric, value):
        return f"That is {_points(metric, mean - value)} better than the best baseline, {shown}."
    return f"That is not better than the baseline {shown}."


def _points(metric: str, difference: float) -> str:
    text = figure(metric, abs(difference))
    return text if is_error(metric) else f"{text} points"


def _second(metric: str, label: str, other: Summary, best: Summary) -> str:
    """Say how far the second by validation is from the best, on test; near is under twice the standard error."""
    side = "ahead" if sort_key(metric, other.mean) < sort_key(metric, best.mean) else "behind"
    doubt = "; single runs, so the variance is unknown"
    if best.std is not None and other.std is not None:
        error = math.sqrt(best.std**2 / best.runs + other.std**2 / other.runs)
        doubt = ", too near to call" if abs(best.mean - other.mean) < 2 * error else ""
    return f"Next is {label}, on test {_points(metric, best.mean - other.mean)} {side}{doubt}."


def _results(groups: Sequence[Group]) -> Section:
    """Test and validation metrics of all runs, with 95% confidence intervals."""
    section = Section(
        "Results",
        "Test metric of the epoch that validation chose, as mean ± standard deviation over runs. Intervals have 95% "
        "confidence: of the mean over runs by Student's t, or of a single run by bootstrap. The best method has the "
        "best validation metric. Time includes validation. Memory is the peak of the process.",
    )
    columns = ["method", "metric", "test", "95% interval", "validation", "runs", "epochs"]
    columns += ["time", "per epoch", "memory", "parameters"]
    for data, members in _by_data(groups).items():
        metrics = dict.fromkeys(group.metric for group in members if group.values(group.metric))
        same = {metric: [group for group in members if group.metric == metric] for metric in metrics}
        best = [_best([group for group in same[metric] if group.values(metric)], metric) for metric in metrics]
        done = [group for metric in metrics for group in _best_first(same[metric], metric)]
        rows, marks = [_result_row(group) for group in done], [_mark(group, best) for group in done]
        section.table(f"Results on {data}", columns, rows, marks, [group.color for group in done])
        for group in members:
            waiting = ", ".join(run.path.name for run in group.runs if not run.result)
            section.paragraph(f"Not finished: {group.label}, {waiting}" if waiting else "")
    return section


def _result_row(group: Group) -> list[str]:
    metric = group.metric
    test = _existing_summary(group, metric)
    epochs, epoch, parameters = (group.mean(key) for key in ("epochs", "seconds_per_epoch", "parameters"))
    return [
        group.label,
        metric_label(metric, group.positive),
        _figure(metric, test),
        _limits(metric, group.interval(metric)),
        _figure(metric, group.summary(metric, "val")),
        str(test.runs),
        "" if epochs is None else f"{epochs:.0f}",
        duration(group.mean("seconds")),
        "" if epoch is None else f"{epoch:.3g} s",
        megabytes(group.mean("peak_memory_mb")),
        "" if parameters is None else f"{parameters:,.0f}",
    ]


def _published(lines: Sequence[Line]) -> Section:
    results = compared(lines)
    section = Section(
        "Published against measured",
        "The test is Welch's t if the published value has a standard deviation and a number of runs, otherwise a "
        "one-sample t against the published mean. p is two-sided and not corrected for the number of rows.",
    )
    columns = ["recipe", "metric", "source", "test", "published", "measured", "95% interval", "runs"]
    columns += ["time a run", "peak memory"]
    for data in sorted({one.row.data for one in results}):
        rows = []
        for one in (one for one in results if one.row.data == data):
            source = "" if one.published is None else one.published.source
            cells = one.table_row() | {"source": source, "95% interval": _limits(one.metric, one.measured.interval())}
            rows.append([cells[name] for name in columns])
        section.table(f"Published against measured on {data}", columns, rows)
    return section


def _curves(groups: Sequence[Group]) -> Section:
    """Validation metric and training loss by epoch."""
    section = Section(
        "Learning curves",
        "Runs of the same settings share a color. Three or more of them are shown as mean and 95% confidence interval.",
    )
    for data, members in _by_data(groups).items():
        positive = next((group.positive for group in members if group.positive), None)
        metrics = dict.fromkeys(group.metric for group in members if group.metric)
        columns = {f"val_{m}": f"validation {metric_label(m, positive)}" for m in metrics}
        for column, label in {**columns, "train_loss": "training loss"}.items():
            lines = {group.label: _histories(group, column) for group in members}
            lines = {name: table for name, table in lines.items() if not table.empty}
            if lines:
                about = f"{label} by epoch of {', '.join(lines)}"
                draw = partial(_draw_curves, lines=lines, label=label, colors=_colors(members))
                section.chart(f"{label} on {data}", about, draw)
    return section


def _colors(groups: Sequence[Group]) -> dict[str, str]:
    return {group.label: group.color for group in groups}


def _histories(group: Group, column: str) -> pd.DataFrame:
    """Return values by epoch, a column for each run that has one; an empty table where no run has two epochs."""
    import pandas as pd

    if all(len(run.history) < 2 for run in group.runs):
        return pd.DataFrame()
    runs = [{row["epoch"]: row.get(column) for row in run.history} for run in group.runs]
    table = pd.DataFrame(dict(enumerate(runs)), dtype=float).sort_index()
    return table.dropna(axis="columns", how="all").dropna(how="all")


def _draw_curves(axes: Axes, lines: Mapping[str, pd.DataFrame], label: str, colors: Mapping[str, str]) -> None:
    from matplotlib.ticker import MaxNLocator
    from scipy.stats import t

    for name, table in lines.items():
        color = colors[name]
        if table.shape[1] < 3:
            for n, run in enumerate(table):
                points = table[run].dropna()
                axes.plot(points.index, points, color=color, marker="." if len(points) == 1 else "",
                          label=_name(name) if n == 0 else None)  # fmt: skip
            continue
        several = table[table.count(axis="columns") >= 3]
        mean, count = several.mean(axis="columns"), several.count(axis="columns")
        half = several.sem(axis="columns") * t.ppf(0.975, count - 1)  # of the 95% confidence interval
        axes.plot(mean.index, mean, color=color, label=_name(name))
        axes.fill_between(mean.index, mean - half, mean + half, color=color, alpha=0.18, linewidth=0)
    lasts = [int(table[run].dropna().index[-1]) for table in lines.values() for run in table]
    if max(lasts) >= 10 * min(lasts) > 10:  # short runs would be a dot at the left
        axes.set_xscale("log")
    else:
        axes.xaxis.set_major_locator(MaxNLocator(nbins=6, integer=True))
    axes.set(xlabel="epoch", ylabel=_printable(label))


def _links(groups: Sequence[Group]) -> Section:
    """Link prediction by kind of negatives, for all links and those with new nodes, with the baselines."""
    section = Section(
        "Link prediction by kind of negatives",
        "Test split, in percent; mean ± standard deviation over runs.",
    )
    kinds = dict.fromkeys(  # random negatives and rankings share names
        metric_name(metric, strategy, new_nodes=False)
        for strategy in STRATEGIES
        for metric in ("average_precision", "roc_auc", "mrr")
    )
    for data, members in _by_data([group for group in groups if _predicts_links(group)]).items():
        metric = next((group.metric for group in members if group.metric), "")
        best = _best([group for group in members if group.metric == metric], metric)
        for prefix in ("", "new_"):
            present = [name for kind in kinds if any(g.values(name := f"{prefix}{kind}") for g in members)]
            if not present:
                continue
            compared = [*members, *_baselines(members, present)]
            means = {
                g.label: {m: summary.mean for m in present if (summary := g.summary(m)) is not None} for g in compared
            }
            under = baselines_not_exceeded_by_method(means, {group.label for group in compared if group.is_baseline})
            rows = [[g.label, under[g.label], *(_figure(m, g.summary(m)) for m in present)] for g in compared]
            marks, colors = [_mark(group, [best]) for group in compared], [group.color for group in compared]
            events = _events(members, present[0])
            of = "" if events is None else f", {events:,} test events"
            columns = ["method", "does not outperform", *(metric_label(name.removeprefix("new_")) for name in present)]
            section.table(f"Links of {data}: {links_label(prefix)}{of}", columns, rows, marks, colors)
            section.paragraph(small_sample_note(events, links_label(prefix)))
    return section


def _predicts_links(group: Group) -> bool:
    """Return whether links are predicted: what learns labels has their weights, and areas by the same names."""
    settings = group.runs[0].settings
    return "class_weights" not in settings or settings.get("task") == "link"


def _reliability(groups: Sequence[Group]) -> Section:
    """Reliability diagrams, one a group with a line a run, and expected calibration errors."""
    section = Section(
        "Calibration",
        "Observed frequency by predicted probability on the test split, in 15 bins of equal width. The dotted diagonal "
        "is perfect calibration. ECE is the mean distance from it, weighted by counts. hopstate score prints "
        "probabilities that are calibrated on validation.",
    )
    for data, members in _by_data(groups).items():
        rows = []
        ranked = _ranked(members, next((group.metric for group in members if group.metric), ""))
        for group in [*ranked, *(group for group in members if group not in ranked)]:
            curves_by_target: dict[str, dict[str, list[dict[str, Any]]]] = defaultdict(lambda: defaultdict(list))
            for curve in (curve for run in group.runs for curve in run.curves.get("reliability", [])):
                if curve["count"]:
                    curves_by_target[curve["target"]][curve["calibration"]].append(curve)
            for of, by_calibration in curves_by_target.items():
                for how, curves in by_calibration.items():
                    ece = 100 * sum(curve["ece"] for curve in curves) / len(curves)
                    count = sum(sum(curve["count"]) for curve in curves)
                    rows.append([group.label, of, how, f"{ece:.2f}", f"{count:,.0f}"])
                about = f"observed frequency by predicted probability, of {', '.join(by_calibration)}"
                section.chart(
                    f"{group.label}, {of} on {data}",
                    about,
                    partial(_draw_reliability, ways=by_calibration, color=group.color),
                )
        section.table(
            f"Calibration on {data}", ["method", "prediction", "calibration", "ECE in percent", "count"], rows
        )
    return section


def _draw_reliability(axes: Axes, ways: Mapping[str, Sequence[dict[str, Any]]], color: str) -> None:
    axes.axline((0, 0), slope=1, color="gray", linestyle=":")
    for i, (how, curves) in enumerate(ways.items()):
        for n, curve in enumerate(curves):
            label = _name(how) if n == 0 else None
            style: dict[str, Any] = {"linestyle": ("-", "--", ":")[i % 3], "marker": ".", "color": color}
            axes.plot(curve["prob_pred"], curve["prob_true"], **style, label=label)
    axes.set(xlabel="predicted probability", ylabel="observed frequency", xlim=(0, 1), ylim=(0, 1.02))


def _runs(groups: Sequence[Group]) -> Section:
    """What was run where, by which command."""
    section = Section("Runs")
    rows, commands = [], dict[str, int]()  # one command may have started many runs
    for group in groups:
        for run in group.runs:
            environment = run.environment
            version = f"{environment.get('versions', {}).get('hopstate', '')} {environment.get('revision') or ''}"
            hardware = str(environment.get("gpu") or environment.get("processor", ""))
            number = str(commands.setdefault(command, len(commands) + 1)) if (command := _command(run)) else ""
            started = str(environment.get("time", ""))
            rows.append([run.path.name, group.label, run.data, run.number, version.strip(), started, hardware, number])
    columns = ("folder", "method", "data", "number", "hopstate", "started", "hardware", "command")
    section.table("What was run, and where", columns, rows)
    section.blocks += [{"kind": "command", "text": text, "number": number} for text, number in commands.items()]
    return section
