"""Positional encodings of the nodes of a graph, computed once and kept in the cache folder.

Source: Dwivedi & Bresson 2020, arXiv:2012.09699 (Laplacian eigenvectors).
"""

from __future__ import annotations

import hashlib
from itertools import pairwise
from pathlib import Path

import numpy as np

from hopstate.data.cache import cached_array
from hopstate.data.graph import Graph
from hopstate.ops.eigenvectors import laplacian_eigenvectors

VERSION = 1  # part of the file name: raised when the same graph would get other columns


def laplacian_encoding(
    graph: Graph, count: int, cache: Path | None = None, *, offsets: np.ndarray | None = None
) -> np.ndarray:
    """Return the count Laplacian eigenvectors with the smallest non-trivial eigenvalues; see `laplacian_eigenvectors`.

    Args:
        graph: its adjacency alone matters.
        count: s, number of columns.
        cache: folder to keep the result in, named by the adjacency's hash; None keeps nothing.
        offsets: (G+1,) bounds of the graphs of a set, each of which gets count eigenvectors of its own; no edge may
            join two.

    Returns:
        (N, s) float32; columns beyond those that the graph has are zero.

    Raises:
        StorageError: the cache could not be written.
    """
    name = f"laplacian{VERSION}_{graph.structure_hash}_{count}"
    if offsets is not None:
        name += f"_{hashlib.blake2b(offsets.tobytes(), digest_size=8).hexdigest()}"
    path = None if cache is None else Path(cache) / f"{name}.npy"

    def compute() -> np.ndarray:
        if offsets is None:
            return laplacian_eigenvectors(graph.indptr, graph.indices, count)[1]
        out = np.zeros((graph.num_nodes, count), np.float32)
        for lo, hi in pairwise(offsets):
            own = graph.indptr[lo : hi + 1]
            out[lo:hi] = laplacian_eigenvectors(own - own[0], graph.indices[own[0] : own[-1]] - lo, count)[1]
        return out

    return cached_array(path, (graph.num_nodes, count), compute)
