"""What a Graph Mamba Network reads in one forward pass."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace

import torch
from torch import Tensor

from hopstate.layers.message import Adjacency


@dataclass(frozen=True, kw_only=True)
class GMNInputs:
    """What a forward pass reads: N node rows, n of which are asked for, in G sequences (graphs).

    Args:
        x: (N, F) features and encodings.
        graph: adjacency over the N rows.
        edge_attr: (E, D) in the order of graph.indices, or None.
        targets: (n,) int64 rows asked for; None asks for all.
        order: (n,) int64 positions in targets ("gps-mamba": rows of x, all of them), graph after graph, in the order of
            the node sequence.
        sequences: (G + 1,) int64 bounds of the graphs in order.
        token_offsets: (n*K + 1,) int64 bounds of the tokens in token_nodes; None where K = 1.
        token_order: (n*K,) int64, the tokens in the order of their nodes' sequences; None: the order that they are in.
        token_nodes: rows of x, of every token node or every walk step.
        token_graph: the tokens' induced edges (subgraph tokens).
        token_edges: rows of edge_attr of the tokens' edges, or of the steps' edges (-1 for none).
        bits: (step, 2 * window) uint8 and walks: (W + 1,) int64 bounds of walks (walk tokens).
        pairs: (B, 2) int64 positions in targets, for tasks on edges.
    """

    x: Tensor
    graph: Adjacency
    order: Tensor
    sequences: Tensor
    edge_attr: Tensor | None = None
    targets: Tensor | None = None
    token_offsets: Tensor | None = None
    token_order: Tensor | None = None
    token_nodes: Tensor | None = None
    token_graph: Adjacency | None = None
    token_edges: Tensor | None = None
    bits: Tensor | None = None
    walks: Tensor | None = None
    pairs: Tensor | None = None

    def to(self, device: torch.device | str) -> GMNInputs:
        present = {f.name: getattr(self, f.name) for f in fields(self)}
        return replace(self, **{name: v.to(device) for name, v in present.items() if v is not None})
