"""What lies behind one figure: Hits@k over k beside other methods, and whether probabilities are what they say."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from hopstate.evaluation.summaries import WAYS
from hopstate.runs.report import charts, choice
from hopstate.runs.report.collect import Group
from hopstate.runs.report.page import Page
from hopstate.runs.report.sections import by_data
from hopstate.runs.report.style import LIGHT

if TYPE_CHECKING:
    from matplotlib.axes import Axes


SQUARE = 300  # height of a reliability chart
MARKS = ("o", "s", "^", "D")


@dataclass(frozen=True)
class Bins:
    """Reliability of probabilities.

    Args:
        series: number of their colour.
        points: (mean probability, share of outcomes, count) of each bin that holds any.
    """

    series: int
    points: Sequence[tuple[float, float, float]]


def ranking_chart(title: str, about: str, lines: Sequence[charts.Line], most: int) -> charts.Chart:
    """Return shares of answers among the first k, in percent, over k on a logarithmic axis to most."""

    def paint(axes: Axes) -> None:
        for line in lines:
            x, y = zip(*line.points, strict=True)
            axes.plot(x, y, color=charts.colour(line.series), linestyle=charts.dash(line.series), clip_on=False)
            axes.plot(x, y, color=charts.colour(line.series), marker="o", markersize=3.5, linestyle="", clip_on=False)
        axes.set_xscale("log")
        places = [k for k in (1, 3, 10, 30, 100) if k <= most]
        axes.set_xticks(places, [str(k) for k in places])
        axes.minorticks_off()
        axes.set(xlim=(0.95, most * 1.05), ylim=(0, 100))
        axes.yaxis.set_major_formatter(lambda value, _: f"{value:g}%")
        charts.frame(axes, "k", "answers among the first k")

    return charts.Chart(title, about, charts.drawn(paint, charts.HEIGHT))


def reliability_chart(title: str, about: str, found: Sequence[Bins]) -> charts.Chart:
    """Return shares of outcomes over probabilities beside the diagonal; bars at the foot say how many there are."""
    most = max((count for bins in found for _, _, count in bins.points), default=1.0)

    def paint(axes: Axes) -> None:
        axes.plot((0, 1), (0, 1), color=LIGHT["quiet"], linestyle=(0, (2, 3)), linewidth=1.25, clip_on=False)
        for i, bins in enumerate(found):
            x, y, count = zip(*bins.points, strict=True)
            shift = (i - (len(found) - 1) / 2) * 0.022
            heights = [0.2 * c / most for c in count]
            ink, mark = charts.colour(bins.series), MARKS[bins.series % len(MARKS)]
            axes.bar([v + shift for v in x], heights, width=0.02, color=ink, alpha=0.35, clip_on=False)
            axes.plot(x, y, color=ink, linestyle=charts.dash(bins.series), clip_on=False)
            axes.plot(x, y, color=ink, marker=mark, markersize=5, linestyle="", clip_on=False)
        axes.set(xlim=(-0.03, 1.03), ylim=(0, 1.02))
        axes.xaxis.set_major_formatter(lambda value, _: f"{100 * value:g}%")
        axes.yaxis.set_major_formatter(lambda value, _: f"{100 * value:g}%")
        charts.frame(axes, "probability", "share that came true")

    return charts.Chart(title, about, charts.drawn(paint, SQUARE), SQUARE)


BINS = 15  # of equal width, as runs keep them
MOST = 8  # groups whose reliability is drawn; all of them stand in the table

Kept = dict[str, Any]


def rankings(page: Page, groups: Sequence[Group]) -> None:
    """Add Hits@k over k, a line a group: the mean over its runs."""
    drawn = {data: _ranked(members) for data, members in by_data(groups).items()}
    if not any(drawn.values()):
        return
    page.section(
        "Ranking curves",
        "Share of the test split's answers that stand among the first k (Hits@k), over k: the mean over runs, the "
        "higher the better. What k an application can use is its own choice.",
    )
    for data, found in drawn.items():
        for of, lines in found.items():
            page.subsection(f"{data}: among {of}")
            names, series = list(lines), list(lines.values())
            most = max(k for points in series for k in points)
            told = "; ".join(f"{name}: {_told(points)}" for name, points in lines.items())
            drawing = [charts.Line(i, sorted(points.items())) for i, points in enumerate(series)]
            page.figures([ranking_chart(f"Hits@k on {data}", f"{told}.", drawing, most)])
            page.key(names)
            places = sorted({k for points in series for k in points})
            rows = [[name, *(f"{v[k]:.2f}" if k in v else "" for k in places)] for name, v in lines.items()]
            page.table(f"Hits@k on {data}, in percent, among {of}", ["method", *(f"@{k}" for k in places)], rows)


def _ranked(groups: Sequence[Group]) -> dict[str, dict[str, dict[int, float]]]:
    found: dict[str, dict[str, dict[int, list[float]]]] = {}
    for group in groups:
        for run in group.runs:
            for one in run.curves.get("ranking", []):
                own = found.setdefault(one["of"], {}).setdefault(group.label, {})
                for k, share in zip(one["k"], one["hits"], strict=True):
                    own.setdefault(int(k), []).append(100 * share)
    means = {of: {n: {k: sum(v) / len(v) for k, v in p.items()} for n, p in own.items()} for of, own in found.items()}
    return {of: {name: points for name, points in own.items() if points} for of, own in means.items()}


def _told(points: dict[int, float]) -> str:
    return ", ".join(f"{value:.1f}% in the first {k}" for k, value in sorted(points.items()) if k in (1, 10, 100))


def reliability(page: Page, groups: Sequence[Group]) -> None:
    """Add reliability diagrams, one a group, with counts and expected calibration errors."""
    drawn = [group for group in groups if any(run.curves.get("reliability") for run in group.runs)]
    if not drawn:
        return
    page.section(
        "Calibration",
        "How often what was given a probability came true, on the test split, in 15 bins of equal width; on the dotted "
        "diagonal it came true as often as was said. Bars at the foot say how many there are. ECE is the mean distance "
        "from the diagonal, by counts. Calibrated on validation is what hopstate score gives.",
    )
    for data, members in by_data(drawn).items():
        page.subsection(data)
        rows, made, last = [], [], 0
        for group in _first(members):
            for of, ways in _pooled(group).items():
                for how, (_, ece, count) in ways.items():
                    rows.append([group.label, of, how, f"{100 * ece:.2f}", f"{count:,.0f}"])
                bins = [Bins(_series(how), points) for how, (points, _, _) in ways.items()]
                last = max(last, *(one.series for one in bins))
                told = "; ".join(f"{how}: ECE {100 * ece:.2f} of {n:,.0f}" for how, (_, ece, n) in ways.items())
                made.append(reliability_chart(f"{group.label}, {of}", f"{told}.", bins))
        page.figures(made[:MOST])
        page.key([*WAYS, "otherwise"][: last + 1])
        page.table(
            f"Calibration on {data}", ["method", "of", "probabilities", "ECE in percent", "count"], rows, words=3
        )


def _series(how: str) -> int:
    return WAYS.index(how) if how in WAYS else len(WAYS)


def _first(groups: Sequence[Group]) -> list[Group]:
    order = [group.label for group in choice.ranked(groups, next((g.metric for g in groups if g.metric), ""))]
    return sorted(groups, key=lambda group: order.index(group.label) if group.label in order else len(order))


def _pooled(group: Group) -> dict[str, dict[str, tuple[list[tuple[float, float, float]], float, float]]]:
    """Return what is predicted → where probabilities come from → (bins of all runs together, mean ECE, count)."""
    parts: dict[str, dict[str, list[Kept]]] = {}
    for run in group.runs:
        for one in run.curves.get("reliability", []):
            if one["count"]:
                parts.setdefault(one["of"], {}).setdefault(one["how"], []).append(one)
    found: dict[str, dict[str, tuple[list[tuple[float, float, float]], float, float]]] = {}
    for of, ways in parts.items():
        for how, kept in ways.items():
            points = _together(kept)
            ece = sum(one["ece"] for one in kept) / len(kept)
            found.setdefault(of, {})[how] = points, ece, sum(count for _, _, count in points)
    return found


def _together(kept: Sequence[Kept]) -> list[tuple[float, float, float]]:
    """Return (mean probability, share, count) of each bin over several runs."""
    sums: dict[int, list[float]] = {}
    for one in kept:
        for p, share, count in zip(one["probability"], one["share"], one["count"], strict=True):
            own = sums.setdefault(min(int(p * BINS), BINS - 1), [0.0, 0.0, 0.0])
            for i, value in enumerate((p * count, share * count, count)):
                own[i] += value
    return [(p / n, share / n, n) for _, (p, share, n) in sorted(sums.items()) if n]
