"""Leave-one-out of events from a node memory: all replays of a few events advance together, as blocks of one batch.

The events of a pair's ends are replayed once with all of them, and once without each. A node's memory differs between
these replays only if the left-out event has reached it. So a replay shares the rows of the whole replay until then, and
a batch is computed again only for the replays whose active nodes or edges differ.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
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
    """Events to replay on top of a memory before a pair is scored, and events to leave out, one at a time.

    Args:
        past: the state whose histories are read.
        pair: u and v.
        t: time of the query.
        batches: the events to replay; each batch updates the memory at once.
        left_out: V events of u and v.
        emptied: nodes whose memory is empty before the first batch.
        relation: of the query, None if events have none.
    """

    past: StreamState
    pair: tuple[int, int]
    t: int | float
    batches: Sequence[EventBatch]
    left_out: Sequence[Event]
    emptied: np.ndarray
    relation: int | None = None

    def query(self) -> tuple[np.ndarray, ...]:
        """Return u (1,), v (1,), t (1,), and the relation (1,) if there is one."""
        return tuple(np.array([value]) for value in not_none(*self.pair, self.t, self.relation))

    def states(self) -> list[StreamState]:
        """Return the state of all events, and those without one."""
        return [self.past, *map(self.past.without, self.left_out)]


@dataclass(frozen=True, eq=False)
class _Block:
    """A batch of one replay.

    Args:
        events: the events.
        gap: (B,) see `ActiveBatch`.
        edges: (2, E) the context.
        nodes: (n,) active nodes, rising.
        rows: (n,) their rows in the memory of all replays; none before they are known.
    """

    events: EventBatch
    gap: np.ndarray
    edges: np.ndarray
    nodes: np.ndarray
    rows: np.ndarray


@dataclass(frozen=True, eq=False)
class _Step:
    """What the batches with one number do to the memory of all replays.

    Args:
        copies: (2, c) rows that become copies, and the rows that they are copies of, before the batches.
        blocks: the batches.
    """

    copies: np.ndarray
    blocks: list[_Block]


class _Plan:
    """The rows of the memory of all replays of one pair, and its steps.

    Args:
        inputs: see `LazyMemoryScorer`.
        given: the events.
        first: the first free row.

    nodes: (M,) nodes that are active in any batch, or scored.
    rows: (V + 1, M) rows of the nodes' memories in the replay of all events, and in those without one.
    """

    def __init__(self, inputs: ActiveEvents, given: EventReplay, first: int) -> None:
        self.given, self.first, self._inputs = given, first, inputs
        self._blocks = self._differing_blocks() if given.batches else {}
        active = [block.nodes for block in self._blocks.values()]
        self.nodes = np.unique(np.concatenate([np.array(given.pair), *active]))
        self.rows = np.tile(first + np.arange(len(self.nodes)), (len(given.left_out) + 1, 1))
        self.copy_of, self.end = [self.nodes], first + len(self.nodes)
        self.steps = [self._step(number) for number in range(len(given.batches))]

    def ends(self) -> tuple[np.ndarray, np.ndarray]:
        """Return the rows (V + 1,) of u and of v after all batches."""
        u, v = np.searchsorted(self.nodes, self.given.pair)
        return self.rows[:, u], self.rows[:, v]

    def _differing_blocks(self) -> dict[tuple[int, int], _Block]:
        """Return the batches of the whole replay, and of those without an event that changes a batch's own inputs.

        Keys are the number of the batch, and 0 or that of the event from 1 on.
        """
        batches, inputs = self.given.batches, self._inputs
        whole = inputs.contexts(batches)
        found, parts = {}, {}
        for step, batch in enumerate(batches):
            around = whole.of(step)
            gap = inputs.pair_gaps(batch.src, batch.dst, batch.t)
            found[step, 0] = self._block(batch, gap, around.edges)
            for number, event in enumerate(self.given.left_out, 1):
                meets = _meetings(batch, event)
                if event.id > batch.event_ids[-1] or not (meets.any() or event.id in around.event_ids):
                    continue
                kept, own_gap = batch.event_ids != event.id, gap
                if meets[kept].any():
                    own_gap = self._without(number).pair_gaps(batch.src, batch.dst, batch.t)
                parts[step, number] = batch.take(kept), own_gap[kept]
        some = {key: part for key, part in parts.items() if len(part[0])}
        if some:
            left_out = np.array([self.given.left_out[number - 1].id for _, number in some])
            context = inputs.contexts([events for events, _ in some.values()], left_out)
            found |= {key: self._block(*part, context.of(k).edges) for k, (key, part) in enumerate(some.items())}
        nothing = np.empty((2, 0), np.int64)
        return found | {key: _Block(*part, nothing, _NONE, _NONE) for key, part in parts.items() if key not in some}

    def _block(self, events: EventBatch, gap: np.ndarray, edges: np.ndarray) -> _Block:
        others = self._inputs.nodes_with_history(events) if self._inputs.update_all else _NONE
        nodes = np.unique(np.concatenate([events.src, events.dst, edges.ravel(), others]))
        return _Block(events, gap, edges, nodes, _NONE)

    def _without(self, number: int) -> ActiveEvents:
        """Return the inputs over the state without an event."""
        return self._inputs.over(self.given.past.without(self.given.left_out[number - 1]))

    def gaps(self) -> Tensor:
        """Return (V + 1, G) time deltas of the pair at the query."""
        query = self.given.query()[:3]
        whole = self._inputs.query_gaps(*query)
        reads_ends = self._inputs.model.gaps > 1 or self._inputs.pair_features is not None
        gaps = whole.repeat(len(self.given.left_out) + 1, 1)
        for number, event in enumerate(self.given.left_out, 1):
            if reads_ends or {event.src, event.dst} == set(self.given.pair):
                gaps[number] = self._without(number).query_gaps(*query)[0]
        return gaps

    def _step(self, number: int) -> _Step:
        """Return a step, and let rows differ from those of the whole replay where memories will."""
        whole = self._blocks[number, 0]
        active = np.searchsorted(self.nodes, whole.nodes)
        differs = (self.rows[:, active] != self.rows[0, active]).any(1)
        blocks, copies = [replace(whole, rows=self.rows[0, active])], [np.empty((2, 0), np.int64)]
        for event in range(1, len(self.rows)):
            own = self._blocks.get((number, event), whole if differs[event] else None)
            if own is None:
                continue
            own_active = np.searchsorted(self.nodes, own.nodes)
            copies.append(self._separate(event, np.union1d(active, own_active)))
            if len(own.events):
                blocks.append(replace(own, rows=self.rows[event, own_active]))
        return _Step(np.concatenate(copies, 1), blocks)

    def _separate(self, number: int, places: np.ndarray) -> np.ndarray:
        """Give a replay rows of its own for nodes at places, and return (2, c) these rows and those they copy."""
        places = places[self.rows[number, places] == self.rows[0, places]]
        own = self.end + np.arange(len(places))
        self.rows[number, places] = own
        self.copy_of.append(self.nodes[places])
        self.end += len(places)
        return np.stack([own, self.rows[0, places]])


def _meetings(batch: EventBatch, event: Event) -> np.ndarray:
    """Return (B,) bool, which events of a batch are of an event's pair."""
    forward = (batch.src == event.src) & (batch.dst == event.dst)
    return forward | ((batch.src == event.dst) & (batch.dst == event.src))


def replayed_scores(scorer: LazyMemoryScorer, replays: Sequence[EventReplay]) -> Steps[list[np.ndarray]]:
    """Return for each replay (V + 1,) scores of its pair: after all events, and without each of V events.

    Args:
        scorer: the model over a stream state; its memory stays as it is.
        replays: the events.
    """
    plans, end = list[_Plan](), 0
    for given in replays:
        if scorer.at_once is not None:
            batches = [part for batch in given.batches for part in split_batch(batch, scorer.at_once)]
            given = replace(given, batches=batches)
        plans.append(_Plan(scorer.inputs, given, end))
        end = plans[-1].end
        yield
    pads = max((len(block.rows) for plan in plans for step in plan.steps for block in step.blocks), default=0)
    pads = max(ACTIVE_ROWS, pads)
    state, copy_of = _start(scorer, plans, end + pads)
    for number in range(max(len(plan.steps) for plan in plans)):
        steps = [plan.steps[number] for plan in plans if number < len(plan.steps)]
        state = _copied(state, np.concatenate([step.copies for step in steps], 1))
        for blocks in _chunks([block for step in steps for block in step.blocks]):
            active = _joined(scorer.inputs, blocks, copy_of, end)
            with evaluating(scorer.model), one_thread():
                scorer.model.update(state, active.to(state.output.device), in_place=True)
            yield
    return [_scores(scorer, plan, state) for plan in plans]


def _start(scorer: LazyMemoryScorer, plans: Sequence[_Plan], size: int) -> tuple[NodeState, np.ndarray]:
    """Return the memory of all replays before the first batch, with `size` rows, and the node of each row."""
    nodes = np.concatenate([part for plan in plans for part in plan.copy_of])
    nodes = np.pad(nodes, (0, size - len(nodes)))
    state = scorer.model.initial_state(size)
    state = replace(state, copy_of=torch.from_numpy(nodes).to(state.output.device))
    for plan in plans:
        found = scorer.past.memories(plan.nodes)
        if found is None:
            continue
        known = ~np.isin(found.nodes, plan.given.emptied)
        rows = torch.from_numpy(plan.first + np.searchsorted(plan.nodes, found.nodes[known]))
        state.memory[:, rows] = torch.from_numpy(found.memory[known]).transpose(0, 1).to(state.memory)
        state.output[rows] = torch.from_numpy(found.output[known]).to(state.output)
    return state, nodes


def _copied(state: NodeState, copies: np.ndarray) -> NodeState:
    to, of = torch.from_numpy(copies).to(state.output.device)
    for rows, axis in ((state.memory, 1), (state.output, 0), (state.last_time, 0)):
        rows.index_copy_(axis, to, rows.index_select(axis, of))
    return state


def _chunks(blocks: list[_Block]) -> Iterator[list[_Block]]:
    """Yield blocks of about the same size together, at most `ACTIVE_ROWS` rows with the padding, or one block."""
    blocks = sorted(blocks, key=lambda block: -len(block.rows))
    while blocks:
        count = max(1, ACTIVE_ROWS // len(blocks[0].rows))
        yield blocks[:count]
        blocks = blocks[count:]


def _joined(inputs: ActiveEvents, blocks: Sequence[_Block], copy_of: np.ndarray, pad: int) -> ActiveBatch:
    """Return one batch of all blocks on rows of the memory; a smaller block is padded with isolated rows.

    Args:
        inputs: see `LazyMemoryScorer`.
        blocks: the batches.
        copy_of: the node of each row of the memory.
        pad: the first row that no replay reads.
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
    """Return (V + 1,) scores of a pair after all batches."""
    u, v = (torch.from_numpy(rows).to(state.output.device) for rows in plan.ends())
    with evaluating(scorer.model):
        code = plan.given.relation
        relation = None if code is None else type_codes(np.full(len(u), code)).to(u.device)
        logits = scorer.model.link_logits(state, u, v, plan.gaps().to(state.output), relation)
        return as_scores(scorer.activation(logits), len(u))
