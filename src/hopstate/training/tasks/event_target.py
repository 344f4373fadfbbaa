"""What both tasks on the classes of nodes at their events share: their target, its loss, and their tables."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from hopstate.data.event_splits import EventSplit
from hopstate.data.events import DELETE, EventStream
from hopstate.evaluation.event_classes import EventClasses, shown_labels
from hopstate.streaming.protocols import NodeFollower, Scores
from hopstate.training.tasks.link import to_user_ids
from hopstate.training.tasks.target import ClassWeights, Target, class_weights


def event_target(classes: EventClasses, split: EventSplit, weights: ClassWeights = "none") -> Target:
    """Return how classes are learned, weighted by the training events whose class is known.

    Raises:
        ConfigError: weights of an unknown kind.
    """
    found = class_weights(classes.y[split.train], len(classes.names), weights)
    return Target(goal="classes", names=classes.names, metrics=(classes.metric,), class_weights=found)


def class_loss(target: Target, logits: Tensor, y: Tensor) -> Tensor:
    """Return the mean cross-entropy, weighted by the target's weights of classes.

    Args:
        target: of the classes.
        logits: (Q, C), or (Q, 1) of the second of two classes.
        y: (Q,) classes, -1 unknown: left out.
    """
    if logits.shape[1] > 1:
        return target.loss(logits, y)
    if target.class_weights is not None:
        return target.loss(torch.cat([torch.zeros_like(logits), logits], 1), y)
    known = y >= 0
    if not known.any():
        return 0 * logits.sum()
    return F.binary_cross_entropy_with_logits(logits[known, 0], y[known].to(logits.dtype))


class ClassAnswers:
    """How outputs at events become tables: columns node and t, those of `EventClasses.columns`, and label."""

    classes: EventClasses

    def asked(self, new: EventStream, rows: np.ndarray | None = None) -> np.ndarray:
        """Return those of positions rows, by default all, whose sources are scored: not where a node is deleted."""
        rows = np.arange(len(new)) if rows is None else rows
        return rows[new.kind[rows] <= DELETE] if new.has_gone and new.kind is not None else rows

    def answer(self, new: EventStream, rows: np.ndarray, scores: np.ndarray) -> dict[str, Any]:
        """Return columns node, t and the outputs of events at rows."""
        named = to_user_ids(new, rows)
        return {"node": named["src"], "t": named["t"]} | self.classes.columns(scores)

    def labelled(self, stream: EventStream, rows: np.ndarray, scores: np.ndarray) -> dict[str, Any]:
        """Return columns as `answer`, and label where the stream has labels."""
        return self.answer(stream, rows, scores) | shown_labels(stream, rows)

    def ask(self, follower: NodeFollower, src: np.ndarray, dst: np.ndarray, t: np.ndarray) -> Scores:
        """Return (Q,) or (Q, C) outputs of the sources of events."""
        return follower.score_nodes(src, t)
