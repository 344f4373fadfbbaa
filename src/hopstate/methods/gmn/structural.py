"""Structural encodings of nodes from random walks, and relative encodings of edges; computed once, kept by content.

Source: Dwivedi et al. 2022, arXiv:2110.07875 (diagonal of RW^k); Behrouz & Hashemi 2024, figure 1 (sums of the
non-diagonal elements, anonymous walks, pairwise differences as edge features); Ivanov & Burnaev 2018 (anonymous walks).
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path

import numpy as np

from hopstate.data.graph import Graph
from hopstate.errors import ConfigError
from hopstate.io.files import cached_array
from hopstate.ops.returns import return_probabilities, walk_sums
from hopstate.ops.walks import WalkTable, random_walks

VERSION = 1  # part of the file name: raised when the same graph would get other columns
_CHUNK = 1 << 17  # walks anonymised at a time


def random_walk_encoding(graph: Graph, steps: int, cache: Path | None = None) -> np.ndarray:
    """Return (N, steps) float32: the probability that a random walk is back at its node after k = 1..steps steps."""
    return _kept(graph, f"rwse_{steps}", steps, cache, lambda: return_probabilities(graph.indptr, graph.indices, steps))


def nondiagonal_encoding(graph: Graph, steps: int, cache: Path | None = None) -> np.ndarray:
    """Return (N, 2 * steps) float32: sums of the non-diagonal elements of RW^k, k = 1..steps, by row, then by column.

    A row's sum is one minus the diagonal wherever walks cannot get stuck; the column's also sees how much of all walks
    ends at the node.
    """

    def compute() -> np.ndarray:
        diagonal = return_probabilities(graph.indptr, graph.indices, steps)
        rows, columns = walk_sums(graph.indptr, graph.indices, steps)
        return np.concatenate([rows - diagonal, columns - diagonal], 1)

    return _kept(graph, f"nondiagonal_{steps}", 2 * steps, cache, compute)


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
    return _kept(graph, name, columns, cache, lambda: _anonymous(graph, length, walks, seed, drawn_by))


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
        names, column = anonymised(rows).reshape(len(nodes), walks, length + 1), 0
        for t in range(1, length + 1):
            for a in range(t + 1):
                out[lo : lo + len(nodes), column] = (names[:, :, t] == a).mean(1)
                column += 1
    return out


def anonymised(rows: np.ndarray) -> np.ndarray:
    """Return (W, L) walks with every node replaced by the number of different nodes met before it first was."""
    length = rows.shape[1]
    names, found = np.zeros(rows.shape, np.int64), np.zeros(len(rows), np.int64)
    for t in range(1, length):
        names[:, t] = found + 1
        for j in range(t - 1, -1, -1):
            names[:, t] = np.where(rows[:, j] == rows[:, t], names[:, j], names[:, t])
        found = np.maximum(found, names[:, t])
    return names


def _kept(graph: Graph, name: str, columns: int, cache: Path | None, compute: Callable[[], np.ndarray]) -> np.ndarray:
    """Return compute() as (N, columns) float32, from the cache folder where it is there."""
    if columns < 1:
        raise ConfigError("an encoding needs at least one step")
    path = None if cache is None else Path(cache) / f"{name}_v{VERSION}_{graph.structure_hash}.npy"
    return cached_array(path, (graph.num_nodes, columns), compute)
