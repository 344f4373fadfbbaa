"""Rows of arrays in files for several batches at once.

The nodes of a batch lie all over a file: a page that is read for one of them holds several rows of others. Rows of
many batches are read together, in the file's order, and then wait in memory.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import torch
from torch import Tensor

from hopstate.sampling.samplers import NodeSampler, NodeSet


class RowsAhead:
    """Copies of some rows of arrays, given back to the bit."""

    def __init__(self) -> None:
        self._held: tuple[np.ndarray, dict[int, Tensor]] = (np.empty(0, np.int64), {})

    def read(self, rows: np.ndarray, arrays: Sequence[Tensor], take: Callable[[Tensor, Tensor], Tensor]) -> None:
        """Hold rows of arrays in place of what was held.

        Args:
            rows: (n,) int64, ascending.
            arrays: (N, d) each.
            take: (array, rows) → a copy of them.
        """
        self.forget()  # before more is taken
        place = torch.from_numpy(rows)
        self._held = rows, {array.data_ptr(): take(array, place) for array in arrays if array.numel()}

    def forget(self) -> None:
        """Hold nothing."""
        self._held = (np.empty(0, np.int64), {})

    def of(self, array: Tensor, rows: Tensor) -> Tensor | None:
        """Return rows of an array, None where they are not all held."""
        known, held = self._held
        found = held.get(array.data_ptr())
        if found is None:
            return None
        wanted = rows.numpy()
        at = np.searchsorted(known, wanted)
        at[at == len(known)] = 0
        return found[torch.from_numpy(at)] if np.array_equal(known[at], wanted) else None


class SetsAhead:
    """Node sets of an epoch, drawn some at a time; `read` is told the nodes of each such lot.

    Args:
        sampler: draws them.
        room: returns how many nodes a lot may have, about; at least one set is drawn.
        read: called with the distinct nodes (n,), ascending, of a lot of several sets.
    """

    def __init__(self, sampler: NodeSampler, room: Callable[[], int], read: Callable[[np.ndarray], None]) -> None:
        self.sampler, self.room, self.read = sampler, room, read
        self._epoch, self._sets = -1, dict[int, NodeSet]()

    def __call__(self, epoch: int, number: int) -> NodeSet:
        """Return one set of an epoch."""
        if epoch != self._epoch or number not in self._sets:
            self._draw(epoch, number)
        return self._sets[number]

    def _draw(self, epoch: int, number: int) -> None:
        self._epoch, self._sets = epoch, {number: self.sampler.node_set(epoch, number)}
        size = most = len(self._sets[number].nodes)
        room = self.room()
        for later in range(number + 1, self.sampler.num_batches(epoch)):
            if size + most > room:
                break
            self._sets[later] = self.sampler.node_set(epoch, later)
            count = len(self._sets[later].nodes)
            size, most = size + count, max(most, count)
        if len(self._sets) > 1:
            self.read(np.unique(np.concatenate([one.nodes for one in self._sets.values()])))


__all__ = ["RowsAhead", "SetsAhead"]
