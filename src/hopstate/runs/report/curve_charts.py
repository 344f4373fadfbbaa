"""Charts of one evaluation as SVG: Hits@k over k, and reliability of probabilities with how many there are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from hopstate.runs.report import charts
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


__all__ = ["Bins", "ranking_chart", "reliability_chart"]
