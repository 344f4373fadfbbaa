"""What the heads of models of links read of a pair's history, and trees over it that stand beside them.

Source: ours.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np

from hopstate.layers.joined_logits import JoinedLogits
from hopstate.layers.pair_history import WIDTH, PairHistory
from hopstate.methods.pair_trees.trees import PairTrees

TREES = PairTrees.Config(max_trees=250, learning_rate=0.1)  # the tensors of runs hold so many


class ReadsPairs(Protocol):
    """What a model's configuration says of a pair's history."""

    @property
    def pair_history(self) -> bool:
        """Whether the head reads it."""
        ...

    @property
    def pair_trees(self) -> bool:
        """Whether trees over it stand beside the head."""
        ...


def pair_head(read: int, config: ReadsPairs, trees: int) -> PairHistory | None:
    """Return what a head takes of a pair's history, None where it takes nothing.

    Args:
        read: features that the head reads.
        config: whether it does, and whether there are trees.
        trees: features that these read, the head's first.
    """
    if not config.pair_trees:
        return PairHistory(read) if config.pair_history else None
    given = max(read, trees)
    joined = JoinedLogits(PairTrees(TREES, given, np.empty(0, np.int64)))
    return PairHistory(read, WIDTH if config.pair_history else 0, joined=joined, given=given)


__all__ = ["ReadsPairs", "pair_head"]
