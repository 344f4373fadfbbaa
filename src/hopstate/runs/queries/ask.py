"""`score` and `rank`: how likely pairs are at a time, and who comes next, from all that a trained run knows."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from hopstate.errors import ConfigError, DataError
from hopstate.io.output import write_table
from hopstate.runs.answers import plain_table, with_index_of
from hopstate.runs.applying import check_table
from hopstate.runs.queries.calibrated import Calibrator
from hopstate.runs.queries.first_stage import FirstStage
from hopstate.runs.queries.names import Columns, Nodes, nodes_of, read_ids, read_pairs, times_of, with_rows
from hopstate.runs.queries.pool import usual_candidates
from hopstate.runs.queries.reasons import reasons
from hopstate.runs.queries.session import Session, columns_of, session
from hopstate.runs.queries.static_links import check_static, is_static, rank_links, score_links
from hopstate.runs.queries.told import tell_few, tell_targets, tell_unmet
from hopstate.streaming.slices import Steps, finished
from hopstate.training.run_folder import RunFolder

if TYPE_CHECKING:
    import pandas as pd


__all__ = ["rank", "score"]


class Candidates:
    """The candidates of sources.

    Args:
        asked: the run.
        given: ids, or a file of ids; None takes `usual_candidates`.
        new_only: leave out a source itself, and whom it has met.
        first_stage: so many at most, the first by `FirstStage`; None keeps all.

    stage: what left some out; None as long as nothing did.
    """

    def __init__(self, asked: Session, given: Any, *, new_only: bool = False, first_stage: int | None = None) -> None:
        self.asked, self.past, self.new_only, self.count = asked, asked.past, new_only, first_stage
        self._given: Nodes | None = None
        if given is not None:
            ids = read_ids(Path(given) if isinstance(given, (str, Path)) else given, "candidates", self.past.node_ids)
            nodes = nodes_of(self.past, ids, "candidates", two_sets=asked.two_sets)
            _, first = np.unique(nodes.names, return_index=True)
            first.sort()
            self._given = nodes.at(first)
        self._usual: dict[Any, np.ndarray] = {}
        self.stage: FirstStage | None = None

    @property
    def given(self) -> tuple[Nodes, ...]:
        """The candidates that were named, nothing where none were."""
        return () if self._given is None else (self._given,)

    def of(self, sources: Nodes, i: int, t: Any) -> Steps[Nodes]:
        row, name = int(sources.rows[i]), sources.names[i]
        if self._given is None:
            rows = self._usual_before(t)
            rows = rows[rows != row]
            names = rows if self.past.node_ids is None else self.past.node_ids.names(rows)
            found = Nodes(names, rows, np.ones(len(rows), bool))
        else:
            found = self._given
        if self.new_only:
            met = np.zeros(len(found), bool)
            known = np.flatnonzero(found.rows >= 0)
            if row >= 0 and len(known):
                ends = np.full(len(known), row), found.rows[known], np.full(len(known), t)
                met[known] = self.past.store().last_meeting(*ends)[1]
            found = found.at(np.flatnonzero(~met & (found.names != name)))
        if self.count is None or len(found) <= self.count:
            return found
        self.stage = self.stage or FirstStage(self.asked)
        yield
        source = Nodes(*(np.repeat(getattr(sources, end)[i : i + 1], len(found)) for end in ("names", "rows", "met")))
        u, v = with_rows(self.past, source, found)
        return found.at((yield from self.stage.best(int(u[0]), v, t, self.count)))

    def told(self) -> dict[str, float]:
        """Return the shares that the first stage keeps: of the model's own best, and of validation's destinations."""
        if self.count is None:
            return {}
        if self.stage is None:
            return {"first_stage_recall": 1.0}
        found = self.stage.finds(self.count)
        return {"first_stage_recall": self.stage.keeps(self.count)} | (
            {} if found is None else {"first_stage_destinations": found}
        )

    def _usual_before(self, t: Any) -> np.ndarray:
        key = None if t > self.past.last_time else t
        if key not in self._usual:
            rows = usual_candidates(self.past, t)
            if not len(rows):
                raise DataError("no node was met before that time, so nobody is a candidate; name some (--candidates)")
            self._usual[key] = rows
        return self._usual[key]


def score(
    run: str | Path,
    pairs: Any,
    time: Any = None,
    *,
    events: Any = None,
    explain: bool = False,
    state: str | Path | None = None,
    fresh: bool = False,
    own: Any = None,
    read: Mapping[str, Any] | None = None,
    out: str | Path | None = None,
    device: str | None = None,
    method: str | None = None,
    raw: bool = False,
) -> pd.DataFrame:
    """Return how likely pairs are to meet at a time, from all that a run knows; nothing of that is changed.

    A score is what `score_stream` would give such an event if it came next; it depends on its pair and time alone,
    and on nothing at or after the time.

    Args:
        run: a run folder of a temporal method for links, or of links of a graph (task link): these have no times,
            nothing but own, read, out, device, method and raw is for them, and every id must be known.
        pairs: a file or a table with columns of sources and targets, and of times if need be; or a list of
            (source, target). Ids are the user's own; such as were never met are scored as new nodes, and told.
        time: one time for all pairs, or one each, instead of a column of times: numbers in the unit of the run's own
            data, or dates. Without any, the first time after the last event that is known.
        events: further events to go on over first, a file, a record, or a list of them in order of time.
        explain: also say why, in a column of that name.
        state, fresh, own: which past to answer from, as in `hopstate.score_stream`.
        read: how events and pairs are read where that differs, e.g. {"source_column": "who"}.
        out: also write the table there (.csv, .parquet or .jsonl).
        device: where to compute; None takes the run's own setting.
        method: as in `hopstate.evaluate`.
        raw: as in `hopstate.io.output.write_table`.

    Returns:
        Columns src, dst, t, score, probability (see `hopstate.runs.queries.calibrated`), and why where it is asked.
        Rows and index are those of pairs.

    Raises:
        ConfigError: the run's method does not score pairs.
        TimeOrderError: a time, or a further event, before the last event that is known.
        DataError: a deleted node, an id or a time that is none, a node that the model cannot score.
        ShapeError: not a time for each pair.
    """
    check_table(out, RunFolder.open(run), method, pairs, read, *_files(events))
    if is_static(RunFolder.open(run), method):
        check_static(time=time, events=events, explain=explain, state=state, fresh=fresh)
        table = score_links(run, plain_table(pairs), read or {}, own, device, method)
        return _written(with_index_of(table, pairs), out, raw)
    columns = columns_of(read or {})
    with session(
        run, events=events, state=state, fresh=fresh, own=own, read=read, device=device, method=method
    ) as asked:
        table = scored(asked, plain_table(pairs), time, explain=explain, columns=columns)
    return _written(with_index_of(table, pairs), out, raw)


def scored(
    asked: Session, pairs: Any, time: Any = None, *, explain: bool = False, columns: Columns = (None,) * 3
) -> pd.DataFrame:
    """Return what `score` does, of a run that is open.

    Args:
        asked: the run.
        pairs, time, explain: as in `score`.
        columns: of sources, targets and times, where a table names them otherwise than the run's own.
    """
    u, v, t = _pairs(asked, pairs, time, columns)
    scores = asked.scores(u, v, t)
    return finished(_table(asked, u, v, t, scores, explain=explain))


def chances(asked: Session, pairs: Any, time: Any = None) -> Steps[tuple[np.ndarray, np.ndarray]]:
    """Return (Q,) scores and (Q,) probabilities of pairs as `scored` does, in slices and without a table."""
    u, v, t = _pairs(asked, pairs, time)
    scores = yield from asked.scoring(u, v, t)
    return scores, Calibrator(asked).probabilities(scores)[0]


def _pairs(asked: Session, pairs: Any, time: Any, columns: Columns = (None,) * 3) -> tuple[Nodes, Nodes, np.ndarray]:
    src, dst, column = read_pairs(asked.past, pairs, columns, asked.columns, asked.dates)
    u, v = (
        nodes_of(asked.past, ids, what, two_sets=asked.two_sets) for ids, what in ((src, "sources"), (dst, "targets"))
    )
    return u, v, times_of(asked.past, column if time is None else time, len(u), "pairs", asked.dates)


def rank(
    run: str | Path,
    sources: Any,
    *,
    top: int | None = 10,
    time: Any = None,
    candidates: Any = None,
    new_only: bool = False,
    exclude_seen: bool = False,
    explain: bool = False,
    first_stage: int | None = None,
    events: Any = None,
    state: str | Path | None = None,
    fresh: bool = False,
    own: Any = None,
    read: Mapping[str, Any] | None = None,
    out: str | Path | None = None,
    device: str | None = None,
    method: str | None = None,
    raw: bool = False,
) -> pd.DataFrame:
    """Return whom sources most likely meet at a time, best first, from all that a run knows; nothing is changed.

    Each candidate's score is what `score` gives the pair. Candidates are sorted by it; equal ones in the order given.

    Args:
        run: a run folder of a temporal method for links, or of links of a graph, see `score`; there new_only leaves
            out whom a link of any split joins to the source.
        sources: an id or several; or a `Path` of a file of ids.
        top: how many to give for each source; None for all.
        time: as in `score`, one for all sources or one each.
        candidates: ids, or a `Path` of a file of ids. Without any: all destinations where no node is a source and a
            destination both (buyers and goods), else all nodes that were met, but the source itself.
        new_only: leave out the source itself and whom it has met before the time, in either direction.
        exclude_seen: the same as new_only, by the name that recommenders have for it.
        explain: also say why, in a column of that name.
        first_stage: score so many candidates of each source alone, chosen by trees that learned to order them as the
            model does; see `hopstate.runs.queries.first_stage`. None scores all.
        events, state, fresh, own, read, out, device, method, raw: as in `score`.

    Returns:
        Columns src, rank (from 1), dst, t, score, probability, and why where it is asked; with first_stage, the share
        of the model's own best ten that it keeps is in attrs["first_stage_recall"], and that of validation events whose
        destination it keeps in attrs["first_stage_destinations"].

    Raises:
        ConfigError: top or first_stage under 1, or the run's method does not score pairs.
        TimeOrderError, DataError, ShapeError: as `score`.
    """
    check_table(out, RunFolder.open(run), method, sources, read, candidates, *_files(events))
    _check_counts(top, first_stage)
    if is_static(RunFolder.open(run), method):
        check_static(time=time, events=events, explain=explain, state=state, fresh=fresh, first_stage=first_stage)
        only = new_only or exclude_seen
        return _written(rank_links(run, sources, top, candidates, only, own, device, method), out, raw)
    with session(
        run, events=events, state=state, fresh=fresh, own=own, read=read, device=device, method=method
    ) as asked:
        chosen: dict[str, Any] = {"new_only": new_only or exclude_seen, "explain": explain, "first_stage": first_stage}
        table = ranked(asked, sources, top=top, time=time, candidates=candidates, **chosen)
    return _written(table, out, raw)


def ranked(
    asked: Session,
    sources: Any,
    *,
    top: int | None = 10,
    time: Any = None,
    candidates: Any = None,
    new_only: bool = False,
    explain: bool = False,
    first_stage: int | None = None,
) -> pd.DataFrame:
    """Return what `rank` does, of a run that is open; arguments as there."""
    return finished(ranking(asked, sources, top, time, candidates, new_only, explain, first_stage, sliced=False))


def ranking(
    asked: Session,
    sources: Any,
    top: int | None = 10,
    time: Any = None,
    candidates: Any = None,
    new_only: bool = False,
    explain: bool = False,
    first_stage: int | None = None,
    *,
    sliced: bool = True,
) -> Steps[pd.DataFrame]:
    """Return what `ranked` does, in slices; whole, which takes less, where sliced is False."""
    _check_counts(top, first_stage)
    nodes = nodes_of(asked.past, read_ids(sources, "sources", asked.past.node_ids), "sources", two_sets=asked.two_sets)
    t = times_of(asked.past, time, len(nodes), "sources", asked.dates)
    pool = Candidates(asked, candidates, new_only=new_only, first_stage=first_stage)
    tell_unmet(asked.past, nodes, *pool.given)
    tell_targets(asked.past, nodes)
    parts: list[Any] = [None] * len(nodes)
    for i in range(len(nodes)):
        parts[i] = yield from _ranking(asked, pool, nodes, i, t[i], top, sliced=sliced)
    tell_few(top, nodes.names, [len(answer[0]) for answer in parts], new_only=pool.new_only)
    src, dst = _joined(asked, [answer[0] for answer in parts]), _joined(asked, [answer[1] for answer in parts])
    _, _, *columns = zip(*parts, strict=True)
    place, times, found = (np.concatenate(column) for column in columns)
    table = yield from _table(asked, src, dst, times.astype(t.dtype), found, explain=explain)
    table.insert(1, "rank", place)
    table.attrs |= pool.told()
    return table


def _check_counts(top: int | None, first_stage: int | None) -> None:
    for name, value in (("top", top), ("first_stage", first_stage)):
        if value is not None and (not isinstance(value, int | np.integer) or value < 1):
            raise ConfigError(f"{name} is a number of candidates, at least 1; got {value!r}")


def _ranking(
    asked: Session, pool: Any, nodes: Nodes, i: int, t: Any, top: int | None, *, sliced: bool
) -> Steps[tuple[Nodes, Nodes, np.ndarray, np.ndarray, np.ndarray]]:
    source, found = nodes.at(np.array([i])), (yield from pool.of(nodes, i, t))
    many = source.at(np.zeros(len(found), np.int64))
    times = np.full(len(found), t)
    asking = many, found, times
    scores = (yield from asked.scoring(*asking, told=True)) if sliced else asked.scores(*asking, told=True)
    best = np.argsort(-scores, kind="stable")[:top]
    return many.at(best), found.at(best), np.arange(1, len(best) + 1), times[best], scores[best]


def _joined(asked: Session, parts: list[Nodes]) -> Nodes:
    if not parts:
        return nodes_of(asked.past, np.empty(0, np.int64 if asked.past.node_ids is None else str), "sources")
    return Nodes(*(np.concatenate([getattr(part, name) for part in parts]) for name in ("names", "rows", "met")))


def _table(
    asked: Session,
    u: Nodes,
    v: Nodes,
    t: np.ndarray,
    scores: np.ndarray,
    *,
    explain: bool,
) -> Steps[pd.DataFrame]:
    import pandas as pd

    found, said = Calibrator(asked).probabilities(scores)
    columns = {"src": u.names, "dst": v.names, "t": asked.shown(t), "score": scores, "probability": found}
    if explain:
        columns["why"] = yield from reasons(asked, u, v, t)
    table = pd.DataFrame(columns)
    table.attrs["probability"] = said
    return table


def _files(events: Any) -> list[Any]:
    return list(events) if isinstance(events, (list, tuple)) else [events]


def _written(table: pd.DataFrame, out: str | Path | None, raw: bool) -> pd.DataFrame:
    if out is not None:
        write_table(table, Path(out), raw=raw)
    return table
