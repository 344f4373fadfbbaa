"""Scorers from a node memory, and the conversion of event batches to their inputs.

History queries are strictly before a time. The context of a batch is queried before its first event. The time since a
pair's last event is measured at the query, so it includes earlier events of the same batch.

Source: CTDG-SSM, arXiv:2606.04672, section 5, appendices G (removals) and I (algorithm 1).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import copy
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from hopstate.data.dates import Clock
from hopstate.data.events import ADD, EventBatch, EventStream, edge_ends, type_codes
from hopstate.data.neighbor_store import Histories, Rows
from hopstate.data.stream_state import Memories, NodeFeatures, StreamState
from hopstate.layers.modes import evaluating
from hopstate.ops.threads import one_thread
from hopstate.sampling.event_batches import split_batch
from hopstate.streaming.active_batch import ActiveBatch, Context, LookUp, recent_context
from hopstate.streaming.event_replay import EventReplay, replayed_scores
from hopstate.streaming.history_scorer import to_probabilities
from hopstate.streaming.node_state import NodeState
from hopstate.streaming.protocols import LinkScorer, MemoryModel
from hopstate.streaming.slices import Steps, run_to_completion
from hopstate.tokens.pair_features import PairFeatures

_NONE = np.empty(0, np.int64)
SCORE_CHUNK = 4096  # pairs scored at once


class ActiveEvents:
    """Converts event batches to `ActiveBatch` inputs with active nodes, edges, features and time deltas.

    Args:
        model: sets the number of hops, the widths and the time delta of pairs without events.
        stream: the event stream.
        store: neighbor store of its visible events.
        num_neighbors: maximum number of context events per node (N_u).
        clock, pair_features: time normalization, and features for the decoder from the same store. Default: none.

    Example:
        >>> stream = hopstate.read_events(events)
        >>> model = hopstate.CTDGSSM(hopstate.CTDGSSM.Config(dim=8, num_layers=1), **stream.used_features)
        >>> inputs = hopstate.ActiveEvents(model, stream, hopstate.NeighborStore.from_stream(stream), num_neighbors=4)
        >>> state = model.initial_state(stream.num_nodes)
        >>> for batch in hopstate.event_batches(stream, batch_size=60):
        ...     state = model.update(state, inputs.batch(batch))
    """

    def __init__(
        self,
        model: MemoryModel,
        stream: EventStream,
        store: Histories,
        *,
        num_neighbors: int,
        clock: Clock | None = None,
        pair_features: PairFeatures | None = None,
    ) -> None:
        self.pair_features = pair_features
        self.clock = (clock or Clock()).over(stream.time_unit)
        self.model, self.num_neighbors, self.first_id = model, num_neighbors, stream.first_id
        self.store: Histories = store
        self.x: Tensor | NodeFeatures | None = (
            torch.from_numpy(np.array(stream.x)) if model.node_dim and stream.x is not None else None
        )
        self.update_all = model.update_all
        self.node_type: Rows | None = stream.node_type
        self.ends = _ends_of(stream)  # of each edge, by its position

    def over(self, past: StreamState) -> ActiveEvents:
        """Return a copy that reads all events of a stream state."""
        events = copy(self)
        events.first_id, events.store = 0, past.store()
        events.clock = self.clock.over(past.time_unit or "")
        events.pair_features = None if self.pair_features is None else self.pair_features.over(past)
        events.x = None if past.x is None or not self.model.node_dim else NodeFeatures(past.x)
        events.ends = past.edge_ends if past.has_deletes else None
        events.node_type = past.types_of_nodes
        return events

    def batch(self, events: EventBatch) -> ActiveBatch:
        """Return the model input for a batch of events."""
        src, dst, t, removed = events.src, events.dst, events.t, None
        edge_attr, relation = events.edge_attr if self.model.edge_dim else None, events.relation
        context = self.contexts([events]).edges
        active_after = None
        if events.kind is not None and (events.kind != ADD).any():
            added = events.kind == ADD
            removed, active_after = self._changes(events, added)
            src, dst, t = src[added], dst[added], t[added]
            edge_attr, relation = (None if rows is None else rows[added] for rows in (edge_attr, relation))
        gap = self.pair_time_deltas(src, dst, t) if self.model.time_dim else None
        return ActiveBatch.build(
            src,
            dst,
            t,
            context=context,
            removed=removed,
            active_after=active_after,
            gap=gap,
            x=self.x,
            edge_attr=edge_attr,
            relation=relation,
            node_type=self.node_type,
            others=self.nodes_with_history(events) if self.update_all else None,
        )

    def contexts(self, batches: Sequence[EventBatch], left_out: np.ndarray | None = None) -> Context:
        """Return the edges around each of S batches before its first event.

        left_out (S,) are ids of events that are not among a batch's edges, or -1.
        """
        ends = [np.unique(np.concatenate([batch.src, batch.dst])) for batch in batches]
        blocks = np.repeat(np.arange(len(batches)), [len(nodes) for nodes in ends])
        times, last = batches[0].t[:0], _NONE
        if len(blocks):
            times = np.array([batch.t[0] if len(batch) else 0 for batch in batches])[blocks]
            last = np.array([batch.event_ids[-1] if len(batch) else 0 for batch in batches])[blocks]
        return recent_context(
            self.store,
            np.concatenate(ends),
            times,
            self.num_neighbors,
            self.model.order,
            look_up=self._look_up(last),
            left_out=None if left_out is None else left_out[blocks],
            blocks=blocks,
        )

    def nodes_with_history(self, events: EventBatch) -> np.ndarray:
        """Return the nodes with an event before the first event of the batch."""
        if not len(events):
            return _NONE
        nodes = np.arange(self.store.num_nodes)
        return nodes[self.store.last(nodes, np.full(len(nodes), events.t[0]), 1).lengths > 0]

    def _look_up(self, last: np.ndarray) -> LookUp | None:
        """Return a query of the edges active after events `last` (Q,); None if no edge is ever deleted."""
        if self.ends is None:
            return None
        ends, first = self.ends, self.first_id
        return lambda nodes, times, k, rows: self.store.last_active(nodes, times, k, ends, last[rows], first)

    def _changes(self, events: EventBatch, added: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the (2, R) edges that a batch removes, and which of its added edges are active after it."""
        assert self.ends is not None
        ids, removed = events.event_ids, ~added
        ends = self.ends[ids[added] - self.first_id]
        active = ends > ids[-1]
        removed[removed] = ~np.isin(ids[removed], ends[~active])
        return np.stack([events.src[removed], events.dst[removed]]), active

    def pair_time_deltas(self, src: np.ndarray, dst: np.ndarray, t: np.ndarray) -> np.ndarray:
        """Return (Q,) ln(1 + time since each pair's last event strictly before t)."""
        last, repeated = self.store.last_meeting(src, dst, t)
        limit = float(self.model.max_log_delta)
        return np.where(repeated, self.clock.log_time_deltas(t, last, limit), limit)

    def node_time_deltas(self, nodes: np.ndarray, t: np.ndarray) -> np.ndarray:
        """Return (Q,) ln(1 + time since each node's last event strictly before t)."""
        last, limit = self.store.last(nodes, t, 1), float(self.model.max_log_delta)
        log_deltas = np.full(len(nodes), limit)
        seen = last.lengths > 0
        log_deltas[seen] = self.clock.log_time_deltas(np.asarray(t)[seen], last.times, limit)
        return log_deltas

    def query_time_deltas(self, src: np.ndarray, dst: np.ndarray, t: np.ndarray) -> Tensor:
        """Return (Q, G) decoder inputs: times since the last event of pair, src and dst, then pair features."""
        columns = self.model.gaps
        if self.pair_features is not None:  # reading them also yields the last events of pairs and endpoints
            features, last = self.pair_features.read(src, dst, t)
            limit = float(self.model.max_log_delta)
            log_deltas = self.clock.log_time_deltas(np.asarray(t)[:, None], last.times, limit)
            log_deltas = np.where(last.ids >= 0, log_deltas, limit)
            return torch.cat([self._tensor(log_deltas[:, :columns]), self._tensor(features)], 1)
        deltas = [self.pair_time_deltas(src, dst, t)] if columns else []
        if columns > 1:
            deltas += np.split(self.node_time_deltas(np.concatenate([src, dst]), np.concatenate([t, t])), 2)
        return self._tensor(np.stack(deltas, 1) if deltas else np.empty((len(src), 0)))

    def query_node_time_deltas(self, nodes: np.ndarray, t: np.ndarray) -> Tensor:
        """Return (Q, 1) time deltas for the decoder: since each node's last event."""
        return self._tensor(self.node_time_deltas(nodes, t))[:, None]

    def _tensor(self, values: np.ndarray) -> Tensor:
        return torch.from_numpy(values).to(next(self.model.parameters()).dtype)


def _ends_of(stream: EventStream) -> np.ndarray | None:
    """Return (E,) ids of the events that end each edge, above all ids if none does; None if no edge is deleted."""
    if stream.kind is None or not stream.has_deletes:
        return None
    ends = edge_ends(stream.src, stream.dst, stream.kind, stream.num_nodes, stream.relation)
    ends[(ends >= 0) & (ends < len(stream))] += stream.first_id
    return ends


class MemoryScorer:
    """Scores pairs or nodes from a node memory that observed events update.

    at_once: maximum number of events with equal timestamps per memory update. Default: all.
    """

    def __init__(self, model: MemoryModel, inputs: ActiveEvents, *, at_once: int | None = None) -> None:
        self.activation: Callable[[Tensor], Tensor] = to_probabilities  # of the logits
        self.model, self.inputs, self.at_once = model, inputs, at_once
        self.by_time = at_once is not None  # batches that end amid a time would let events see others of that time
        self.memory: NodeState
        self.reset()

    def reset(self) -> None:
        """Forget all events."""
        self._device = next(self.model.parameters()).device  # asked for often, which takes long
        self.memory = self.model.initial_state(self.inputs.store.num_nodes).to(self._device)

    def score(self, src: np.ndarray, dst: np.ndarray, t: np.ndarray, relation: np.ndarray | None = None) -> Tensor:
        """Return (Q,) CPU probabilities of pairs src (Q,), dst (Q,) at times t (Q,), without a memory update."""
        codes = () if relation is None else (type_codes(relation),)
        return self._scores(self.model.link_logits, (src, dst), self.inputs.query_time_deltas(src, dst, t), *codes)

    def score_nodes(self, nodes: np.ndarray, t: np.ndarray) -> Tensor:
        """Return CPU probabilities of nodes (Q,) at times t (Q,): (Q,) of the second of two classes, or (Q, C)."""
        return self._scores(self.model.node_logits, (nodes,), self.inputs.query_node_time_deltas(nodes, t))

    def _scores(self, logits: Callable[..., Tensor], nodes: tuple[np.ndarray, ...], *columns: Tensor) -> Tensor:
        parts = []
        with evaluating(self.model):
            for start in range(0, len(nodes[0]), SCORE_CHUNK):
                chunk = slice(start, start + SCORE_CHUNK)
                # copies: a stream's own columns are not to be written to, and torch warns of such
                ends = (torch.from_numpy(np.array(v[chunk])).to(self._device) for v in nodes)
                rest = (column[chunk].to(self._device) for column in columns)
                parts.append(self.activation(logits(self.memory, *ends, *rest)).cpu())
        return torch.cat(parts) if parts else torch.zeros(0, dtype=torch.float64)

    def observe(self, batch: EventBatch) -> None:
        for part in [batch] if self.at_once is None else split_batch(batch, self.at_once):
            self._move(part)

    def _move(self, batch: EventBatch) -> None:
        with evaluating(self.model):
            active = self.inputs.batch(batch).to(self._device)
            self.memory = self.model.update(self.memory, active, in_place=True)


@dataclass(frozen=True, eq=False)
class WarmStart:
    """Node memory after the open batches of a stream state."""

    boundaries: np.ndarray  # (m + 1,) of the m batches, counted from the first event that is not settled
    state: Any  # memory after them, from `HasMemory.state`

    def fits(self, boundaries: np.ndarray, first: int) -> bool:
        """Return whether the memory is valid for these batch boundaries if the first query is in batch `first`."""
        done = len(self.boundaries) - 1
        return done <= first and np.array_equal(boundaries[: done + 1], self.boundaries)


class LazyMemoryScorer(MemoryScorer):
    """Scores pairs or nodes from the memory of a stream state, which is not modified; memories are loaded on demand."""

    def __init__(
        self, model: MemoryModel, inputs: ActiveEvents, past: StreamState, *, at_once: int | None = None
    ) -> None:
        self.past = past
        super().__init__(model, inputs, at_once=at_once)

    def reset(self) -> None:
        """Restore the memory of the stream state."""
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
        """Return the memories of the updated nodes; the stream state contains the others."""
        return self.memory.subset(torch.from_numpy(np.flatnonzero(self._moved)).to(self._device))

    def restore(self, state: NodeState) -> None:
        assert state.rows is not None
        self.reset()
        self.memory = self.memory.put(state.to(self._device))
        self._held[state.rows.cpu().numpy()] = self._moved[state.rows.cpu().numpy()] = True

    def observe(self, batch: EventBatch) -> None:
        run_to_completion(self.observing(batch))

    def observing(self, batch: EventBatch) -> Steps[None]:
        """Do what `observe` does, in slices."""
        for part in [batch] if self.at_once is None else split_batch(batch, self.at_once):
            active = self.inputs.batch(part)
            yield
            self._update(active)
            yield

    def _update(self, active: ActiveBatch) -> None:
        nodes = active.nodes.numpy()
        self.fetch(nodes)
        with evaluating(self.model), one_thread():
            self.memory = self.model.update(self.memory, active.to(self._device), in_place=True)
        self._moved[nodes] = True

    def scores_without(
        self, replays: Sequence[EventReplay], follow: Callable[[StreamState], LinkScorer]
    ) -> Steps[list[np.ndarray]]:
        """Return (V + 1,) scores of each replay's pair: after all events, and without each of V events."""
        return replayed_scores(self, replays)

    def moved(self) -> Memories | None:
        """Return the memories of the updated nodes; None if there are none."""
        nodes = self.moved_nodes()
        return self.remembered(nodes) if len(nodes) else None

    def moved_nodes(self) -> np.ndarray:
        """Return the (n,) sorted nodes with an updated memory."""
        return np.flatnonzero(self._moved)

    def remembered(self, nodes: np.ndarray) -> Memories:
        """Return the memories of sorted nodes (n,)."""
        self.fetch(nodes)
        rows, state = torch.from_numpy(nodes).to(self._device), self.memory
        parts = (state.memory[:, rows].transpose(0, 1), state.output[rows], state.last_time[rows])
        memory, output, last_time = (part.cpu().contiguous().numpy() for part in parts)
        return Memories(nodes=nodes, memory=memory, output=output, last_time=last_time)

    def vectors(self, nodes: np.ndarray) -> np.ndarray:
        """Return the (n, d) representations of nodes (n,) that the decoder reads."""
        self.fetch(nodes)
        with evaluating(self.model):
            rows = torch.from_numpy(nodes).to(self._device)
            found = self.model.represent(self.memory, rows)
        return found.detach().cpu().numpy()

    def _scores(self, logits: Callable[..., Tensor], nodes: tuple[np.ndarray, ...], *columns: Tensor) -> Tensor:
        self.fetch(np.concatenate(nodes))
        return super()._scores(logits, nodes, *columns)

    def fetch(self, nodes: np.ndarray) -> None:
        """Load the memories of nodes from the stream state, if not yet done."""
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
