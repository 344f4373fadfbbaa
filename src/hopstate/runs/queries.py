"""Query a trained link-prediction run: `score` pairs and `rank` destinations."""

from __future__ import annotations

import hashlib
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from copy import copy
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import torch

from hopstate.data.dates import format_times
from hopstate.data.events import not_none
from hopstate.data.stream_state import StreamState
from hopstate.errors import CheckpointError, ConfigError, DataError, HopstateError, HopstateWarning, StorageError
from hopstate.evaluation.calibration import IsotonicCurve, fit_isotonic
from hopstate.io.output import write_table
from hopstate.methods.shared.static_link import node_rows
from hopstate.random import named_rng
from hopstate.runs.load import load_run, load_state, new_events, temporal_task, warn_new_ids
from hopstate.runs.query_inputs import (
    NO_COLUMNS,
    Columns,
    QueryNodes,
    check_table,
    pair_rows,
    plain_table,
    query_relations,
    query_times,
    read_ids,
    read_pairs,
    resolve_nodes,
    warn_unseen,
    with_index_of,
)
from hopstate.runs.saved_run import SavedRun
from hopstate.streaming.live import PairQueries, continue_stream, fingerprint, state_after_stream
from hopstate.streaming.slices import SliceSizer, Steps, map_sliced, run_to_completion
from hopstate.training.tasks.link import LinkTask
from hopstate.training.tasks.static_link import StaticLinkTask

if TYPE_CHECKING:
    import pandas as pd

    from hopstate.data.events import EventStream

__all__ = ["QuerySession", "open_session", "rank", "score"]

CALIBRATION_FILE = "calibration.json"
_CALIBRATION_FORMAT = "hopstate-calibration-5"


class QuerySession:
    """A link-prediction run with a stream state, opened for queries.

    Args:
        run: the run.
        task: its task, without its data.
        past: the state.
        pace: duration of a time slice, so that a service can interleave queries. Default: no slices.

    curve: the calibration curve once it is loaded, or the error if there is none.
    """

    def __init__(
        self,
        run: SavedRun,
        task: LinkTask,
        past: StreamState,
        pace: SliceSizer | None = None,
    ) -> None:
        self.run, self.task, self._pace = run, task, pace
        self.columns = columns_of(run.method_settings()["read"])
        self.curve: IsotonicCurve | HopstateError | None = None
        self._follow(past)

    def _follow(self, past: StreamState) -> None:
        self.past = past
        # two more rows for a pair of unseen nodes
        self.queries = PairQueries(self.task, replace(past, num_nodes=past.num_nodes + 2, node_ids=None))

    def over(self, past: StreamState) -> QuerySession:
        """Return the same run over another state, without reading its files again."""
        if past is self.past:
            return self
        session = copy(self)
        session._follow(past)
        return session

    @cached_property
    def two_sets(self) -> bool:
        """Whether the data are bipartite, with ids prefixed by u and i."""
        return bool(self.run.facts.get("two_sets"))

    @cached_property
    def dates(self) -> str:
        """The zone of the dates in the run's own file, "" if its times are numbers."""
        return self.run.dates

    def now(self) -> Any:
        """Return the first time after the last known event."""
        return query_times(self.past, None, 1, "sources")[0]

    def display_times(self, t: np.ndarray) -> np.ndarray:
        """Return (Q,) times as the run's own file has them, numbers or dates."""
        return format_times(t, self.past.time_unit or "", self.dates)

    def nodes(self, names: Any, what: str) -> QueryNodes:
        return resolve_nodes(self.past, names, what, two_sets=self.two_sets)

    def scores(
        self, src: QueryNodes, dst: QueryNodes, t: np.ndarray, relation: np.ndarray | None = None
    ) -> Steps[np.ndarray]:
        """Return (Q,) scores of pairs src (Q,), dst (Q,) at t (Q,), in slices; the state may change between them.

        relation (Q,) is that of each pair, None if the run's events have none.
        """
        columns = not_none(*pair_rows(self.past, src, dst), t, relation)
        queries = self.queries

        def scores_of(part: slice) -> np.ndarray:
            return queries.scores(*(column[part] for column in columns))

        try:
            return (yield from map_sliced(scores_of, len(t), self._pace))
        except DataError as error:
            unknown = [name for nodes in (src, dst) for name in nodes.names[nodes.rows < 0].tolist()]
            if not unknown:
                raise
            raise DataError(
                f"{unknown[0]!r} has no events, and this model cannot score unseen nodes: {error}"
            ) from None


def columns_of(read: Mapping[str, Any]) -> Columns:
    """Return the columns of `Columns` that options of reading name; None if they do not."""
    return (
        read.get("source_column"),
        read.get("target_column"),
        read.get("time_column"),
        read.get("relation_column"),
    )


@contextmanager
def open_session(
    run: str | Path,
    *,
    history: Any = None,
    events: Any = None,
    state: str | Path | None = None,
    ignore_state: bool = False,
    read: Mapping[str, Any] | None = None,
    device: str | None = None,
    links: bool = True,
) -> Iterator[QuerySession]:
    """Yield a run opened for queries about links, or with links=False about nodes; the rest as in `hopstate.score`.

    history: events in place of the run's own.
    """
    with temporal_task(run, device) as (saved, task):
        if links and not isinstance(task, LinkTask):
            raise ConfigError(
                f"{saved.path} is a run of {saved.method.name}, which scores no pairs; see predict and node_outputs"
            )
        if history is None:
            past = load_state(saved, task, state, ignore_state=ignore_state)
        else:
            past = state_after_stream(task, saved.preprocess(new_events(saved, plain_table(history), {})))
        for one in _as_list(events):
            new = saved.preprocess(new_events(saved, one, read or {}))
            warn_new_ids(past, new)
            past = continue_stream(task, past, new, score=False)[1]
        yield QuerySession(saved, task, past)


def _as_list(events: Any) -> list[Any]:
    return list(events) if isinstance(events, (list, tuple)) else [] if events is None else [events]


# ---- pairs ---------------------------------------------------------------------------------------------------
def score(
    run: str | Path,
    pairs: Any,
    time: Any = None,
    *,
    relation: Any = None,
    events: Any = None,
    explain: bool = False,
    state: str | Path | None = None,
    ignore_state: bool = False,
    read: Mapping[str, Any] | None = None,
    out: str | Path | None = None,
    device: str | None = None,
) -> pd.DataFrame:
    """Score pairs of nodes at a time. The state of the run does not change.

    A score equals that of `stream` if the pair were the next event. It depends on the pair, the time and earlier
    events only.

    Args:
        run: run folder of temporal or static link prediction. Static runs (task link) accept only read, out and
            device, and every id must be known.
        pairs: (Q,) pairs: a list of (source, target), or a file or table with their columns and optionally times.
            Unseen ids of a stream are scored with an empty history, with a warning.
        time: one time for all pairs or one each, in the run's time unit or as dates. Default: the column of times in
            pairs, otherwise the first time step after the last known event.
        relation: one relation for all pairs or one each, if the run's events have relations. Default: the column of
            relations in pairs.
        events: further events to append to the state first: a file, a record, or a list in order of time.
        explain: add a column "why". Default: False.
        state, ignore_state: the state to query, as in `hopstate.stream`.
        read: reading options of events and pairs that differ from the run's, e.g. {"source_column": "who"}.
        out: also write the table there (.csv, .parquet or .jsonl).
        device: where to compute; None takes the run's own setting.

    Returns:
        Columns src, dst, relation if events have some, t, score, probability (calibrated), and why if explain. Rows and
        index are those of pairs.

    Raises:
        ConfigError: the run's method does not score pairs.
        TimeOrderError: a time, or a further event, before the last known event.
        DataError: an invalid id or time, or a node that the model cannot score.
        ShapeError: not a time for each pair.

    Example:
        >>> hopstate.score(run.path, [(1, 4), (1, 6)], time=300)["t"].tolist()
        [300, 300]
    """
    saved = SavedRun.open(run)
    check_table(out, saved, pairs, read, *_as_list(events))
    given = plain_table(pairs)
    if saved.predicts_static_links:
        reject_temporal_options(
            time=time, relation=relation, events=events, explain=explain, state=state, ignore_state=ignore_state
        )
        with graph_session(run, device) as links:
            table = links.score_pairs(given, columns_of(read or {}))
    else:
        with open_session(
            run,
            events=events,
            state=state,
            ignore_state=ignore_state,
            read=read,
            device=device,
        ) as opened:
            table = score_session(opened, given, time, relation, explain=explain, columns=columns_of(read or {}))
    return _write_table_to(with_index_of(table, pairs), out)


def score_session(
    opened: QuerySession,
    pairs: Any,
    time: Any = None,
    relation: Any = None,
    *,
    explain: bool = False,
    columns: Columns = NO_COLUMNS,
) -> pd.DataFrame:
    """Return the table of `score` for an open run; columns as `columns_of` has them, if other than the run's."""
    queries = _pairs(opened, pairs, time, relation, columns)
    scores = run_to_completion(opened.scores(*queries))
    return run_to_completion(_table(opened, *queries, scores, explain=explain))


def pair_probabilities(
    opened: QuerySession, pairs: Any, time: Any = None, relation: Any = None
) -> Steps[tuple[np.ndarray, np.ndarray]]:
    """Return (Q,) scores and (Q,) probabilities of pairs in slices, without a table."""
    scores = yield from opened.scores(*_pairs(opened, pairs, time, relation))
    return scores, probabilities(opened, scores)[0]


def _pairs(
    opened: QuerySession, pairs: Any, time: Any, relation: Any, columns: Columns = NO_COLUMNS
) -> tuple[QueryNodes, QueryNodes, np.ndarray, np.ndarray | None]:
    given = read_pairs(pairs, columns, opened.columns, opened.past.node_ids)
    column = given.times(opened.past, opened.dates)
    u, v = opened.nodes(given.source, "sources"), opened.nodes(given.target, "targets")
    t = query_times(opened.past, column if time is None else time, len(u), "pairs", opened.dates)
    named = given.relations() if relation is None and opened.past.relation_names else relation
    codes = query_relations(opened.past, named, len(u), "pairs")
    warn_unseen(opened.past, u, v)
    return u, v, t, codes


def _table(
    opened: QuerySession,
    u: QueryNodes,
    v: QueryNodes,
    t: np.ndarray,
    relation: np.ndarray | None,
    scores: np.ndarray,
    *,
    explain: bool,
) -> Steps[pd.DataFrame]:
    import pandas as pd

    from hopstate.runs.explain import explain_pairs

    found, meaning = probabilities(opened, scores)
    columns = {"src": u.names, "dst": v.names, "t": opened.display_times(t), "score": scores, "probability": found}
    if explain:
        columns["why"] = yield from explain_pairs(opened, u, v, t, relation)
    table = pd.DataFrame(columns)
    if relation is not None:
        table.insert(2, "relation", np.array(opened.past.relation_names, object)[relation])
    table.attrs["probability"] = meaning
    return table


def _write_table_to(table: pd.DataFrame, out: str | Path | None) -> pd.DataFrame:
    if out is not None:
        write_table(table, Path(out))
    return table


# ---- rankings ------------------------------------------------------------------------------------------------
def rank(
    run: str | Path,
    sources: Any,
    *,
    top: int | None = 10,
    time: Any = None,
    relation: str | None = None,
    predict: Literal["target", "relation"] = "target",
    candidates: Any = None,
    exclude_seen: bool = False,
    explain: bool = False,
    prefilter: int | None = None,
    events: Any = None,
    state: str | Path | None = None,
    ignore_state: bool = False,
    read: Mapping[str, Any] | None = None,
    out: str | Path | None = None,
    device: str | None = None,
) -> pd.DataFrame:
    """Rank candidate destinations of sources at a time, best first. The state of the run does not change.

    Candidates are sorted by the score that `score` gives the pair; ties keep the given order.

    Args:
        run: run folder of temporal or static link prediction, as in `score`.
        sources: one id or several; or a `Path` of a file of ids.
        top: number of destinations per source; None returns all. Default: 10.
        time: as in `score`, one for all sources or one each.
        relation: relation of the events to come, if the run's events have relations.
        predict: "relation" ranks the relations of each source with each of candidates instead of destinations.
        candidates: ids, or a `Path` of a file of ids. Default: all destinations of a bipartite stream, otherwise all
            nodes with an event except the source. With a relation, the nodes of its events; if nodes have types, all
            nodes of the types of its destinations.
        exclude_seen: exclude the source and nodes that it has interacted with before the time, in either direction. In
            a static run, exclude nodes linked to the source in any split. Default: False.
        explain: add a column "why". Default: False.
        prefilter: number of candidates per source to score, chosen by recency, common neighbors and popularity (see
            `Prefilter`). Default: all.
        events, state, ignore_state, read, out, device: as in `score`.

    Returns:
        Columns src, rank (from 1), dst, relation if events have some, t, score, probability, and why if explain. With
        prefilter, attrs["prefilter_recall"] is its recall on validation events. With predict="relation", probability
        is normalized over the relations of a pair.

    Raises:
        ConfigError: top or prefilter below 1, or the run's method does not score pairs.
        TimeOrderError, DataError, ShapeError: as `score`.

    Example:
        >>> hopstate.rank(run.path, 1, top=2)["rank"].tolist()
        [1, 2]
    """
    saved = SavedRun.open(run)
    check_table(out, saved, sources, read, candidates, *_as_list(events))
    _check_counts(top, prefilter)
    if saved.predicts_static_links:
        reject_temporal_options(
            time=time, relation=relation, predict=predict != "target", events=events, explain=explain, state=state,
            ignore_state=ignore_state, prefilter=prefilter,
        )  # fmt: skip
        with graph_session(run, device) as links:
            table = links.rank_sources(sources, top, candidates, exclude_seen)
    else:
        with open_session(
            run,
            events=events,
            state=state,
            ignore_state=ignore_state,
            read=read,
            device=device,
        ) as opened:
            table = run_to_completion(
                rank_session(
                    opened, sources, top, time, candidates, exclude_seen, explain, prefilter, relation, predict
                )
            )
    return _write_table_to(table, out)


def rank_session(
    opened: QuerySession,
    sources: Any,
    top: int | None = 10,
    time: Any = None,
    candidates: Any = None,
    exclude_seen: bool = False,
    explain: bool = False,
    prefilter: int | None = None,
    relation: str | None = None,
    predict: str = "target",
) -> Steps[pd.DataFrame]:
    """Return the table of `rank` for an open run, in slices; arguments as there."""
    _check_counts(top, prefilter)
    if predict not in ("target", "relation"):
        raise ConfigError(f"predict is target or relation: got {predict!r}")
    if predict == "relation":
        return (yield from _rank_relations(opened, sources, top, time, candidates, relation, explain=explain))
    nodes = opened.nodes(read_ids(sources, "sources", opened.past.node_ids), "sources")
    t = query_times(opened.past, time, len(nodes), "sources", opened.dates)
    codes = query_relations(opened.past, relation, 1, "sources")
    pool = Candidates(opened, candidates, exclude_seen=exclude_seen, prefilter=prefilter, relation=codes)
    warn_unseen(opened.past, nodes, *([] if pool.given is None else [pool.given]))
    parts = []
    for i in range(len(nodes)):
        candidates_of_source = pool.of(nodes, i, t[i])
        source = nodes.at(np.full(len(candidates_of_source), i))
        relations = None if codes is None else np.repeat(codes, len(candidates_of_source))
        scores = yield from opened.scores(
            source, candidates_of_source, np.full(len(candidates_of_source), t[i]), relations
        )
        best = np.argsort(-scores, kind="stable")[:top]
        parts.append((source.at(best), candidates_of_source.at(best), np.full(len(best), t[i]), scores[best]))
    src, dst, times, scores_of = zip(*parts, strict=True)
    joined = QueryNodes.join(src), QueryNodes.join(dst), np.concatenate(times)
    relations = None if codes is None else np.repeat(codes, len(joined[2]))
    table = yield from _table(opened, *joined, relations, np.concatenate(scores_of), explain=explain)
    table.insert(1, "rank", np.concatenate([np.arange(1, len(part) + 1) for part in src]))
    if prefilter is not None:
        table.attrs["prefilter_recall"] = prefilter_recall(opened, prefilter)
    return table


def _rank_relations(
    opened: QuerySession, sources: Any, top: int | None, time: Any, targets: Any, relation: Any, *, explain: bool
) -> Steps[pd.DataFrame]:
    """Return the relations of each source with each target, best first, with probabilities that sum to 1."""
    past, count = opened.past, len(opened.past.relation_names)
    if not count:
        raise ConfigError("predict=relation: the run's events have no relations. Leave it out")
    if relation is not None:
        raise ConfigError(f"predict=relation ranks all relations: got relation={relation!r}. Leave it out")
    if targets is None:
        raise ConfigError(
            "predict=relation ranks the relations of pairs: got no candidates. Give them (--candidates FILE)"
        )
    u = opened.nodes(read_ids(sources, "sources", past.node_ids), "sources")
    ids = read_ids(Path(targets) if isinstance(targets, str) else targets, "candidates", past.node_ids)
    v = opened.nodes(ids, "candidates")
    t = query_times(past, time, len(u), "sources", opened.dates)
    warn_unseen(past, u, v)
    place, target, code = (axis.ravel() for axis in np.indices((len(u), len(v), count)))
    queries = u.at(place), v.at(target), t[place], code.astype(np.int32)
    scores = yield from opened.scores(*queries)
    table = yield from _table(opened, *queries, scores, explain=explain)
    joined = np.tile(_joins_types(past, v), (len(u), 1))
    by_pair = scores.reshape(-1, count)
    if scores.min() < 0 or scores.max() > 1:  # no probabilities
        by_pair = np.exp(by_pair - by_pair.max(1, keepdims=True))
    by_pair = np.where(joined, by_pair, 0)
    total = by_pair.sum(1, keepdims=True)
    table["probability"] = np.divide(by_pair, total, out=np.full_like(by_pair, 1 / count), where=total > 0).ravel()
    table.attrs["probability"] = "of the relation, if the pair has an event next"
    order = np.lexsort((-scores.reshape(-1, count), ~joined))[:, :top]
    ranked = table.iloc[(order + np.arange(len(order))[:, None] * count).ravel()].reset_index(drop=True)
    ranked.insert(1, "rank", np.tile(np.arange(1, order.shape[1] + 1), len(order)))
    ranked.attrs = table.attrs
    return ranked


def _joins_types(past: StreamState, targets: QueryNodes) -> np.ndarray:
    """Return (q, R) whether each relation joins targets of the type of each node; True if types are unknown."""
    joined = np.ones((len(targets), len(past.relation_names)), bool)
    known = np.flatnonzero(targets.rows >= 0)
    if past.node_type is None or past.relation is None:
        return joined
    types = past.node_type[targets.rows[known]]
    for r in range(joined.shape[1]):
        joined[known, r] = (types < 0) | np.isin(types, past.node_type[past.active_in_relation(r)[1]])
    return joined


def _check_counts(top: int | None, prefilter: int | None) -> None:
    for name, value in (("top", top), ("prefilter", prefilter)):
        if value is not None and (not isinstance(value, int | np.integer) or value < 1):
            raise ConfigError(f"{name} is a number of candidates, at least 1; got {value!r}")


class Candidates:
    """The candidates of sources."""

    def __init__(
        self,
        opened: QuerySession,
        given: Any,
        *,
        exclude_seen: bool = False,
        prefilter: int | None = None,
        relation: np.ndarray | None = None,
    ) -> None:
        self.past, self.exclude_seen, self.count, self.relation = opened.past, exclude_seen, prefilter, relation
        self.given: QueryNodes | None = None
        if given is not None:
            ids = read_ids(Path(given) if isinstance(given, str) else given, "candidates", self.past.node_ids)
            nodes = opened.nodes(ids, "candidates")
            _, first = np.unique(nodes.names, return_index=True)
            self.given = nodes.at(np.sort(first))
        self._prefilter = Prefilter(self.past)

    def of(self, sources: QueryNodes, i: int, t: Any) -> QueryNodes:
        """Return the candidates of source i at a time."""
        row = int(sources.rows[i])
        candidates = self._usual(row, t) if self.given is None else self.given
        if self.exclude_seen:
            seen = np.zeros(len(candidates), bool)
            known = np.flatnonzero(candidates.rows >= 0)
            if row >= 0 and len(known):
                ends = np.full(len(known), row), candidates.rows[known], np.full(len(known), t)
                seen[known] = self.past.store().last_meeting(*ends)[1]
            candidates = candidates.at(np.flatnonzero(~seen & (candidates.names != sources.names[i])))
        if self.count is None or len(candidates) <= self.count:
            return candidates
        return candidates.at(self._prefilter.best(row, candidates.rows, t, self.count))

    def _usual(self, source: int, t: Any) -> QueryNodes:
        rows = default_candidates(self.past, t, None if self.relation is None else int(self.relation[0]))
        if not len(rows):
            what = "node" if self.relation is None else f"event of {self.past.relation_names[int(self.relation[0])]!r}"
            raise DataError(f"no {what} before that time, so nothing can be ranked. Give candidates")
        rows = rows[rows != source]
        names = rows if self.past.node_ids is None else self.past.node_ids.names(rows)
        return QueryNodes(names, rows, np.ones(len(rows), bool))


def default_candidates(past: StreamState, t: Any, relation: int | None = None) -> np.ndarray:
    """Return sorted rows of all destinations before t; of all nodes with events if some node is also a source.

    With a relation, only its events count. If nodes have types, all nodes of the types of its destinations are found.
    """
    stop = int(np.searchsorted(past.t, t, side="left"))
    sent, received = past.ever_active(stop)
    if relation is not None:
        senders, receivers = past.active_in_relation(relation, stop)
        if past.node_type is not None:
            types = past.node_type[: past.num_nodes]
            return np.flatnonzero((sent | received) & np.isin(types, types[receivers]))
        both_ways = len(np.intersect1d(senders, receivers)) > 0
        return np.union1d(senders, receivers) if both_ways else receivers
    return np.flatnonzero(sent | received if (sent & received).any() else received)


class Prefilter:
    """A cheap ranking of candidates, so that the model scores only the best of them.

    Repeat pairs come first, latest first. The other candidates are sorted by the number of recent neighbors that they
    share with the source, then by their number of recent events.
    """

    neighbors = 32  # latest events of a node whose neighbors are compared
    window = 1_000  # latest events before the query that count for popularity

    def __init__(self, past: StreamState) -> None:
        self.past, self.store = past, past.store()

    def best(self, source: int, candidates: np.ndarray, t: Any, count: int) -> np.ndarray:
        """Return sorted positions of the best `count` candidates (q,); source and candidates are rows, -1 if unseen."""
        known = np.flatnonzero(candidates >= 0)
        rows, times = candidates[known], np.full(len(known), t)
        last = np.full(len(candidates), -np.inf)
        common, popularity = np.zeros((2, len(candidates)), np.int64)
        popularity[known] = self._popularity(t)[rows]
        if source >= 0 and len(known):
            last_times, seen = self.store.last_meeting(np.full(len(rows), source), rows, times)
            last[known[seen]] = last_times[seen] - np.float64(self.past.t[0])
            common[known] = self._common_neighbors(source, rows, times)
        return np.sort(np.lexsort((-popularity, -common, -last))[:count])

    def _popularity(self, t: Any) -> np.ndarray:
        stop = int(np.searchsorted(self.past.t, t, side="left"))
        latest = slice(max(stop - self.window, 0), stop)
        ends = np.concatenate([self.past.src[latest], self.past.dst[latest]])
        return np.bincount(ends, minlength=self.past.num_nodes)

    def _common_neighbors(self, source: int, rows: np.ndarray, times: np.ndarray) -> np.ndarray:
        of_source = np.zeros(self.past.num_nodes, bool)
        of_source[self.store.last(np.array([source]), times[:1], self.neighbors).nodes] = True
        of_source[source] = False
        near = self.store.last(rows, times, self.neighbors)
        total = np.concatenate([[0], np.cumsum(of_source[near.nodes])])
        return total[near.offsets[1:]] - total[near.offsets[:-1]]


def prefilter_recall(opened: QuerySession, count: int) -> float:
    """Return the recall of a prefilter on a sample of validation events; NaN if there are none."""
    with load_run(opened.run.path) as (_, task):
        assert isinstance(task, LinkTask)
        return prefilter_recall_on(task.stream, task.split.val, count)


def prefilter_recall_on(stream: EventStream, rows: np.ndarray, count: int, max_events: int = 300) -> float:
    """Return the recall of a prefilter on the events at rows, of which at most max_events are sampled."""
    past = StreamState().joined(stream, skip_features=True)[1]
    prefilter = Prefilter(past)
    rows = named_rng(0, "prefilter").permutation(stream.additions(rows))[:max_events]
    hits = []
    for u, v, t in zip(stream.src[rows], stream.dst[rows], stream.t[rows]):
        pool = default_candidates(past, t)
        pool = pool[pool != u]
        hits.append(v in pool[prefilter.best(int(u), pool, t, count)])
    return float(np.mean(hits)) if hits else float("nan")


# ---- links of a graph without times --------------------------------------------------------------------------
# Scores equal those of `evaluate` up to rounding.
def reject_temporal_options(**given: Any) -> None:
    """Raise ConfigError for options, given by name, that only event streams have."""
    for name, value in given.items():
        if value not in (None, False, ()):
            option = name.replace("_", "-")
            raise ConfigError(
                f"{name} applies to event streams only, and this run's graph has no times: leave --{option} out"
            )


class GraphSession:
    """A static link-prediction run, opened for queries."""

    def __init__(self, task: StaticLinkTask, columns: Columns, *, typed: bool) -> None:
        self.task, self.graph, self.columns, self.typed = task, task.messages, columns, typed
        self.score = task.scorer()

    @cached_property
    def curve(self) -> IsotonicCurve:
        """The calibration curve, fitted to validation links and as many random negatives."""
        question = self.task.question("val")
        negatives = question.negatives()
        pairs = np.concatenate([question.pairs, negatives[negatives[:, 1] >= 0]])
        y = (np.arange(len(pairs)) < len(question.pairs)).astype(np.float64)
        return replace(fit_isotonic(self.task.scorer("val")(*pairs.T), y, "drawn"), num_events=len(question.pairs))

    def score_pairs(self, pairs: Any, columns: Columns) -> pd.DataFrame:
        """Return the table of `score`."""
        given = read_pairs(pairs, columns, self.columns, self.graph.node_ids)
        if given.table is not None and given.relation is not None and (self.typed or columns[3]):
            raise ConfigError(
                f"{given.table.path}: static links are scored alike for every relation: got the column "
                f"{given.relation!r} of relations. Leave it out"
            )
        u = node_rows(self.graph, np.asarray(given.source), "pairs", "u")
        v = node_rows(self.graph, np.asarray(given.target), "pairs", "i")
        return self._table(u, v, self.score(u, v))

    def rank_sources(self, sources: Any, top: int | None, candidates: Any, exclude_seen: bool) -> pd.DataFrame:
        """Return the table of `rank`; candidates are all nodes but the source, of two sets those of the other set."""
        import pandas as pd

        ids, types = self.graph.node_ids, self.graph.sides
        given = node_rows(self.graph, read_ids(sources, "sources", ids), "sources", "u")
        pool = np.arange(self.graph.num_nodes)
        if candidates is not None:
            candidates = read_ids(Path(candidates) if isinstance(candidates, str) else candidates, "candidates", ids)
            pool = np.array(list(dict.fromkeys(node_rows(self.graph, candidates, "candidates", "i").tolist())))
            types = None  # explicit candidates may be of either node type
        tables = []
        for u in given.tolist():
            others = pool if types is None or types[u] < 0 else pool[types[pool] == 1 - types[u]]
            tables.append(self._ranked(u, others, top, exclude_seen))
        return pd.concat(tables, ignore_index=True)

    def _ranked(self, u: int, pool: np.ndarray, top: int | None, exclude_seen: bool) -> pd.DataFrame:
        others = pool[pool != u]
        if exclude_seen:
            others = others[~self.task.free.linked(np.full(len(others), u), others)]
        source = np.full(len(others), u)
        scores = self.score(source, others)
        best = np.argsort(-scores, kind="stable")[:top]
        table = self._table(source[best], others[best], scores[best])
        table.insert(1, "rank", np.arange(1, len(best) + 1))
        return table

    def _table(self, u: np.ndarray, v: np.ndarray, scores: np.ndarray) -> pd.DataFrame:
        import pandas as pd

        ids = self.graph.node_ids
        names = {"src": u, "dst": v} if ids is None else {"src": ids.names(u), "dst": ids.names(v)}
        table = pd.DataFrame(names | {"score": scores, "probability": self.curve(scores)})
        table.attrs["probability"] = self.curve.text().replace("events", "links")
        return table


@contextmanager
def graph_session(run: str | Path, device: str | None) -> Iterator[GraphSession]:
    """Yield a run of links of a graph opened for queries."""
    saved = SavedRun.open(run)
    read = saved.method_settings()["read"]
    with load_run(run, device=device) as (computation, task), torch.no_grad(), computation.precision():
        assert isinstance(task, StaticLinkTask)
        yield GraphSession(task, columns_of(read), typed=bool(saved.facts.get("relation_names")))


# ---- probabilities -------------------------------------------------------------------------------------------
# An isotonic curve is fitted to validation events and random negatives. Probabilities assume the ratio of events to
# negatives in validation, which is saved with the curve and reported.
def probabilities(opened: QuerySession, scores: np.ndarray) -> tuple[np.ndarray, str]:
    """Return (Q,) probabilities of scores (Q,), NaN without a calibration curve, and their meaning."""
    try:
        curve = calibration_of(opened)
    except HopstateError as error:
        warnings.warn(f"scores have no probabilities: {error}", HopstateWarning, stacklevel=5)
        return np.full(len(scores), np.nan), f"unknown: {error}"
    return curve(scores), curve.text()


def calibration_of(opened: QuerySession) -> IsotonicCurve:
    """Return the calibration curve from the run folder, otherwise fit one to validation once per session."""
    if opened.curve is None:
        try:
            opened.curve = load_calibration(opened.run, opened.task) or _fit_calibration(opened)
        except HopstateError as error:
            opened.curve = error
    if isinstance(opened.curve, HopstateError):
        raise opened.curve
    return opened.curve


def _fit_calibration(opened: QuerySession) -> IsotonicCurve:
    with load_run(opened.run.path) as (computation, task), computation.precision():
        assert isinstance(task, LinkTask)
        curve = task.calibration_curve()
    if curve is None:
        raise DataError("validation has no events, or no pairs to compare them with")
    return curve


def load_calibration(run: SavedRun, task: LinkTask) -> IsotonicCurve | None:
    """Load the calibration of a run folder; None if it is missing or of other weights, settings or data."""
    if not (run.path / CALIBRATION_FILE).is_file():
        return None
    try:
        saved = run.read_json(CALIBRATION_FILE)
        if (
            not isinstance(saved, dict)
            or saved.get("model") != _key(run, task)
            or saved.get("format") != _CALIBRATION_FORMAT
        ):
            return None
        scores, values = (np.asarray(saved[name], np.float64) for name in ("scores", "values"))
        curve = IsotonicCurve(scores, values, int(saved["num_events"]), float(saved["ratio"]), str(saved["strategy"]))
    except (CheckpointError, ArithmeticError, KeyError, TypeError, ValueError):
        return None
    sound = scores.ndim == 1 and scores.shape == values.shape and len(scores) and np.isfinite([scores, values]).all()
    rising = sound and (np.diff(scores) >= 0).all() and (np.diff(values) >= 0).all()
    return curve if rising and 0 <= values[0] <= values[-1] <= 1 else None


def save_calibration(run: SavedRun, task: LinkTask) -> None:
    """Save the calibration of a trained run, so that queries need not fit it."""
    pooled = task.evaluation.protocol == "pooled"  # then the last validation has already fitted the curve
    curve = task.curve if pooled else task.calibration_curve()
    if curve is None:
        return
    facts: dict[str, Any] = {"format": _CALIBRATION_FORMAT, "model": _key(run, task)}
    facts |= {"scores": curve.scores.tolist(), "values": curve.values.tolist(), "num_events": curve.num_events}
    try:
        run.write_json(CALIBRATION_FILE, facts | {"ratio": curve.ratio, "strategy": curve.strategy})
    except StorageError as error:
        warnings.warn(f"the calibration was not saved: {error}", HopstateWarning, stacklevel=5)


def _key(run: SavedRun, task: LinkTask) -> str:
    """Return a key of weights, settings and data, because models without weights have equal fingerprints."""
    files = (run.path / name for name in ("config.json", "data.json"))
    content = b"".join(file.read_bytes() for file in files if file.is_file())
    return f"{fingerprint(task)}-{hashlib.sha256(content).hexdigest()[:16]}"
