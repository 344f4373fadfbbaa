"""What single events left in a node memory, told from its latest updates.

To take an event out of a memory, all since would have to be replayed. Instead a node's latest events are replayed
alone, once with the event and once without, and the difference is taken from the memory. Where these are all the events
that the node ever had they are replayed from an empty memory, which is exact but for the nodes around it and for the
batches that events fell into; else from the memory as it is now, as that from before them is gone.
"""

from __future__ import annotations

from copy import copy
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from hopstate.data.events import EventBatch
from hopstate.data.stream_state import Event, StreamState
from hopstate.layers.modes import evaluating
from hopstate.streaming.active_batch import ActiveBatch
from hopstate.streaming.following import FollowingMemory
from hopstate.streaming.memory_scorer import ActiveEvents
from hopstate.streaming.node_state import NodeState

LATEST = 8  # events of a node that are replayed


class MemoryInfluence:
    """Differences that single events make to what a memory holds of a node.

    Args:
        follower: the memory, as it stands for a query.
        past: its events.
        moved: id of the first event that has not moved it.
        batch: events that move it together.
        t: of the query; later events are not looked at.
    """

    def __init__(self, follower: FollowingMemory, past: StreamState, moved: int, batch: int, t: int | float) -> None:
        self.follower, self.past, self.moved, self.batch, self.t = follower, past, moved, batch, t
        self._found: dict[int, dict[int, Tensor]] = {}

    def of(self, node: int) -> dict[int, Tensor]:
        """Return ids of a node's latest events that moved its memory, and (d,) what its output has of each."""
        if node not in self._found:
            self._found[node] = self._replayed(node)
        return self._found[node]

    def without(self, event: Event, nodes: np.ndarray) -> FollowingMemory:
        """Return the memory, of nodes (q,) that it has been asked for alone, had an event not happened."""
        self.follower.fetch(nodes)
        made = copy(self.follower)
        made.inputs = made.inputs.over(self.past.without(event))
        rows = torch.from_numpy(np.unique(nodes))
        made.memory = state = made.memory.subset(rows.to(made.memory.output.device))
        output = state.output.clone()
        for place, node in enumerate(rows.tolist()):
            if (share := self.of(node).get(event.id)) is not None:
                output[place] -= share
        made.memory = replace(state, output=output)
        return made

    def _replayed(self, node: int) -> dict[int, Tensor]:
        here = np.array([node])
        found = self.past.store().last(here, np.array([self.t]), LATEST + 1)
        whole_life = len(found.event_ids) <= LATEST and not self.past.has_deletes
        rows = np.flatnonzero(found.event_ids < self.moved)[-LATEST:]
        if not len(rows):
            return {}
        ids, others, times = found.event_ids[rows], found.nodes[rows], found.times[rows]
        attr = self._features(ids) if self.follower.model.edge_dim else None
        events = EventBatch(event_ids=ids, src=np.full(len(ids), node), dst=others, t=times, edge_attr=attr)
        groups = np.split(np.arange(len(ids)), np.flatnonzero(np.diff(ids // self.batch)) + 1)
        whole = [self._made(self.past, events.take(group)) for group in groups]
        variants = []
        for number, group in enumerate(groups):
            for row in group.tolist():
                past = self.past.without(self.past.event(int(ids[row])))
                left = [events.take(group[group != row]), *(events.take(g) for g in groups[number + 1 :])]
                variants.append((row, number, [self._made(past, batch) for batch in left if len(batch)]))
        made = [*whole, *(batch for _, _, batches in variants for batch in batches)]
        state = self._start(np.unique(np.concatenate([batch.nodes.numpy() for batch in made])))
        at = state.place(torch.tensor([node], device=state.output.device))
        if whole_life:
            zero = state.output.new_zeros(())
            state = replace(
                state, memory=state.memory.index_fill(1, at, zero), output=state.output.index_fill(0, at, zero)
            )
        states = [state]
        for batch in whole:
            states.append(self._after(states[-1], [batch]))
        with_all, shares = states[-1].output[at[0]], {}
        for row, number, batches in variants:
            share = with_all - self._after(states[number], batches).output[at[0]]
            shares[int(ids[row])] = share
        return shares

    def _features(self, ids: np.ndarray) -> np.ndarray:
        """Return (q, D) features of events, zeros of those whose own were not kept."""
        rows, features = np.zeros((len(ids), self.follower.model.edge_dim), np.float32), self.past.edge_attr
        if features is not None:
            kept = ids >= features.first
            rows[kept] = features[ids[kept]]
        return rows

    def _made(self, past: StreamState, events: EventBatch) -> ActiveBatch:
        inputs: ActiveEvents = copy(self.follower.inputs)
        inputs = inputs if past is self.past else inputs.over(past)
        inputs.update_all = False  # of this node and those around it alone
        return inputs.batch(events)

    def _start(self, nodes: np.ndarray) -> NodeState:
        """Return the memory of nodes (n,) as it is now, as if no time had been seen."""
        self.follower.fetch(nodes)
        memory = self.follower.memory
        state = memory.subset(torch.from_numpy(nodes).to(memory.output.device))
        return replace(state, last_time=torch.full_like(state.last_time, -torch.inf), clock=-np.inf)

    def _after(self, state: NodeState, batches: list[ActiveBatch]) -> NodeState:
        model = self.follower.model
        with evaluating(model):
            for batch in batches:
                state = model.update(state, batch.to(state.output.device))
        return state
