"""A whole graph as what a Graph Mamba Network reads in one pass, for training loops of one's own."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from hopstate.data.graph import Graph
from hopstate.errors import DataError
from hopstate.layers.message import Adjacency
from hopstate.methods.gmn.inputs import GMNInputs
from hopstate.methods.gmn.model import GMN
from hopstate.methods.gmn.nodes import token_inputs
from hopstate.methods.gmn.ordering import OrderKind, node_order, order_key
from hopstate.methods.gmn.walk_tokens import WalkSettings, token_order, walk_tokens
from hopstate.methods.shared.edges import turned
from hopstate.ops.walks import WalkTable
from hopstate.random import named_rng


def gmn_inputs(
    graph: Graph,
    config: GMN.Config | None = None,
    *,
    max_length: int = 0,
    repeats: int = 1,
    walks: int = 4,
    order: OrderKind = "degree",
    seed: int = 0,
) -> GMNInputs:
    """Return all nodes of a graph as a GMN reads them; nodes receive from the sources of their edges.

    Walks, ties of the order and shuffled tokens follow from the seed: another one for each epoch draws them anew.

    Args:
        graph: with features x (N, F).
        config: of the model, whose `tokens` must be repeats * max_length + 1; it says what tokens hold.
        max_length: m, longest walk; 0 makes each node its only token.
        repeats: s, tokens of each length.
        walks: M, walks of a token.
        order: of the sequence of nodes.
        seed: fixes everything drawn.

    Raises:
        DataError: the graph has no features.
        ConfigError: numbers of walks that cannot be.
    """
    if graph.x is None:
        raise DataError(f"{graph.name} has no node features")
    settings = WalkSettings(max_length=max_length, repeats=repeats, walks=walks)
    over, rng = turned(graph), named_rng(seed)
    extra: dict[str, Any] = {}
    if settings.max_length:
        table, kind = WalkTable.of(over.indptr, over.indices), (config or GMN.Config()).token_kind
        nodes, edges = np.arange(graph.num_nodes), graph.edge_attr is not None
        extra = token_inputs(walk_tokens(table, nodes, settings, kind=kind, seed=seed, edges=edges))
        extra["token_order"] = token_order(graph.num_nodes, settings, rng)
    return GMNInputs(
        x=torch.from_numpy(np.array(graph.x)),
        graph=Adjacency.of(over.indptr, over.indices),
        edge_attr=None if over.edge_attr is None else torch.from_numpy(np.array(over.edge_attr)),
        order=torch.from_numpy(node_order(order_key(graph.indptr, graph.indices, order), rng)),
        sequences=torch.tensor([0, graph.num_nodes]),
        **extra,
    )


__all__ = ["gmn_inputs"]
