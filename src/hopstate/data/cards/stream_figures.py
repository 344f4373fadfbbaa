"""Figures of a stream for its card, from goes over it in stretches: memory for its nodes and for one stretch alone."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from hopstate.data.event_record import EventRecord
from hopstate.io.scratch import let_go

_CHUNK = 1 << 20  # events looked at together
_PAIRS = 1 << 24  # events whose pairs are told apart together


@dataclass(kw_only=True)
class StreamFigures:
    """What is counted of E events between N nodes.

    Args:
        degree: (N,) int64 how many events each node takes part in; a self-event counts once.
        sends, receives: (N,) bool which nodes are a source, and a destination.
        loops: self-events.
        ties: events at the time of the one before.
        copies: of these, those of the same source and destination.
        longest: time between two events, the most there is; 0 with one event.
        longest_after: the event before it, the first of several.
        whole: all times are whole numbers.
    """

    degree: np.ndarray
    sends: np.ndarray
    receives: np.ndarray
    loops: int = 0
    ties: int = 0
    copies: int = 0
    longest: float = 0
    longest_after: int = 0
    whole: bool = True


def stream_figures(stream: EventRecord) -> StreamFigures:
    """Return what is counted in one go over a stream."""
    from hopstate.data.cards.stream_kernels import count_ends

    num_nodes = stream.num_nodes
    found = StreamFigures(
        degree=np.zeros(num_nodes, np.int64), sends=np.zeros(num_nodes, bool), receives=np.zeros(num_nodes, bool)
    )
    for part in stretches(len(stream)):
        src, dst = (np.ascontiguousarray(column[part]) for column in (stream.src, stream.dst))
        found.loops += count_ends(src, dst, found.degree, found.sends, found.receives)
        before = slice(max(part.start - 1, 0), part.stop)
        gaps = np.diff(stream.t[before])
        tied = gaps == 0
        found.ties += int(tied.sum())
        for column in (stream.src, stream.dst):
            tied &= column[before][1:] == column[before][:-1]
        found.copies += int(tied.sum())
        if len(gaps) and gaps.max() > found.longest:
            found.longest, found.longest_after = gaps.max().item(), before.start + int(gaps.argmax())
        if stream.t.dtype.kind == "f":
            found.whole &= bool((stream.t[part] == np.floor(stream.t[part])).all())
        let_go(stream.src, stream.dst, stream.t)
    return found


def stream_degrees(stream: EventRecord) -> np.ndarray:
    """Return (N,) how many events each node takes part in; a self-event counts once."""
    return stream_figures(stream).degree


def repetition(stream: EventRecord, cuts: np.ndarray) -> tuple[np.ndarray, int]:
    """Count the events that are new and those that answer an earlier one.

    Returns (C,) how many events between each cut and the next are the first of their directed pair, and how many
    events of all have a pair that met the other way before.

    The pairs are told apart in parts by a hash of both ends, for each of which the events are gone through once.

    Args:
        stream: E events between up to 2^31 nodes.
        cuts: (C + 1,) rising places from 0 to E.
    """
    from hopstate.data.cards.stream_kernels import meet

    firsts, answers, parts = np.zeros(len(cuts) - 1, np.int64), 0, max(1, -(-len(stream) // _PAIRS))
    room = 2 * min(len(stream), _PAIRS) - 1  # at most half full, but for the thousandth that a part may have too much
    for own in range(parts):
        table = np.zeros(1 << room.bit_length(), np.uint64)
        for k in range(len(firsts)):
            for part in stretches(int(cuts[k + 1]), int(cuts[k])):
                src, dst = (np.ascontiguousarray(column[part]) for column in (stream.src, stream.dst))
                first, answered = meet(src, dst, stream.num_nodes, own, parts, table)
                firsts[k] += first
                answers += answered
                let_go(stream.src, stream.dst)
    return firsts, answers


def event_gaps(stream: EventRecord) -> Iterator[np.ndarray]:
    """Yield the times between an event and the next, in parts and in order."""
    for part in stretches(len(stream)):
        yield np.diff(stream.t[max(part.start - 1, 0) : part.stop])
        let_go(stream.t)


def node_gaps(stream: EventRecord) -> Iterator[np.ndarray]:
    """Yield the times between consecutive events of the same node, over all nodes, in parts."""
    from hopstate.data.cards.stream_kernels import gaps_of_ends

    never = np.finfo(np.float64).min if stream.t.dtype.kind == "f" else np.iinfo(np.int64).min  # no time of a stream
    last = np.full(stream.num_nodes, never, stream.t.dtype)
    for part in stretches(len(stream)):
        src, dst, t = (np.ascontiguousarray(column[part]) for column in (stream.src, stream.dst, stream.t))
        gaps = np.empty(2 * len(t), t.dtype)
        yield gaps[: gaps_of_ends(src, dst, t, last.dtype.type(never), last, gaps)]
        let_go(stream.src, stream.dst, stream.t)


def kind_counts(kind: np.ndarray) -> np.ndarray:
    """Return (4,) how many events are of each kind, as in `EventStream`."""
    parts = (np.bincount(kind[part], minlength=4) for part in stretches(len(kind)))
    return sum(parts, np.zeros(4, np.int64))


def stretches(stop: int, start: int = 0) -> Iterator[slice]:
    """Yield the places from start to stop, as slices of at most so many as are looked at together."""
    for first in range(start, stop, _CHUNK):
        yield slice(first, min(first + _CHUNK, stop))


__all__ = [
    "StreamFigures", "event_gaps", "kind_counts", "node_gaps", "repetition", "stream_degrees", "stream_figures",
    "stretches",
]  # fmt: skip
