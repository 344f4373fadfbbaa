"""Why a pair got its score: what each past event added to it, as a table and a timeline.

Source: DyG-Mamba, arXiv:2408.06966, theorem 4.2 (a state space's output is a sum over past events), carried through
all blocks, the mean and the head by holding every factor that multiplies a token as it is for this input. Of trees,
what each feature added: see `hopstate.methods.pair_trees.trees`.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from hopstate.data.dates import Clock, drawn_times, parse_times, shown_span, shown_time, shown_times
from hopstate.data.events import EventStream
from hopstate.data.splits import IN_SECOND
from hopstate.errors import ConfigError, DataError
from hopstate.io.output import draw_figure, few_dates, label_points, plain_numbers
from hopstate.runs.asking import first_after
from hopstate.streaming.history_scorer import to_device
from hopstate.tokens.history import HistoryTokens
from hopstate.tokens.pair_features import NAMES
from hopstate.training.precision import bare
from hopstate.training.tasks.events import HistoryPairs
from hopstate.training.tasks.link import LinkTask
from hopstate.training.tasks.task import Explains, ExplainsEvents, Task

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from hopstate.data.vocabulary import Vocabulary

UNTOLD = "explain needs a run whose score is a sum over events or features: dyg-mamba, pair-trees"
COLORS = {"source": "#3b6fb6", "target": "#d1701f"}


@dataclass(frozen=True)
class Explanation:
    """A score, taken apart.

    Args:
        source, target: the user's ids of the pair.
        t: time of the query.
        logit: the score; what the rows of events add, plus rest.
        rest: what no event adds: what rows of features add, biases, and the encoding of nothing.
        events: one row a token, oldest first: end ("source" or "target": whose history), neighbor (the node itself
            where event_id is -1), t, event_id, contribution (to the logit).
        time_unit, dates: of t, as in `EventStream`.
        unit: what a unit of features is, in words; "" where there are none.
        features: where the model reads what the pair's own history tells (`hopstate.tokens.pair_features`), a row a
            feature, largest contribution first: feature, value (missing where it never happened), contribution by how
            far it is from its mean over training pairs; else no rows.
    """

    source: Any
    target: Any
    t: float | int
    logit: float
    rest: float
    events: pd.DataFrame
    time_unit: str = ""
    dates: str = ""
    unit: str = ""
    features: pd.DataFrame = field(default_factory=lambda: _features((), (), ()))

    @property
    def table(self) -> pd.DataFrame:
        """The rows that are written: events, with dates where the data have them."""
        return self.events.assign(t=shown_times(self.events["t"].to_numpy(), self.time_unit, self.dates))

    @property
    def when(self) -> str:
        """Time of the query, a date where the data have them."""
        return shown_time(self.t, self.time_unit, self.dates)

    @property
    def probability(self) -> float:
        """The logistic function of the logit."""
        return float(1 / (1 + np.exp(-self.logit)))

    @property
    def _unit(self) -> str:
        return f", in {self.time_unit}" if self.time_unit and not self.dates else ""

    def plot(self, path: str | Path) -> None:
        """Draw the timeline of contributions as .png, .pdf or .svg.

        Raises:
            FormatError: another extension.
            StorageError: the file could not be written.
        """
        draw_figure(path, (9, 8 if len(self.features) else 4.5), self._paint)

    def _paint(self, figure: Figure) -> None:
        if len(self.features):
            axis, below = figure.subplots(2, height_ratios=(1, 1))
            what = "added to the logit by what the pair's own history tells"
            _bars(below, self.features.head(8), what, ("#5b6770", "#a8b0b7"))
        else:
            axis = figure.subplots()
        drawn = drawn_times(self.events["t"].to_numpy(), self.time_unit, self.dates)
        real = self.events.assign(t=drawn)[self.events.event_id >= 0]
        named: list[tuple[float, float, str]] = []
        for end in ("source", "target"):
            rows = real[real.end == end]
            lines = axis.vlines(rows.t, 0, rows.contribution, colors=COLORS[end], alpha=0.6)
            lines.set_label(f"{end}: past of {self.source if end == 'source' else self.target}")
            axis.plot(rows.t, rows.contribution, "o", color=COLORS[end], ms=4)
            largest = rows.iloc[np.argsort(-rows.contribution.abs().to_numpy())].drop_duplicates("neighbor")
            top = largest.head(3)
            named += zip(axis.convert_xunits(top.t.to_numpy()), top.contribution, map(str, top.neighbor), strict=True)
        axis.axhline(0, color="grey", lw=0.8)
        axis.axvline(drawn_times(self.t, self.time_unit, self.dates), color="grey", ls=":", lw=1)
        axis.set(xlabel=f"time of the event{self._unit} (dotted: the query)", ylabel="added to the logit")
        axis.set_title(f"{self.source} - {self.target}: score {self.probability:.3f}, logit {self.logit:+.2f}")
        if len(real):
            figure.legend(loc="outside lower center", ncols=2, frameon=False)
        axis.margins(x=0.06, y=0.12)
        (few_dates if drawn.dtype.kind == "M" else plain_numbers)(axis)
        figure.draw_without_rendering()  # the layout stands before labels look for room
        label_points(axis, sorted(named, key=lambda one: -abs(one[1])))


@dataclass(frozen=True)
class FeatureExplanation:
    """A score of trees, taken apart by features.

    Args:
        source, target: the user's ids of the pair.
        t: time of the query.
        logit: the score before it is calibrated; what the features add, plus rest.
        rest: what no feature adds.
        probability: the calibrated score.
        table: one row a feature, largest contribution first: feature, value (missing where it never happened),
            contribution (to the logit).
        time_unit, dates: of t, as in `EventStream`.
        unit: what a unit of features is, in words.
    """

    source: Any
    target: Any
    t: float | int
    logit: float
    rest: float
    probability: float
    table: pd.DataFrame
    time_unit: str = ""
    dates: str = ""
    unit: str = ""

    @property
    def when(self) -> str:
        """Time of the query, a date where the data have them."""
        return shown_time(self.t, self.time_unit, self.dates)

    def plot(self, path: str | Path) -> None:
        """Draw the largest contributions as .png, .pdf or .svg; errors as `Explanation.plot`."""
        draw_figure(path, (9, 5), self._paint)

    def _paint(self, figure: Figure) -> None:
        axis = figure.subplots()
        _bars(axis, self.table.head(15), "added to the logit", tuple(COLORS.values()))
        axis.set_title(f"{self.source} - {self.target}: probability {self.probability:.3f}")


def _bars(axis: Axes, largest: pd.DataFrame, label: str, colors: Sequence[str]) -> None:
    """Draw what features add, the largest on top, in one colour above 0 and another below."""
    rows = largest.iloc[::-1]
    axis.barh(rows.feature, rows.contribution, color=np.where(rows.contribution > 0, *colors))
    axis.axvline(0, color="grey", lw=0.8)
    axis.set(xlabel=label)


def explain_pair(task: Task, source: Any, target: Any, t: Any = None) -> Explanation | FeatureExplanation:
    """Return what each event before t added to the score of (source, target) at t; of trees, what each feature added.

    Args:
        task: a trained link prediction task whose model can tell contributions (DyG-Mamba), or of pair-trees.
        source, target: the user's ids.
        t: only events strictly before it are seen; a number in the stream's unit, or a date. None gives the first after
            the stream's last event.

    Raises:
        ConfigError: the model cannot tell contributions, or t is no time.
        DataError: an unknown id.
    """
    if not isinstance(task, LinkTask):
        raise ConfigError(UNTOLD)
    stream = task.stream
    if isinstance(task, Explains):
        t = first_after(stream.t[-1]).item() if t is None else t
        u, v, t = (
            node_row(stream, source, "source of the pair"),
            node_row(stream, target, "target of the pair"),
            _time(stream, t),
        )
        clock = {"time_unit": stream.time_unit, "dates": stream.dates, "unit": _unit_of(task)}
        return FeatureExplanation(source, target, t, **task.explain_query(u, v, t), **clock)
    model = bare(task.model)
    if not isinstance(task.source, HistoryPairs) or not isinstance(model, ExplainsEvents):
        raise ConfigError(UNTOLD)
    tokens, t = asked_tokens(task, source, target, t)
    task.model.eval()
    device = next(task.model.parameters()).device
    shares = model.shares(to_device(tokens, device))
    contributions, told, rest = (np.empty((1, 0)) if x is None else x.double().cpu().numpy() for x in shares)
    table = token_table(stream, tokens, t).assign(contribution=contributions)
    table = table.sort_values("t", kind="stable", ignore_index=True)
    values = np.empty(0) if tokens.pair is None or not told.size else tokens.pair[0].double().cpu().numpy()
    features = _features(NAMES[: len(values)], values, told[0])
    left = float(rest[0] + told.sum())
    logit = left + float(contributions.sum())
    unit = _unit_of(task) if len(features) else ""
    return Explanation(source, target, t, logit, left, table, stream.time_unit, stream.dates, unit, features)


def asked_tokens(task: LinkTask, source: Any, target: Any, t: Any) -> tuple[HistoryTokens, Any]:
    """Return the tokens of (source, target) at t, and t in the stream's unit; None gives the first after its events."""
    stream = task.stream
    t = _time(stream, first_after(stream.t[-1]).item() if t is None else t)
    u, v = node_row(stream, source, "source of the pair"), node_row(stream, target, "target of the pair")
    assert isinstance(task.source, HistoryPairs)
    tokens = task.source.inputs.pairs(np.array([u]), np.array([v]), np.array([t]))
    assert isinstance(tokens, HistoryTokens)
    return tokens, t


def token_table(stream: EventStream, tokens: HistoryTokens, t: Any) -> pd.DataFrame:
    """Return a row a token of one pair at t: end, neighbor, t, event_id."""
    import pandas as pd

    ids, nodes = tokens.event_ids.numpy(), tokens.nodes.numpy()
    when = stream.t[np.where(ids < 0, 0, ids - stream.first_id)].tolist()  # exact, whatever kind of number t is
    return pd.DataFrame(
        {
            "end": np.where(np.arange(len(ids)) < int(tokens.offsets[1]), "source", "target"),
            "neighbor": nodes if stream.node_ids is None else stream.node_ids.names(nodes),
            "t": [t if event < 0 else time for event, time in zip(ids, when)],
            "event_id": ids,
        }
    )


def _time(stream: EventStream, t: Any) -> float | int:
    return parse_times([t], stream.time_unit, stream.dates, stream.name)[0]


def _unit_of(task: LinkTask) -> str:
    return "" if task.clock is None else unit_words(task.clock.over(task.stream.time_unit))


def unit_words(clock: Clock) -> str:
    """Return what one unit of a clock is, in time.

    >>> unit_words(Clock(unit=42.0, time_unit="s"))
    "1 unit = 42 seconds, the median gap between training events; values 'since ...' are ln(1 + units)"
    """
    unit, second = float(clock.unit), IN_SECOND.get(clock.time_unit, 1)
    span = shown_span(int(unit) if unit.is_integer() else unit, clock.time_unit)
    span += "" if clock.time_unit in IN_SECOND else " in the numbers of the data's own times"
    # of seconds, or numbers as they stand, the same is told whatever they were chosen for
    whose = ", the median gap between training events" if clock.bounded and unit != second else ""
    return f"1 unit = {span}{whose}; values 'since ...' are ln(1 + units)"


def _features(names: Sequence[str], values: Any, added: Any) -> pd.DataFrame:
    import pandas as pd

    found = pd.DataFrame({"feature": np.array(names, object), "value": values, "contribution": added})
    return found.sort_values("contribution", key=lambda column: -column.abs(), kind="stable", ignore_index=True)


def node_row(stream: EventStream, name: object, what: str) -> int:
    """Return the row of a user's id, given as itself or as text; what says what it is.

    Raises:
        DataError: it is unknown; the nearest known id is suggested.
    """
    from hopstate.data.vocabulary import Vocabulary

    return row_of(
        stream.node_ids if stream.node_ids is not None else Vocabulary(np.arange(stream.num_nodes)), name, what
    )


def row_of(ids: Vocabulary, name: object, what: str) -> int:
    """Return the row of a user's id, given as itself or as text; see `node_row`."""
    if not ids.is_text and isinstance(name, str):
        with contextlib.suppress(ValueError):
            name = int(name)
    try:
        return ids.row(str(name) if ids.is_text else name)
    except DataError as error:
        raise DataError(f"{what}: {error}") from None
