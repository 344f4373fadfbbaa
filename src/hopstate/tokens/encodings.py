"""Positional encodings of the nodes of a graph, computed once and kept in the cache folder.

Source: Dwivedi & Bresson 2020, arXiv:2012.09699 (Laplacian eigenvectors).
"""

from __future__ import annotations

import hashlib
import warnings
from itertools import pairwise
from pathlib import Path

import numpy as np

from hopstate.data.graph import Graph
from hopstate.errors import HopstateWarning
from hopstate.io.files import cached_array
from hopstate.ops.eigenvectors import components, laplacian_eigenvectors, shares

VERSION = 2  # part of the file name: increase it when results change


def laplacian_encoding(
    graph: Graph,
    count: int,
    cache: Path | None = None,
    *,
    offsets: np.ndarray | None = None,
) -> np.ndarray:
    """Return (N, s) float32 Laplacian eigenvectors with small non-trivial eigenvalues; see `laplacian_eigenvectors`.

    Surplus columns are zero. A warning names components without eigenvectors.

    Args:
        count: s, number of columns.
        cache: cache folder; the file name includes the adjacency's hash. None disables caching.
        offsets: (G+1,) bounds of the graphs of a set, each with its own count eigenvectors. Edges must not join graphs.
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
            component_indptr = graph.indptr[lo : hi + 1]
            out[lo:hi] = laplacian_eigenvectors(
                component_indptr - component_indptr[0],
                graph.indices[component_indptr[0] : component_indptr[-1]] - lo,
                count,
            )[1]
        return out

    out = cached_array(path, (graph.num_nodes, count), compute)
    if graph.num_edges and count and offsets is None:
        _warn_components_without_vectors(graph, components(graph.indptr, graph.indices), count)
    return out


def _warn_components_without_vectors(graph: Graph, labels: np.ndarray, count: int) -> None:
    """Warn about components without an eigenvector, the largest first."""
    sizes = np.bincount(labels)
    left = np.flatnonzero((shares(sizes, count) == 0) & (sizes > 1))
    if not len(left):
        return
    left = left[np.argsort(-sizes[left], kind="stable")]
    first = np.unique(labels, return_index=True)[1][left[:3]]
    ids = first if graph.node_ids is None else graph.node_ids.names(first)
    named = ", ".join(f"that of node {node} ({sizes[c]} nodes)" for node, c in zip(ids, left[:3]))
    warnings.warn(
        f"{count} Laplacian eigenvectors cover {int((shares(sizes, count) > 0).sum())} of the {int((sizes > 1).sum())} "
        f"connected components of {graph.name} by size; {len(left)} get zeros only: {named}"
        f"{', ...' if len(left) > 3 else ''}. Use more eigenvectors if these matter",
        HopstateWarning,
        stacklevel=3,
    )
