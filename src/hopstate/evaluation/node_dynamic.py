"""Dynamic node classification: the label of an event's source at the time of the event, scored before it is seen.

Source: Kumar et al. 2019, arXiv:1908.01207 (JODIE), the state change task; Yu et al. 2023, arXiv:2303.13047.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from hopstate.data.events import EventStream
from hopstate.data.splits import EventSplit
from hopstate.errors import ConfigError
from hopstate.streaming.protocols import NodeScorer, Scores
from hopstate.streaming.replay import replay_anywhere, replay_split


def evaluate_dynamic_nodes(
    scorer: NodeScorer,
    stream: EventStream,
    splits: EventSplit,
    split: str = "test",
    *,
    metrics: Callable[..., dict[str, float]],
    batch_size: int = 200,
    bootstrap: int = 0,
    seed: int = 0,
) -> dict[str, float]:
    """Return pooled metrics of a split's sources.

    Args:
        scorer: the model; it is reset, shown every event before the split, then replayed over it.
        metrics: (rows (Q,), scores, bootstrap=, seed=) → metrics of scores, such as
            `hopstate.training.tasks.event_node.EventTargets.metrics`.
        batch_size: events scored before the model sees them (at least: ties stay whole).
        bootstrap: resamples for confidence intervals, of two classes; 0 gives none.
        seed: of the bootstrap.

    Raises:
        ConfigError: another split.
        DataError: a NaN score.
    """
    if split not in ("train", "val", "test"):
        raise ConfigError(f"nodes are evaluated on 'train', 'val' or 'test', not {split!r}")
    rows = splits.rows(split)
    scores = score_node_events(scorer, stream, rows, rows=rows, batch_size=batch_size)
    return metrics(rows, scores, bootstrap=bootstrap, seed=seed)


def score_node_events(
    scorer: NodeScorer, stream: EventStream, asked: np.ndarray, *, rows: np.ndarray, batch_size: int = 200
) -> np.ndarray:
    """Return a scorer's scores, (Q,) or (Q, C), of the sources of events asked (Q,), amid those of a split, rows (P,).

    Args:
        scorer: the model; reset first.
        asked, rows: see `hopstate.streaming.replay.replay_split`.
    """

    def score(at: np.ndarray) -> Scores:
        return scorer.score_nodes(stream.src[at], stream.t[at])

    return replay_split(scorer, score, stream, asked, rows=rows, batch_size=batch_size, wide=True)


def score_node_queries(
    scorer: NodeScorer, stream: EventStream, nodes: np.ndarray, t: np.ndarray, *, batch_size: int = 200
) -> np.ndarray:
    """Return scores, (Q,) or (Q, C), of nodes (Q,) at any times t (Q,) by a scorer that saw only earlier batches."""
    return replay_anywhere(
        scorer, lambda mine: scorer.score_nodes(nodes[mine], t[mine]), stream, t, batch_size, wide=True
    )
