"""Pairs that did not meet beside the events that are trained on, and the loss that tells them apart.

They are redrawn every epoch from (seed, epoch); by default one random pair stands beside each event, its source kept.
"""

from __future__ import annotations

from functools import cached_property
from typing import Literal

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from hopstate.data.events import EventStream, stretch
from hopstate.random import named_rng
from hopstate.sampling.mixture import MixedNegatives, TrainingNegatives
from hopstate.sampling.negatives import random_destinations


def training_negatives(stream: EventStream, rows: np.ndarray, batch_size: int, seed: int, *number: int) -> np.ndarray:
    """Return (P,) a random destination for each event at rows (P,), other than its own if there are several.

    Args:
        stream, rows, batch_size, seed: as of `EpochNegatives`.
        number: of the epoch, and of the candidate if it is not the first.
    """
    draw = int(named_rng(seed, "negatives", *number).integers(2**32))
    part = stretch(rows)
    return random_destinations(stream.src[part], stream.dst[part], len(rows), batch_size, draw, avoid_own=True)


class EpochNegatives:
    """The pairs beside the training events, drawn anew from (seed, epoch).

    Args:
        stream: the events.
        rows: (P,) positions of the training events.
        batch_size: events a step, which random destinations are drawn by.
        seed: of the run.
        mixture: kinds and loss.
    """

    def __init__(
        self, stream: EventStream, rows: np.ndarray, batch_size: int, seed: int, mixture: TrainingNegatives
    ) -> None:
        self._of, self._config = (stream, rows, batch_size, seed), mixture

    @cached_property
    def _mixed(self) -> MixedNegatives:
        return MixedNegatives(*self._of[:2], self._config)

    def of(self, epoch: int) -> tuple[np.ndarray, np.ndarray]:
        """Return sources and destinations (P, K) of an epoch's pairs."""
        stream, rows, batch_size, seed = self._of
        numbers = [(epoch,), *((epoch, k) for k in range(1, self._config.candidates))]
        random = [training_negatives(stream, rows, batch_size, seed, *number) for number in numbers]
        return self._mixed.draw(np.stack(random, 1), int(named_rng(seed, "mixture", epoch).integers(2**32)))


def beside(
    src: np.ndarray, dst: np.ndarray, t: np.ndarray, others_src: np.ndarray, others_dst: np.ndarray, group: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray, Tensor]:
    """Return ends, times and labels of events (B,) and of the pairs beside them (B, K).

    Args:
        src, dst, t: the events.
        others_src, others_dst: the pairs.
        group: 1 puts all events first, then all pairs; else each event stands before its own K = group - 1.
    """
    width = 1 + others_src.shape[1]
    columns = [np.concatenate([own[:, None], other], 1) for own, other in ((src, others_src), (dst, others_dst))]
    columns.append(np.repeat(t[:, None], width, 1))
    labels = np.zeros((len(src), width), np.float32)
    labels[:, 0] = 1
    order: Literal["F", "C"] = "F" if group == 1 else "C"
    u, v, when = (column.flatten(order) for column in columns)
    return u, v, when, torch.from_numpy(labels.flatten(order))


def link_loss(logits: Tensor, labels: Tensor, group: int) -> Tensor:
    """Return the summed cross-entropy of logits (Q,): binary where group is 1, else of each event among its group.

    Args:
        labels: (Q,) 1 of events, 0 of pairs that did not meet.
        group: rows that are told apart together, the event first.
    """
    if group == 1:
        return F.binary_cross_entropy_with_logits(logits, labels.to(logits.dtype), reduction="sum")
    return -logits.view(-1, group).log_softmax(1)[:, 0].sum()
