"""The sections of a report; each adds nothing where there is nothing to say."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from hopstate.runs.report import charts, choice
from hopstate.runs.report.collect import FeatureTable, Group, Influence
from hopstate.runs.report.page import Page
from hopstate.runs.report.verdict import floors_of, interval
from hopstate.runs.reproduce import results, tables
from hopstate.runs.reproduce.statistics import summary

Sets = dict[str, list[Group]]


def by_data(groups: Sequence[Group]) -> Sets:
    found: Sets = {}
    for group in groups:
        found.setdefault(group.data, []).append(group)
    return found


def overview(page: Page, groups: Sequence[Group]) -> None:
    """Add test and validation metrics of all runs, with 95% confidence intervals."""
    if not groups:
        return
    page.section(
        "Results",
        "Test metric of the epoch that validation chose: mean ± standard deviation over runs; shares in percent. "
        "Intervals are 95% confidence intervals: of the mean over runs by Student's t, or of a single run by "
        f"bootstrap where it has one. {choice.WORDS}",
    )
    for data, members in by_data(groups).items():
        done = sorted((g for g in members if g.values(g.metric)), key=_best)
        if done:
            columns = ("method", "metric", "test", "95% interval", "validation", "runs", "epochs")
            floors = [row for metric in dict.fromkeys(g.metric for g in done) for row in _floor_rows(done, metric)]
            rows = [_result(group) for group in done] + floors
            rivals = choice.rivals(done)
            marks = dict.fromkeys(range(len(done), len(rows)), "floor")
            marks |= {n: "floor" for n, group in enumerate(done) if group not in rivals}
            for metric in dict.fromkeys(g.metric for g in done):
                best = choice.chosen([g for g in done if g.metric == metric], metric)
                marks |= {n: "best" for n, g in enumerate(done) if g is best}
            page.table(f"Results on {data}", columns, rows, words=2, marks=marks)
        for group in members:
            waiting = [run.path.name for run in group.runs if not run.result]
            if waiting:
                page.paragraph(f"Not finished: {group.label}, {', '.join(waiting)}")


def _best(group: Group) -> float:
    found = summary(group.values(group.metric))
    assert found is not None
    return tables.rank(group.metric, found.mean)


def _result(group: Group) -> list[str]:
    metric = group.metric
    test, val, limits = summary(group.values(metric)), summary(group.values(metric, "val")), interval(group, metric)
    assert test is not None
    epochs = group.numbers("epochs")
    return [
        group.label,
        tables.metric_words(metric, group.positive),
        tables.figure(metric, test.mean, test.std),
        "" if limits is None else " to ".join(tables.figure(metric, end, None) for end in limits),
        "" if val is None else tables.figure(metric, val.mean, val.std),
        str(test.runs),
        f"{sum(epochs) / len(epochs):.0f}" if epochs else "",
    ]


def _floor_rows(groups: Sequence[Group], metric: str) -> list[list[str]]:
    rows = []
    for name, values in floors_of(groups, metric).items():
        found = summary(values)
        if found is not None:
            words = tables.metric_words(metric, next((p for g in groups if (p := g.positive)), None))
            rows.append([name, words, tables.figure(metric, found.mean, found.std), "", "", str(found.runs), ""])
    return rows


def published(page: Page, lines: Sequence[results.Line]) -> None:
    """Add published against measured."""
    found = tables.compared(lines)
    if not found:
        return
    page.section(
        "Published against measured",
        "A published figure is a reference. Where it states a spread and a number of runs the test is Welch's t, else "
        "a one-sample t against the published mean; p is two-sided and not corrected for the number of rows.",
    )
    columns = ["recipe", "metric", "source", "test", "published", "measured", "95% interval", "runs"]
    columns += ["time a run", "peak memory"]
    for data in sorted({one.row.data for one in found}):
        rows = []
        for one in (one for one in found if one.row.data == data):
            cell = tables.cells(one)
            limits = one.measured.interval()
            cell["95% interval"] = (
                "" if limits is None else " to ".join(tables.figure(one.metric, end, None) for end in limits)
            )
            cell["source"] = "" if one.published is None else one.published.source
            rows.append([cell[name] for name in columns])
        page.table(f"Published against measured on {data}", columns, rows, words=4)


def curves(page: Page, groups: Sequence[Group]) -> None:
    """Add learning curves: validation metric and training loss by epoch, one line a run."""
    drawable = {
        data: [g for g in of_data if any(len(run.history) > 1 for run in g.runs)]
        for data, of_data in by_data(groups).items()
    }
    if not any(drawable.values()):
        return
    page.section(
        "Learning curves",
        "Runs of the same settings share a colour and a dash: one line a run, and of three runs or more their mean in "
        "a 95% confidence interval.",
    )
    for data, members in drawable.items():
        if not members:
            continue
        page.subsection(data)
        made = []
        metrics = dict.fromkeys(group.metric for group in members if group.metric)
        positive = next((p for group in members if (p := group.positive)), None)
        for column, words in [
            *((f"val_{m}", f"validation {tables.metric_words(m, positive)}") for m in metrics),
            ("train_loss", "training loss"),
        ]:
            mine = [i for i, group in enumerate(members) if column in ("train_loss", f"val_{group.metric}")]
            lines = [line for i in mine for line in _lines(i, members[i], column)]
            if lines:
                names = ", ".join(members[i].label for i in dict.fromkeys(line.series for line in lines))
                about = f"{words} by epoch of {names}"
                made.append(charts.line_chart(f"{words} on {data}", about, lines, "epoch", words))
        page.figures(made)
        page.key([group.label for group in members])


def _lines(series: int, group: Group, column: str) -> list[charts.Line]:
    """Return a line a run; of three runs or more their mean with an interval, where at least three have come so far."""
    runs = [
        {float(row["epoch"]): float(row[column]) for row in run.history if row.get(column) is not None}
        for run in group.runs
    ]
    runs = [run for run in runs if run]
    if len(runs) < 3:
        return [charts.Line(series, list(run.items())) for run in runs]
    points, band = [], []
    for epoch in sorted({epoch for run in runs for epoch in run}):
        found = summary([run[epoch] for run in runs if epoch in run])
        limits = None if found is None or found.runs < 3 else found.interval()
        if found is not None and limits is not None:
            points.append((epoch, found.mean))
            band.append((epoch, *limits))
    return [charts.Line(series, points, band)] if points else []


def recipes(page: Page, lines: Sequence[results.Line]) -> None:
    """Add bars of the test metric side by side, of recipes on the same data."""
    made = []
    rows = results.rows(lines)
    for data in dict.fromkeys(row.data for row in rows):
        bars = _bars([r for r in rows if r.data == data])
        made += [(f"{words}, recipes on {data}", some) for words, some in bars.items() if len(some) > 1]
    if not made:
        return
    page.section(
        "Recipes side by side",
        "Test metric, mean over runs; whiskers are one standard deviation. Bars begin at 0; what validation "
        "puts first is green.",
    )
    page.figures(
        [
            charts.bar_chart(title, "; ".join(f"{bar.name}: {bar.note}" for bar in bars) + ".", bars)
            for title, bars in made
        ]
    )


def _bars(rows: Sequence[results.Row]) -> dict[str, list[charts.Bar]]:
    """Return bars by metric, highest test figure first; the best by validation is marked."""
    found: dict[str, list[tuple[float, charts.Bar]]] = {}
    first: dict[str, tuple[float, str]] = {}
    for row in rows:
        metric, one, val = row.metric, summary(row.values(row.metric)), summary(row.values(row.metric, "val"))
        if one is None:
            continue
        spread = None if one.std is None else tables.scaled(metric, one.std)
        bar = charts.Bar(row.label, tables.scaled(metric, one.mean), spread, tables.figure(metric, one.mean, one.std))
        words = tables.metric_words(metric)
        found.setdefault(words, []).append((tables.rank(metric, one.mean), bar))
        if val is not None and row.method not in tables.FLOORS:
            own = (tables.rank(metric, val.mean), row.label)
            first[words] = min(first.get(words, own), own)
    return {
        words: charts.with_best(
            [bar for _, bar in sorted(ranked, key=lambda each: each[0])], first[words][1] if words in first else None
        )
        for words, ranked in found.items()
    }


def costs(page: Page, groups: Sequence[Group]) -> None:
    """Add training time, memory and size."""
    done = [group for group in groups if group.numbers("seconds")]
    if not done:
        return
    page.section(
        "Time and memory",
        "Time is of training, evaluation on validation included; memory is the largest resident memory of the process, "
        "what it did before the run included.",
    )

    def mean(group: Group, key: str, words: Callable[[float], str]) -> str:
        numbers = group.numbers(key)
        return words(sum(numbers) / len(numbers)) if numbers else ""

    rows = [
        [
            group.label,
            group.data,
            mean(group, "seconds", tables.seconds),
            mean(group, "seconds_per_epoch", lambda v: f"{v:.3g} s"),
            mean(group, "peak_memory_mb", tables.megabytes),
            mean(group, "parameters", lambda v: f"{v:,.0f}"),
        ]
        for group in done
    ]
    page.table(
        "Cost of a run, mean over runs", ("method", "data", "time", "an epoch", "memory", "parameters"), rows, words=2
    )


def timelines(page: Page, found: Sequence[Influence]) -> None:
    """Add what past events contributed to scores."""
    if not found:
        return
    page.section(
        "Influence of past events",
        "What each past event added to the score of a pair, in logits: circles are the source's past, squares the "
        "target's; the dotted line is the moment of the query.",
    )
    made = []
    for one in found:
        own = [row["t"] for row in one.rows if row["event_id"] < 0]
        real = [row for row in one.rows if row["event_id"] >= 0]
        if real:
            stems = [(0 if row["end"] == "source" else 1, row["t"], row["contribution"]) for row in real]
            about = f"{len(real)} past events; the largest contribution is {max(map(_size, real)):.3g}"
            title = f"{one.path.stem}: contributions by time"
            query = own[0] if own else None
            made.append(charts.stem_chart(title, about, stems, query, ("time", "added to the logit"), dated=one.dated))
    page.figures(made)
    for one in found:
        rows = [
            [row["neighbor"], row["end"], _when(one, row), f"{row['contribution']:+.4f}"]
            for row in sorted(one.rows, key=_size, reverse=True)[:10]
        ]
        page.table(
            f"{one.path.stem}: the ten largest contributions",
            ("neighbour", "whose past", "time", "adds"),
            rows,
            words=2,
        )


def features(page: Page, found: Sequence[FeatureTable]) -> None:
    """Add what features of trees gained over all, and what they added to scores."""
    if not found:
        return
    page.section(
        "What trees look at",
        "The share of each feature in what all splits of a run gained, and what features added to single scores, in "
        "logits; the ten largest of each.",
    )
    for one in found:
        gained = one.column == "gain"
        rows = [
            [name, f"{100 * amount:.1f}%" if gained else f"{amount:+.4f}"]
            for name, amount in sorted(one.rows, key=lambda row: -abs(row[1]))[:10]
        ]
        title = f"{one.path.parent.name}: importances" if gained else f"{one.path.stem}: contributions by feature"
        page.table(title, ("feature", "gained" if gained else "adds"), rows)


def _when(one: Influence, row: dict) -> str:
    return str(row["when"]).replace("T", " ") if one.dated else charts.number(row["t"], 8)


def _size(row: dict) -> float:
    return abs(row["contribution"])


def runs(page: Page, groups: Sequence[Group]) -> None:
    """Add what was run where."""
    if not groups:
        return
    page.section("Runs")
    rows = []
    for group in groups:
        for run in group.runs:
            e = run.environment
            versions = e.get("versions", {})
            version = " ".join(filter(None, (versions.get("hopstate", ""), e.get("revision") or "")))
            rows.append([Path(run.path).name, group.label, run.data, run.number, version, e.get("time", ""),
                         str(e.get("gpu") or e.get("processor", ""))])  # fmt: skip
    columns = ("folder", "method", "data", "number", "hopstate", "started", "hardware")
    page.table("What was run, and where", columns, rows, words=len(columns), unbroken=("started",))
