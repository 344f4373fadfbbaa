"""Settings of a Graph Mamba Network that suit a graph and a memory budget, checked before anything is allocated.

Estimates count the floats that a training step keeps for its backward pass; every walk is taken to visit new nodes.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from hopstate.errors import ConfigError
from hopstate.models.gmn import GMN
from hopstate.tokens.walks import WalkSettings

_SMALLEST_BATCH = 64


@dataclass(frozen=True)
class Choice:
    """Walk settings, nodes or graphs a step (None: all at once), and the bytes a step is expected to take."""

    walks: WalkSettings
    batch_size: int | None
    bytes: int

    unit: str = "nodes"

    def __str__(self) -> str:
        w = self.walks
        batch = "the whole graph" if self.batch_size is None else f"{self.batch_size:,} {self.unit}"
        return (
            f"m={w.max_length}, s={w.repeats}, M={w.walks}: {w.tokens} tokens a node, {batch} a step, "
            f"about {self.bytes / 2**20:,.0f} MiB"
        )


def step_bytes(nodes: int, edges: int, walks: WalkSettings, model: GMN.Config, features: int, context: int = 0) -> int:
    """Return the bytes of a training step.

    Args:
        nodes: nodes whose outputs are asked for.
        edges: stored edges of the graph that is passed over.
        walks: walk settings.
        model: widths and layers.
        features: columns of x.
        context: further nodes whose features are needed.
    """
    d, inner = model.dim, model.expand * model.dim
    branches = 2 if model.bidirectional else 1
    block = branches * (9 * inner + 3 * model.state_dim + inner * model.state_dim / 16) + 4 * d  # floats a token
    message = 16 * d  # floats a row and message-passing layer
    lengths = range(1, walks.max_length + 1)
    visited = 1 + walks.repeats * sum(h * walks.walks + 1 for h in lengths) if walks.max_length else 0
    if model.local == "rwf":
        visited = 1 + walks.repeats * walks.walks * sum(h + 1 for h in lengths) if walks.max_length else 0
        row = 6 * d + 2 * walks.window
    else:
        row = message * model.local_layers + 2 * d + 12
    tokens = walks.tokens * (block * model.token_layers + 2 * d)
    own = tokens + visited * row + block * model.node_layers + 4 * d
    whole = (nodes + context) * (features + d + (message * model.mpnn_layers if model.uses_mpnn else 0)) + 4 * edges
    return int(4 * (nodes * own + whole))


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
) -> Choice:
    """Return settings that fit the budget; those given are kept.

    Without a word from the user: m = 3, s = 2 and as many walks as half the mean degree (2 to 8), on the whole graph
    if it fits, else in the largest batches that do, with fewer walks where even small batches do not.

    Raises:
        ConfigError: what is given does not fit; the message names settings that would.
    """
    start = _start(num_edges / max(1, num_nodes), model, max_length, repeats, walks, p=p, q=q, window=window)
    for candidate in _smaller(start, max_length is None, repeats is None, walks is None):
        found = _fit(num_nodes, num_edges, features, model, budget, candidate, batch_size)
        if found is not None:
            return found
    needed = _bytes(num_nodes, num_edges, features, model, start, batch_size)
    raise ConfigError(
        f"m={start.max_length}, s={start.repeats}, M={start.walks} on "
        f"{num_nodes if batch_size is None else batch_size:,} nodes a step would take about {needed / 2**20:,.0f} MiB, "
        f"more than walks.memory_budget={budget / 2**20:,.0f} MiB; "
        + _would_fit(num_nodes, num_edges, features, model, budget, start)
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
    **options: float,
) -> Choice:
    """Return settings of batches of whole graphs, the largest of which fit the budget; those given are kept.

    Without a word from the user: walks as in `choose` and 32 graphs a step, or fewer where 32 of the largest do not
    fit, with fewer walks where one of them does not.

    Args:
        nodes, edges: (G,) sizes of the graphs.
        features, model, budget, max_length, repeats, walks, options: as in `choose`.
        batch_size: graphs a step.

    Raises:
        ConfigError: nothing fits.
    """
    most = np.cumsum(np.sort(nodes)[::-1]), np.cumsum(np.sort(edges)[::-1])
    degree = float(edges.sum() / max(1, nodes.sum()))
    start = _start(degree, model, max_length, repeats, walks, **options)  # type: ignore[arg-type]
    sizes = [batch_size] if batch_size is not None else [32, 16, 8, 4, 2, 1]
    needed, last = 0, 0
    for candidate in _smaller(start, max_length is None, repeats is None, walks is None):
        for size in sizes:
            last = min(size, len(nodes)) - 1
            needed = step_bytes(int(most[0][last]), int(most[1][last]), candidate, model, features)
            if needed <= budget:
                return Choice(candidate, size, needed, "graphs")
    raise ConfigError(
        f"{sizes[-1]} of the largest graphs a step ({most[0][last]:,} nodes) would take about "
        f"{math.ceil(needed / 2**20):,} MiB, more than walks.memory_budget={budget / 2**20:,.0f} MiB: raise it, or "
        f"lower batch_size, model.dim or the walks"
    )


def _start(
    degree: float, model: GMN.Config, max_length: int | None, repeats: int | None, walks: int | None, **options: Any
) -> WalkSettings:
    """Return what is tried first: what is given, else m = 3, s = 2 and half the mean degree (2 to 8) walks."""
    if model.variant == "gps-mamba":
        max_length = 0
    return WalkSettings(
        max_length=3 if max_length is None else max_length,
        repeats=2 if repeats is None else repeats,
        walks=max(2, min(8, round(degree / 2))) if walks is None else walks,
        **options,
    )


def _would_fit(n: int, e: int, features: int, model: GMN.Config, budget: int, start: WalkSettings) -> str:
    """Return words that name settings within the budget, else the least budget there are settings for."""
    modest = replace(
        start, max_length=min(3, start.max_length), repeats=min(2, start.repeats), walks=min(8, start.walks)
    )
    smaller = _smaller(modest, True, True, True)
    for candidate in smaller:
        if found := _fit(n, e, features, model, budget, candidate, None):
            return f"these would fit: {found}"
    size = n
    while model.variant != "gps-mamba" and min(size, 1 << 20) // 2 >= _SMALLEST_BATCH:
        size = min(size, 1 << 20) // 2
    least = _bytes(n, e, features, model, smaller[-1], size)
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


def _bytes(n: int, e: int, features: int, model: GMN.Config, walks: WalkSettings, batch: int | None) -> int:
    if batch is None or batch >= n:
        return step_bytes(n, e, walks, model, features)
    visited = walks.repeats * walks.walks * walks.max_length * (walks.max_length + 1) // 2
    context = min(n, batch * (1 + visited)) - batch
    return step_bytes(batch, e * (context + batch) // n, walks, model, features, context)


def _fit(
    n: int, e: int, features: int, model: GMN.Config, budget: int, walks: WalkSettings, batch: int | None
) -> Choice | None:
    """Return the choice with the largest batch that fits (or the one given), None where there is none."""
    fixed = batch is not None or model.variant == "gps-mamba"
    size = batch
    while True:
        needed = _bytes(n, e, features, model, walks, size)
        if needed <= budget:
            return Choice(walks, size, needed)
        if fixed:
            return None
        size = min(n, 1 << 20) // 2 if size is None else size // 2
        if size < _SMALLEST_BATCH:
            return None
