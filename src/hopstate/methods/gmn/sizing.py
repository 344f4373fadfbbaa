"""Settings of a Graph Mamba Network that suit a graph and a memory budget, checked before anything is allocated.

Estimates count the floats that a training step keeps for its backward pass; every walk is taken to visit new nodes.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TypedDict, Unpack

import numpy as np

from hopstate.errors import ConfigError
from hopstate.layers.mpnn import READS_EDGES
from hopstate.methods.gmn.layerwise import Cut
from hopstate.methods.gmn.model import GMN
from hopstate.methods.gmn.nodes import CONTEXT
from hopstate.methods.gmn.walk_tokens import Lengths, WalkSettings

_SMALLEST_BATCH = 64
Given = tuple[int, int, int, GMN.Config]  # nodes, edges, features, the network


class Steps(TypedDict, total=False):
    """How walks go on; see `WalkSettings`."""

    p: float
    q: float
    window: int
    lengths: Lengths


class Messages(TypedDict):
    """Columns of edge features, and whether messages of a batch pass over the whole graph."""

    edge_dim: int
    everywhere: bool


@dataclass(frozen=True)
class WalkPlan:
    """Walk settings, nodes or graphs a step (None: all at once), and the bytes a step is expected to take.

    recompute: make each layer's inside again in the backward pass ("gps-mamba").
    """

    walks: WalkSettings
    batch_size: int | None
    bytes: int
    unit: str = "nodes"
    recompute: bool = False

    def __str__(self) -> str:
        w = self.walks
        batch = "the whole graph" if self.batch_size is None else f"{self.batch_size:,} {self.unit}"
        return (
            f"m={w.max_length}, s={w.repeats}, M={w.walks}: {w.tokens} tokens a node, {batch} a step, "
            + ("layers made again in the backward pass, " if self.recompute else "")
            + f"about {self.bytes / 2**20:,.0f} MiB"
        )


def step_bytes(
    nodes: int, edges: int, walks: WalkSettings, model: GMN.Config, features: int, context: int = 0, *,
    edge_dim: int = 0, recompute: bool = False,
) -> int:  # fmt: skip
    """Return the bytes of a training step.

    Args:
        nodes: nodes whose outputs are asked for.
        edges: stored edges of the graph that is passed over.
        walks: walk settings.
        model: widths and layers.
        features: columns of x.
        context: further nodes whose features are needed.
        edge_dim: columns of the edge features; counted for "gps-mamba" alone.
        recompute: see `WalkPlan`.
    """
    d, block, message = model.dim, _block(model), 16 * model.dim  # floats a row and layer
    if model.input_dropout:  # each embedding keeps what it was given, and which of it
        features = int(features * (1 + 1.25 * (1 + model.uses_mpnn)))
    if model.variant == "gps-mamba":
        layer = (nodes + context) * (block * model.node_layers + message + 14 * d) + edges * _edge(model, edge_dim)
        kept = (nodes + context) * 2 * d + (edges * d if edge_dim else 0)  # between layers
        layers = layer + model.mpnn_layers * kept if recompute else model.mpnn_layers * layer
        return int(4 * ((nodes + context) * (features + 2 * d) + layers + (4 + edge_dim) * edges))
    visited = 1 + walks.repeats * sum(h * walks.walks + 1 for h in walks.ladder) if walks.max_length else 0
    if model.encoder == "rwf":
        visited = 1 + walks.repeats * walks.walks * sum(h + 1 for h in walks.ladder) if walks.max_length else 0
        row = 6 * d + 2 * walks.window
    else:
        row = message * model.local_layers + 2 * d + 12
    row += 7 * d * bool(model.token_heads)
    tokens = walks.tokens * (block * model.token_layers + 2 * d)
    own = tokens + visited * row + block * model.node_layers + 4 * d
    whole = (nodes + context) * (features + d + (message * model.mpnn_layers if model.uses_mpnn else 0)) + 4 * edges
    if model.uses_mpnn and model.mpnn == "pna":
        whole += model.mpnn_layers * edges * _edge(model, edge_dim)
    return int(4 * (nodes * own + whole))


def _block(model: GMN.Config) -> float:
    inner = model.expand * model.dim
    branches = 2 if model.bidirectional else 1
    return branches * (9 * inner + 3 * model.state_dim + inner * model.state_dim / 16) + 4 * model.dim


def _edge(model: GMN.Config, edge_dim: int) -> int:
    if model.mpnn == "pna":
        return 5 * model.dim
    return {"gatedgcn": 7, "gine": 2}.get(model.mpnn, 0) * model.dim if edge_dim else 0


def cut_of(
    nodes: int, edges: int, walks: WalkSettings, model: GMN.Config, features: int, edge_dim: int, budget: int
) -> tuple[Cut, bool]:
    """Return how a pass over all nodes is cut to stay within a budget, and whether its arrays are better on disk.

    Args:
        nodes, edges, walks, model, features: see `step_bytes`.
        edge_dim: columns of the edge features.
        budget: bytes.
    """
    d = model.dim
    states = d if edge_dim and model.mpnn in READS_EDGES else 0
    arrays = 4 * (nodes * d * (4 if model.variant == "gps-mamba" else 3) + edges * states)
    one = 1 << 20  # what a step takes grows evenly: from a million nodes to one
    bare = replace(model, variant="gmn", mpnn="none", node_layers=1)
    tokens = budget // 2 * one // max(1, step_bytes(one, 0, walks, bare, features))
    row, edge = 4 * (_block(model) + 16 * d + features), 4 * (16 * d + _edge(model, edge_dim))
    rows = budget // 4 // int(row)
    whole = nodes <= rows and nodes * row + edges * 4 * _edge(model, edge_dim) <= budget // 2
    cut = Cut(
        tokens=max(_SMALLEST_BATCH, min(nodes, tokens)), nodes=max(_SMALLEST_BATCH, min(nodes, rows)),
        edges=max(1024, edges if whole else budget // 4 // edge),
    )  # fmt: skip
    return cut, arrays > budget // 2


def choose(
    num_nodes: int,
    num_edges: int,
    features: int,
    model: GMN.Config,
    budget: int,
    *,
    max_length: int | None,
    repeats: int | None,
    walks: int | None,
    batch_size: int | None,
    p: float = 1.0,
    q: float = 1.0,
    window: int = 8,
    lengths: Lengths = "every",
    edge_dim: int = 0,
    everywhere: bool = False,
) -> WalkPlan:
    """Return settings that fit the budget; those given are kept.

    Without a word from the user: m = 3, s = 2 and as many walks as half the mean degree (2 to 8), on the whole graph
    if it fits ("gps-mamba": with its layers recomputed, if that makes it fit), else in the largest batches that do,
    with fewer walks where even small batches do not.

    Args:
        num_nodes, num_edges, features, model, edge_dim: see `step_bytes`.
        budget: bytes.
        max_length, repeats, walks, batch_size, p, q, window, lengths: what is given.
        everywhere: messages of a batch pass over the whole graph.

    Raises:
        ConfigError: what is given does not fit; the message names settings that would.
    """
    start = _start(
        num_edges / max(1, num_nodes), model, max_length, repeats, walks, p=p, q=q, window=window, lengths=lengths
    )
    given: Given = (num_nodes, num_edges, features, model)
    messages: Messages = {"edge_dim": edge_dim, "everywhere": everywhere}
    for candidate in _smaller(start, max_length is None, repeats is None, walks is None):
        found = _fit(given, budget, candidate, batch_size, **messages)
        if found is not None:
            return found
    needed = _bytes(given, start, batch_size, **messages)
    raise ConfigError(
        f"m={start.max_length}, s={start.repeats}, M={start.walks} on "
        f"{num_nodes if batch_size is None else batch_size:,} nodes a step would take about {needed / 2**20:,.0f} MiB, "
        f"more than walks.memory_budget={budget / 2**20:,.0f} MiB; " + _would_fit(given, budget, start, **messages)
    )


def choose_graphs(
    nodes: np.ndarray,
    edges: np.ndarray,
    features: int,
    model: GMN.Config,
    budget: int,
    *,
    max_length: int | None,
    repeats: int | None,
    walks: int | None,
    batch_size: int | None,
    edge_dim: int = 0,
    **steps: Unpack[Steps],
) -> WalkPlan:
    """Return settings of batches of whole graphs, the largest of which fit the budget; those given are kept.

    Without a word from the user: walks as in `choose` and 32 graphs a step, or fewer where 32 of the largest do not
    fit, with fewer walks where one of them does not.

    Args:
        nodes, edges: (G,) sizes of the graphs.
        features, model, budget, max_length, repeats, walks, edge_dim, steps: as in `choose`.
        batch_size: graphs a step.

    Raises:
        ConfigError: nothing fits.
    """
    most = np.cumsum(np.sort(nodes)[::-1]), np.cumsum(np.sort(edges)[::-1])
    degree = float(edges.sum() / max(1, nodes.sum()))
    start = _start(degree, model, max_length, repeats, walks, **steps)
    sizes = [batch_size] if batch_size is not None else [32, 16, 8, 4, 2, 1]
    needed, last = 0, 0
    for candidate in _smaller(start, max_length is None, repeats is None, walks is None):
        for size in sizes:
            last = min(size, len(nodes)) - 1
            needed = step_bytes(int(most[0][last]), int(most[1][last]), candidate, model, features, edge_dim=edge_dim)
            if needed <= budget:
                return WalkPlan(candidate, size, needed, "graphs")
    raise ConfigError(
        f"{sizes[-1]} of the largest graphs a step ({most[0][last]:,} nodes) would take about "
        f"{math.ceil(needed / 2**20):,} MiB, more than walks.memory_budget={budget / 2**20:,.0f} MiB: raise it, or "
        f"lower batch_size, model.dim or the walks"
    )


def _start(
    degree: float,
    model: GMN.Config,
    max_length: int | None,
    repeats: int | None,
    walks: int | None,
    **steps: Unpack[Steps],
) -> WalkSettings:
    """Return what is tried first: what is given, else m = 3, s = 2 and half the mean degree (2 to 8) walks."""
    if model.variant == "gps-mamba":
        max_length = 0
    return WalkSettings(
        max_length=3 if max_length is None else max_length,
        repeats=2 if repeats is None else repeats,
        walks=max(2, min(8, round(degree / 2))) if walks is None else walks,
        **steps,
    )


def _would_fit(given: Given, budget: int, start: WalkSettings, **messages: Unpack[Messages]) -> str:
    modest = replace(
        start, max_length=min(3, start.max_length), repeats=min(2, start.repeats), walks=min(8, start.walks)
    )
    smaller = _smaller(modest, True, True, True)
    for candidate in smaller:
        if found := _fit(given, budget, candidate, None, **messages):
            return f"these would fit: {found}"
    size = given[0]
    while min(size, 1 << 20) // 2 >= _SMALLEST_BATCH:
        size = min(size, 1 << 20) // 2
    least = _bytes(given, smaller[-1], size, **messages)
    return (
        f"no walks and batches fit it; the smallest take {math.ceil(least / 2**20):,} MiB: raise it, or lower model.dim"
    )


def _smaller(start: WalkSettings, m: bool, s: bool, M: bool) -> list[WalkSettings]:
    """Return start and ever fewer walks, reducing only what may be."""
    found, now = [start], start
    while True:
        if M and now.walks > 2:
            now = replace(now, walks=now.walks // 2)
        elif s and now.repeats > 1:
            now = replace(now, repeats=now.repeats // 2)
        elif m and now.max_length > 1:
            now = replace(now, max_length=now.max_length - 1)
        elif M and now.walks > 1:
            now = replace(now, walks=1)
        else:
            return found
        found.append(now)


def _bytes(
    given: Given, walks: WalkSettings, batch: int | None, *, edge_dim: int, everywhere: bool, recompute: bool = False
) -> int:
    n, e, features, model = given
    if batch is None or batch >= n:
        return step_bytes(n, e, walks, model, features, edge_dim=edge_dim, recompute=recompute)
    visited = walks.repeats * walks.walks * sum(walks.ladder)
    if walks.tokens == 1 and (model.uses_mpnn or model.variant == "gps-mamba"):
        visited = CONTEXT[0] * CONTEXT[1]
    context = (n if everywhere and model.uses_mpnn else min(n, batch * (1 + visited))) - batch
    edges = e * (context + batch) // n
    return step_bytes(batch, edges, walks, model, features, context, edge_dim=edge_dim, recompute=recompute)


def _fit(
    given: Given, budget: int, walks: WalkSettings, batch: int | None, **messages: Unpack[Messages]
) -> WalkPlan | None:
    """Return the choice with the largest batch that fits (or the one given), None where there is none."""
    size, gps = batch, given[3].variant == "gps-mamba"
    while True:
        for recompute in (False, True) if gps and size is None else (False,):
            needed = _bytes(given, walks, size, recompute=recompute, **messages)
            if needed <= budget:
                return WalkPlan(walks, size, needed, recompute=recompute)
        if batch is not None:
            return None
        size = min(given[0], 1 << 20) // 2 if size is None else size // 2
        if size < _SMALLEST_BATCH:
            return None
