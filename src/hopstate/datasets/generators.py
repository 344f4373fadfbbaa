"""Synthetic graphs: Minesweeper, stochastic block model, R-MAT, and paths and rings for long-range tests.

Source: Minesweeper: Platonov et al., ICLR 2023, arXiv:2302.11640, §4; R-MAT: Chakrabarti, Zhan, Faloutsos, SDM 2004.
"""

from __future__ import annotations

import numpy as np

from hopstate.data.graph import Graph
from hopstate.data.splits import masks_from_rows, random_split
from hopstate.errors import ConfigError
from hopstate.random import named_rng

MINE_COUNTS = 6  # the published file tells 0, 1, ..., 4 and "5 or more" neighboring mines apart


def minesweeper(
    size: int = 100, *, mines: float = 0.2, unknown: float = 0.5, seed: int = 0, num_splits: int = 10
) -> Graph:
    """Return a Minesweeper grid: which cells hold a mine, from the numbers shown in some of the cells.

    Every cell is joined to its up to 8 neighbors. Features, in the order of the published file: a flag for "number
    unknown", then the number of neighboring mines one-hot as 0, 1, 2, 3, 4, 5 or more; an unknown cell has the flag
    alone.

    Args:
        size: cells along a side; size² nodes.
        mines: share of cells that hold a mine (class 1), exactly.
        unknown: share of cells whose number is unknown, exactly.
        seed: fixes mines, unknown cells and splits.
        num_splits: stored 50/25/25 splits, each with the same share of mines.

    Returns:
        A graph with size² nodes, 2(2·size·(size-1) + 2·(size-1)²) stored edges, 7 features and 2 classes.

    Raises:
        ConfigError: a size under 2, or shares outside 0..1.
    """
    if size < 2 or not 0 < mines < 1 or not 0 <= unknown <= 1:
        raise ConfigError(f"size >= 2, 0 < mines < 1, 0 <= unknown <= 1; got {size}, {mines}, {unknown}")
    rng = named_rng(seed)
    n = size * size
    y = np.zeros(n, np.int64)
    y[rng.permutation(n)[: round(mines * n)]] = 1
    hidden = rng.permutation(n)[: round(unknown * n)]
    board = np.pad(y.reshape(size, size), 1)
    steps = [(i, j) for i in (0, 1, 2) for j in (0, 1, 2) if (i, j) != (1, 1)]
    count = sum(board[i : i + size, j : j + size] for i, j in steps)
    column = 1 + np.minimum(np.asarray(count).ravel(), MINE_COUNTS - 1)
    column[hidden] = 0
    splits = [random_split(y, (0.5, 0.25, 0.25), seed=s, stratified=True) for s in rng.integers(2**31, size=num_splits)]
    return Graph.from_edges(
        _grid_edges(size),
        n,
        x=np.eye(1 + MINE_COUNTS, dtype=np.float32)[column],
        y=y,
        masks=masks_from_rows(splits, n) if splits else {},
        class_names=("no mine", "mine"),
        name="minesweeper-generated",
        source=f"minesweeper(size={size}, mines={mines}, unknown={unknown}, seed={seed})",
    )


def stochastic_block_model(
    num_nodes: int = 10_000,
    num_classes: int = 5,
    *,
    degree: float = 20.0,
    homophily: float = 0.8,
    num_features: int = 32,
    signal: float = 0.5,
    seed: int = 0,
) -> Graph:
    """Return a graph whose edges prefer nodes of the same class (homophily > 1/classes) or of another one.

    The number of edges inside and between classes is Poisson; end points are uniform, so that a node's degree is
    Poisson about `degree` (duplicates dropped). Class sizes differ by at most one; nodes are in random order.

    Args:
        num_nodes: N, in memory and time linear in N · degree.
        num_classes: C.
        degree: expected neighbors of a node.
        homophily: share of edges that join nodes of the same class.
        num_features: F; 0 for none. Features are signal · (unit vector of the class) + standard normal noise.
        signal: length of the class vector.
        seed: fixes everything.

    Raises:
        ConfigError: fewer than two nodes a class, or a share outside 0..1.
    """
    if num_classes < 1 or num_nodes < 2 * num_classes or not 0 <= homophily <= 1 or degree < 0:
        raise ConfigError(
            f"need two nodes a class and 0 <= homophily <= 1; got {num_nodes}, {num_classes}, {homophily}"
        )
    rng = named_rng(seed)
    y = rng.permutation(np.arange(num_nodes) % num_classes)
    members = np.argsort(y, kind="stable")
    sizes = np.bincount(y, minlength=num_classes)
    starts = np.cumsum(sizes) - sizes
    count = rng.poisson(num_nodes * degree / 2)
    u = rng.integers(num_nodes, size=count)
    shift = rng.integers(1, num_classes, size=count) if num_classes > 1 else np.zeros(count, np.int64)
    other = (y[u] + np.where(rng.random(count) < homophily, 0, shift)) % num_classes
    v = members[starts[other] + (rng.random(count) * sizes[other]).astype(np.int64)]
    x = None
    if num_features:
        means = rng.normal(size=(num_classes, num_features))
        means *= signal / np.linalg.norm(means, axis=1, keepdims=True)
        x = rng.standard_normal((num_nodes, num_features), np.float32) + means.astype(np.float32)[y]
    return Graph.from_edges(
        np.stack([u, v], 1),
        num_nodes,
        self_loops="drop",
        x=x,
        y=y,
        masks=masks_from_rows([random_split(y, seed=seed, stratified=True)], num_nodes) if num_nodes >= 5 else {},
        name="sbm",
        source=f"stochastic_block_model({num_nodes}, {num_classes}, {degree=}, {homophily=}, {seed=})",
    )


def rmat(
    scale: int = 14,
    edges_per_node: float = 8.0,
    *,
    probabilities: tuple[float, float, float, float] = (0.57, 0.19, 0.19, 0.05),
    num_nodes: int | None = None,
    num_features: int = 0,
    undirected: bool = True,
    seed: int = 0,
) -> Graph:
    """Return a power-law graph drawn by recursive choice of a quadrant of the adjacency matrix.

    Args:
        scale: the matrix has 2^scale rows.
        edges_per_node: edges drawn for every node; duplicates and self-loops are dropped afterwards.
        probabilities: of the quadrants (a, b, c, d) = (low-low, low-high, high-low, high-high).
        num_nodes: nodes, if not 2^scale; ids are drawn from the next power of two, modulo num_nodes.
        num_features: standard normal features a node; 0 for none.
        undirected: store both directions.
        seed: fixes everything, whatever the number of threads.

    Raises:
        ConfigError: a scale outside 1..40 or probabilities that do not sum to 1.
    """
    if num_nodes is not None:
        scale = max(1, (num_nodes - 1).bit_length())
    if not 1 <= scale <= 40 or min(probabilities) < 0 or abs(sum(probabilities) - 1) > 1e-9:
        raise ConfigError(f"scale is 1..40 and probabilities sum to 1; got {scale} and {probabilities}")
    from hopstate.datasets.rmat_kernels import rmat_edges

    n = num_nodes if num_nodes is not None else 1 << scale
    a, b, c, _ = probabilities
    edges = rmat_edges(scale, n, round(edges_per_node * n), a, a + b, a + b + c, seed)
    rng = named_rng(seed)
    return Graph.from_edges(
        edges,
        n,
        undirected=undirected,
        self_loops="drop",
        x=rng.standard_normal((n, num_features), np.float32) if num_features else None,
        name="rmat",
        source=f"rmat(scale={scale}, edges_per_node={edges_per_node}, num_nodes={n}, seed={seed})",
    )


def long_range(
    length: int = 10,
    count: int = 500,
    *,
    ring: bool = False,
    num_features: int = 2,
    marked: bool = False,
    seed: int = 0,
) -> Graph:
    """Return disjoint paths (or rings) in which the label of each path's last node is the bit at its first node.

    Features are uniform in (-1, 1), except in the first node of a path, which holds ±1 in every column; the label of
    the node at distance `length` from it is 1 for +1 and 0 for -1, all others are unlabeled. On a ring that is the
    opposite node and the message may come from both sides. Nothing nearer than `length` hops helps.

    Args:
        length: hops from the bit to the labeled node; a path has length + 1 nodes, a ring 2 · length.
        count: paths; half of them with +1.
        ring: rings in place of paths.
        num_features: columns of x, without the mark.
        marked: a last column that is 1 in the first nodes and 0 elsewhere; without it, only the exact ±1 marks them.
        seed: fixes features, bits and the 70/15/15 split of the labelled nodes.

    Raises:
        ConfigError: a length under 1 (2 for a ring), or fewer than 7 paths to split.
    """
    if length < (2 if ring else 1) or count < 7 or num_features < 1:
        raise ConfigError(
            f"length >= 1 (a ring: 2), count >= 7, num_features >= 1; got {length}, {count}, {num_features}"
        )
    rng = named_rng(seed)
    nodes = 2 * length if ring else length + 1
    total = count * nodes
    bit = rng.permutation(np.arange(count) % 2)
    x = rng.uniform(-1, 1, (total, num_features)).astype(np.float32)
    heads = np.arange(count) * nodes
    x[heads] = (2 * bit - 1)[:, None]
    if marked:
        x = np.concatenate([x, np.isin(np.arange(total), heads)[:, None].astype(np.float32)], 1)
    y = np.full(total, -1, np.int64)
    y[heads + length] = bit
    step = np.arange(nodes if ring else nodes - 1)
    sources = (heads[:, None] + step).ravel()
    targets = (heads[:, None] + (step + 1) % nodes).ravel()
    return Graph.from_edges(
        np.stack([sources, targets], 1),
        total,
        x=x,
        y=y,
        masks=masks_from_rows([random_split(y, (0.7, 0.15, 0.15), seed=seed, stratified=True)], total),
        name="long-range-ring" if ring else "long-range-path",
        source=f"long_range(length={length}, count={count}, ring={ring}, {'marked=True, ' * marked}seed={seed})",
    )


def _grid_edges(size: int) -> np.ndarray:
    """Return each pair of the 8-neighbor grid once, (edges, 2)."""
    cell = np.arange(size * size).reshape(size, size)
    pairs = (
        (cell[:, :-1], cell[:, 1:]),
        (cell[:-1], cell[1:]),
        (cell[:-1, :-1], cell[1:, 1:]),
        (cell[:-1, 1:], cell[1:, :-1]),
    )
    return np.concatenate([np.stack([a.ravel(), b.ravel()], 1) for a, b in pairs])
