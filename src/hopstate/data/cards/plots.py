"""Plots beside a data card; see `inspect`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from hopstate.data.cards.card import SECONDS, class_counts, class_names
from hopstate.data.cards.stream_figures import node_gaps, repetition, stream_degrees
from hopstate.data.dates import drawn_times
from hopstate.data.events import EventStream
from hopstate.data.graph import Graph
from hopstate.data.graph_set import GraphSet
from hopstate.io.figure import draw_figure, plain_numbers

COLOUR = "#0b62b0"  # the first of a report's
MOST_CLASSES = 24
LENGTHS = {
    "1 ms": 1e-3,
    "1 s": 1.0,
    "1 min": 60.0,
    "1 h": 3_600.0,
    "1 day": 86_400.0,
    "30 days": 2_592_000.0,
    "1 year": 31_557_600.0,
}

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


def plot_card(data: EventStream | Graph | GraphSet, path: str | Path) -> None:
    """Draw a data set as .png, .pdf or .svg.

    A stream's activity, degrees, gaps and repetition; a graph's degrees and classes; a set's sizes and classes.

    Raises:
        FormatError: another extension.
        StorageError: the file could not be written.
    """
    streamed = isinstance(data, EventStream)

    def paint(figure: Figure) -> None:
        axes = figure.subplots(2 if streamed else 1, 2).reshape(-1)
        if isinstance(data, EventStream):
            _plot_stream(data, axes)
        elif isinstance(data, GraphSet):
            _plot_set(data, axes)
        else:
            _plot_graph(data, axes)
        figure.suptitle(data.name)

    draw_figure(path, (10, 7 if streamed else 3.5), paint)


def _plot_stream(stream: EventStream, axes: Any) -> None:
    unit = f" ({stream.time_unit})" if stream.time_unit else ""
    if len(stream):
        counts, edges = _activity(stream.t)
        axes[0].stairs(counts, drawn_times(edges, stream.time_unit, stream.dates), fill=True, color=COLOUR)
    if stream.dates:
        axes[0].tick_params(axis="x", rotation=30)
    else:
        plain_numbers(axes[0])
    plain_numbers(axes[0], "y")
    axes[0].set(xlabel="time" if stream.dates else f"time{unit}", ylabel="events", title="activity")
    _ranked(axes[1], stream_degrees(stream), "events of a node")
    counts, edges = _gaps(stream)
    if len(counts):
        axes[2].stairs(counts, edges, fill=True, color=COLOUR)
        axes[2].set_xscale("log")
        unit = "" if _lengths(axes[2], SECONDS.get(stream.time_unit or "")) else unit
    axes[2].set(xlabel=f"time between a node's events{unit}", ylabel="count", title="inter-event times")
    cuts = np.linspace(0, len(stream), min(60, len(stream)) + 1).astype(int)
    share = 1 - repetition(stream, cuts)[0] / np.diff(cuts)
    axes[3].plot(cuts[:-1], share, color=COLOUR)
    plain_numbers(axes[2], "y")
    plain_numbers(axes[3])
    axes[3].set(xlabel="event", ylabel="share of repeated pairs", ylim=(0, 1), title="repetition")


def _activity(t: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return counts of rising times (E,), E over 0, between each edge and the next, and the edges.

    The last edge belongs to the last interval. The edges have the times' type: 81, or as many as differ.
    """
    low, high = t[0].item(), t[-1].item()
    high = high if high > low else max(low + 1, np.nextafter(low, np.inf).item())
    if t.dtype.kind == "f":
        edges = np.unique(np.linspace(low, high, 81))
    else:  # exact also where float64 is not
        edges = np.unique([low - (low - high) * k // 80 for k in range(81)])
    places = np.searchsorted(t, edges)
    places[-1] = len(t)
    return np.diff(places), edges


def _gaps(stream: EventStream) -> tuple[np.ndarray, np.ndarray]:
    """Return how many times between a node's events stand between each edge and the next; nothing where all are 0."""
    ends = [(gaps.min(), gaps.max()) for gaps in (part[part > 0] for part in node_gaps(stream)) if len(gaps)]
    if not ends:
        return np.empty(0, np.int64), np.empty(0)
    low, high = min(low for low, _ in ends), max(high for _, high in ends)
    edges = np.geomspace(low, max(high, 2 * low), 60)
    edges[0], edges[-1] = min(edges[0], low), max(edges[-1], high)
    return sum((np.histogram(part, edges)[0] for part in node_gaps(stream)), np.zeros(59, np.int64)), edges


def _lengths(axis: Axes, seconds: float | None) -> bool:
    """Write the numbers of a logarithmic axis, of so many seconds each, as lengths of time; return whether some fit."""
    from matplotlib.ticker import FixedFormatter, FixedLocator, NullFormatter

    low, high = axis.get_xlim()
    named = [
        (length / (seconds or 1), name) for name, length in LENGTHS.items() if low <= length / (seconds or 1) <= high
    ]
    if seconds is None or len(named) < 2:
        return False
    axis.xaxis.set_major_locator(FixedLocator([value for value, _ in named]))
    axis.xaxis.set_major_formatter(FixedFormatter([name for _, name in named]))
    axis.xaxis.set_minor_formatter(NullFormatter())
    return True


def _plot_graph(graph: Graph, axes: Any) -> None:
    _ranked(axes[0], graph.degree, "degree")
    if graph.num_classes:
        _classes(axes[1], class_names(graph), class_counts(graph), "nodes")
    else:
        axes[1].set_axis_off()


def _plot_set(graphs: GraphSet, axes: Any) -> None:
    _counted(axes[0], np.diff(graphs.offsets))
    axes[0].set(xlabel="nodes of a graph", ylabel="graphs", title="sizes")
    if graphs.y is None or graphs.y.ndim > 1:
        axes[1].set_axis_off()
    elif graphs.y.dtype.kind == "f":
        axes[1].hist(graphs.y[~np.isnan(graphs.y)], bins=60, color=COLOUR)
        plain_numbers(axes[1], "y")
        axes[1].set(xlabel="target", ylabel="graphs", title="targets")
    else:
        counts = np.bincount(graphs.y[graphs.y >= 0])
        _classes(axes[1], graphs.class_names or [str(i) for i in range(len(counts))], counts, "graphs")


def _ranked(axis: Axes, counts: np.ndarray, what: str) -> None:
    """Draw the share of nodes with at least so many, on two logarithmic axes; how many there are where all are near."""
    from matplotlib.ticker import LogLocator, NullFormatter

    ordered = np.sort(counts[counts > 0])
    if len(ordered) and ordered[-1] < 10 * ordered[0]:  # no tail to show: bars tell more
        _counted(axis, ordered)
        axis.set(xlabel=what, ylabel="nodes", title="degrees")
        return
    if len(ordered):
        share = 1 - np.arange(len(ordered)) / len(ordered)
        axis.loglog(ordered, share, drawstyle="steps-post", color=COLOUR)
        axis.yaxis.set_major_formatter(lambda value, _: f"{100 * value:g}%")
        few = ordered[-1] < 1_000 * ordered[0]
        axis.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5) if few else (1,)))
        axis.xaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
        for side in (axis.xaxis, axis.yaxis):  # by themselves they write 2 x 10^1 between the others
            side.set_minor_formatter(NullFormatter())
    axis.set(xlabel=what, ylabel="share of nodes with at least so many", title="degrees")


def _counted(axis: Axes, values: np.ndarray) -> None:
    """Draw how often whole numbers occur: a bar for each, or for several where they reach far."""
    if len(values):
        low, high = int(values.min()), int(values.max())
        step = -(-(high - low + 1) // 60)
        axis.hist(values, bins=(np.arange(low, high + step + 1, step) - 0.5).tolist(), color=COLOUR)
    plain_numbers(axis, whole=True)
    plain_numbers(axis, "y", whole=True)


def _classes(axis: Axes, names: Sequence[str], counts: np.ndarray, of: str) -> None:
    """Draw how many are of each class, the first at the top; of many classes the largest."""
    some = np.sort(np.argsort(-counts, kind="stable")[:MOST_CLASSES])
    shown = [name if len(name) <= 24 else f"{name[:23]}…" for name in (str(names[i]) for i in some)]
    axis.barh(np.arange(len(some)), counts[some], color=COLOUR)
    axis.set_yticks(np.arange(len(some)), shown, fontsize=10 if len(some) <= 12 else 6)
    axis.invert_yaxis()
    plain_numbers(axis)
    title = "classes" if len(some) == len(counts) else f"the {len(some)} largest of {len(counts)} classes"
    axis.set(xlabel=of, ylabel="class", title=title)
