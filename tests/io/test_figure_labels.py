"""Figures as a reader sees them: numbers written out, labels that neither overlap nor leave the figure."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pandas as pd
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from hopstate.data import summary as summary_plots
from hopstate.data.events import EventStream
from hopstate.io.output import format_number_ticks, label_points
from hopstate.runs.explain import Explanation


def blank() -> Figure:
    """A figure as `draw_figure` makes it."""
    figure = Figure(figsize=(10, 7), layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def boxes(figure: Figure) -> list:
    """The extents of the labels next to points."""
    figure.draw_without_rendering()
    return [text.get_window_extent() for axes in figure.axes for text in axes.texts]


def assert_apart(figure: Figure) -> None:
    found = boxes(figure)
    edge = figure.axes[0].get_window_extent()
    for i, one in enumerate(found):
        assert edge.x0 - 3 <= one.x0
        assert one.x1 <= edge.x1 + 3
        assert not any(one.overlaps(other) for other in found[i + 1 :])


@pytest.mark.parametrize("big", [1.1e9, 3.4e14])
def test_tick_labels_of_times_are_written_out_and_do_not_overlap(big: float) -> None:
    t = np.linspace(0, big, 200)
    stream = EventStream(src=np.arange(200) % 7, dst=7 + np.arange(200) % 5, t=t)
    figure = blank()
    axes = figure.subplots(1, 2)
    summary_plots._plot_activity(axes[0], stream)
    figure.draw_without_rendering()
    for axis in (axes[0].xaxis, axes[0].yaxis):
        assert not axis.get_offset_text().get_text()
    drawn = [label.get_window_extent() for label in axes[0].get_xticklabels() if label.get_text()]
    assert all(a.x1 < b.x0 for a, b in pairwise(drawn))


def test_small_shares_keep_their_digits() -> None:
    axes = blank().subplots()
    axes.plot([0, 0.004])
    format_number_ticks(axes, "y")
    axes.figure.draw_without_rendering()
    assert "0.002" in {label.get_text() for label in axes.get_yticklabels()}


def test_labels_of_many_classes_do_not_overlap() -> None:
    figure = blank()
    axes = figure.subplots()
    names = [f"a class with a very long name {i}" for i in range(70)]
    summary_plots._plot_labels(axes, np.repeat(np.arange(70), np.arange(70)), names, "nodes")
    figure.draw_without_rendering()
    drawn = [label.get_window_extent() for label in axes.get_yticklabels()]
    assert len(drawn) == summary_plots.MOST_CLASSES
    assert not any(a.overlaps(b) for a, b in pairwise(drawn))


def test_point_labels_do_not_overlap_or_are_omitted() -> None:
    figure = blank()
    axes = figure.subplots()
    axes.set(xlim=(0, 1), ylim=(0, 1))
    figure.draw_without_rendering()
    label_points(axes, [(x, 0.5, "node") for x in (0.001, 0.5, 0.5, 0.501, 0.5005, 0.999)] + [(0.5, 0.5, "last")] * 9)
    assert len(boxes(figure)) == 2 + 4  # four positions around one point
    assert_apart(figure)


def test_labels_of_an_explanation_do_not_overlap() -> None:
    events = pd.DataFrame(
        {
            "end": ["source", "target"] * 6,
            "neighbor": [f"neighbour {i}" for i in range(12)],
            "t": np.repeat([1_000_000_000, 1_000_000_500], 6),
            "event_id": range(12),
            "contribution": np.linspace(0.1, 0.101, 12),
        }
    )
    figure = blank()
    known = {"score": 0.5, "probability": 0.4, "logit": 0.0, "features": events[:0], "time_unit": "s"}
    Explanation("a", "b", 1_000_001_000, events=events, **known)._paint(figure)
    assert_apart(figure)
    axes = figure.axes[0]
    assert not axes.xaxis.get_offset_text().get_text()
    assert axes.get_xlabel()
