"""Replay of a stream: score each batch of events before the model observes it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

import numpy as np
from torch import Tensor

from hopstate.data.events import EventBatch, EventStream
from hopstate.errors import DivergenceError, ShapeError
from hopstate.io.output import report_progress
from hopstate.sampling.event_batches import batch_boundaries, event_batches
from hopstate.streaming.protocols import Replayable, Scores


def check_scores(scores: np.ndarray, what: str = "scores") -> np.ndarray:
    """Return scores as float64 and check that they are finite; `what` names them in the error message.

    Raises:
        DivergenceError: a score is NaN or infinite.
    """
    scores = np.asarray(scores, np.float64)
    finite = np.isfinite(scores)
    if not finite.all():
        bad = np.flatnonzero(~finite.reshape(len(scores), -1).all(1))
        raise DivergenceError(f"{len(bad)} of {len(scores)} {what} are NaN or infinite, the first at row {bad[0]}")
    return scores


def replay(
    model: Replayable,
    score: Callable[[np.ndarray], Scores],
    stream: EventStream,
    place: np.ndarray,
    *,
    rows: np.ndarray,
    boundaries: np.ndarray,
    history: Iterable[EventBatch] = (),
    wide: bool = False,
) -> np.ndarray:
    """Replay events to a model and score queries along the way.

    The model is reset and observes the history. Then the queries of each batch are scored before the model observes it.

    Args:
        model: the model.
        score: maps query numbers to scores.
        stream: the event stream.
        place: (Q,) index into rows; a query is scored before the batch with this event. len(rows): after all.
        rows: (P,) positions of the events to replay.
        boundaries: batch boundaries among rows, 0..P.
        history: batches to observe first.
        wide: permit several scores per query (classes). Default: False.

    Returns:
        (Q,) float64 scores, or (Q, C) if wide.

    Raises:
        ShapeError: the number of scores is wrong.
        DivergenceError: a score is NaN or infinite.
    """
    order = np.argsort(place, kind="stable")
    starts = np.append(np.searchsorted(place[order], boundaries), len(order))
    scores: np.ndarray | None = None
    for b in replay_batches(model, stream, rows=rows, boundaries=boundaries, history=history):
        queries = order[starts[b] : starts[b + 1]]
        if len(queries):
            batch_scores = as_scores(score(queries), len(queries), wide)
            scores = np.full((len(order), *batch_scores.shape[1:]), np.nan) if scores is None else scores
            scores[queries] = batch_scores
    return check_scores(np.empty(0) if scores is None else scores)


def replay_batches(
    model: Replayable, stream: EventStream, *, rows: np.ndarray, boundaries: np.ndarray, history: Iterable[EventBatch]
) -> Iterator[int]:
    """Yield each batch number, and the number after the last, once the model has observed all earlier batches.

    Events are not even read for a model whose `observes` is False.

    Args:
        model, stream, rows, boundaries, history: see `replay`.
    """
    model.reset()
    observes = getattr(model, "observes", True)
    for batch in history if observes else ():
        model.observe(batch)
    for b in range(len(boundaries)):
        report_progress(b, len(boundaries) - 1)
        yield b
        if observes and b + 1 < len(boundaries):
            model.observe(stream.take(rows[boundaries[b] : boundaries[b + 1]]))


def replay_split(
    model: Replayable,
    score: Callable[[np.ndarray], Scores],
    stream: EventStream,
    queried_rows: np.ndarray,
    *,
    rows: np.ndarray,
    batch_size: int,
    wide: bool = False,
) -> np.ndarray:
    """Replay a split and return the (Q,) scores of some of its events. Batches start at the beginning of the split.

    Args:
        model: the model; it observes all events before the split first.
        score: maps positions in the stream to scores.
        stream: the event stream.
        queried_rows: (Q,) positions of the events to score, all among rows.
        rows: (P,) sorted positions of the split.
        batch_size: minimum number of events per batch.
        wide: permit several scores per query (classes).
    """
    return replay(
        model,
        lambda queries: score(queried_rows[queries]),
        stream,
        np.searchsorted(rows, queried_rows),
        rows=rows,
        boundaries=batch_boundaries(stream.t[rows], batch_size),
        history=event_batches(stream, np.arange(rows[0] if len(rows) else 0), batch_size=batch_size),
        wide=wide,
    )


def replay_anywhere(
    model: Replayable,
    score: Callable[[np.ndarray], Scores],
    stream: EventStream,
    t: np.ndarray,
    batch_size: int,
    *,
    wide: bool = False,
) -> np.ndarray:
    """Return the (Q,) scores of queries at any times t (Q,).

    Each query is scored before the batch that would contain an event at its time. Batches never split equal timestamps,
    so the model has observed only events strictly before t. An incomplete last batch is not observed: which events are
    observed depends only on earlier events.

    Args:
        model: the model.
        score: maps query numbers to scores.
        stream: the event stream.
        t: (Q,) query times.
        batch_size: events per batch.
        wide: permit several scores per query, (Q, C).
    """
    boundaries = batch_boundaries(stream.t, batch_size)
    closed = full_batches(boundaries, batch_size)
    position = np.searchsorted(stream.t, t, side="left")
    place = closed[np.searchsorted(closed, position, side="right") - 1]
    return replay(model, score, stream, place, rows=np.arange(len(stream)), boundaries=boundaries, wide=wide)


def full_batches(boundaries: np.ndarray, batch_size: int) -> np.ndarray:
    """Return the boundaries without a last batch that later events may still join: it has moved nothing yet."""
    full = len(boundaries) < 2 or boundaries[-1] - boundaries[-2] >= batch_size
    return boundaries if full else boundaries[:-1]


def as_scores(scores: Scores, count: int, wide: bool = False) -> np.ndarray:
    """Convert the scores of count queries to float64.

    Args:
        scores: scores from the model.
        count: number of queries.
        wide: permit several scores per query.

    Raises:
        ShapeError: the number of scores is wrong.
    """
    if isinstance(scores, Tensor):
        scores = scores.detach().to("cpu").double().numpy()
    scores = np.asarray(scores, np.float64)
    if scores.shape[:1] != (count,) or scores.ndim > 1 + wide:
        raise ShapeError(f"the model returned scores of shape {scores.shape} for {count} queries; expected ({count},)")
    return scores
