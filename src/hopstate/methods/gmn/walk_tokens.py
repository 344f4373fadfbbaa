"""Random-walk tokens of a graph's nodes as packed tensors, drawn anew every few epochs in a background thread.

Source: Behrouz & Hashemi 2024 (Graph Mamba Networks), Algorithm 1 and section 4.1.
"""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
import torch
from torch import Tensor

from hopstate.errors import ConfigError, check_range
from hopstate.ops.walks import Subgraphs, WalkTable, walk_features, walk_subgraphs

TokenKind = Literal["subgraph", "walk"]
Lengths = Literal["every", "doubling"]


@dataclass(frozen=True, kw_only=True)
class WalkSettings:
    """How many walks of which length.

    Args:
        max_length: m; 0 makes each node its only token.
        repeats: s, tokens of each length; 0 makes max_length 0.
        walks: M, walks of a token.
        p, q: node2vec's return and in-out parameters; 1, 1 walks uniformly.
        window: steps back that walk features look (kind "walk").
        lengths: of which walks there are tokens: "every" one from 1 to m, as published, so that a node's tokens hold
            about m² / 2 steps; or "doubling", 1, 2, 4, ... and m, about 2 m to 3 m steps.
    """

    max_length: int
    repeats: int
    walks: int
    p: float = 1.0
    q: float = 1.0
    window: int = 8
    lengths: Lengths = "every"

    def __post_init__(self) -> None:
        if self.lengths not in get_args(Lengths):
            raise ConfigError(f"walks.lengths is {' or '.join(get_args(Lengths))}; got {self.lengths!r}")
        check_range("walks.", least=0, max_length=self.max_length, repeats=self.repeats)
        check_range("walks.", least=1, walks=self.walks, window=self.window)
        check_range("walks.", above=0, p=self.p, q=self.q)
        if not self.repeats:
            object.__setattr__(self, "max_length", 0)

    @property
    def counts(self) -> dict[str, int]:
        """m, s and M by name."""
        return {"max_length": self.max_length, "repeats": self.repeats, "walks": self.walks}

    @property
    def tokens(self) -> int:
        """Tokens of a node: one for each repeat of each length, and the node itself."""
        return self.repeats * len(self.ladder) + 1

    @property
    def ladder(self) -> list[int]:
        """The lengths of walks, ascending."""
        m = self.max_length
        if self.lengths == "every" or not m:
            return list(range(1, m + 1))
        return [*(1 << k for k in range((m - 1).bit_length())), m]


Tokens = dict[str, Tensor]
"""Packed tokens of n nodes, K each.

offsets (n*K + 1,) bounds of the tokens in rows; then for kind "subgraph": nodes (P,), indptr (P + 1,), indices (Q,)
the induced edges as CSR over rows, edges (Q,) their rows in the graph where edge features are wanted; for kind "walk":
nodes (R,) of every step, bits (R, 2 * window) uint8, walks (W + 1,) bounds of the walks, edges (R,) rows of the edges
taken or -1.
"""


def walk_tokens(
    table: WalkTable, nodes: np.ndarray, settings: WalkSettings, *, kind: TokenKind, seed: int, edges: bool = False,
    names: np.ndarray | None = None,
) -> Tokens:  # fmt: skip
    """Draw the tokens of some nodes.

    Args:
        table: the graph.
        nodes: (n,) int64.
        settings: m, s, M and biases.
        kind: "subgraph" for message passing inside tokens, "walk" for walk features.
        seed: fixes the walks of each node, whatever the other nodes are.
        edges: also give the rows of the edges.
        names: (n,) what nodes' walks are drawn by; None takes their ids.
    """
    c = settings
    drawn = walk_subgraphs(
        table, nodes, max_length=c.max_length, repeats=c.repeats, walks=c.walks, lengths=c.ladder, seed=seed, p=c.p,
        q=c.q, edges=kind == "subgraph", edge_ids=edges and kind == "subgraph", keep_walks=kind == "walk", names=names,
    )  # fmt: skip
    return _subgraph_tensors(drawn, edges) if kind == "subgraph" else _walk_tensors(table, drawn, len(nodes), c, edges)


def _subgraph_tensors(drawn: Subgraphs, edges: bool) -> Tokens:
    indptr = np.concatenate([[0], np.cumsum(drawn.degree, dtype=np.int64)])
    first = np.repeat(drawn.offsets[:-1], np.diff(drawn.offsets))
    made = {
        "offsets": drawn.offsets,
        "nodes": drawn.nodes.astype(np.int64),
        "indptr": indptr,
        "indices": np.repeat(first, drawn.degree) + drawn.target,
    }
    if edges:
        made["edges"] = drawn.edge_ids
    return {name: torch.from_numpy(array) for name, array in made.items()}


def _walk_tensors(table: WalkTable, drawn: Subgraphs, count: int, c: WalkSettings, edges: bool) -> Tokens:
    steps = np.array(c.ladder[::-1], np.int64) + 1
    lengths = np.repeat(steps, c.repeats * c.walks)
    walks = np.concatenate([[0], np.cumsum(np.tile(np.append(lengths, 1), count))])
    per_token = np.append(np.repeat(steps, c.repeats) * c.walks, 1)
    nodes, bits, taken = walk_features(table, drawn.walked, walks, c.window)
    made = {
        "offsets": np.concatenate([[0], np.cumsum(np.tile(per_token, count))]),
        "nodes": nodes.astype(np.int64),
        "bits": bits,
        "walks": walks,
    }
    if edges:
        made["edges"] = taken
    return {name: torch.from_numpy(array) for name, array in made.items()}


def token_order(count: int, settings: WalkSettings, rng: np.random.Generator | None) -> Tensor:
    """Return (count * K,) positions of tokens in their nodes' sequences: tokens of equal length shuffled.

    Args:
        count: nodes.
        settings: s and m.
        rng: draws the shuffle; None keeps the order of drawing.
    """
    c = settings
    order = np.arange(count * c.tokens).reshape(count, c.tokens)
    if rng is not None and c.repeats > 1 and c.max_length:
        own = order[:, :-1].reshape(count, -1, c.repeats)
        shuffle = rng.random(own.shape, np.float32).argsort(-1, kind="stable")
        order[:, :-1] = np.take_along_axis(own, shuffle, -1).reshape(count, -1)
    return torch.from_numpy(order.reshape(-1))


def drawing_seed(seed: int, number: int) -> int:
    """Return what fixes the walks of a round of a run with a seed; evaluation takes the rounds 0, -1, -2, ..."""
    return (seed * 1_000_003 + number) % 2**63


class Resampler:
    """Tokens of fixed nodes, drawn anew every few epochs; the next ones are drawn while the present ones are used.

    Args:
        table, nodes, settings, kind, edges: see `walk_tokens`.
        seed: with the round's number, fixes its walks.
        every: epochs that use the same walks; 0 never draws again.
    """

    def __init__(
        self, table: WalkTable, nodes: np.ndarray, settings: WalkSettings, *, kind: TokenKind, seed: int,
        every: int = 0, edges: bool = False,
    ) -> None:  # fmt: skip
        if every < 0:
            raise ConfigError(f"resample_every counts epochs, 0 for never; got {every}")
        self.table, self.nodes, self.settings = table, nodes, settings
        self.kind, self.seed, self.every, self.edges = kind, seed, every, edges
        self._round: int | None = None
        self._tokens: Tokens = {}
        self._next: tuple[int, Future[Tokens]] | None = None
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="walks") if every else None

    def at(self, epoch: int) -> Tokens:
        """Return the tokens of an epoch (from 0)."""
        number = epoch // self.every if self.every else 0
        if number != self._round:
            ready = self._next is not None and self._next[0] == number
            self._tokens = self._next[1].result() if ready and self._next else self.drawn(number)
            self._round, self._next = number, None
        if self._pool is not None and self._next is None:
            self._next = (number + 1, self._pool.submit(self.drawn, number + 1))
        return self._tokens

    def drawn(self, number: int) -> Tokens:
        """Return the tokens of a round."""
        seed = drawing_seed(self.seed, number)
        return walk_tokens(self.table, self.nodes, self.settings, kind=self.kind, seed=seed, edges=self.edges)
