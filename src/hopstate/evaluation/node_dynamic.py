"""Dynamic node classification: the label of an event's source at the time of the event, scored before it is seen.

Source: Kumar et al. 2019, arXiv:1908.01207 (JODIE), the state change task; Yu et al. 2023, arXiv:2303.13047.
"""

from __future__ import annotations

from typing import Any, Literal, Protocol

import numpy as np

from hopstate.data.event_splits import EventSplit
from hopstate.data.events import EventStream
from hopstate.errors import ConfigError, DataError
from hopstate.evaluation.drive import Observer, drive_anywhere, drive_part
from hopstate.evaluation.intervals import bootstrap_ap_auc
from hopstate.evaluation.metrics import average_precision, roc_auc


class NodeScorer(Observer, Protocol):
    """What the driver asks of a temporal node classifier."""

    def score_nodes(self, nodes: np.ndarray, t: np.ndarray) -> Any:
        """Return (Q,) scores (array or tensor; larger: likelier label 1) of nodes (Q,) at times t (Q,)."""
        ...


def evaluate_dynamic_nodes(
    scorer: NodeScorer,
    stream: EventStream,
    split: EventSplit,
    part: Literal["train", "val", "test"] = "test",
    *,
    batch_size: int = 200,
    bootstrap: int = 0,
    seed: int = 0,
) -> dict[str, float]:
    """Return pooled ROC AUC and AP of the labels of a part's sources, with bootstrap limits if asked for.

    Args:
        scorer: the model; it is reset, shown every event before the part, then driven through it.
        batch_size: events scored before the model sees them (at least: ties stay whole).
        bootstrap: resamples for confidence intervals; 0 gives none.
        seed: of the bootstrap.

    Raises:
        ConfigError: another part.
        DataError: no labels, labels other than 0 and 1, or a NaN score.
    """
    if part not in ("train", "val", "test"):
        raise ConfigError(f"nodes are evaluated on 'train', 'val' or 'test', not {part!r}")
    rows = split.rows(part)
    y = binary_labels(stream)[rows].astype(np.int64)
    scores = score_node_events(scorer, stream, rows, rows=rows, batch_size=batch_size)
    found = {"auc": roc_auc(y, scores), "ap": average_precision(y, scores), "positives": float(y.sum())}
    if bootstrap and len(np.unique(y)) == 2:
        ap, auc = bootstrap_ap_auc(scores[y == 1], scores[y == 0], None, repeats=bootstrap, seed=seed)
        found |= {"ap_low": ap.low, "ap_high": ap.high, "auc_low": auc.low, "auc_high": auc.high}
    return found


def binary_labels(stream: EventStream) -> np.ndarray:
    """Return (E,) the labels of a stream's events, each 0 or 1.

    Raises:
        DataError: no labels, or others.
    """
    need = f"{stream.name}: dynamic node classification needs a label 0 or 1, or one of two classes, for every event"
    if stream.labels is None:
        raise DataError(f"{need}, and there is none; name its column (--read.label_column)")
    wrong = ~np.isin(stream.labels, (0, 1))
    if wrong.any():
        first, names = int(np.argmax(wrong)), stream.class_names
        value = stream.labels[first]
        shown = "no label" if names is not None and value < 0 else value if names is None else repr(names[value])
        known = "" if names is None else f" (the classes: {', '.join(names[:5])})"
        raise DataError(
            f"{need}; event {first} has {shown}, and so have {int(wrong.sum()):,} events in all{known}; "
            "take these out, or name another column (--read.label_column)"
        )
    return stream.labels


def shown_labels(stream: EventStream, y: np.ndarray) -> np.ndarray:
    """Return labels as the user wrote them: by the names of their classes where they have any.

    Args:
        stream: whose class_names.
        y: (Q,) labels.
    """
    return y if stream.class_names is None else np.asarray(stream.class_names)[y]


def score_node_events(
    scorer: NodeScorer, stream: EventStream, asked: np.ndarray, *, rows: np.ndarray, batch_size: int = 200
) -> np.ndarray:
    """Return (Q,) a scorer's scores of the sources of events asked (Q,), amid those of a part at rows (P,).

    Args:
        scorer: the model; reset first.
        asked, rows: see `hopstate.evaluation.drive.drive_part`.
    """

    def score(at: np.ndarray) -> Any:
        return scorer.score_nodes(stream.src[at], stream.t[at])

    return drive_part(scorer, score, stream, asked, rows=rows, batch_size=batch_size)


def score_node_queries(
    scorer: NodeScorer, stream: EventStream, nodes: np.ndarray, t: np.ndarray, *, batch_size: int = 200
) -> np.ndarray:
    """Return (Q,) a scorer's scores of nodes (Q,) at any times t (Q,), it having seen only earlier batches."""
    return drive_anywhere(scorer, lambda mine: scorer.score_nodes(nodes[mine], t[mine]), stream, t, batch_size)
