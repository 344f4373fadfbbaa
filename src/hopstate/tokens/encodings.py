"""Positional encodings of the nodes of a graph, computed once and kept in the cache folder.

Source: Dwivedi & Bresson 2020, arXiv:2012.09699 (Laplacian eigenvectors).
"""

from __future__ import annotations

import hashlib
import warnings
from itertools import pairwise
from pathlib import Path
from typing import Literal

import numpy as np

from hopstate.data.graph import Graph
from hopstate.errors import HopstateWarning
from hopstate.io.files import cached_array
from hopstate.ops.eigenvectors import components, laplacian_eigenvectors, shares

VERSION = 1  # part of the file name: raised when the same graph would get other columns


Share = Literal["size", "smallest"]


def laplacian_encoding(
    graph: Graph,
    count: int,
    cache: Path | None = None,
    *,
    offsets: np.ndarray | None = None,
    share: Share = "size",
) -> np.ndarray:
    """Return (N, s) float32 Laplacian eigenvectors with small non-trivial eigenvalues; see `laplacian_eigenvectors`.

    Columns beyond those that the graph has are zero. Components of the graph that get none are named in a warning.

    Args:
        count: s, number of columns.
        cache: folder to keep the result in, named by the adjacency's hash; None keeps nothing.
        offsets: (G+1,) bounds of the graphs of a set, each of which gets count eigenvectors of its own; no edge may
            join two.
        share: how connected components share the vectors: by "size", or the "smallest" eigenvalues of all together.
    """
    by_size = share == "size"
    labels = components(graph.indptr, graph.indices) if graph.num_edges and count else np.zeros(graph.num_nodes, int)
    several = bool(labels.max(initial=0))
    # a connected graph's vectors, and the smallest of several components, are what version 0.1.0 kept
    name = f"laplacian{VERSION}_{graph.structure_hash}_{count}" + ("_by_size" if several and by_size else "")
    if offsets is not None:
        name += f"_{hashlib.blake2b(offsets.tobytes(), digest_size=8).hexdigest()}"
    path = None if cache is None else Path(cache) / f"{name}.npy"

    def compute() -> np.ndarray:
        if offsets is None:
            return laplacian_eigenvectors(graph.indptr, graph.indices, count, by_size=by_size)[1]
        out = np.zeros((graph.num_nodes, count), np.float32)
        for lo, hi in pairwise(offsets):
            own = graph.indptr[lo : hi + 1]
            out[lo:hi] = laplacian_eigenvectors(
                own - own[0], graph.indices[own[0] : own[-1]] - lo, count, by_size=by_size
            )[1]
        return out

    out = cached_array(path, (graph.num_nodes, count), compute)
    if several and by_size and offsets is None:
        _warn_components_without_vectors(graph, labels, count)
    return out


def _warn_components_without_vectors(graph: Graph, labels: np.ndarray, count: int) -> None:
    """Warn of components of several nodes that have no eigenvector, the largest first."""
    sizes = np.bincount(labels)
    left = np.flatnonzero((shares(sizes, count) == 0) & (sizes > 1))
    if not len(left):
        return
    left = left[np.argsort(-sizes[left], kind="stable")]
    first = np.unique(labels, return_index=True)[1][left[:3]]
    ids = first if graph.node_ids is None else graph.node_ids.names(first)
    named = ", ".join(f"that of node {node} ({sizes[c]} nodes)" for node, c in zip(ids, left[:3]))
    warnings.warn(
        f"{count} Laplacian eigenvectors go to {int((shares(sizes, count) > 0).sum())} of the {int((sizes > 1).sum())} "
        f"connected components of {graph.name} by their sizes; {len(left)} get none and have zeros: {named}"
        f"{', ...' if len(left) > 3 else ''}. Ask for more eigenvectors where these matter",
        HopstateWarning,
        stacklevel=3,
    )
