"""Synthetic graphs: Minesweeper and a stochastic block model.

Source: Minesweeper: Platonov et al., ICLR 2023, arXiv:2302.11640, §4.
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
