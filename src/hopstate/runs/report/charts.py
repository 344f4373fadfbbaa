"""Charts as SVG drawn by matplotlib: lines over epochs, bars with whiskers, stems over time.

They are 400 units wide, so that their text can be read on a telephone. Colours are those of the style sheet by name, so
that one drawing serves light, dark and paper; texts stay texts, read as they are written.
"""

from __future__ import annotations

import io
import re
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from markupsafe import Markup

from hopstate.runs.report.style import DASHES, LIGHT, SERIES

if TYPE_CHECKING:
    from matplotlib.axes import Axes

WIDTH, HEIGHT = 400, 240
FAR = 10  # times as long as the shortest line, beyond which epochs stand on a logarithmic axis
MOST_POINTS = 400
_UNIT = 1 / 72  # inches
_STYLE = {
    "svg.fonttype": "none",
    "svg.hashsalt": "hopstate",
    "text.parse_math": False,
    "axes.unicode_minus": False,
    "font.size": 12,
    "font.family": "sans-serif",
    "text.color": LIGHT["text"],
    "axes.labelcolor": LIGHT["text"],
    "xtick.labelcolor": LIGHT["text"],
    "ytick.labelcolor": LIGHT["text"],
    "axes.edgecolor": LIGHT["quiet"],
    "grid.color": LIGHT["rule"],
    "grid.linewidth": 0.75,
    "axes.linewidth": 1,
    "lines.linewidth": 1.75,
}


@dataclass(frozen=True)
class Line:
    """A line of a chart.

    Args:
        series: number of its colour.
        points: (x, y).
        band: (x, low, high) of an interval around it, or nothing.
    """

    series: int
    points: Sequence[tuple[float, float]]
    band: Sequence[tuple[float, float, float]] = ()


@dataclass(frozen=True)
class Bar:
    """A bar.

    Args:
        name: above it.
        value: its length.
        spread: half the length of its whisker, or None.
        note: beside it.
        kind: "best" and "floor" are marked.
        cost: what it took, at the right above it.
        limits: ends of its whisker where they are no spread.
    """

    name: str
    value: float
    spread: float | None
    note: str
    kind: str = ""
    cost: str = ""
    limits: tuple[float, float] | None = None

    @property
    def ends(self) -> tuple[float, float]:
        """Where its whisker begins and ends."""
        return self.limits or (self.value - (self.spread or 0), self.value + (self.spread or 0))


def with_best(bars: Sequence[Bar], name: str | None) -> list[Bar]:
    return [replace(bar, kind="best") if bar.name == name and len(bars) > 1 else bar for bar in bars]


@dataclass(frozen=True)
class Chart:
    """A drawing with its title and what it shows in words."""

    title: str
    about: str
    svg: Markup
    height: int = HEIGHT


def line_chart(title: str, about: str, lines: Sequence[Line], x_label: str, y_label: str) -> Chart:
    """Return lines over whole numbers x; about says in words what they show.

    Lines of which one is FAR times as long as another stand on a logarithmic axis, where the short ones can be seen.
    """
    lengths = [max(x for x, *_ in line.points) for line in lines if len(line.points) > 1]
    far = bool(lengths) and max(lengths) >= FAR * min(lengths) and min(x for n in lines for x, *_ in n.points) > 0

    def paint(axes: Axes) -> None:
        from matplotlib.ticker import MaxNLocator

        for line in lines:
            if line.band:
                x, low, high = zip(*line.band, strict=True)
                axes.fill_between(x, low, high, color=colour(line.series), alpha=0.18, linewidth=0, clip_on=False)
            x, y = zip(*thinned(line.points), strict=True)
            axes.plot(x, y, color=colour(line.series), linestyle=dash(line.series), clip_on=False)
            if len(x) == 1:
                axes.plot(x, y, color=colour(line.series), marker="o", markersize=5, clip_on=False)
        if far:
            axes.set_xscale("log")
            places = [k for k in (1, 3, 10, 30, 100, 300, 1000, 3000, 10_000) if k <= max(lengths)]
            axes.set_xticks(places, [str(k) for k in places])
            axes.minorticks_off()
        else:
            axes.xaxis.set_major_locator(MaxNLocator(nbins=6, integer=True))
        axes.margins(x=0.01, y=0.05)
        frame(axes, x_label, y_label)

    return Chart(title, about, drawn(paint, HEIGHT))


def bar_chart(title: str, about: str, bars: Sequence[Bar]) -> Chart:
    """Return horizontal bars from 0 with whiskers; names stand above them, values beside them."""
    ends = [end for bar in bars for end in (bar.value, *bar.ends)]
    low, high = min(0.0, *ends), max(0.0, *ends)
    span = (high - low) or 1.0

    def paint(axes: Axes) -> None:
        for i, bar in enumerate(bars):
            kind = {"best": LIGHT["series-2"], "floor": LIGHT["series-7"]}.get(bar.kind, LIGHT["series-0"])
            (shape,) = axes.barh(i, bar.value, height=0.36, color=kind, edgecolor=kind, clip_on=False)
            if bar.kind == "floor":
                shape.set(fill=False, linestyle="--")
            if bar.spread is not None or bar.limits is not None:
                axes.plot(bar.ends, (i, i), color=LIGHT["text"], linewidth=1.5, clip_on=False)
            mark = f" ({bar.kind})" if bar.kind else ""
            weight = "bold" if bar.kind == "best" else "normal"
            room = 48 - len(mark) - (len(bar.cost) + 3 if bar.cost else 0)
            name = plain(shortened(bar.name, room) + mark)
            axes.text(low + 0.006 * span, i - 0.27, name, ha="left", va="bottom", weight=weight, clip_on=False)
            edge = low + span * WIDTH / (WIDTH - 128)
            axes.text(edge, i - 0.27, plain(bar.cost), ha="right", va="bottom", color=LIGHT["quiet"], clip_on=False)
            end = max(bar.value, *bar.ends, 0.0)
            axes.text(end + 0.015 * span, i, plain(bar.note), ha="left", va="center", clip_on=False)
        axes.axvline(0, color=LIGHT["quiet"], linewidth=1, clip_on=False)
        axes.set(xlim=(low, low + span * WIDTH / (WIDTH - 128)), ylim=(len(bars) - 0.6, -0.75))
        axes.set_axis_off()

    height = 10 + 42 * len(bars)
    return Chart(title, about, drawn(paint, height), height)


def stem_chart(
    title: str,
    about: str,
    stems: Sequence[tuple[int, float, float]],
    query: float | None,
    labels: tuple[str, str],
    *,
    dated: bool = False,
) -> Chart:
    """Return stems (series, x, y) from zero; a dotted line marks the query. Where dated, x is seconds since 1970."""

    def paint(axes: Axes) -> None:
        for series, x, y in stems:
            mark = "o" if series == 0 else "s"
            axes.plot((x, x), (0, y), color=colour(series), clip_on=False)
            axes.plot(x, y, color=colour(series), marker=mark, markersize=6, clip_on=False)
        axes.axhline(0, color=LIGHT["quiet"], linewidth=1, clip_on=False)
        if query is not None:
            axes.axvline(query, color=LIGHT["quiet"], linewidth=1.25, linestyle=(0, (2, 3)), clip_on=False)
        axes.margins(x=0.02, y=0.08)
        axes.locator_params(axis="x", nbins=4)
        frame(axes, *labels)
        if dated:
            _dates(axes)
        elif max(abs(end) for end in axes.get_xlim()) >= 1e6:
            axes.xaxis.set_major_formatter(lambda x, _: f"{x:,.0f}")

    return Chart(title, about, drawn(paint, HEIGHT))


def _dates(axes: Axes) -> None:
    """Write dates at an axis of seconds since 1970: days, or hours and minutes where all lie within two days."""
    first, last = axes.get_xlim()
    form = "%d %b %H:%M" if last - first < 2 * 86_400 else "%d %b %Y"
    axes.locator_params(axis="x", nbins=3)
    axes.xaxis.set_major_formatter(lambda x, _: f"{datetime.fromtimestamp(x, UTC):{form}}")


def frame(axes: Axes, x_label: str, y_label: str) -> None:
    """Name the axes and draw quiet lines behind what is drawn."""
    axes.set(xlabel=plain(x_label), ylabel=plain(y_label))
    axes.grid(axis="y", clip_on=False)
    axes.set_axisbelow(True)
    axes.tick_params(length=0)
    for side in ("top", "right", "left"):
        axes.spines[side].set_visible(False)


_drawings = 0


def drawn(paint: Callable[[Axes], None], height: float) -> Markup:
    """Return what paint draws on axes as SVG for the inside of a page: no addresses, ids of its own."""
    global _drawings
    import matplotlib as mpl
    from matplotlib.backends.backend_svg import FigureCanvasSVG
    from matplotlib.figure import Figure

    with mpl.rc_context({**mpl.rcParamsDefault, **_STYLE}):
        figure = Figure(figsize=(WIDTH * _UNIT, height * _UNIT), layout="constrained", facecolor="none")
        FigureCanvasSVG(figure)
        axes = figure.add_subplot(facecolor="none")
        paint(axes)
        buffer = io.StringIO()
        nothing = dict.fromkeys(("Date", "Creator", "Format", "Type"))
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "Glyph .* missing")  # the reader's browser has other fonts
            figure.savefig(buffer, format="svg", transparent=True, metadata=nothing)
    _drawings += 1
    inside = buffer.getvalue().split("<svg", 1)[1].split(">", 1)[1].rsplit("</svg>", 1)[0]
    inside = re.sub(r"<metadata>.*?</metadata>|<!--.*?-->|<style.*?</style>", "", inside, flags=re.S)
    used = frozenset(re.findall(r'<[^>]* (?:xlink:)?href="#([^"]+)"', inside))
    return Markup(re.sub(r"<[^>]+>", lambda tag: _own(tag[0], f"d{_drawings}", used), inside).strip())


def _own(tag: str, prefix: str, used: frozenset[str]) -> str:
    """Return a tag with the page's colours and fonts, and ids with a prefix; those that nothing refers to are gone."""
    tag = re.sub(r' id="([^"]+)"', lambda m: f' id="{prefix}-{m[1]}"' if m[1] in used else "", tag)
    tag = re.sub(r'href="#', f'href="#{prefix}-', tag)
    tag = re.sub(r" font-family: [^;]*;", "", tag)
    for name, value in LIGHT.items():
        tag = tag.replace(value, f"var(--{name})")
    return tag


def colour(series: int) -> str:
    return LIGHT[f"series-{series % SERIES}"]


def dash(series: int) -> str | tuple[int, tuple[float, ...]]:
    words = DASHES[series % len(DASHES)]
    return "-" if words == "none" else (0, tuple(float(word) for word in words.split()))


def plain(words: str) -> str:
    """Return words without control characters, which no page shows."""
    return re.sub(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]", "\N{REPLACEMENT CHARACTER}", words)


def thinned(points: Sequence[tuple[float, float]]) -> Sequence[tuple[float, float]]:
    """Return at most about MOST_POINTS of the points, the last among them."""
    step = max(1, len(points) // MOST_POINTS)
    return [*points[:-1:step], points[-1]]


def number(value: float, digits: int = 4) -> str:
    """Return a number for people, with so many significant digits and no exponent where it can be avoided."""
    if value == 0:
        return "0"
    if 1e4 <= abs(value) < 1e6:
        return f"{value:,.0f}"
    return f"{value:.{digits}g}"


def shortened(words: str, most: int) -> str:
    return words if len(words) <= most else f"{words[: most - 1]}…"
