"""Why a pair got its score, or a node its prediction.

A pair of a temporal run is explained by leaving events out: an event's contribution is what the pair's log-odds lose
without it. Scores of trees and ensembles are also sums over features, or members. A node of a graph is explained by
gradient times input.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import nn

from hopstate.data.dates import format_duration, format_time, format_times, plot_times
from hopstate.data.events import EventBatch, not_none
from hopstate.data.stream_state import Event, StreamState
from hopstate.data.vocabulary import Vocabulary
from hopstate.errors import ConfigError, DataError
from hopstate.io.output import (
    check_figure_path,
    check_table_path,
    draw_figure,
    format_number_ticks,
    label_points,
    limit_date_ticks,
    write_table,
)
from hopstate.random import random_state_kept
from hopstate.runs.export import export_spec
from hopstate.runs.load import load_run
from hopstate.runs.queries import QuerySession, open_session, score_session
from hopstate.runs.query_inputs import (
    QueryNodes,
    pair_rows,
    parse_query_times,
    query_relations,
    query_times,
)
from hopstate.runs.saved_run import SavedRun
from hopstate.streaming.event_replay import EventReplay
from hopstate.streaming.history_scorer import HistoryScorer
from hopstate.streaming.live import PairQueries, continue_stream
from hopstate.streaming.protocols import HasMemory, LinkScorer, Scores
from hopstate.streaming.replay import as_scores
from hopstate.streaming.slices import Steps, run_to_completion
from hopstate.tokens.pair_features import TIME
from hopstate.training.tasks.link import LinkTask
from hopstate.training.tasks.node import NodeTask
from hopstate.training.tasks.task import ExplainsPairs

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from hopstate.methods.method import AnyMethod

LATEST = 16  # events of each end that are left out, one at a time
LATEST_OF_MEMORY = 8  # the same, if a memory is replayed without each
PAIRS_AT_ONCE = 16  # pairs whose events are left out together
STATES_AT_ONCE = 12  # states from which a pair is scored at once
SHOWN = 2  # features, and events, in a text
COLORS = {"source": "#3b6fb6", "target": "#d1701f"}


# ---- leaving events out --------------------------------------------------------------------------------------
def leave_one_out(
    queries: PairQueries, u: np.ndarray, v: np.ndarray, t: np.ndarray, relation: np.ndarray | None = None
) -> Steps[list[list[tuple[Event, float]]]]:
    """Return the latest events of the ends of pairs, oldest first, and what each adds to its pair's log-odds at a time.

    Histories are read without the event. A memory cannot forget one, so the latest events of both ends are replayed on
    top of the memory, with and without it; an end is replayed from an empty memory if these are all of its events.

    Args:
        queries: the model over a state, which must stay as it is between slices.
        u, v: (Q,) rows of the ends.
        t: (Q,) times, not before the state's last event.
        relation: (Q,) relations of the pairs, None if events have none.
    """
    explanations, relations = [], [None] * len(t) if relation is None else relation.tolist()
    for first in range(0, len(t), PAIRS_AT_ONCE):
        part = slice(first, first + PAIRS_AT_ONCE)
        pairs = zip(u[part].tolist(), v[part].tolist(), t[part], relations[part], strict=True)
        replays = [_replay(queries, *pair) for pair in pairs]
        follow = queries.task.follow
        follower = follow(queries.past)
        if isinstance(follower, HasMemory):
            scores = yield from follower.scores_without(replays, follow)
        else:
            scores = yield from _history_scores(replays, follow)
        for replay, scores_of_pair in zip(replays, scores, strict=True):
            score, *scores_without = map(_log_odds, scores_of_pair.tolist())
            explanations.append(
                [(event, score - without) for event, without in zip(replay.left_out, scores_without, strict=True)]
            )
    return explanations


def _replay(queries: PairQueries, u: int, v: int, t: Any, relation: int | None = None) -> EventReplay:
    """Return the latest events of a pair's ends, and the batches in which they have updated a memory."""
    past, memory = queries.past, isinstance(queries.at(t), HasMemory)
    count = LATEST_OF_MEMORY if memory else LATEST
    near = past.store().last(np.array([u, v]), np.array([t, t]), count + 1)
    ids = np.unique(np.concatenate([near.of(end)[1][-count:] for end in (0, 1)]))
    replayed = ids[ids < queries.first_unobserved] if memory else ids[:0]
    cuts = np.flatnonzero(np.diff(replayed // queries.task.live_batch)) + 1
    batches = np.split(replayed, cuts) if len(replayed) else ()
    emptied = [node for end, node in enumerate((u, v)) if near.lengths[end] <= count and not past.has_deletes]
    return EventReplay(
        past=past,
        pair=(u, v),
        t=t,
        relation=relation,
        batches=[_batch(past, batch, queries.task.feature_dims[1]) for batch in batches],
        left_out=[past.event(number) for number in ids.tolist()],
        emptied=np.array(emptied, np.int64),
    )


def _one(u: int, v: int, t: Any, relation: np.ndarray | None) -> tuple[np.ndarray, ...]:
    """Return the columns of one query."""
    return tuple(not_none(np.array([u]), np.array([v]), np.array([t]), relation))


def _history_scores(
    replays: Sequence[EventReplay], follow: Callable[[StreamState], LinkScorer]
) -> Steps[list[np.ndarray]]:
    """Return (V + 1,) scores of each pair without a memory: from all events, and without each of V events."""
    scores_of_pairs = []
    for replay in replays:
        followers = [follow(state) for state in replay.states()]
        query, scores = replay.query(), list[Scores]()
        for first in range(0, len(followers), STATES_AT_ONCE):
            chunk = followers[first : first + STATES_AT_ONCE]
            readers = [follower for follower in chunk if isinstance(follower, HistoryScorer)]
            if readers:
                scores += readers[0].score_over(readers, *query)
            else:
                scores += [follower.score(*query) for follower in chunk]
            yield
        scores_of_pairs.append(np.concatenate([as_scores(score, 1) for score in scores]))
    return scores_of_pairs


def _batch(past: StreamState, ids: np.ndarray, width: int) -> EventBatch:
    """Return events by their ids; features that are no longer kept are zeros."""
    attr = np.zeros((len(ids), width), np.float32) if width else None
    if attr is not None and past.edge_attr is not None:
        kept = ids >= past.edge_attr.first
        attr[kept] = past.edge_attr[ids[kept]]
    relation = None if past.relation is None else past.relation[ids]
    return EventBatch(
        event_ids=ids, src=past.src[ids], dst=past.dst[ids], t=past.t[ids], edge_attr=attr, relation=relation
    )


def _log_odds(score: float) -> float:
    """Return the log-odds of a probability; a score that is not one, as of recency, as it is."""
    if not 0 <= score <= 1:
        return score
    p = min(max(score, 1e-15), 1 - 1e-15)
    return math.log(p / (1 - p))


def state_before(task: LinkTask, past: StreamState, t: Any) -> StreamState:
    """Return a state as it was before a time."""
    count = int(np.searchsorted(past.t, t, side="left"))
    start = StreamState(model=past.model, x=past.x, x_path=past.x_path)
    return continue_stream(task, start, past.events(0, count), score=False)[1]


# ---- texts for `score` and `rank` ----------------------------------------------------------------------------
def explain_pairs(
    opened: QuerySession, u: QueryNodes, v: QueryNodes, t: np.ndarray, relation: np.ndarray | None = None
) -> Steps[np.ndarray]:
    """Return (Q,) texts of pairs: the features, and the events, that contributed most; in slices."""
    sources, targets = pair_rows(opened.past, u, v)
    texts = np.full(len(t), "", object)
    explained = yield from leave_one_out(opened.queries, sources, targets, t, relation)
    for i, (source, target, when, events) in enumerate(zip(sources.tolist(), targets.tolist(), t, explained)):
        own = None if relation is None else relation[i : i + 1]
        text = _events_text(opened, source, target, events) or _facts(opened, source, target, when)
        features = feature_table(opened.queries.at(when), source, target, when, own)
        best, unit = features.head(SHOWN), opened.past.time_unit or ""
        named = [
            f"{name} {feature_text(name, value, unit)} ({share:+.2f})"
            for name, value, share in zip(best["feature"], best["value"], best["contribution"], strict=True)
        ]
        texts[i] = "; ".join([*named, text])
    return texts


def feature_text(name: str, value: float, time_unit: str) -> str:
    """Return the value of a feature as text, times as durations.

    >>> [feature_text(name, 7200.0, "s") for name in ("events of the pair", "time since source sent")]
    ['7,200', '2 hours']
    """
    if np.isnan(value):
        return "never"
    if name.startswith(TIME):
        return format_duration(value, time_unit)
    return f"{value:.3g}" if abs(value) < 1000 else f"{value:,.0f}"


def _events_text(opened: QuerySession, source: int, target: int, events: Sequence[tuple[Event, float]]) -> str:
    best = sorted((one for one in events if one[1]), key=lambda one: -abs(one[1]))[:SHOWN]
    times = opened.display_times(np.array([event.t for event, _ in best], opened.past.time_dtype))
    texts = []
    for (event, weight), time in zip(best, times, strict=True):
        end = source if source in (event.src, event.dst) else target
        other = event.dst if end == event.src else event.src
        shown = f"{weight:+.2f}" if abs(weight) >= 0.01 else f"{weight:+.1g}"
        texts.append(f"{_name(opened, end)} with {_name(opened, other)} at {time} ({shown})")
    return "; ".join(texts)


def _facts(opened: QuerySession, u: int, v: int, t: Any) -> str:
    """Return facts about a pair that no event contributes to."""
    store = opened.queries.past.store()
    pair = np.array([u]), np.array([v]), np.array([t])
    last, has_event = store.last_meeting(*pair)
    near = store.last(np.array([u, v]), np.array([t, t]), 32)
    first, second = (set(near.of(end)[0].tolist()) - {u, v} for end in (0, 1))
    text = (
        f"events of the pair: {store.count_meetings(*pair)[0]}, the last at {opened.display_times(last)[0]}"
        if has_event[0]
        else "no event of the pair"
    )
    return f"{text}; common partners in the latest 32 events of each: {len(first & second)}"


def _name(opened: QuerySession, row: int) -> str:
    ids = opened.past.node_ids
    return str(row if ids is None else ids.names(np.array([row]))[0] if row < len(ids) else "the new node")


def feature_table(follower: LinkScorer, u: int, v: int, t: Any, relation: np.ndarray | None = None) -> pd.DataFrame:
    """Return feature, value and contribution to a pair's log-odds, largest first; no rows for other models."""
    import pandas as pd

    names: Sequence[str] = ()
    values = added = np.empty(0)
    if isinstance(follower, ExplainsPairs):
        names, x, shares = follower.feature_shares(*_one(u, v, t, relation))
        values, added = x[0], shares[0]
    table = pd.DataFrame({"feature": np.array(names, object), "value": values, "contribution": added})
    return _largest_first(table[table["contribution"] != 0])


def _largest_first(table: pd.DataFrame) -> pd.DataFrame:
    return table.sort_values("contribution", key=lambda c: -c.abs(), kind="stable", ignore_index=True)


# ---- a pair --------------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class Explanation:
    """Why a pair got its score.

    Args:
        source, target: the user's ids of the pair.
        t: time of the query.
        score, probability: as `hopstate.score` gives them.
        logit: the log-odds of the score; the score itself if it is not a probability.
        events: a row for each of the latest events of both ends, oldest first: end ("source" or "target": whose),
            neighbor, t, event_id, contribution (what the logit loses without the event).
        features: of trees what each feature adds to the logit, of an ensemble each member, largest first: feature,
            value (missing if it never happened; times in time_unit), contribution; otherwise no rows.
        time_unit, dates: of t, as in `EventStream`.
    """

    source: Any
    target: Any
    t: float | int
    score: float
    probability: float
    logit: float
    events: pd.DataFrame
    features: pd.DataFrame
    time_unit: str = ""
    dates: str = ""

    @property
    def table(self) -> pd.DataFrame:
        """The rows that are written: events, with dates if the data have them."""
        return self.events.assign(t=format_times(self.events["t"].to_numpy(), self.time_unit, self.dates))

    @property
    def when(self) -> str:
        """Time of the query, a date if the data have them."""
        return format_time(self.t, self.time_unit, self.dates)

    def plot(self, path: str | Path) -> None:
        """Draw the timeline of contributions, and the largest features, as .png, .pdf or .svg.

        Raises:
            FormatError: another extension.
            StorageError: the file could not be written.
        """
        draw_figure(path, (9, 8 if len(self.features) else 4.5), self._paint)

    def _paint(self, figure: Figure) -> None:
        if len(self.features):
            axis, below = figure.subplots(2)
            rows = self.features.head(10).iloc[::-1]
            below.barh(rows.feature, rows.contribution, color=np.where(rows.contribution > 0, *COLORS.values()))
            below.axvline(0, color="grey", lw=0.8)
            below.set(xlabel="added to the logit by features")
        else:
            axis = figure.subplots()
        self._paint_events(figure, axis)

    def _paint_events(self, figure: Figure, axis: Axes) -> None:
        times = plot_times(self.events["t"].to_numpy(), self.time_unit, self.dates)
        events = self.events.assign(t=times)
        labels: list[tuple[float, float, str]] = []
        for end, name in (("source", self.source), ("target", self.target)):
            rows = events[events.end == end]
            lines = axis.vlines(rows.t, 0, rows.contribution, colors=COLORS[end], alpha=0.6)
            lines.set_label(f"{end}: events of {name}")
            axis.plot(rows.t, rows.contribution, "o", color=COLORS[end], ms=4)
            top = _largest_first(rows).drop_duplicates("neighbor").head(3)
            labels += zip(axis.convert_xunits(top.t.to_numpy()), top.contribution, map(str, top.neighbor), strict=True)
        axis.axhline(0, color="grey", lw=0.8)
        axis.axvline(plot_times(self.t, self.time_unit, self.dates), color="grey", ls=":", lw=1)
        unit = f", in {self.time_unit}" if self.time_unit and not self.dates else ""
        axis.set(xlabel=f"time of the event{unit} (dotted: the query)", ylabel="lost by the logit without the event")
        axis.set_title(f"{self.source} - {self.target}: score {self.score:.3f}, logit {self.logit:+.2f}")
        if len(events):
            figure.legend(loc="outside lower center", ncols=2, frameon=False)
        axis.margins(x=0.06, y=0.12)
        (limit_date_ticks if times.dtype.kind == "M" else format_number_ticks)(axis)
        figure.draw_without_rendering()  # the layout must be final before labels are placed
        label_points(axis, sorted(labels, key=lambda one: -abs(one[1])))


@random_state_kept()
def explain(
    run: str | Path,
    source: Any = None,
    target: Any = None,
    time: Any = None,
    *,
    relation: str | None = None,
    node: Any = None,
    data: Any = None,
    out: str | Path | None = None,
    plot: str | Path | None = None,
    device: str | None = None,
) -> Explanation | NodeExplanation:
    """Return the contribution of past events and features to the score of a pair, or to the prediction of a node.

    Args:
        run: run folder of temporal link prediction, or of node classification on a graph.
        source, target: the user's ids of a pair.
        time: query time, a number in the unit of the run's data or a date. Only events strictly before it are used.
            Default: the first time after the last known event.
        relation: relation of the pair, if the run's events have relations.
        node: your id of a node, instead of a pair; for a run on a graph.
        data: event history to use instead of the run's own.
        out: also write the table there (.csv or .parquet); features go to a second file (`features_path`).
        plot: also draw the timeline there (.png, .pdf or .svg).
        device: where to compute; None takes the run's own setting.

    Raises:
        ConfigError: the run's method does not score pairs, or has no gradients for a node.
        DataError: an unknown id.

    Example:
        >>> found = hopstate.explain(run.path, 1, 4)
        >>> found.events.columns.tolist()
        ['end', 'neighbor', 't', 'event_id', 'contribution']
    """
    if out is not None:
        check_table_path(out)
    if plot is not None:
        check_figure_path(plot)
    if node is not None:
        if plot is not None:
            raise ConfigError("plot draws pairs only. Write the explanation of a node as a table (out)")
        return _explain_node(run, node, data, out)
    with open_session(run, history=data, device=device) as opened:
        explanation = explain_pair(opened, source, target, time, relation)
    if out is not None:
        write_table(explanation.table, Path(out))
        if len(explanation.features):
            write_table(explanation.features, features_path(out))
    if plot is not None:
        explanation.plot(plot)
    return explanation


def explain_pair(
    opened: QuerySession, source: Any, target: Any, t: Any = None, relation: str | None = None
) -> Explanation:
    """Return the explanation of a pair's score; arguments as in `explain`."""
    import pandas as pd

    if t is not None and len(opened.past):
        t = parse_query_times(opened.past, np.atleast_1d(np.asarray(t)), opened.dates)[0]
        if t <= opened.past.last_time:
            opened = opened.over(state_before(opened.task, opened.past, t))
    t = query_times(opened.past, t, 1, "pair", opened.dates)[0]
    ids = opened.past.node_ids or Vocabulary(np.arange(opened.past.num_nodes))
    u, v = _row(ids, source, "source"), _row(ids, target, "target")
    relations = query_relations(opened.past, relation, 1, "pair")
    row = score_session(opened, [(source, target)], t, relation).iloc[0]
    pair = _one(u, v, t, relations)
    events = run_to_completion(leave_one_out(opened.queries, *pair))[0]
    kinds: dict[str, Any] = {"event_id": np.int64, "src": np.int64, "dst": np.int64, "t": opened.past.time_dtype}
    table = pd.DataFrame([event for event, _ in events], columns=list(kinds)).astype(kinds)
    of_source = (table["src"] == u) | (table["dst"] == u)
    endpoint = np.where(of_source, u, v)
    neighbor = np.where(table["src"] == endpoint, table["dst"], table["src"])
    table = pd.DataFrame(
        {
            "end": np.where(of_source, "source", "target"),
            "neighbor": ids.names(neighbor),
            "t": table["t"],
            "event_id": table["event_id"],
            "contribution": np.array([weight for _, weight in events], np.float64),
        }
    )
    features = feature_table(opened.queries.at(t), u, v, t, relations)
    return Explanation(
        source,
        target,
        t.item(),
        score=float(row["score"]),
        probability=float(row["probability"]),
        logit=_log_odds(float(row["score"])),
        events=table,
        features=features,
        time_unit=opened.past.time_unit or "",
        dates=opened.dates,
    )


def _row(ids: Vocabulary, name: object, what: str) -> int:
    """Return the row of a user's id, given as itself or as text."""
    if not ids.is_text and isinstance(name, str):
        with contextlib.suppress(ValueError):
            name = int(name)
    try:
        return ids.row(str(name) if ids.is_text else name)
    except DataError as error:
        raise DataError(f"{what}: {error}") from None


def features_path(out: str | Path) -> Path:
    """Return where the features of an explanation are written: of why.csv, why-features.csv."""
    return _path_of_part(out, "features")


def _path_of_part(out: str | Path, part: str) -> Path:
    stem, dot, ends = Path(out).name.partition(".")
    return Path(out).with_name(f"{stem}-{part}{dot}{ends}")


# ---- a node of a graph ---------------------------------------------------------------------------------------
@dataclass(frozen=True, eq=False)
class NodeExplanation:
    """What a node's logit, or value, owes to the graph.

    Args:
        node: the user's id.
        output: the likeliest class, or the name of the target.
        logit: of that class, or the scaled value of the target.
        features: feature, value (as the network gets it) and contribution of the node's own features; of hop averages
            a row for each hop and feature.
        nodes: node and contribution: the sum over the features of each node that counts.
        edges: source, target and contribution of each edge that counts, by the messages along it: of a Graph Mamba
            Network those inside tokens too, but not that walks followed it. Empty where no messages are passed, as over
            hop averages.
    """

    node: Any
    output: str
    logit: float
    features: pd.DataFrame
    nodes: pd.DataFrame
    edges: pd.DataFrame


def explain_node(task: Any, method: AnyMethod, node: Any, names: Sequence[str] = ()) -> NodeExplanation:
    """Return the explanation of a node's likeliest class, or first target."""
    import pandas as pd
    from torch_geometric.explain.algorithm.utils import clear_masks, set_masks

    if not isinstance(task, NodeTask):
        raise ConfigError("--node is of runs that predict nodes; of links name a pair (--pair)")
    node_ids = task.labels.node_ids or Vocabulary(np.arange(len(task.labels.y)))
    row = _row(node_ids, node, "node")
    if not callable(method.export):
        raise ConfigError(f"{method.name} has no program to take gradients of: {method.export}")
    try:
        form = export_spec(method, task, fills=True)
    except ConfigError as error:
        raise ConfigError(f"--node takes gradients of the exported network, and {error}") from None
    inputs = dict(zip((port.name for port in form.inputs), form.filled(None), strict=True))
    name = "x" if "x" in inputs else "tokens"
    if name not in inputs:
        raise ConfigError(f"{method.name} has no features to take gradients of (inputs: {', '.join(inputs)})")
    x = inputs[name] = inputs[name].detach().requires_grad_()
    lists = _edge_lists(form.module, inputs)
    every = torch.cat([torch.zeros(2, 0, dtype=torch.int64), *(ends for *_, ends in lists)], 1)
    edges, place = every.unique(dim=1, return_inverse=True)
    mask = torch.ones(edges.shape[1], dtype=x.dtype, requires_grad=True)
    try:
        for (given, module, _), part in zip(lists, place.split([ends.shape[1] for *_, ends in lists])):
            set_masks(module, mask[part], given, apply_sigmoid=False)
            given.message_mask = mask[part]  # type: ignore[attr-defined]  # see `EdgeList.gated_mean`
        out = form.module(*inputs.values())[row]
        target = task.labels.target
        several = target.goal == "classes" and out.numel() > 1
        best = int(out.argmax()) if several else 0
        by_x, by_edge = torch.autograd.grad(out[best], (x, mask), allow_unused=True)
    finally:
        clear_masks(form.module)
    contributions = (torch.zeros_like(x) if by_x is None else by_x * x).detach().double().numpy()
    by_edge_values = np.zeros(len(mask)) if by_edge is None else by_edge.double().numpy()
    output = target.names[best] if several else target.positive or target.names[0]
    width, word = x.shape[-1], "encoding " if names else ""  # encodings follow the features
    names = [*names, *(f"{word}{k}" for k in range(width - len(names)))][:width]
    columns = [f"hop {k}: {name}" for k in range(x.shape[1]) for name in names] if x.ndim == 3 else names
    values = x[row].detach().flatten().numpy()
    features = pd.DataFrame({"feature": columns, "value": values, "contribution": contributions[row].ravel()})
    total = contributions.reshape(len(contributions), -1).sum(1)
    ids = node_ids.names(np.arange(len(total)))
    counting, passing = np.flatnonzero(total), np.flatnonzero(by_edge_values)
    sources, targets = ids[edges[:, passing].numpy()]
    of_edges = pd.DataFrame({"source": sources, "target": targets, "contribution": by_edge_values[passing]})
    return NodeExplanation(
        node=node,
        output=str(output),
        logit=float(out[best].detach()),
        features=_largest_first(features),
        nodes=_largest_first(pd.DataFrame({"node": ids[counting], "contribution": total[counting]})),
        edges=_largest_first(of_edges),
    )


def _edge_lists(module: Any, inputs: dict[str, torch.Tensor]) -> list[tuple[torch.Tensor, nn.Module, torch.Tensor]]:
    """Return each list of edges (2, e), the module whose layers pass messages over it, and nodes (2, e) at the ends."""
    lists = [(edges, module, edges) for edges in [inputs.get("edge_index")] if edges is not None]
    if (inside := inputs.get("token_edge_index")) is not None:  # of a Graph Mamba Network
        lists.append((inside, module.model.local, inputs["token_nodes"][inside]))
    return lists


def _explain_node(run: str | Path, node: Any, data: Any, out: str | Path | None) -> NodeExplanation:
    saved = SavedRun.open(run)
    names = (saved.facts.get("features") or {}).get("x", {}).get("columns") or ()
    with load_run(run, data, device="cpu") as (_, task):
        explanation = explain_node(task, saved.method, node, names)
    if out is not None:
        for path, table in zip(
            node_paths(out), (explanation.features, explanation.nodes, explanation.edges), strict=True
        ):
            write_table(table, Path(path))
    return explanation


def node_paths(out: str | Path) -> tuple[Path, Path, Path]:
    """Return where the tables of features, nodes and edges of a node's explanation are written."""
    return Path(out), _path_of_part(out, "nodes"), _path_of_part(out, "edges")
