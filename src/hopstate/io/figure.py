"""Drawing to a file, without a screen and without leaving half a file."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from hopstate.errors import FormatError
from hopstate.io.files import replace_file

if TYPE_CHECKING:
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


def check_figure_path(path: str | Path) -> str:
    """Return the kind of figure that a file name asks for.

    Raises:
        FormatError: none that can be drawn.
    """
    kind = Path(path).suffix.lstrip(".").lower()
    if kind not in KINDS:
        raise FormatError(f"figures are drawn as .png, .pdf or .svg, not as {Path(path).name!r}")
    return kind
