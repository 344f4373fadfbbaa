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
        self._drawn: tuple[int, dict[int, NodeSet]] = -1, {}  # an epoch and sets of it

    def __call__(self, epoch: int, number: int) -> NodeSet:
        drawn, sets = self._drawn
        if epoch != drawn or number not in sets:
            sets = self._lot(epoch, number)
            self._drawn = epoch, sets
        return sets[number]

    def _lot(self, epoch: int, number: int) -> dict[int, NodeSet]:
        sets = {number: self.sampler.node_set(epoch, number)}
        size = most = len(sets[number].nodes)
        room = self.room()
        for later in range(number + 1, self.sampler.num_batches(epoch)):
            if size + most > room:
                break
            sets[later] = self.sampler.node_set(epoch, later)
            count = len(sets[later].nodes)
            size, most = size + count, max(most, count)
        if len(sets) > 1:
            self.read(np.unique(np.concatenate([one.nodes for one in sets.values()])))
        return sets


__all__ = ["RowsAhead", "SetsAhead"]
