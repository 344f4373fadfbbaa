"""What a reader wants first: which method, how good, above which floor, at what cost; in words and in one chart.

The best is what validation puts first; the test figure beside it is what is measured of it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from hopstate.runs.report import charts, choice
from hopstate.runs.report.collect import Group
from hopstate.runs.report.page import Page
from hopstate.runs.reproduce import tables
from hopstate.runs.reproduce.statistics import Summary, summary

MOST_BARS = 8


def verdict(page: Page, groups: Sequence[Group]) -> None:
    """Add a sentence and a chart for each data set and metric."""
    sets: dict[tuple[str, str], list[Group]] = {}
    for group in groups:
        if group.values(group.metric):
            sets.setdefault((group.data, group.metric), []).append(group)
    if not sets:
        return
    page.section("Verdict")
    for (data, metric), members in sets.items():
        page.subsection(data)
        floors = floors_of(members, metric)
        waiting = sum(not run.result for group in groups if group.data == data for run in group.runs)
        page.verdict(f"{told(metric, members, floors)} {_waiting(waiting)}".strip())
        bars = _bars(metric, members, floors)
        if len(bars) > 1:
            shown = bars[:MOST_BARS] + [bar for bar in bars[MOST_BARS:] if bar.kind == "floor"]
            words = tables.metric_words(metric, next((p for group in members if (p := group.positive)), None))
            left = "" if len(shown) == len(bars) else f" {len(bars) - len(shown)} more are in the table below."
            about = "; ".join(f"{bar.name}: {bar.note}" for bar in shown) + f".{left}"
            page.figures([charts.bar_chart(f"{words} on the test split, from 0", about, shown)])
            said = [choice.WORDS] if any(bar.kind == "best" for bar in shown) else []
            said += ["Whiskers are 95% confidence intervals."] if any(bar.limits for bar in shown) else []
            said += ["Dashed bars are floors."] if any(bar.kind == "floor" for bar in shown) else []
            if said or left:
                page.paragraph(" ".join(said) + left)


def floors_of(groups: Sequence[Group], metric: str) -> dict[str, list[float]]:
    """Return the values of what runs must stand above, by name, of those that are no methods of these groups."""
    found: dict[str, list[float]] = {}
    for run in (run for group in groups if group.metric == metric for run in group.runs):
        for name, values in run.floors.items():
            value = values.get(metric)
            if value is not None and name not in {group.method for group in groups}:
                found.setdefault(tables.floor_words(name), []).append(float(value))
    return found


def interval(group: Group, metric: str) -> tuple[float, float] | None:
    """Return the 95% interval of a test metric: of the mean over runs, or a single run's bootstrap where it has one."""
    found = summary(group.values(metric))
    limits = None if found is None else found.interval()
    if limits is None:
        low, high = group.values(f"{metric}_low"), group.values(f"{metric}_high")
        limits = (low[0], high[0]) if low and high else None
    if limits is None and found is not None and found.runs == 1:  # what a run keeps though nobody asked for it
        kept = (run.curves.get("intervals", {}).get(metric) for run in group.runs)
        limits = next(((own[0], own[1]) for own in kept if own), None)
    return limits


def told(metric: str, groups: Sequence[Group], floors: dict[str, list[float]]) -> str:
    """Return the verdict in words.

    Args:
        metric: that chose the models.
        groups: finished runs on the same data.
        floors: values of what they must stand above, from the runs.
    """
    rivals, ranked = choice.rivals(groups), choice.ranked(groups, metric)
    if not ranked and len(rivals) > 1:
        return "No run has a validation figure, so that none is called best: choosing by test would be no measurement."
    best = (ranked or rivals)[0]
    found = _of(best, metric)
    said = [_beginning(metric, best, several=len(groups) > 1 and bool(ranked))]
    said[0] += tables.figure(metric, found.mean, found.std) + _limits(metric, interval(best, metric))
    events = told_from(groups, metric)
    said[0] += "." if events is None else f" of {events:,} events."
    said.append(tables.few_words(events, "test figures"))
    said.append(tables.own_event_words(best.runs[0].metrics.get("test", {})))
    said.append(_above(metric, found.mean, _floor(metric, groups, rivals, floors)))
    said.append(_cost(best))
    if len(ranked) > 1:
        said.append(_next(metric, ranked[1], found))
        said.append(_higher(metric, best, rivals))
    elif found.runs == 1:
        said.append("One run: how far chance moves it was not measured.")
    return " ".join(filter(None, said))


def told_from(groups: Sequence[Group], metric: str) -> int | None:
    """Return how many test events a metric of links is told from; None where no run says."""
    counts = (tables.told_from(metric, run.metrics.get("test", {})) for group in groups for run in group.runs)
    return next((count for count in counts if count is not None), None)


def _beginning(metric: str, best: Group, *, several: bool) -> str:
    """Return the words before the test figure of the best: what validation said of it, where it chose."""
    words = tables.metric_words(metric, best.positive)
    val = summary(best.values(metric, "val"))
    if not several or val is None:
        return f"{best.label} reached: test {words} "
    return f"{best.label} is best by validation ({tables.figure(metric, val.mean, val.std)}): test {words} "


def _next(metric: str, group: Group, found: Summary) -> str:
    """Return how far the second by validation is from the best, on test."""
    other = _of(group, metric)
    ahead = tables.rank(metric, other.mean) < tables.rank(metric, found.mean)
    by = _points(metric, found.mean - other.mean)
    return f"Next is {group.label}, on test {by} {'ahead' if ahead else 'behind'}{_doubt(found, other)}."


def _higher(metric: str, best: Group, rivals: Sequence[Group]) -> str:
    first = min(rivals, key=lambda group: tables.rank(metric, _of(group, metric).mean))
    if tables.rank(metric, _of(first, metric).mean) >= tables.rank(metric, _of(best, metric).mean):
        return ""
    shown = tables.figure(metric, _of(first, metric).mean, None)
    return f"The best test figure is that of {first.label} ({shown}); validation did not choose it."


def _waiting(count: int) -> str:
    return f"{count} {'run was' if count == 1 else 'runs were'} not finished." if count else ""


def _of(group: Group, metric: str) -> Summary:
    found = summary(group.values(metric))
    assert found is not None
    return found


def _limits(metric: str, limits: tuple[float, float] | None) -> str:
    if limits is None:
        return ""
    return f" (95% interval {' to '.join(tables.figure(metric, end, None) for end in limits)})"


def _floor(
    metric: str, groups: Sequence[Group], rivals: Sequence[Group], floors: dict[str, list[float]]
) -> tuple[str, float] | None:
    found = [(name, sum(values) / len(values)) for name, values in floors.items()]
    found += [(group.label, _of(group, metric).mean) for group in groups if group not in rivals]
    return min(found, key=lambda one: tables.rank(metric, one[1]), default=None)


def _above(metric: str, mean: float, floor: tuple[str, float] | None) -> str:
    if floor is None:
        return ""
    name, value = floor
    shown = tables.figure(metric, value, None)
    if tables.rank(metric, mean) < tables.rank(metric, value):
        return f"That is {_points(metric, mean - value)} better than the best floor, {name} ({shown})."
    return f"It does not stand above the floor {name} ({shown})."


def _points(metric: str, difference: float) -> str:
    shown = tables.figure(metric, abs(difference), None)
    return shown if tables.is_error(metric) else f"{shown} points"


def _doubt(one: Summary, other: Summary) -> str:
    """Return whether two means are too near to call: their difference is under twice its standard error."""
    if one.std is None or other.std is None:
        return "; single runs, so chance was not measured"
    error = math.sqrt(one.std**2 / one.runs + other.std**2 / other.runs)
    return ", too near to call" if abs(one.mean - other.mean) < 2 * error else ""


def _cost(group: Group) -> str:
    seconds, memory = group.numbers("seconds"), group.numbers("peak_memory_mb")
    if not seconds or not sum(seconds):
        return ""
    words = f"Training took {tables.seconds(sum(seconds) / len(seconds))}"
    return f"{words} and {tables.megabytes(sum(memory) / len(memory))}." if memory else f"{words}."


def _bars(metric: str, groups: Sequence[Group], floors: dict[str, list[float]]) -> list[charts.Bar]:
    """Return bars, highest test figure first: validation's best and the floors are marked, cost is beside the name."""
    rivals, best = choice.rivals(groups), choice.chosen(groups, metric)
    found: list[tuple[float, charts.Bar]] = []
    for group in groups:
        one, limits, seconds = _of(group, metric), interval(group, metric), group.numbers("seconds")
        ends = None if limits is None else (tables.scaled(metric, limits[0]), tables.scaled(metric, limits[1]))
        cost = tables.seconds(sum(seconds) / len(seconds)) if seconds and sum(seconds) else ""
        kind = "" if group in rivals else "floor"
        note = tables.figure(metric, one.mean, one.std)
        bar = charts.Bar(group.label, tables.scaled(metric, one.mean), None, note, kind, cost, ends)
        found.append((tables.rank(metric, one.mean), bar))
    for name, values in floors.items():
        mean = sum(values) / len(values)
        note = tables.figure(metric, mean, None)
        found.append((tables.rank(metric, mean), charts.Bar(name, tables.scaled(metric, mean), None, note, "floor")))
    bars = [bar for _, bar in sorted(found, key=lambda each: each[0])]
    return charts.with_best(bars, None if best is None else best.label)
