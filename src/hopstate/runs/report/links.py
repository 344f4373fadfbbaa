"""Link prediction by kind of negatives, beside the floors and with what each method does not stand above."""

from __future__ import annotations

from collections.abc import Sequence

from hopstate.runs.report import charts, choice
from hopstate.runs.report.collect import Group
from hopstate.runs.report.page import Page
from hopstate.runs.report.sections import by_data
from hopstate.runs.report.verdict import MOST_BARS, told_from
from hopstate.runs.reproduce import tables
from hopstate.runs.reproduce.statistics import summary
from hopstate.sampling.negatives import STRATEGIES, metric_name

Sets = dict[str, dict[str, list[float]]]


def strategies(page: Page, groups: Sequence[Group]) -> None:
    """Add link prediction by kind of negatives, for all links (events or edges) and those with new nodes."""
    metrics = ("average_precision", "roc_auc", "mrr")
    kinds = [metric_name(metric, strategy, new_nodes=False) for strategy in STRATEGIES for metric in metrics]
    found = {
        data: [group for group in members if of_links(group) and any(group.values(kind) for kind in kinds)]
        for data, members in by_data(groups).items()
    }
    if not any(found.values()):
        return
    page.section(
        "Link prediction by kind of negatives",
        "Test split, in percent; mean ± standard deviation over runs. Floors need no such model; what a method does "
        "not stand above is said beside it. Best is what validation puts first, by the metric that chose its epoch.",
    )
    for data, members in found.items():
        for prefix in ("", "new_"):
            setting = tables.setting_words(prefix)
            present = [name for name in (f"{prefix}{kind}" for kind in kinds) if any(g.values(name) for g in members)]
            if not present:
                continue
            floors = _floors(members, present)
            values = {g.label: {name: g.values(name) for name in present} for g in members}
            rivals = floors | {g.label: values[g.label] for g in members if g.method in tables.FLOORS}
            rows = [_kinds_row(label, own, rivals) for label, own in (values | floors).items()]
            words = [tables.metric_words(name.removeprefix("new_")) for name in present]
            marks = {n: "floor" for n, row in enumerate(rows) if row[0] in rivals}
            columns = ["method", "no better than", *words]
            page.figures(_charts(data, setting, values | floors, rivals, _first(members)))
            events = told_from(members, present[0])
            of = "" if events is None else f", {events:,} events judged"
            page.table(f"Links of {data}: {setting}{of}", columns, rows, words=2, marks=marks)
            remark = tables.few_words(events, setting)
            if remark:
                page.paragraph(remark)


def of_links(group: Group) -> bool:
    """Return whether links are predicted: what learns labels has their weights, and areas by the same names."""
    settings = group.runs[0].settings
    return "class_weights" not in settings or settings.get("task") == "link"


def _first(groups: Sequence[Group]) -> str | None:
    metric = next((group.metric for group in groups if group.metric), "")
    best = choice.chosen([group for group in groups if group.metric == metric], metric)
    return None if best is None else best.label


def _charts(data: str, setting: str, values: Sets, floors: Sets, best: str | None) -> list[charts.Chart]:
    """Return a chart for each kind of negatives, of the first metric with several of them; best is marked."""
    metrics = dict.fromkeys(name for own in values.values() for name in own)
    bases = dict.fromkeys(base for base in ("average_precision", "roc_auc", "mrr") for m in metrics if m.endswith(base))
    kinds = next(([m for m in metrics if m.endswith(base)] for base in bases), [])
    if len(kinds) < 2 or len(values) < 2:
        return []
    made = []
    for metric in kinds:
        ranked = []
        for label, own in values.items():
            found = summary(own.get(metric, []))
            if found is not None:
                limits = found.interval()
                ends = None if limits is None or label in floors else (100 * limits[0], 100 * limits[1])
                note, kind = tables.figure(metric, found.mean, found.std), "floor" if label in floors else ""
                bar = charts.Bar(label, 100 * found.mean, None, note, kind, limits=ends)
                ranked.append((tables.rank(metric, found.mean), bar))
        bars = charts.with_best([bar for _, bar in sorted(ranked, key=lambda one: one[0])], best)[:MOST_BARS]
        title = f"{tables.metric_words(metric)}: {data}, {setting}"
        made.append(charts.bar_chart(title, "; ".join(f"{bar.name}: {bar.note}" for bar in bars) + ".", bars))
    return made


def _floors(groups: Sequence[Group], metrics: Sequence[str]) -> dict[str, dict[str, list[float]]]:
    found: dict[str, dict[str, list[float]]] = {}
    for run in (run for group in groups for run in group.runs):
        for name, values in run.floors.items():
            if name not in {group.method for group in groups}:
                for metric in metrics:
                    value = values.get(metric)
                    series = found.setdefault(tables.floor_words(name), {}).setdefault(metric, [])
                    series += [] if value is None else [float(value)]
    return found


def _kinds_row(label: str, values: dict[str, list[float]], floors: dict[str, dict[str, list[float]]]) -> list[str]:
    """Return a row of link prediction: name, the other floors that it does not stand above, figures."""
    means = {m: sum(v) / len(v) for m, v in values.items() if v}
    under = {n: {m: sum(v) / len(v) for m, v in own.items() if v} for n, own in floors.items() if n != label}
    return [label, tables.below_words(means, under), *(_cell(name, found) for name, found in values.items())]


def _cell(metric: str, values: list[float]) -> str:
    found = summary(values)
    return "" if found is None else tables.figure(metric, found.mean, found.std)
