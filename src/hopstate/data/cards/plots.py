"""Plots beside a data card; see `inspect`."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from hopstate.data.cards.card import class_counts, class_names, node_gaps, stream_degrees
from hopstate.data.dates import drawn_times
from hopstate.data.deletions import stated
from hopstate.data.events import EventStream
from hopstate.data.graph import Graph
from hopstate.data.graph_set import GraphSet
from hopstate.io.figure import draw_figure

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
    stream = stated(stream)
    unit = f" ({stream.time_unit})" if stream.time_unit else ""
    axes[0].hist(drawn_times(stream.t, stream.time_unit, stream.dates), bins=80)
    if stream.dates:
        axes[0].tick_params(axis="x", rotation=30)
    axes[0].set(xlabel="time" if stream.dates else f"time{unit}", ylabel="events", title="activity")
    _ranked(axes[1], stream_degrees(stream), "events of a node")
    gaps = node_gaps(stream)
    gaps = gaps[gaps > 0]
    if len(gaps):
        axes[2].hist(gaps, bins=np.geomspace(gaps.min(), max(gaps.max(), gaps.min() * 2), 60))
        axes[2].set_xscale("log")
    axes[2].set(xlabel=f"time between a node's events{unit}", ylabel="count", title="inter-event times")
    new = np.zeros(len(stream))
    new[np.unique(stream.src * stream.num_nodes + stream.dst, return_index=True)[1]] = 1
    cuts = np.linspace(0, len(stream), min(60, len(stream)) + 1).astype(int)
    share = [1 - new[a:b].mean() for a, b in pairwise(cuts)]
    axes[3].plot(cuts[:-1], share)
    axes[3].set(xlabel="event", ylabel="share of repeated pairs", ylim=(0, 1), title="repetition")


def _plot_graph(graph: Graph, axes: Any) -> None:
    _ranked(axes[0], graph.degree, "degree")
    if graph.num_classes:
        axes[1].bar(class_names(graph), class_counts(graph))
        axes[1].set(xlabel="class", ylabel="nodes", title="classes")
    else:
        axes[1].set_axis_off()


def _plot_set(graphs: GraphSet, axes: Any) -> None:
    axes[0].hist(np.diff(graphs.offsets), bins=60)
    axes[0].set(xlabel="nodes of a graph", ylabel="graphs", title="sizes")
    if graphs.y is None or graphs.y.ndim > 1:
        axes[1].set_axis_off()
    elif graphs.y.dtype.kind == "f":
        axes[1].hist(graphs.y[~np.isnan(graphs.y)], bins=60)
        axes[1].set(xlabel="target", ylabel="graphs", title="targets")
    else:
        counts = np.bincount(graphs.y[graphs.y >= 0])
        axes[1].bar(graphs.class_names or [str(i) for i in range(len(counts))], counts)
        axes[1].set(xlabel="class", ylabel="graphs", title="classes")


def _ranked(axis: Axes, counts: np.ndarray, what: str) -> None:
    """Draw the share of nodes with at least so many, on two logarithmic axes."""
    ordered = np.sort(counts[counts > 0])
    if len(ordered):
        axis.loglog(ordered, 1 - np.arange(len(ordered)) / len(ordered), drawstyle="steps-post")
    axis.set(xlabel=what, ylabel="share of nodes with at least so many", title="degrees")
