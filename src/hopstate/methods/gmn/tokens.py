"""What a node is read from: its random-walk tokens as packed tensors, and structural encodings of nodes and edges.

Encodings are computed once and cached by content.

Source: Behrouz & Hashemi 2024 (Graph Mamba Networks), Algorithm 1, section 4.1 and figure 1 (sums of non-diagonal
elements, anonymous walks, pairwise differences as edge features); Dwivedi et al. 2022, arXiv:2110.07875 (diagonal of
RW^k); Ivanov & Burnaev 2018 (anonymous walks).
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, get_args

import numpy as np
import torch
from torch import Tensor

from hopstate.data.graph import Graph
from hopstate.errors import ConfigError, check_range
from hopstate.io.files import cached_array
from hopstate.ops.returns import return_probabilities, walk_sums
from hopstate.ops.walks import Subgraphs, WalkTable, random_walks, walk_features, walk_subgraphs

VERSION = 1  # part of the file name: raised when the same graph would get other columns
_CHUNK = 1 << 17  # walks anonymized at a time


def random_walk_encoding(graph: Graph, steps: int, cache: Path | None = None) -> np.ndarray:
    """Return (N, steps) float32: the probability that a random walk is back at its node after k = 1..steps steps."""
    return _cached(
        graph, f"rwse_{steps}", steps, cache, lambda: return_probabilities(graph.indptr, graph.indices, steps)
    )


def nondiagonal_encoding(graph: Graph, steps: int, cache: Path | None = None) -> np.ndarray:
    """Return (N, 2 * steps) float32: sums of the non-diagonal elements of RW^k, k = 1..steps, by row, then by column.

    A row's sum is one minus the diagonal wherever walks cannot get stuck; the column's also sees how much of all walks
    ends at the node.
    """

    def compute() -> np.ndarray:
        diagonal = return_probabilities(graph.indptr, graph.indices, steps)
        rows, columns = walk_sums(graph.indptr, graph.indices, steps)
        return np.concatenate([rows - diagonal, columns - diagonal], 1)

    return _cached(graph, f"nondiagonal_{steps}", 2 * steps, cache, compute)


def anonymous_walk_encoding(
    graph: Graph, length: int, cache: Path | None = None, *, walks: int = 100, seed: int = 0,
    names: np.ndarray | None = None,
) -> np.ndarray:  # fmt: skip
    """Return (N, length * (length + 3) / 2) float32: how often step t of a walk is at the a-th node it discovered.

    Columns run over t = 1..length and a = 0..t (0 is the start itself); each is a share of the walks.
    Nodes' walks are drawn by names (N,), as of `random_walks`.
    """
    columns, name = length * (length + 3) // 2, f"anonymous_{length}_{walks}_{seed}"
    if names is not None:
        name += f"_{hashlib.blake2b(names.astype('<i8').tobytes(), digest_size=8).hexdigest()}"
    drawn_by = np.arange(graph.num_nodes) if names is None else names
    return _cached(graph, name, columns, cache, lambda: _anonymous(graph, length, walks, seed, drawn_by))


def relative_encoding(encoding: np.ndarray, graph: Graph) -> np.ndarray:
    """Return (E, s) float32 encoding[source] - encoding[target] of every stored edge."""
    sources, targets = graph.edge_index()
    return encoding[sources] - encoding[targets]


def _anonymous(graph: Graph, length: int, walks: int, seed: int, drawn_by: np.ndarray) -> np.ndarray:
    table = WalkTable.of(graph.indptr, graph.indices)
    out = np.empty((graph.num_nodes, length * (length + 3) // 2), np.float32)
    size = max(1, _CHUNK // walks)
    for lo in range(0, graph.num_nodes, size):
        nodes = np.arange(lo, min(lo + size, graph.num_nodes))
        rows = random_walks(table, nodes, length, walks=walks, seed=seed, names=drawn_by[nodes])
        names, column = anonymize_walks(rows).reshape(len(nodes), walks, length + 1), 0
        for t in range(1, length + 1):
            for a in range(t + 1):
                out[lo : lo + len(nodes), column] = (names[:, :, t] == a).mean(1)
                column += 1
    return out


def anonymize_walks(rows: np.ndarray) -> np.ndarray:
    """Return (W, L) walks with each node replaced by the number of distinct nodes before its first visit."""
    length = rows.shape[1]
    names, distinct = np.zeros(rows.shape, np.int64), np.zeros(len(rows), np.int64)
    for t in range(1, length):
        names[:, t] = distinct + 1
        for j in range(t - 1, -1, -1):
            names[:, t] = np.where(rows[:, j] == rows[:, t], names[:, j], names[:, t])
        distinct = np.maximum(distinct, names[:, t])
    return names


def _cached(graph: Graph, name: str, columns: int, cache: Path | None, compute: Callable[[], np.ndarray]) -> np.ndarray:
    """Return compute() as (N, columns) float32, read from the cache folder if possible."""
    if columns < 1:
        raise ConfigError("an encoding needs at least one step")
    path = None if cache is None else Path(cache) / f"{name}_v{VERSION}_{graph.structure_hash}.npy"
    return cached_array(path, (graph.num_nodes, columns), compute)


TokenKind = Literal["subgraph", "walk"]
Lengths = Literal["every", "doubling"]


@dataclass(frozen=True, kw_only=True)
class WalkSettings:
    """How many walks of which length.

    Args:
        max_length: m; 0 makes each node its only token.
        repeats: s, tokens of each length; 0 makes max_length 0.
        walks: M, walks of a token.
        p: node2vec's return parameter; 1 walks uniformly.
        window: steps back that walk features look (kind "walk").
        lengths: of which walks there are tokens: "every" one from 1 to m, as published, so that a node's tokens hold
            about m² / 2 steps; or "doubling", 1, 2, 4, ... and m, about 2 m to 3 m steps.
    """

    max_length: int
    repeats: int
    walks: int
    p: float = 1.0
    window: int = 8
    lengths: Lengths = "every"

    def __post_init__(self) -> None:
        if self.lengths not in get_args(Lengths):
            raise ConfigError(f"walks.lengths is {' or '.join(get_args(Lengths))}; got {self.lengths!r}")
        check_range("walks.", minimum=0, max_length=self.max_length, repeats=self.repeats)
        check_range("walks.", minimum=1, walks=self.walks, window=self.window)
        check_range("walks.", above=0, p=self.p)
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
        settings: m, s, M and the return parameter.
        kind: "subgraph" for message passing inside tokens, "walk" for walk features.
        seed: fixes the walks of each node, whatever the other nodes are.
        edges: also give the rows of the edges.
        names: (n,) what nodes' walks are drawn by; None takes their ids.
    """
    c = settings
    drawn = walk_subgraphs(
        table, nodes, max_length=c.max_length, repeats=c.repeats, walks=c.walks, lengths=c.ladder, seed=seed, p=c.p,
        edges=kind == "subgraph", edge_ids=edges and kind == "subgraph", keep_walks=kind == "walk", names=names,
    )  # fmt: skip
    return _subgraph_tensors(drawn, edges) if kind == "subgraph" else _walk_tensors(table, drawn, len(nodes), c, edges)


def _subgraph_tensors(drawn: Subgraphs, edges: bool) -> Tokens:
    indptr = np.concatenate([[0], np.cumsum(drawn.degree, dtype=np.int64)])
    first = np.repeat(drawn.offsets[:-1], np.diff(drawn.offsets))
    arrays = {
        "offsets": drawn.offsets,
        "nodes": drawn.nodes.astype(np.int64),
        "indptr": indptr,
        "indices": np.repeat(first, drawn.degree) + drawn.target,
    }
    if edges:
        arrays["edges"] = drawn.edge_ids
    return {name: torch.from_numpy(array) for name, array in arrays.items()}


def _walk_tensors(table: WalkTable, drawn: Subgraphs, count: int, c: WalkSettings, edges: bool) -> Tokens:
    steps = np.array(c.ladder[::-1], np.int64) + 1
    lengths = np.repeat(steps, c.repeats * c.walks)
    walks = np.concatenate([[0], np.cumsum(np.tile(np.append(lengths, 1), count))])
    per_token = np.append(np.repeat(steps, c.repeats) * c.walks, 1)
    nodes, bits, edge_ids = walk_features(table, drawn.walked, walks, c.window)
    arrays = {
        "offsets": np.concatenate([[0], np.cumsum(np.tile(per_token, count))]),
        "nodes": nodes.astype(np.int64),
        "bits": bits,
        "walks": walks,
    }
    if edges:
        arrays["edges"] = edge_ids
    return {name: torch.from_numpy(array) for name, array in arrays.items()}


def token_order(count: int, settings: WalkSettings, rng: np.random.Generator | None) -> Tensor:
    """Return (count * K,) positions of tokens in their nodes' sequences; rng shuffles tokens of equal length."""
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
