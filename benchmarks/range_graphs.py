"""Synthetic graphs that measure how far a network sees: paths, rings, binary trees and boards of corridors.

No node nearer than the given number of hops is informative of a label.
"""

from __future__ import annotations

import numpy as np

from hopstate.data.graph import Graph
from hopstate.data.splits import masks_from_rows, random_split
from hopstate.errors import ConfigError
from hopstate.random import named_rng


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

    Features are uniform in (-1, 1), except in the first node of a path, which has ±1 in every column; the label of
    the node at distance `length` from it is 1 for +1 and 0 for -1, all others are unlabeled. On a ring that is the
    opposite node and the message may come from both sides. No nearer node is informative.

    Args:
        length: hops from the bit to the labeled node; a path has length + 1 nodes, a ring 2 · length.
        count: paths; half of them with +1.
        ring: rings in place of paths.
        num_features: columns of x, without the mark.
        marked: a last column that is 1 in the first nodes and 0 elsewhere; otherwise only ±1 identifies them.
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


def tree_match(depth: int = 4, count: int = 500, *, num_classes: int = 4, seed: int = 0) -> Graph:
    """Return disjoint binary trees in which the label of each root is the class of the leaf with the root's key.

    Features are a key, one-hot of 2^depth, in the root and in every leaf (each leaf of a tree has another), then a
    class, one-hot, in the leaves only; inner nodes have zeros. Only the roots are labeled. The
    label depends on one leaf of 2^depth, and messages cannot identify it before they reach the root.

    Args:
        depth: hops from a root to its leaves; a tree has 2^(depth + 1) - 1 nodes, the root first, a node's children
            after all nodes of its own level.
        count: trees; the classes of their labels differ in number by one at most.
        num_classes: C.
        seed: fixes keys, classes and the 70/15/15 split of the roots.

    Raises:
        ConfigError: a depth outside 1..16, fewer than two classes, or fewer than 7 trees a class to split.
    """
    if not 1 <= depth <= 16 or num_classes < 2 or count < 7 * num_classes:
        raise ConfigError(
            f"depth is 1..16, num_classes >= 2, count >= 7 num_classes; got {depth}, {num_classes}, {count}"
        )
    rng = named_rng(seed)
    leaves, nodes = 2**depth, 2 ** (depth + 1) - 1
    roots, first = np.arange(count) * nodes, nodes - leaves
    label = rng.permutation(np.arange(count) % num_classes)
    keys = rng.permuted(np.tile(np.arange(leaves), (count, 1)), axis=1)
    classes = rng.integers(num_classes, size=(count, leaves))
    leaf_of_root = rng.integers(leaves, size=count)  # index of the leaf
    classes[np.arange(count), leaf_of_root] = label
    x = np.zeros((count, nodes, leaves + num_classes), np.float32)
    tree, place = np.indices(keys.shape)
    x[tree, first + place, keys] = 1
    x[tree, first + place, leaves + classes] = 1
    x[np.arange(count), 0, keys[np.arange(count), leaf_of_root]] = 1
    y = np.full(count * nodes, -1, np.int64)
    y[roots] = label
    child = np.arange(1, nodes)
    edges = np.stack([(roots[:, None] + (child - 1) // 2).ravel(), (roots[:, None] + child).ravel()], 1)
    return _with_split(
        edges, x.reshape(count * nodes, -1), y, seed, "tree-match",
        f"tree_match({depth=}, {count=}, {num_classes=}, {seed=})",
    )  # fmt: skip


def far_clues(reach: int = 20, rows: int = 500, *, crossings: int = 0, faint: float = 1e-3, seed: int = 0) -> Graph:
    """Return a board of corridors in which the label of each row's last cell is the clue in its row's first cell.

    Walls separate the rows except in the first column, so that the board is connected and the next rows' clues are
    one and two steps beyond a row's own. Features: 1 in the cells with a clue, 0 elsewhere; then the clue, 1 or -1, or
    uniform noise in (-1, 1) elsewhere. The last cells are labeled, 1 for a clue of 1 and 0 for -1.

    With crossings the board resembles a random graph, in which a few hops reach all cells: the only edge feature is 1
    along rows and the first column, and faint in a crossing.

    Args:
        reach: steps from a row's last cell to its first; a row has reach + 1 cells.
        rows: of the board; half of them with a clue of 1.
        crossings: edges drawn from each cell to cells of other rows; 0 leaves edges without features.
        faint: edge feature of a crossing.
        seed: fixes clues, noise, crossings and the 70/15/15 split of the last cells.

    Raises:
        ConfigError: a reach under 1, fewer than 14 rows to split, or crossings under 0.
    """
    if reach < 1 or rows < 14 or crossings < 0:
        raise ConfigError(f"reach >= 1, rows >= 14 and crossings >= 0; got {reach}, {rows}, {crossings}")
    rng = named_rng(seed)
    cell = np.arange(rows * (reach + 1)).reshape(rows, reach + 1)
    bit = rng.permutation(np.arange(rows) % 2)
    x = np.stack([np.zeros(cell.size), rng.uniform(-1, 1, cell.size)], 1).astype(np.float32)
    x[cell[:, 0]] = np.stack([np.ones(rows), 2 * bit - 1], 1)
    y = np.full(cell.size, -1, np.int64)
    y[cell[:, -1]] = bit
    along = np.stack([cell[:, :-1].ravel(), cell[:, 1:].ravel()], 1)
    down = np.stack([cell[:-1, 0], cell[1:, 0]], 1)
    edges, marks, more = np.concatenate([along, down]), None, ""
    if crossings:
        across = _crossings(cell, crossings, rng)
        marks = np.repeat(np.array([1, faint], np.float32), [len(edges), len(across)])[:, None]
        edges, more = np.concatenate([edges, across]), f"{crossings=}, {faint=}, "
    return _with_split(edges, x, y, seed, "far-clues", f"far_clues({reach=}, {rows=}, {more}{seed=})", marks)


def _crossings(cell: np.ndarray, count: int, rng: np.random.Generator) -> np.ndarray:
    """Return edges from each cell to cells of other rows; never between two first cells."""
    rows, width = cell.shape
    row, column = (np.repeat(part.ravel(), count) for part in np.indices(cell.shape))
    other = (row + rng.integers(1, rows, len(row))) % rows
    there = rng.integers(width, size=len(row))
    kept = (column > 0) | (there > 0)
    return np.stack([cell[row, column], cell[other, there]], 1)[kept]


def _with_split(
    edges: np.ndarray, x: np.ndarray, y: np.ndarray, seed: int, name: str, source: str, marks: np.ndarray | None = None
) -> Graph:
    rows = random_split(y, (0.7, 0.15, 0.15), seed=seed, stratified=True)
    return Graph.from_edges(
        edges, len(y), x=x, y=y, edge_attr=marks, masks=masks_from_rows([rows], len(y)), name=name, source=source
    )
