"""Score a batch of a stream, then let the model see it: the loop behind every temporal evaluation."""

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
    """Return scores as float64; what names them in the message.

    Raises:
        DivergenceError: a score is NaN or infinite; the first is named.
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
    """Return (Q,) float64 scores: reset, show the history, then for each batch score its queries and show it.

    Args:
        model: what is reset and shown events.
        score: queries (numbers 0..Q-1) to their scores, an array or a tensor.
        stream: the events.
        place: (Q,) position among rows; a query is scored before the batch that holds its place. len(rows) stands
            for after all.
        rows: (P,) positions of the events that are streamed.
        boundaries: where batches begin and end among rows, 0..P.
        wide: a query may have several scores, of classes; then (Q, C) is returned.

    Raises:
        ShapeError: a score for each query was expected.
        DataError: a score is NaN or infinite.
    """
    order = np.argsort(place, kind="stable")
    starts = np.append(np.searchsorted(place[order], boundaries), len(order))
    scores: np.ndarray | None = None
    for b in replay_batches(model, stream, rows=rows, boundaries=boundaries, history=history):
        mine = order[starts[b] : starts[b + 1]]
        if len(mine):
            given = as_scores(score(mine), len(mine), wide)
            scores = np.full((len(order), *given.shape[1:]), np.nan) if scores is None else scores
            scores[mine] = given
    return check_scores(np.empty(0) if scores is None else scores)


def replay_batches(
    model: Replayable, stream: EventStream, *, rows: np.ndarray, boundaries: np.ndarray, history: Iterable[EventBatch]
) -> Iterator[int]:
    """Yield the numbers of batches, and that after the last, when the model has seen what comes before each.

    A model that holds nothing of the events (`observes` is False) is shown none: a large stream is not gone through.

    Args:
        model, stream, rows, boundaries, history: as in `replay`.
    """
    model.reset()
    shown = getattr(model, "observes", True)
    for batch in history if shown else ():
        model.observe(batch)
    for b in range(len(boundaries)):
        report_progress(b, len(boundaries) - 1)
        yield b
        if shown and b + 1 < len(boundaries):
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
    """Return (Q,) scores of some events of a split; batches begin where the split does, and memories depend on that.

    Args:
        model: what is reset and shown all events before the split, then the split.
        score: positions in the stream to their scores.
        stream: the events.
        queried_rows: (Q,) positions of the events that are scored, all among rows.
        rows: (P,) ascending positions of the split.
        batch_size: events scored before the model sees them (at least: ties stay whole).
        wide: a query may have several scores, of classes.
    """
    return replay(
        model,
        lambda mine: score(queried_rows[mine]),
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
    """Return (Q,) scores of queries at any times t (Q,), each before the batch that an event at its time falls into.

    Batches never end amid events of one time, so the model has then seen only events strictly before t. Which of
    them depends on earlier events alone: a last batch that is not full counts as still open.

    Args:
        model: what is moved through the stream.
        score: rows of queries → their scores.
        stream: the events.
        t: (Q,) times of the queries.
        batch_size: events a batch.
        wide: scores may have several columns, (Q, C).
    """
    boundaries = batch_boundaries(stream.t, batch_size)
    full = len(boundaries) < 2 or boundaries[-1] - boundaries[-2] >= batch_size
    closed = boundaries if full else boundaries[:-1]
    position = np.searchsorted(stream.t, t, side="left")
    place = closed[np.searchsorted(closed, position, side="right") - 1]
    return replay(model, score, stream, place, rows=np.arange(len(stream)), boundaries=boundaries, wide=wide)


def as_scores(scores: Scores, count: int, wide: bool = False) -> np.ndarray:
    """Return the scores of count queries as float64.

    Args:
        scores: as the model returned them.
        wide: they may have several columns.

    Raises:
        ShapeError: a score for each query was expected.
    """
    if isinstance(scores, Tensor):
        scores = scores.detach().to("cpu").double().numpy()
    scores = np.asarray(scores, np.float64)
    if scores.shape[:1] != (count,) or scores.ndim > 1 + wide:
        raise ShapeError(f"the model returned scores of shape {scores.shape} for {count} queries; expected ({count},)")
    return scores
