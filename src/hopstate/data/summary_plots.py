"""Two charts of a data set: activity or sizes, and degrees or classes; see `hopstate inspect --plot`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from hopstate.data.dates import drawn_times
from hopstate.data.events import EventStream
from hopstate.data.graph import Graph
from hopstate.data.graph_set import GraphSet
from hopstate.data.summary import class_counts, event_degrees
from hopstate.io.output import draw_figure, plain_numbers

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

COLOUR = "#0b62b0"  # the first color of a report
MOST_CLASSES = 24


def plot_summary(data: EventStream | Graph | GraphSet, path: str | Path) -> None:
    """Draw a data set as .png, .pdf or .svg.

    A stream's activity and degrees; a graph's degrees and classes; a set's sizes and classes.

    Raises:
        FormatError: another extension.
        StorageError: the file could not be written.
    """

    def paint(figure: Figure) -> None:
        first, second = figure.subplots(1, 2)
        if isinstance(data, EventStream):
            _plot_activity(first, data)
            _plot_degrees(second, event_degrees(data), "events of a node")
        elif isinstance(data, GraphSet):
            _plot_histogram(first, np.diff(data.offsets))
            first.set(xlabel="nodes of a graph", ylabel="graphs", title="sizes")
            _plot_labels(second, data.y, data.class_names, "graphs")
        else:
            _plot_degrees(first, data.degree, "degree")
            _plot_labels(second, data.y, data.class_names, "nodes")
        figure.suptitle(data.name)

    draw_figure(path, (10, 3.5), paint)


def _plot_activity(axes: Axes, stream: EventStream) -> None:
    if len(stream):
        edges = np.histogram_bin_edges(stream.t[[0, -1]].astype(np.float64), 80)
        counts = np.diff(np.searchsorted(stream.t, edges[1:-1]), prepend=0, append=len(stream))
        whole = edges.astype(np.int64) if stream.t.dtype.kind in "iu" else edges
        axes.stairs(counts, drawn_times(whole, stream.time_unit, stream.dates), fill=True, color=COLOUR)
    if stream.dates:
        axes.tick_params(axis="x", rotation=30)
    else:
        plain_numbers(axes)
    plain_numbers(axes, "y")
    unit = f" ({stream.time_unit})" if stream.time_unit and not stream.dates else ""
    axes.set(xlabel=f"time{unit}", ylabel="events", title="activity")


def _plot_degrees(axes: Axes, degree: np.ndarray, what: str) -> None:
    """Draw the share of nodes of at least each degree, on two logarithmic axes; a histogram if all are similar."""
    ordered = np.sort(degree[degree > 0])
    if len(ordered) and ordered[-1] >= 10 * ordered[0]:
        axes.loglog(ordered, 1 - np.arange(len(ordered)) / len(ordered), drawstyle="steps-post", color=COLOUR)
        for axis in (axes.xaxis, axes.yaxis):
            axis.set_major_formatter("{x:,g}")
        axes.set(xlabel=what, ylabel="share of nodes at or above", title="degrees")
    else:
        _plot_histogram(axes, ordered)
        axes.set(xlabel=what, ylabel="nodes", title="degrees")


def _plot_histogram(axes: Axes, values: np.ndarray) -> None:
    """Draw how often whole numbers occur: a bar for each, or for several if the range is wide."""
    if len(values):
        low, high = int(values.min()), int(values.max())
        step = -(-(high - low + 1) // 60)
        axes.hist(values, bins=(np.arange(low, high + step + 1, step) - 0.5).tolist(), color=COLOUR)
    plain_numbers(axes, whole=True)
    plain_numbers(axes, "y", whole=True)


def _plot_labels(axes: Axes, y: np.ndarray | None, names: tuple[str, ...] | None, of: str) -> None:
    counts = None if y is None else class_counts(y, names)
    if counts is not None:
        _plot_classes(axes, counts, of)
    elif y is not None and y.ndim == 1:
        axes.hist(y[~np.isnan(y)], bins=60, color=COLOUR)
        plain_numbers(axes, "y")
        axes.set(xlabel="target", ylabel=of, title="targets")
    else:
        axes.set_axis_off()


def _plot_classes(axes: Axes, counts: pd.Series, of: str) -> None:
    """Draw how many are of each class, the first at the top; of many classes the largest."""
    largest = counts.nlargest(MOST_CLASSES).index
    shown = counts[counts.index.isin(largest)]
    names = [name if len(name) <= 24 else f"{name[:23]}…" for name in shown.index]
    axes.barh(np.arange(len(shown)), shown.to_numpy(), color=COLOUR)
    axes.set_yticks(np.arange(len(shown)), names, fontsize=10 if len(shown) <= 12 else 6)
    axes.invert_yaxis()
    plain_numbers(axes)
    title = "classes" if len(shown) == len(counts) else f"the {len(shown)} largest of {len(counts)} classes"
    axes.set(xlabel=of, ylabel="class", title=title)
