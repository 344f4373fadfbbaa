"""A model with a node memory that follows a past: rows of the memory are fetched as they are needed.

What is fetched, scored and moved depends on the batch at hand alone, so a call costs what its events cost.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from hopstate.data.events import EventBatch
from hopstate.data.stream_state import Memories, StreamState
from hopstate.layers.modes import evaluating
from hopstate.ops.threads import one_thread
from hopstate.sampling.event_batches import pieces
from hopstate.streaming.active_batch import ActiveBatch
from hopstate.streaming.memory_scorer import ActiveEvents, MemoryScorer
from hopstate.streaming.node_state import NodeState
from hopstate.streaming.protocols import MemoryModel
from hopstate.streaming.slices import Steps, finished


@dataclass(frozen=True, eq=False)
class Begun:
    """Open batches of a past that have moved a memory, and what it came to.

    Args:
        edges: (m + 1,) where the m batches begin and end, counted from the first event that is not settled.
        state: what `MovesMemory.state` returned after them.
    """

    edges: np.ndarray
    state: Any

    def fits(self, edges: np.ndarray, first: int) -> bool:
        """Return whether batches (edges) whose first query is in a certain one go on from here."""
        done = len(self.edges) - 1
        return done <= first and np.array_equal(edges[: done + 1], self.edges)


class FollowingMemory(MemoryScorer):
    """Scores pairs or nodes from the memory of a past, and moves it.

    Args:
        model: see `MemoryScorer`.
        inputs: look-ups over the whole past.
        past: where the memory comes from; it stays as it is.
        at_once: see `MemoryScorer`.
    """

    def __init__(
        self, model: MemoryModel, inputs: ActiveEvents, past: StreamState, *, at_once: int | None = None
    ) -> None:
        self.past = past
        super().__init__(model, inputs, at_once=at_once)

    def reset(self) -> None:
        """Go back to the memory of the past."""
        empty, n = self.model.initial_state(0), self.past.num_nodes
        self._device = empty.memory.device
        K, _, d = empty.memory.shape
        # numpy's zeros take no memory until they are written to
        zeros = [np.zeros(shape, _numpy(kind)) for shape, kind in (((K, n, d), empty.memory), ((n, d), empty.output))]
        memory, output = (torch.from_numpy(z).to(self._device) for z in zeros)
        last_time = torch.from_numpy(np.zeros(n)).to(self._device)
        self.memory = NodeState(
            memory=memory, output=output, last_time=last_time, clock=self.past.clock, tag=self.model.tag
        )
        self._held, self._moved = np.zeros(n, bool), np.zeros(n, bool)

    def state(self) -> NodeState:
        """Return what is remembered of the nodes whose memory moved; the past tells the rest."""
        return self.memory.subset(torch.from_numpy(np.flatnonzero(self._moved)).to(self._device))

    def restore(self, state: NodeState) -> None:
        """Go on from what `state` returned."""
        assert state.rows is not None
        self.reset()
        self.memory = self.memory.put(state.to(self._device))
        self._held[state.rows.cpu().numpy()] = self._moved[state.rows.cpu().numpy()] = True

    def observe(self, batch: EventBatch) -> None:
        finished(self.observing(batch))

    def observing(self, batch: EventBatch) -> Steps[None]:
        """Do what `observe` does, in slices."""
        for part in [batch] if self.at_once is None else pieces(batch, self.at_once):
            active = self.inputs.batch(part)
            yield
            self._update(active)
            yield

    def _update(self, active: ActiveBatch) -> None:
        nodes = active.nodes.numpy()
        self.fetch(nodes)
        with evaluating(self.model), one_thread(numpy=True):  # whatever their number; scipy's would wait spinning
            self.memory = self.model.update(self.memory, active.to(self._device), in_place=True)
        self._moved[nodes] = True

    def moved(self) -> Memories | None:
        """Return what is remembered now of the nodes whose memory moved; None where none did."""
        nodes = self.moved_nodes()
        return self.remembered(nodes) if len(nodes) else None

    def moved_nodes(self) -> np.ndarray:
        """Return (n,) the nodes whose memory moved, rising."""
        return np.flatnonzero(self._moved)

    def remembered(self, nodes: np.ndarray) -> Memories:
        """Return what is remembered now of nodes (n,), rising."""
        self.fetch(nodes)
        rows, state = torch.from_numpy(nodes).to(self._device), self.memory
        parts = (state.memory[:, rows].transpose(0, 1), state.output[rows], state.last_time[rows])
        memory, output, last_time = (part.cpu().contiguous().numpy() for part in parts)
        return Memories(nodes=nodes, memory=memory, output=output, last_time=last_time)

    def vectors(self, nodes: np.ndarray) -> np.ndarray:
        """Return (n, d) what the decoder sees of nodes (n,) as the memory stands."""
        self.fetch(nodes)
        with evaluating(self.model):
            rows = torch.from_numpy(nodes).to(self._device)
            found = self.model.represent(self.memory, rows)
        return found.detach().cpu().numpy()

    def _scores(self, logits: Callable[..., Tensor], nodes: tuple[np.ndarray, ...], gaps: Tensor) -> Tensor:
        self.fetch(np.concatenate(nodes))
        return super()._scores(logits, nodes, gaps)

    def fetch(self, nodes: np.ndarray) -> None:
        """Take the rows of nodes from the past, where that was not done yet."""
        nodes = np.unique(nodes)
        nodes = nodes[~self._held[nodes]]
        if not len(nodes):
            return
        self._held[nodes] = True
        state, found = self.memory, self.past.memories(nodes)
        state.last_time[torch.from_numpy(nodes).to(self._device)] = -torch.inf
        if found is None or not len(found.nodes):
            return
        rows = torch.from_numpy(found.nodes).to(self._device)
        memory, output, last_time = (
            torch.from_numpy(part).to(self._device) for part in (found.memory, found.output, found.last_time)
        )
        state.memory[:, rows] = memory.transpose(0, 1).to(state.memory)
        state.output[rows] = output.to(state.output)
        state.last_time[rows] = last_time


def _numpy(like: Tensor) -> np.dtype:
    return torch.empty(0, dtype=like.dtype).numpy().dtype
