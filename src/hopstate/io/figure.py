"""Drawing to a file, without a screen and without leaving half a file."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from hopstate.errors import FormatError
from hopstate.io.files import replace_file

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

KINDS = ("png", "pdf", "svg")


def draw_figure(path: str | Path, size: tuple[float, float], paint: Callable[[Figure], None]) -> None:
    """Write a figure of size inches, painted by paint, as .png, .pdf or .svg.

    Raises:
        FormatError: another extension.
        StorageError: the file could not be written; an earlier one is as it was.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    path = Path(path)
    kind = check_figure_path(path)
    figure = Figure(figsize=size, layout="constrained")
    FigureCanvasAgg(figure)
    paint(figure)
    replace_file(path, lambda part: figure.savefig(part, format=kind, dpi=120))


def plain_numbers(axes: Axes, which: Literal["x", "y"] = "x", *, most: int = 5, whole: bool = False) -> None:
    """Write the numbers of a linear axis out, with commas and without a power of ten beside them.

    At most so many are written, fewer where they are long, whole ones alone if asked; what is drawn must stand.
    """
    from matplotlib.ticker import MaxNLocator

    axis = axes.xaxis if which == "x" else axes.yaxis
    if which == "x":
        digits = len(f"{max(map(abs, axis.get_view_interval())):,.0f}")
        most = max(1, min(most, 48 // digits))
    axis.set_major_locator(MaxNLocator(nbins=most, steps=[1, 2, 2.5, 5, 10], min_n_ticks=2, integer=whole))
    axis.set_major_formatter(lambda value, _: f"{value:,.0f}" if abs(value) >= 1_000 else f"{value:g}")


def few_dates(axes: Axes, *, most: int = 6) -> None:
    """Write at most so many dates at the x axis, which has them, so that they do not run into each other."""
    from matplotlib.dates import AutoDateLocator

    axes.xaxis.set_major_locator(AutoDateLocator(minticks=2, maxticks=most))


def apart(axes: Axes, labels: Sequence[tuple[float, float, str]]) -> None:
    """Write labels (x, y, text) beside points, the most important first; those with no free place are left out.

    Limits and scales of the axes must stand. Sizes are those of the usual type, 6 by 11 points a letter.
    """
    taken: list[tuple[float, float, float, float]] = []
    points = 72 / axes.get_figure(root=True).dpi  # type: ignore[union-attr]
    low, high = axes.get_window_extent().get_points() * points
    for x, y, text in labels:
        at, width = axes.transData.transform((x, y)) * points, 6.5 * len(text)
        for right, up in ((True, True), (True, False), (False, True), (False, False)):
            left = at[0] + 4 if right else at[0] - 4 - width
            base = at[1] + 3 if up else at[1] - 14
            box = (left, base, left + width, base + 11)
            inside = left >= low[0] and box[2] <= high[0] and base >= low[1] and box[3] <= high[1]
            if inside and not any(_meet(box, other) for other in taken):
                taken.append(box)
                shift = (left - at[0], base - at[1])
                axes.annotate(text, (x, y), textcoords="offset points", xytext=shift, ha="left", va="bottom")
                break


def _meet(one: tuple[float, ...], other: tuple[float, ...]) -> bool:
    return one[0] < other[2] and other[0] < one[2] and one[1] < other[3] and other[1] < one[3]


def check_figure_path(path: str | Path) -> str:
    """Return the kind of figure that a file name asks for.

    Raises:
        FormatError: none that can be drawn.
    """
    kind = Path(path).suffix.lstrip(".").lower()
    if kind not in KINDS:
        raise FormatError(f"figures are drawn as .png, .pdf or .svg, not as {Path(path).name!r}")
    return kind
