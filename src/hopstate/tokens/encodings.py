"""Positional encodings of the nodes of a graph, computed once and kept in the cache folder.

Source: Dwivedi & Bresson 2020, arXiv:2012.09699 (Laplacian eigenvectors).
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from hopstate.data.cache import cached_array
from hopstate.data.graph import Graph
from hopstate.ops.eigenvectors import laplacian_eigenvectors

VERSION = 1  # part of the file name: raised when the same graph would get other columns


def laplacian_encoding(graph: Graph, count: int, cache: Path | None = None) -> np.ndarray:
    """Return the count Laplacian eigenvectors with the smallest non-trivial eigenvalues; see `laplacian_eigenvectors`.

    Args:
        graph: its adjacency alone matters.
        count: s, number of columns.
        cache: folder to keep the result in, named by the adjacency's hash; None keeps nothing.

    Returns:
        (N, s) float32; columns beyond those that the graph has are zero.

    Raises:
        StorageError: the cache could not be written.
    """
    path = None if cache is None else Path(cache) / f"laplacian{VERSION}_{graph.structure_hash}_{count}.npy"
    shape = (graph.num_nodes, count)
    return cached_array(path, shape, lambda: laplacian_eigenvectors(graph.indptr, graph.indices, count)[1])
