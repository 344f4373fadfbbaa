"""Random walks and their induced subgraphs as packed tokens (GMN, algorithm 1, lines 1 to 7).

`kernels` samples walks and `subgraph_kernels` builds tokens.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from hopstate.errors import ConfigError, DataError
from hopstate.ops.threads import run_units, usual_threads

__all__ = ["Subgraphs", "WalkTable", "random_walks", "random_walks_naive", "walk_features", "walk_subgraphs"]

_EDGES = 1 << 30  # edges of tokens that there is room for from the start


@dataclass(frozen=True, eq=False)
class WalkTable:
    """Graph layout for fast walks; build it once per graph with `WalkTable.of`.

    Args:
        indptr: (N+1,) int64 row pointers of the CSR adjacency.
        place: (N,) uint32 start of each node's record in table.
        table: (E + 2N,) uint32 records: the node, its degree, its neighbors' places.
    """

    indptr: np.ndarray
    place: np.ndarray
    table: np.ndarray

    @property
    def num_nodes(self) -> int:
        """N."""
        return len(self.place)

    @cached_property
    def widest(self) -> int:
        """The largest degree."""
        return int(np.diff(self.indptr).max(initial=0))

    @cached_property
    def loops(self) -> bool:
        """Whether a node has an edge to itself."""
        degree = np.diff(self.indptr)
        edges = np.arange(degree.sum()) + 2 * np.repeat(np.arange(1, self.num_nodes + 1), degree)
        return bool((self.table[edges] == np.repeat(self.place, degree)).any())

    @classmethod
    def of(cls, indptr: np.ndarray, indices: np.ndarray) -> WalkTable:
        """Return the table of a CSR adjacency.

        Args:
            indptr: (N+1,) int64.
            indices: (E,) int64, ascending within each row.

        Raises:
            DataError: more than 2**32 entries.
        """
        from hopstate.ops.walks import kernels as walk_kernels

        n = len(indptr) - 1
        if len(indices) + 2 * n >= 2**32 - 1:
            raise DataError(f"walks take graphs of edges + 2 nodes under 2**32; here it is {len(indices) + 2 * n:,}")
        place = (indptr[:-1] + 2 * np.arange(n)).astype(np.uint32)
        table = np.empty(len(indices) + 2 * n, np.uint32)
        walk_kernels.fill_table(indptr, indices, place, table)
        return cls(indptr, place, table)

    def edge_ids(self, positions: np.ndarray, sources: np.ndarray) -> np.ndarray:
        """Return the rows in `indices` of edges at table positions, given the sources (node ids) that they leave."""
        return positions - 2 * (sources.astype(np.int64) + 1)


def random_walks(
    table: WalkTable, nodes: np.ndarray, length: int, *, walks: int = 1, seed: int = 0, p: float = 1.0,
    names: np.ndarray | None = None,
) -> np.ndarray:  # fmt: skip
    """Sample random walks from each node.

    Args:
        table: the graph.
        nodes: (n,) int64 start nodes.
        length: number of steps.
        walks: walks per node.
        seed: seed of the walks.
        p: node2vec's return parameter. A step back to the node before has the weight 1 / p, all others 1.
        names: (n,) numbers that, with the seed, determine each node's walks. Default: the node ids.

    Returns:
        (n * walks, length + 1) int32 node ids, grouped by start node, in column-major order.

    Raises:
        ConfigError: length is negative, walks is below 1, or p is not above 0.
        DataError: a start node does not exist.
    """
    from hopstate.ops.walks import kernels as walk_kernels

    _check(table, nodes, length, walks, p)
    out = np.empty((length + 1, len(nodes) * walks), np.int32)
    units = -(-out.shape[1] // walk_kernels.BLOCK)
    graph = (table.place, table.table, 1.0 / p)
    run_units(walk_kernels.walks, units, *graph, *_named(nodes, names), walks, length, seed, out)
    return out.T


def random_walks_naive(
    indptr: np.ndarray, indices: np.ndarray, nodes: np.ndarray, length: int, *, walks: int = 1, seed: int = 0
) -> np.ndarray:
    """Reference implementation of `random_walks` for p = 1."""
    low, step = 2**64 - 1, 0x9E3779B97F4A7C15

    def mix(z: int) -> int:
        z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9 & low
        z = (z ^ (z >> 27)) * 0x94D049BB133111EB & low
        return z ^ (z >> 31)

    out = np.empty((len(nodes) * walks, length + 1), np.int64)
    for row in range(len(out)):
        v = out[row, 0] = int(nodes[row // walks])
        state = mix(mix((seed + step) & low) ^ ((int(v) * walks + row % walks) * step & low))
        for t in range(length):
            z = mix((state + (t // 2 * 2 + 1) * step) & low)
            r = z >> 32 if t % 2 == 0 else z & (2**32 - 1)
            neighbours = indices[indptr[v] : indptr[v + 1]]
            v = out[row, t + 1] = neighbours[r * len(neighbours) >> 32] if len(neighbours) else v
    return out


@dataclass(frozen=True, eq=False)
class Subgraphs:
    """Packed tokens of n nodes: K tokens per node, longest walks first and the node itself last.

    Args:
        offsets: (n*K + 1,) int64; token i has nodes[offsets[i]:offsets[i + 1]], its own node first.
        nodes: (P,) int32 node ids.
        degree: (P,) int32 number of out-edges of each row inside its token, or empty.
        target: (Q,) uint16 row of each edge's target in its token, ordered by source.
        edge_ids: (Q,) int64 positions in the graph's `indices`, or empty.
        walked: (R,) uint32 table places of all steps, walk by walk and token by token, or empty.
    """

    offsets: np.ndarray
    nodes: np.ndarray
    degree: np.ndarray
    target: np.ndarray
    edge_ids: np.ndarray
    walked: np.ndarray

    def edge_index(self) -> np.ndarray:
        """Return (2, Q) int64 rows of nodes: sources above targets."""
        source = np.repeat(np.arange(len(self.nodes)), self.degree)
        first = np.repeat(self.offsets[:-1], np.diff(self.offsets))
        return np.stack([source, first[source] + self.target])


def walk_subgraphs(
    table: WalkTable,
    nodes: np.ndarray,
    *,
    max_length: int,
    repeats: int,
    walks: int,
    lengths: Sequence[int] | None = None,
    seed: int = 0,
    p: float = 1.0,
    edges: bool = True,
    edge_ids: bool = False,
    keep_walks: bool = False,
    names: np.ndarray | None = None,
) -> Subgraphs:
    """Build the tokens T_h^r(v), r = 1..s: the subgraph induced by M walks of h steps from v, longest first; then v.

    Args:
        table: the graph.
        nodes: (n,) int64 nodes v.
        max_length: m, number of steps of the longest walks; 0 makes each node its only token.
        repeats: s.
        walks: M.
        lengths: values of h, ascending up to m. Default: 1..m.
        seed: seed of the walks.
        p: see `random_walks`.
        edges: also return the induced edges.
        edge_ids: also return their positions in `indices`.
        keep_walks: also return the walks.
        names: see `random_walks`.

    Returns:
        n * (s l + 1) tokens for l lengths.

    Raises:
        ConfigError: m is negative, s or M is below 1, p is not above 0, or lengths do not rise from 1 or more to m.
        DataError: a node does not exist.
    """
    from hopstate.ops.walks import subgraph_kernels

    _check(table, nodes, max_length, walks, p)
    if repeats < 1:
        raise ConfigError(f"repeats (s) must be at least 1; got {repeats}")
    nodes, names = _named(nodes, names)
    ladder = np.arange(1, max_length + 1) if lengths is None else np.array(lengths, np.int64)
    if not np.array_equal(np.unique([0, *ladder, max_length]), [0, *ladder]):
        raise ConfigError(f"lengths of walks rise from 1 or more to max_length={max_length}; got {list(ladder)}")
    bounds = [min(h * walks + 1, table.num_nodes) for h in ladder.tolist()]
    largest = max(bounds, default=1)
    if largest > 2**16:
        raise ConfigError(f"a token may hold up to 65,536 nodes; {walks} walks of {max_length} steps visit {largest:,}")
    bits = max(10, (32 * largest - 1).bit_length())
    graph = (table.place, table.table, 1.0 / p)

    def make(part: np.ndarray) -> tuple[np.ndarray, ...]:
        # allocated by NumPy, which uses huge pages and is faster
        count = len(part) * (1 + repeats * sum(bounds)) + 1
        likely = count * (len(table.table) // max(1, table.num_nodes)) if edges else 0
        rows = (
            np.empty(count, np.uint32),
            np.empty(count if edges else 0, np.int32),
            np.empty(min(likely, _EDGES), np.uint16),
        )
        return subgraph_kernels.subgraphs(
            graph,
            nodes[part],
            names[part],
            ladder,
            repeats,
            walks,
            seed,
            rows,
            table.widest,
            table.loops,
            edge_ids,
            keep_walks,
            bits,
        )

    return _join(table, _on_threads(make, np.arange(len(nodes))))


def _named(nodes: np.ndarray, names: np.ndarray | None) -> tuple[np.ndarray, np.ndarray]:
    own = np.ascontiguousarray(nodes, np.int64)
    return own, own if names is None else np.ascontiguousarray(names, np.int64)


def _on_threads(make: Callable[[np.ndarray], Any], nodes: np.ndarray) -> list[Any]:
    """Return make(part) of consecutive parts of nodes, one part per torch thread (fewer if there are few nodes)."""
    threads = max(1, min(usual_threads(), len(nodes) // 64))
    if threads == 1:
        return [make(nodes)]
    with ThreadPoolExecutor(threads) as pool:
        return list(pool.map(make, np.array_split(nodes, threads)))


def _join(table: WalkTable, parts: list[Any]) -> Subgraphs:
    sizes, nodes, degree, target, positions, walked = (p[0] if len(p) == 1 else np.concatenate(p) for p in zip(*parts))
    offsets = np.zeros(len(sizes) + 1, np.int64)
    np.cumsum(sizes, out=offsets[1:])
    nodes = nodes.view(np.int32)
    edge_ids = table.edge_ids(positions, np.repeat(nodes, degree)) if len(positions) else positions
    return Subgraphs(offsets=offsets, nodes=nodes, degree=degree, target=target, edge_ids=edge_ids, walked=walked)


def walk_features(
    table: WalkTable, walked: np.ndarray, starts: np.ndarray, window: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the inputs of CRaWl's random-walk features.

    Args:
        table: the graph.
        walked: (R,) uint32 places, see `Subgraphs.walked`.
        starts: (W + 1,) int64; walk w is walked[starts[w]:starts[w + 1]].
        window: number of earlier steps that the bits cover.

    Returns:
        (R,) int32 node ids; (R, 2 * window) uint8 bits: node equals, then is adjacent to, the node j steps earlier,
        j = 1..window; (R,) int64 positions in `indices` of the edge to the step, -1 at starts and if a walk stayed.
    """
    from hopstate.ops.walks import kernels as walk_kernels

    ids, arrived = np.empty(len(walked), np.int32), np.empty(len(walked), np.int64)
    bits = np.empty((len(walked), 2 * window), np.uint8)
    run_units(walk_kernels.walk_bits, len(starts) - 1, table.table, walked, starts, window, ids, bits, arrived)
    came = arrived >= 0
    arrived[came] = table.edge_ids(arrived[came], ids[np.flatnonzero(came) - 1])
    return ids, bits, arrived


def _check(table: WalkTable, nodes: np.ndarray, length: int, walks: int, p: float) -> None:
    if length < 0 or walks < 1 or not p > 0:
        raise ConfigError(
            f"walks need a length of at least 0, at least 1 walk a node, and p above 0; "
            f"got length={length}, walks={walks}, p={p}"
        )
    if len(nodes) and not (nodes.min() >= 0 and nodes.max() < table.num_nodes):
        raise DataError(f"start nodes lie in 0..{table.num_nodes - 1}; got {nodes.min()}..{nodes.max()}")
