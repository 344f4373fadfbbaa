"""Graph sets for several tests."""

import numpy as np

from hopstate.data.graph import Graph
from hopstate.data.graph_set import GraphSet, folds


def rings(count: int = 30) -> GraphSet:
    """Rings and chains, labeled by their kind; nodes and edges are labeled by their number, even or odd."""
    rng, parts = np.random.default_rng(0), []
    y, sizes = np.arange(count) % 2, rng.integers(4, 9, count)
    for label, size, first in zip(y, sizes, np.cumsum(sizes) - sizes):
        ring = np.stack([np.arange(size), (np.arange(size) + 1) % size], 1)
        parts.append(first + (ring if label else ring[:-1]))
    total = int(sizes.sum())
    x = rng.normal(size=(total, 3)).astype(np.float32)
    union = Graph.from_edges(np.concatenate(parts), total, x=x, y=np.arange(total) % 2)
    offsets, masks = np.concatenate([[0], np.cumsum(sizes)]), folds([np.arange(20)], [np.arange(20, count)], count)
    return GraphSet(union=union, offsets=offsets, y=y, masks=masks, edge_y=np.arange(union.num_edges) % 2)
