"""Charts as inline SVG: lines over epochs, bars with whiskers, stems over time.

Drawn 400 units wide, so that their text can be read on a telephone; colours come from the style sheet.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from hopstate.runs.report.page import Page, text
from hopstate.runs.report.style import DASHES, SERIES

WIDTH, HEIGHT = 400, 240
LEFT, RIGHT, TOP, BOTTOM = 60, 12, 10, 38
MOST_POINTS = 400


@dataclass(frozen=True)
class Line:
    """A line of a chart: number of its colour, points (x, y)."""

    series: int
    points: Sequence[tuple[float, float]]


@dataclass(frozen=True)
class Bar:
    """A bar: name, value, half the length of its whisker or None, and what stands beside it."""

    name: str
    value: float
    spread: float | None
    note: str


@dataclass(frozen=True)
class Axes:
    """Data ranges of a chart, and where they lie on it; a whole x counts something."""

    x: tuple[float, float]
    y: tuple[float, float]
    whole: bool = False

    def across(self, value: float) -> float:
        """Return the horizontal place of x."""
        return LEFT + (value - self.x[0]) / (self.x[1] - self.x[0]) * (WIDTH - LEFT - RIGHT)

    def down(self, value: float) -> float:
        """Return the vertical place of y."""
        return HEIGHT - BOTTOM - (value - self.y[0]) / (self.y[1] - self.y[0]) * (HEIGHT - TOP - BOTTOM)

    def draw(self, x_label: str, y_label: str) -> str:
        """Return grid, ticks and labels."""
        parts = []
        for value in ticks(*self.y):
            at = self.down(value)
            parts.append(f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{at:.1f}" y2="{at:.1f}"/>')
            parts.append(f'<text x="{LEFT - 5}" y="{at + 4:.1f}" text-anchor="end">{number(value)}</text>')
        base = HEIGHT - BOTTOM
        for value in ticks(*self.x, whole=self.whole):
            at = self.across(value)
            parts.append(f'<line class="axis" x1="{at:.1f}" x2="{at:.1f}" y1="{base}" y2="{base + 4}"/>')
            parts.append(f'<text x="{at:.1f}" y="{base + 16}" text-anchor="middle">{number(value)}</text>')
        parts.append(f'<line class="axis" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{base}" y2="{base}"/>')
        middle = (LEFT + WIDTH - RIGHT) / 2
        parts.append(f'<text x="{middle}" y="{HEIGHT - 5}" text-anchor="middle">{text(x_label)}</text>')
        up = (TOP + base) / 2
        parts.append(f'<text transform="translate(11 {up}) rotate(-90)" text-anchor="middle">{text(y_label)}</text>')
        return "".join(parts)


def line_chart(page: Page, title: str, about: str, lines: Sequence[Line], x_label: str, y_label: str) -> str:
    """Return a figure of lines over whole numbers x; about says in words what it shows."""
    every = [point for line in lines for point in line.points]
    axes = Axes(padded([x for x, _ in every], 0), padded([y for _, y in every], 0.05), whole=True)
    drawn = [axes.draw(x_label, y_label)]
    for line in lines:
        place = " ".join(f"{axes.across(x):.1f},{axes.down(y):.1f}" for x, y in thinned(line.points))
        if len(line.points) == 1:
            x, y = line.points[0]
            drawn.append(
                f'<circle class="f{line.series % SERIES}" cx="{axes.across(x):.1f}" cy="{axes.down(y):.1f}" r="3"/>'
            )
        else:
            drawn.append(f'<polyline class="line {stroke(line.series)}" {dash(line.series)} points="{place}"/>')
    return figure(page, title, about, "".join(drawn), HEIGHT)


def bar_chart(page: Page, title: str, about: str, bars: Sequence[Bar]) -> str:
    """Return a figure of horizontal bars with whiskers; values stand beside them."""
    values = [end for bar in bars for end in (bar.value - (bar.spread or 0), bar.value + (bar.spread or 0))]
    low, high = min(values), max(values)
    start = 0.0 if low <= 0 or low < 0.5 * high else low - 0.25 * max(high - low, 0.02 * abs(high))
    span = max(high - start, 1e-12)
    right = WIDTH - 128
    drawn, top = [], 4
    for bar in bars:
        end = 6 + (bar.value - start) / span * (right - 6)
        drawn.append(f'<text x="6" y="{top + 11}">{text(shortened(bar.name, 56))}</text>')
        drawn.append(f'<rect class="f0" x="6" y="{top + 16}" width="{max(end - 6, 1):.1f}" height="13"/>')
        if bar.spread is not None:
            half = bar.spread / span * (right - 6)
            level = f'y1="{top + 22.5}" y2="{top + 22.5}"'
            drawn.append(f'<line class="whisker" x1="{end - half:.1f}" x2="{end + half:.1f}" {level}/>')
        at = end + (0 if bar.spread is None else bar.spread / span * (right - 6)) + 6
        drawn.append(f'<text x="{at:.1f}" y="{top + 27}">{text(bar.note)}</text>')
        top += 38
    where = "" if start == 0 else f"; bars begin at {number(start, 3)}, not at 0"
    return figure(page, title + where, about, "".join(drawn), top)


def stem_chart(
    page: Page,
    title: str,
    about: str,
    stems: Sequence[tuple[int, float, float]],
    query: float | None,
    labels: tuple[str, str],
) -> str:
    """Return a figure of stems (series, x, y) from zero; a dotted line marks the query."""
    xs = [x for _, x, _ in stems] + ([] if query is None else [query])
    axes = Axes(padded(xs, 0.02), padded([y for *_, y in stems] + [0.0], 0.08))
    zero = axes.down(0)
    drawn = [
        axes.draw(*labels),
        f'<line class="axis" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{zero:.1f}" y2="{zero:.1f}"/>',
    ]
    for series, x, y in stems:
        across, down = axes.across(x), axes.down(y)
        drawn.append(
            f'<line class="line s{series}" x1="{across:.1f}" x2="{across:.1f}" y1="{zero:.1f}" y2="{down:.1f}"/>'
        )
        mark = (
            f'<circle class="f{series}" cx="{across:.1f}" cy="{down:.1f}" r="3"/>'
            if series == 0
            else f'<rect class="f{series}" x="{across - 3:.1f}" y="{down - 3:.1f}" width="6" height="6"/>'
        )
        drawn.append(mark)
    if query is not None:
        at = axes.across(query)
        drawn.append(f'<line class="query" x1="{at:.1f}" x2="{at:.1f}" y1="{TOP}" y2="{HEIGHT - BOTTOM}"/>')
    return figure(page, title, about, "".join(drawn), HEIGHT)


def figure(page: Page, title: str, about: str, drawn: str, height: float) -> str:
    """Return an SVG in a figure, with its name and description for those who do not see it."""
    name, words = page.new_id("chart"), page.new_id("about")
    return (
        f'<figure><figcaption>{text(title)}</figcaption><svg viewBox="0 0 {WIDTH} {height:g}" role="img" '
        f'aria-labelledby="{name} {words}"><title id="{name}">{text(title)}</title>'
        f'<desc id="{words}">{text(about)}</desc>{drawn}</svg></figure>'
    )


def key(names: Sequence[str]) -> str:
    """Return the key to the lines of charts."""
    items = "".join(
        f'<li><svg viewBox="0 0 30 12" aria-hidden="true"><line class="line {stroke(i)}" {dash(i)} '
        f'x1="1" x2="29" y1="6" y2="6"/></svg>{text(name)}</li>'
        for i, name in enumerate(names)
    )
    return f'<ul class="key">{items}</ul>'


def stroke(series: int) -> str:
    """Return the class of a series' colour."""
    return f"s{series % SERIES}"


def dash(series: int) -> str:
    """Return the dashes of a series."""
    return f'stroke-dasharray="{DASHES[series % len(DASHES)]}"'


def thinned(points: Sequence[tuple[float, float]]) -> Sequence[tuple[float, float]]:
    """Return at most about MOST_POINTS of the points, the last among them."""
    step = max(1, len(points) // MOST_POINTS)
    return [*points[:-1:step], points[-1]]


def padded(values: Sequence[float], share: float) -> tuple[float, float]:
    """Return a range with room around values; never empty."""
    low, high = min(values), max(values)
    room = share * (high - low) if high > low else max(abs(high), 1.0) * 0.5
    return low - room, high + room


def ticks(low: float, high: float, wanted: int = 5, *, whole: bool = False) -> list[float]:
    """Return round numbers within a range, about so many as wanted; whole ones if asked."""
    raw = (high - low) / wanted
    unit = 10.0 ** math.floor(math.log10(raw))
    step = max(next(factor * unit for factor in (1, 2, 5, 10) if factor * unit >= raw), 1.0 if whole else 0.0)
    first = math.ceil(low / step - 1e-9)
    return [round(i * step, 12) for i in range(first, math.floor(high / step + 1e-9) + 1)]


def number(value: float, digits: int = 4) -> str:
    """Return a number for people, with so many significant digits and no exponent where it can be avoided."""
    if value == 0:
        return "0"
    if 1e4 <= abs(value) < 1e6:
        return f"{value:,.0f}"
    return f"{value:.{digits}g}"


def shortened(words: str, most: int) -> str:
    """Return words cut to most characters."""
    return words if len(words) <= most else f"{words[: most - 1]}…"
