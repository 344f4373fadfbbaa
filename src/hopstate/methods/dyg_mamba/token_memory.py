"""CTDG-SSM's memory of a token's node, beside the node's own features: a union of the two that neither paper has.

The memory moves by batches of events, cut by their positions since the first, whole times in each. A token of a query
at t has its node's memory as the last batch left it that was full and ended strictly before t: no event at or after t
has moved it, whatever the event that the token stands for. So the same memory serves a neighbour and the node itself,
and any query is answered from one pass over the events. In training that pass is over the training events alone. The
model is frozen: a memory that is trained along would have to be replayed for every step.

Every batch leaves a row for each node that was active in it, 4 bytes a channel: about 0.3 GB a million events at one
hop, 10 neighbours and 64 channels.

Source: ours; the memory is that of arXiv:2606.04672.
"""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING, Self, cast

import numpy as np
import torch
from torch import nn

from hopstate.data.events import EventStream
from hopstate.data.past import Past
from hopstate.layers.evaluating import evaluating
from hopstate.methods.shared.around import AroundTokenizer
from hopstate.methods.shared.frozen import FrozenRun
from hopstate.sampling.event_batches import batch_boundaries, pieces
from hopstate.streaming.history_scorer import Input, PairTokenizer
from hopstate.streaming.memory_scorer import MemoryScorer
from hopstate.streaming.node_state import NodeState
from hopstate.streaming.protocols import MemoryModel
from hopstate.tokens.history import HistoryTokens

if TYPE_CHECKING:
    from hopstate.training.tasks.events import EventSource

METHODS = ("ctdg-ssm",)


@dataclass(frozen=True, eq=False)
class Versions:
    """What full batches left of the nodes that were active in them, V rows in all.

    Args:
        rows: (V, d) float32 memories.
        keys: (V,) int64, rising: node x 2^32 + batch, of each row.
        ends: (B,) time of the last event of each batch.
        settled: events of those batches.
        state: the memory after them; None before the first.
    """

    rows: np.ndarray
    keys: np.ndarray
    ends: np.ndarray
    settled: int = 0
    state: NodeState | None = None

    def at(self, nodes: np.ndarray, t: np.ndarray) -> np.ndarray:
        """Return (q, d) memories of nodes (q,) strictly before t (q,), zeros of one that was not active yet."""
        batch = np.searchsorted(self.ends, t, side="left")  # the first that is not over yet
        place = np.searchsorted(self.keys, (nodes << 32) + batch) - 1
        had = place >= 0
        had[had] = self.keys[place[had]] >> 32 == nodes[had]
        found = np.zeros((len(nodes), self.rows.shape[1]), np.float32)
        found[had] = self.rows[place[had]]
        return found

    def after(self, scorer: MemoryScorer, events: EventStream, rows: np.ndarray, batch_size: int) -> Versions:
        """Return these and those of the full batches among events at rows (P,), the first P of which are settled."""
        t = events.t[rows]
        cuts = self.settled + batch_boundaries(t[self.settled :], batch_size)
        if len(cuts) > 1 and cuts[-1] - cuts[-2] < batch_size:
            cuts = cuts[:-1]  # later events may still belong to it
        if len(cuts) < 2:
            return self
        model, width = scorer.model, self.rows.shape[1]
        state = scorer.memory if self.state is None else self.state.snapshot()
        state, device = state.grown(scorer.inputs.store.num_nodes), scorer.memory.memory.device
        made, keys = [self.rows], [self.keys]
        with evaluating(model):
            for number, (a, b) in enumerate(pairwise(cuts.tolist()), len(self.ends)):
                batch = events.take(rows[a:b])
                moved = []
                for part in [batch] if scorer.at_once is None else pieces(batch, scorer.at_once):
                    for active in scorer.inputs.batches(part):
                        state = model.update(state, active.to(device), in_place=True)
                        moved.append(active.nodes.numpy())
                nodes = np.unique(np.concatenate(moved))
                vectors = model.represent(state, torch.from_numpy(nodes).to(device), back=True)[:, :width]
                made.append(vectors.float().cpu().numpy())
                keys.append((nodes << 32) + number)
        values, order = np.concatenate(made), np.argsort(np.concatenate(keys))
        ends = np.concatenate([self.ends.astype(t.dtype), t[cuts[1:] - 1]])
        return Versions(values[order], np.concatenate(keys)[order], ends, int(cuts[-1]), state)


def no_versions(dim: int) -> Versions:
    """Return what stands before the first batch, of memories of dim channels."""
    return Versions(np.empty((0, dim), np.float32), np.empty(0, np.int64), np.empty(0, np.int64))


class FrozenMemory(nn.Module):
    """CTDG-SSM as it was trained, without what only scores need, and its memory over events.

    Args:
        frozen: the run's model.
    """

    def __init__(self, frozen: FrozenRun) -> None:
        super().__init__()
        self.model = cast("MemoryModel", frozen.model)
        self.model.leave_out_decoder()
        self.dim = self.model.initial_state().output.shape[1]
        self.batch_size = int(frozen.config.evaluation.batch_size)
        self.source = cast("EventSource[MemoryScorer]", frozen.task.source)
        self._followed: tuple[EventStream, Versions] | None = None

    def train(self, mode: bool = True) -> Self:
        """Stay as it is: nothing here is trained."""
        return super().train(False)

    def over(self, events: EventStream, rows: np.ndarray | None) -> LazyVersions:
        """Return the memories over a stream, or over its training events alone where rows (P,) names them."""

        def made() -> Versions:
            whole = np.arange(len(events)) if rows is None else rows
            scorer = self.source.scorer_over(self.model, events)
            if rows is not None:
                scorer = self.source.scorer(self.model, "train")
            return no_versions(self.dim).after(scorer, events, whole, self.batch_size)

        return LazyVersions(made)

    def follow(self, past: Past) -> LazyVersions:
        """Return the memories over a past, from where they stood for the last one if that was its beginning."""

        def made() -> Versions:
            events, start = past.events(), no_versions(self.dim)
            if self._followed is not None and _begins(events, *self._followed):
                start = self._followed[1]
            follower = self.source.follow(self.model, past)
            scorer = MemoryScorer(self.model, follower.inputs, at_once=follower.at_once)
            found = start.after(scorer, events, np.arange(len(events)), self.batch_size)
            self._followed = events, found
            return found

        return LazyVersions(made)


def _begins(events: EventStream, before: EventStream, versions: Versions) -> bool:
    """Return whether a stream begins with the settled events of one before."""
    first = slice(0, versions.settled)
    return all(
        np.array_equal(getattr(events, name)[first], getattr(before, name)[first]) for name in ("src", "dst", "t")
    )


@dataclass(eq=False)
class LazyVersions:
    """Memories that are computed when they are first asked for: by then the weights are those of the run.

    Args:
        make: computes them.
    """

    make: Callable[[], Versions]
    made: Versions | None = field(default=None, init=False)

    def at(self, nodes: np.ndarray, t: np.ndarray) -> np.ndarray:
        """See `Versions.at`."""
        if self.made is None:
            self.made = self.make()
        return self.made.at(nodes, t)


class MemoryTokenizer(AroundTokenizer[PairTokenizer]):
    """DyG-Mamba's tokens, and the memory of each one's node among its features; it stays that of the stream.

    Args:
        inner: the tokenizer.
        memory: of nodes at times.
        frozen: whose memory it is.
        node_dim: features of a node that the model takes beside it, 0 for none.
    """

    def __init__(self, inner: PairTokenizer, memory: LazyVersions, frozen: FrozenMemory, node_dim: int) -> None:
        super().__init__(inner)
        self.memory, self.frozen, self.node_dim = memory, frozen, node_dim

    def over(self, past: Past) -> MemoryTokenizer:
        """Return the same over all events of a past."""
        made = copy(self)
        made.inner, made.memory = self.inner.over(past), self.frozen.follow(past)
        return made

    def pairs(self, u: np.ndarray, v: np.ndarray, t: np.ndarray) -> Input:
        """Return the tokens of pairs u (P,), v (P,) at t (P,), x with the memories in its last columns."""
        found = cast("HistoryTokens", self.inner.pairs(u, v, t))
        times = np.repeat(np.concatenate([t, t]), found.lengths.numpy())
        told = torch.from_numpy(self.memory.at(found.nodes.numpy(), times))
        own = torch.zeros(len(told), self.node_dim) if found.x is None else found.x
        return found._replace(x=torch.cat([own, told], 1))
