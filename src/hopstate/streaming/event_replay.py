"""Leave-one-out of events from a node memory: all replays of a few events advance together, as blocks of one batch.

The events of a pair's ends are replayed once with all of them, and once without each.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import zip_longest
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from hopstate.data.events import EventBatch, not_none, type_codes
from hopstate.data.stream_state import Event, StreamState
from hopstate.layers.modes import evaluating
from hopstate.ops.threads import one_thread
from hopstate.sampling.event_batches import split_batch
from hopstate.streaming.active_batch import ActiveBatch
from hopstate.streaming.node_state import NodeState
from hopstate.streaming.replay import as_scores

if TYPE_CHECKING:
    from hopstate.streaming.memory_scorer import ActiveEvents, LazyMemoryScorer
    from hopstate.streaming.slices import Steps

_NONE = np.empty(0, np.int64)
ACTIVE_ROWS = 512  # active nodes of the blocks that are updated at once


@dataclass(frozen=True, eq=False, kw_only=True)
class EventReplay:
    """Events to replay on top of a memory before a pair is scored, and events to leave out, one at a time."""

    past: StreamState  # whose histories are read
    pair: tuple[int, int]  # u and v
    t: int | float  # of the query
    batches: Sequence[EventBatch]  # the events to replay; each batch updates the memory at once
    left_out: Sequence[Event]  # V events of u and v
    emptied: np.ndarray  # nodes whose memory is empty before the first batch
    relation: int | None = None  # of the query, None if events have none

    def query(self) -> tuple[np.ndarray, ...]:
        """Return u (1,), v (1,), t (1,), and the relation (1,) if there is one."""
        return tuple(np.array([value]) for value in not_none(*self.pair, self.t, self.relation))

    def states(self) -> list[StreamState]:
        """Return the state of all events, and those without one."""
        return [self.past, *map(self.past.without, self.left_out)]


@dataclass(eq=False)
class _Block:
    """A batch of one replay."""

    replay: int  # 0 for that of all events, else the number of the event that is left out, from 1
    events: EventBatch
    gap: np.ndarray  # (B,) see `ActiveBatch`
    edges: np.ndarray  # (2, E) the context
    nodes: np.ndarray  # (n,) active nodes, rising
    rows: np.ndarray = field(default_factory=_NONE.copy)  # (n,) their rows in the memory of all replays


class _Plan:
    """The rows of the memory of all replays of one pair, and the blocks of each batch.

    nodes: (M,) nodes that are active in any batch, or scored.
    rows: (V + 1, M) rows of the nodes' memories in the replay of all events, and in those without one.
    """

    def __init__(self, inputs: ActiveEvents, given: EventReplay, first: int) -> None:
        self.given, self._inputs = given, inputs
        self.steps = self._steps()
        blocks = [block for step in self.steps for block in step]
        self.nodes = np.unique(np.concatenate([np.array(given.pair), *(block.nodes for block in blocks)]))
        replays = len(given.left_out) + 1
        self.rows = first + np.arange(replays * len(self.nodes)).reshape(replays, -1)
        for block in blocks:
            block.rows = self.places(block.nodes)[block.replay]

    def places(self, nodes: np.ndarray) -> np.ndarray:
        """Return (V + 1, n) rows of nodes (n,)."""
        return self.rows[:, np.searchsorted(self.nodes, nodes)]

    def _steps(self) -> list[list[_Block]]:
        """Return, for each batch, one block per replay that has events in it."""
        parts = [(step, *part) for step, batch in enumerate(self.given.batches) for part in self._parts(batch)]
        if not parts:
            return []
        ids = np.array([-1, *(event.id for event in self.given.left_out)])
        left_out = ids[[replay for _, replay, *_ in parts]]
        context = self._inputs.contexts([events for _, _, events, _ in parts], left_out)
        steps: list[list[_Block]] = [[] for _ in self.given.batches]
        for k, (step, replay, events, gap) in enumerate(parts):
            steps[step].append(self._block(replay, events, gap, context.of(k)))
        return steps

    def _parts(self, batch: EventBatch) -> Iterator[tuple[int, EventBatch, np.ndarray]]:
        """Yield the number of each replay, its events of a batch, and their gaps."""
        gap = self._inputs.pair_time_deltas(batch.src, batch.dst, batch.t)
        yield 0, batch, gap
        for replay, event in enumerate(self.given.left_out, 1):
            kept, gap_without = batch.event_ids != event.id, gap
            if _meetings(batch, event)[kept].any():
                gap_without = self._without(event).pair_time_deltas(batch.src, batch.dst, batch.t)
            if kept.any():
                yield replay, batch.take(kept), gap_without[kept]

    def _block(self, replay: int, events: EventBatch, gap: np.ndarray, edges: np.ndarray) -> _Block:
        others = self._inputs.nodes_with_history(events) if self._inputs.update_all else _NONE
        nodes = np.unique(np.concatenate([events.src, events.dst, edges.ravel(), others]))
        return _Block(replay, events, gap, edges, nodes)

    def _without(self, event: Event) -> ActiveEvents:
        return self._inputs.over(self.given.past.without(event))

    def gaps(self) -> Tensor:
        """Return (V + 1, G) time deltas of the pair at the query."""
        query = self.given.query()[:3]
        with_all_events = self._inputs.query_time_deltas(*query)
        reads_endpoints = self._inputs.model.gaps > 1 or self._inputs.pair_features is not None
        gaps = with_all_events.repeat(len(self.given.left_out) + 1, 1)
        for number, event in enumerate(self.given.left_out, 1):
            if reads_endpoints or {event.src, event.dst} == set(self.given.pair):
                gaps[number] = self._without(event).query_time_deltas(*query)[0]
        return gaps


def _meetings(batch: EventBatch, event: Event) -> np.ndarray:
    """Return (B,) bool, which events of a batch are of an event's pair."""
    forward = (batch.src == event.src) & (batch.dst == event.dst)
    return forward | ((batch.src == event.dst) & (batch.dst == event.src))


def replayed_scores(scorer: LazyMemoryScorer, replays: Sequence[EventReplay]) -> Steps[list[np.ndarray]]:
    """Return for each replay (V + 1,) scores of its pair: after all events, and without each of V events.

    The scorer's own memory stays as it is.
    """
    plans, end = list[_Plan](), 0
    for given in replays:
        if scorer.at_once is not None:
            batches = [part for batch in given.batches for part in split_batch(batch, scorer.at_once)]
            given = replace(given, batches=batches)
        plans.append(_Plan(scorer.inputs, given, end))
        end += plans[-1].rows.size
        yield
    pads = max((len(block.rows) for plan in plans for step in plan.steps for block in step), default=0)
    state, copy_of = _start(scorer, plans, end + max(ACTIVE_ROWS, pads))
    for step in zip_longest(*(plan.steps for plan in plans), fillvalue=()):
        for blocks in _chunks([block for part in step for block in part]):
            active = _joined(scorer.inputs, blocks, copy_of, end)
            with evaluating(scorer.model), one_thread():
                scorer.model.update(state, active.to(state.output.device), in_place=True)
            yield
    return [_scores(scorer, plan, state) for plan in plans]


def _start(scorer: LazyMemoryScorer, plans: Sequence[_Plan], size: int) -> tuple[NodeState, np.ndarray]:
    """Return the memory of all replays before the first batch, with `size` rows, and the node of each row."""
    nodes = np.concatenate([np.tile(plan.nodes, len(plan.rows)) for plan in plans])
    nodes = np.pad(nodes, (0, size - len(nodes)))
    state = scorer.model.initial_state(size)
    state = replace(state, copy_of=torch.from_numpy(nodes).to(state.output.device))
    for plan in plans:
        memories = scorer.past.memories(plan.nodes)
        if memories is None:
            continue
        known = ~np.isin(memories.nodes, plan.given.emptied)
        rows = torch.from_numpy(plan.places(memories.nodes[known]))
        state.memory[:, rows] = torch.from_numpy(memories.memory[known]).transpose(0, 1)[:, None].to(state.memory)
        state.output[rows] = torch.from_numpy(memories.output[known]).to(state.output)
    return state, nodes


def _chunks(blocks: list[_Block]) -> Iterator[list[_Block]]:
    """Yield blocks of about the same size together, at most `ACTIVE_ROWS` rows with the padding, or one block."""
    blocks = sorted(blocks, key=lambda block: -len(block.rows))
    while blocks:
        count = max(1, ACTIVE_ROWS // len(blocks[0].rows))
        yield blocks[:count]
        blocks = blocks[count:]


def _joined(inputs: ActiveEvents, blocks: Sequence[_Block], copy_of: np.ndarray, pad: int) -> ActiveBatch:
    """Return one batch of all blocks on rows of the memory; a smaller block is padded with isolated rows.

    copy_of is the node of each row of the memory, pad the first row that no replay reads.
    """
    sizes = np.array([len(block.rows) for block in blocks])
    size = int(sizes.max())
    rows = pad + np.arange(len(blocks) * size).reshape(len(blocks), size)
    for own, block in zip(rows, blocks, strict=True):
        own[: len(block.rows)] = block.rows
    place = [block.nodes for block in blocks]

    def ends(parts: Sequence[np.ndarray]) -> np.ndarray:
        """Return (2, e) places among the active rows of edges between nodes (2, e) of each block."""
        return np.concatenate(
            [size * k + np.searchsorted(place[k], part) for k, part in enumerate(parts)], axis=1, dtype=np.int64
        )

    events = [block.events for block in blocks]
    new = ends([np.stack([batch.src, batch.dst]) for batch in events])
    before = ends([block.edges for block in blocks])
    edge_attr = [batch.edge_attr for batch in events if batch.edge_attr is not None]
    relation = [batch.relation for batch in events if batch.relation is not None]
    node_of = copy_of[rows.ravel()]
    return ActiveBatch(
        nodes=torch.from_numpy(rows.ravel()),
        source=torch.from_numpy(new[0]),
        target=torch.from_numpy(new[1]),
        time=torch.from_numpy(np.concatenate([batch.t for batch in events]).astype(np.float64)),
        after=torch.from_numpy(np.concatenate([new, before], 1)),
        before=torch.from_numpy(before),
        gap=torch.from_numpy(np.concatenate([block.gap for block in blocks])) if inputs.model.time_dim else None,
        node_attr=None if inputs.x is None else inputs.x[torch.from_numpy(node_of)],
        edge_attr=torch.from_numpy(np.concatenate(edge_attr)) if edge_attr and inputs.model.edge_dim else None,
        relation=type_codes(np.concatenate(relation)) if relation else None,
        node_type=None if inputs.node_type is None else type_codes(inputs.node_type[node_of]),
        blocks=len(blocks),
    )


def _scores(scorer: LazyMemoryScorer, plan: _Plan, state: NodeState) -> np.ndarray:
    u, v = torch.from_numpy(plan.places(np.array(plan.given.pair))).T.to(state.output.device)
    with evaluating(scorer.model):
        code = plan.given.relation
        relation = None if code is None else type_codes(np.full(len(u), code)).to(u.device)
        logits = scorer.model.link_logits(state, u, v, plan.gaps().to(state.output), relation)
        return as_scores(scorer.activation(logits), len(u))
