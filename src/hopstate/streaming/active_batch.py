"""Input of a memory model for one batch of events: active nodes, their edges before and after the batch, and features.

Active nodes are the end points of the events and their sampled neighbors. The `after` graph contains the batch's edges
and the context (edges of the neighbors). The `before` graph contains the context and the removed edges. Repeated edges
add up. Blocks are batches of separate streams that advance together; block b has rows b*n/blocks and on.

Source: CTDG-SSM, arXiv:2606.04672, section 5 (subgraph sampling), appendices E.1 and G.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from hopstate.data.dates import elapsed
from hopstate.data.events import type_codes
from hopstate.errors import DataError, ShapeError, TimeOrderError

if TYPE_CHECKING:
    from hopstate.data.neighbor_store import Histories, Rows
    from hopstate.data.stream_state import NodeFeatures
    from hopstate.ops.neighbors import PackedNeighbors

LookUp = Callable[[np.ndarray, np.ndarray, int, np.ndarray], "PackedNeighbors"]


@dataclass(frozen=True, eq=False, kw_only=True)
class ActiveBatch:
    """Events on n active nodes; all node indices are rows of `nodes`."""

    nodes: Tensor  # (n,) int64 distinct nodes
    source: Tensor  # (B,) int64 end points of the events
    target: Tensor
    time: Tensor  # (B,) float64 times, non-decreasing within a block
    after: Tensor  # (2, E) int64 edges after the batch; repeats add up
    before: Tensor  # (2, E) the same before it
    gap: Tensor | None = None  # (B,) float64 ln(1 + time since the pair's last event); None: the model uses no times
    node_attr: Tensor | None = None  # (n, F) features of the active nodes
    edge_attr: Tensor | None = None  # (B, D) event features
    relation: Tensor | None = None  # (B,) int64 codes of the events' relations, None if they are untyped
    node_type: Tensor | None = None  # (n,) int64 codes of the nodes' types, None if they are untyped
    blocks: int = 1  # separate streams, with n/blocks nodes each

    def __post_init__(self) -> None:
        B, n = len(self.time), len(self.nodes)
        columns = {k: getattr(self, k) for k in ("source", "target", "gap", "edge_attr", "relation")}
        wrong = [f"{k} has {len(v)}" for k, v in columns.items() if v is not None and len(v) != B]
        if self.node_attr is not None and len(self.node_attr) != n:
            wrong.append(f"node_attr has {len(self.node_attr)} rows for {n} active nodes")
        if wrong or n % self.blocks:
            raise ShapeError(f"{B} events on {n} nodes in {self.blocks} blocks: {'; '.join(wrong) or 'uneven blocks'}")

    def __len__(self) -> int:
        return len(self.time)

    def to(self, device: torch.device | str) -> ActiveBatch:
        moved: dict[str, Any] = {k: v.to(device) for k, v in vars(self).items() if isinstance(v, Tensor)}
        return replace(self, **moved)

    @classmethod
    def build(
        cls,
        src: np.ndarray,
        dst: np.ndarray,
        t: np.ndarray,
        *,
        context: np.ndarray | None = None,
        removed: np.ndarray | None = None,
        active_after: np.ndarray | None = None,
        gap: np.ndarray | None = None,
        x: Tensor | NodeFeatures | None = None,
        edge_attr: np.ndarray | None = None,
        relation: np.ndarray | None = None,
        node_type: Rows | None = None,
        others: np.ndarray | None = None,
    ) -> ActiveBatch:
        """Collect the active nodes of a batch and renumber its edges.

        Args:
            src, dst, t: (B,) nodes and times of the events, which may be none.
            context: (2, E) edges of sampled neighbors, active before and after the batch, without removed ones.
            removed: (2, R) earlier edges that the batch removes.
            active_after: (B,) bool, whether an event's edge is active after the batch. Default: all are. An edge that
                the batch both adds and removes is in neither graph.
            gap, edge_attr, relation: (B, ...) of the events.
            x, node_type: (N, ...) features and types of all nodes.
            others: (o,) nodes that are active too, repeats allowed: without an event, and edges only from the context.

        Raises:
            TimeOrderError: t decreases; the first place is named.
            DataError: a negative node.
        """
        none = np.empty((2, 0), np.int64)
        new = np.stack([np.asarray(src, np.int64), np.asarray(dst, np.int64)])
        sampled = none if context is None else np.asarray(context, np.int64)
        ended_edges = none if removed is None else np.asarray(removed, np.int64)
        late = np.flatnonzero(np.diff(t) < 0)
        if len(late):
            i = late[0]
            raise TimeOrderError(f"event {i + 1} of the batch is at {t[i + 1]}, before event {i} at {t[i]}; sort them")
        pairs = np.concatenate([new, sampled, ended_edges], 1)
        extra = np.empty(0, np.int64) if others is None else np.asarray(others, np.int64)
        nodes, places = np.unique(np.concatenate([pairs.ravel(), extra]), return_inverse=True)
        if len(nodes) and nodes[0] < 0:
            raise DataError(f"node {nodes[0]} is negative; nodes are rows 0..N-1")
        rows = torch.from_numpy(places[: pairs.size].reshape(2, -1))
        B, E = new.shape[1], sampled.shape[1]
        active = torch.from_numpy(nodes)
        return cls(
            nodes=active,
            source=rows[0, :B],
            target=rows[1, :B],
            time=torch.from_numpy(np.array(t, np.float64)),
            after=rows[:, : B + E]
            if active_after is None
            else rows[:, np.append(np.flatnonzero(active_after), np.arange(B, B + E))],
            before=rows[:, B:],
            gap=None if gap is None else torch.from_numpy(np.array(gap, np.float64)),
            node_attr=None if x is None else x[active],
            edge_attr=None if edge_attr is None else torch.from_numpy(np.array(edge_attr, np.float32)),
            relation=None if relation is None else type_codes(relation),
            node_type=None if node_type is None else type_codes(node_type[nodes]),
        )


class Context(NamedTuple):
    """Edges around the events of batches, each once a batch, by batch and then by event."""

    edges: np.ndarray  # (2, E) the node from which an event was reached, and the other one
    event_ids: np.ndarray  # (E,) int64
    blocks: np.ndarray  # (E,) int64 the batch, from 0

    def of(self, block: int) -> np.ndarray:
        """Return the (2, e) edges of one batch."""
        return self.edges[:, slice(*np.searchsorted(self.blocks, [block, block + 1]))]


def recent_context(
    store: Histories,
    nodes: np.ndarray,
    times: np.ndarray,
    k: int,
    hops: int,
    *,
    look_up: LookUp | None = None,
    left_out: np.ndarray | None = None,
    blocks: np.ndarray | None = None,
) -> Context:
    """Return the edges of the k most recent events within some hops of each node, the context of a batch.

    An event that is reached from node u at time t over events at t_1, t_2, ... has the age sum(t - t_i). The k
    events with the smallest age are kept, so all are connected to u. A path does not return over its last event.

    Args:
        nodes, times: (Q,) queries, such as the end points of the batch; only strictly earlier events are used.
        k: maximum number of events per node (N_u).
        hops: number of hops; 0 returns no edges.
        look_up: maps (nodes, times, k, rows of the query nodes) to their most recent events. Default: `store.last`.
        left_out: (Q,) id of an event that a node's context must not contain, or -1. Default: none.
        blocks: (Q,) the batch that each node belongs to, rising. Default: one batch.
    """
    look = (lambda nodes, times, k, rows: store.last(nodes, times, k)) if look_up is None else look_up
    times = np.asarray(times)
    ages = elapsed(times[:0], times[:0]).dtype  # exact for integers: nanoseconds since 1970 are finer than float64
    border = {"root": np.arange(len(nodes)), "age": np.zeros(len(nodes), ages), "node": np.asarray(nodes, np.int64)}
    border["event"] = np.full(len(nodes), -1)
    edges = {name: column[:0] for name, column in border.items()} | {"origin": np.empty(0, np.int64)}
    for _ in range(hops):
        neighbors = look(border["node"], times[border["root"]], k if left_out is None else k + 1, border["root"])
        if left_out is not None:
            neighbors = neighbors.without(left_out[border["root"]], k)
        row = neighbors.rows()
        root = border["root"][row]
        fresh = {
            "root": root,
            "age": border["age"][row] + elapsed(times[root], neighbors.times),
            "node": neighbors.nodes,
            "event": neighbors.event_ids,
            "origin": border["node"][row],
        }
        onward = fresh["event"] != border["event"][row]
        both = {name: np.concatenate([edges[name], fresh[name][onward]]) for name in edges}
        order = np.lexsort((both["age"], both["root"]))  # stable: nearer hops first where recency ties
        roots = both["root"][order]
        chosen = order[np.arange(len(order)) - np.searchsorted(roots, roots) < k]
        new = chosen[chosen >= len(edges["root"])]
        border = {name: both[name][new] for name in border}
        edges = {name: column[chosen] for name, column in both.items()}
    block = np.zeros(len(edges["root"]), np.int64) if blocks is None else blocks[edges["root"]]
    order = np.lexsort((edges["event"], block))
    event, block = edges["event"][order], block[order]
    new = np.ones(len(order), bool)
    new[1:] = (np.diff(event) != 0) | (np.diff(block) != 0)
    first = order[new]
    return Context(np.stack([edges["origin"][first], edges["node"][first]]), event[new], block[new])
