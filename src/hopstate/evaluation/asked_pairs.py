"""The pairs that a split's evaluation asks for, scored batch after batch without a table of all of them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from hopstate.data.event_record import stretch
from hopstate.data.events import EventBatch, EventStream
from hopstate.io.scratch import let_go
from hopstate.streaming.protocols import LinkScorer
from hopstate.streaming.replay import as_scores, moments
from hopstate.streaming.scores import check_scores

_PAGES = 1024  # batches after which what was read of a mapped stream is given back


@dataclass(frozen=True, eq=False)
class Asked:
    """Pairs of some events of a split.

    Args:
        src, dst: (T,) int64; may be mapped.
        rows: (P,) rising positions of the events.
        offsets: (P+1,) where each event's pairs begin; None where each has one.
    """

    src: np.ndarray
    dst: np.ndarray
    rows: np.ndarray
    offsets: np.ndarray | None = None

    @classmethod
    def events(cls, stream: EventStream, rows: np.ndarray) -> Asked:
        """Return the events at rising rows (P,) themselves."""
        return cls(stream.src[stretch(rows)], stream.dst[stretch(rows)], rows)

    def part(self, low: int, high: int) -> tuple[slice, np.ndarray]:
        """Return where the pairs of events low .. high-1 stand, and the row of each one's event."""
        rows = self.rows[low:high]
        if self.offsets is None:
            return slice(low, high), rows
        bounds = self.offsets[low : high + 1]
        return slice(int(bounds[0]), int(bounds[-1])), np.repeat(rows, np.diff(bounds))


def scored(
    scorer: LinkScorer,
    stream: EventStream,
    asked: Sequence[Asked],
    rows: np.ndarray,
    boundaries: np.ndarray,
    history: Iterable[EventBatch],
) -> list[np.ndarray]:
    """Return (T,) float64 scores of each set of pairs.

    Those of a batch are asked for together, event by event, before the batch is shown.

    Args:
        scorer: the model; reset, then shown the history.
        stream: the events.
        asked: pairs of events among rows.
        rows: (P,) rising positions of the split, at least one.
        boundaries: where batches begin and end among rows, 0..P.
        history: what is shown before.

    Raises:
        DataError: a score is NaN or infinite.
    """
    first = rows[np.minimum(boundaries, len(rows) - 1)]
    first[-1] += 1
    cuts = [np.searchsorted(one.rows, first) for one in asked]
    found = [np.empty(len(one.src)) for one in asked]
    for b in moments(scorer, stream, rows=rows, boundaries=boundaries, history=history):
        if b + 1 == len(first):
            break
        parts = [one.part(int(cut[b]), int(cut[b + 1])) for one, cut in zip(asked, cuts, strict=True)]
        own = np.concatenate([some for _, some in parts])
        if len(own):
            order = np.argsort(own, kind="stable")  # event by event, whatever the sets
            src = np.concatenate([one.src[at] for one, (at, _) in zip(asked, parts, strict=True)])[order]
            dst = np.concatenate([one.dst[at] for one, (at, _) in zip(asked, parts, strict=True)])[order]
            scores = np.empty(len(own))
            scores[order] = as_scores(scorer.score(src, dst, stream.t[own[order]]), len(own))
            for out, (at, some) in zip(found, parts, strict=True):
                out[at], scores = scores[: len(some)], scores[len(some) :]
        if b % _PAGES == _PAGES - 1:
            let_go(stream.src, stream.dst, stream.t)
    let_go(stream.src, stream.dst, stream.t)
    return [check_scores(scores) for scores in found]
