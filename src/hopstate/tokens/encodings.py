"""Positional encodings of the nodes of a graph, computed once and kept in the cache folder.

Source: Dwivedi & Bresson 2020, arXiv:2012.09699 (Laplacian eigenvectors).
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

import numpy as np

from hopstate.data.graph import Graph
from hopstate.errors import StorageError
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
    if path is not None and path.is_file():
        with contextlib.suppress(ValueError, EOFError, OSError):  # a damaged cache is made again
            kept = np.load(path, allow_pickle=False)
            if kept.shape == (graph.num_nodes, count) and kept.dtype == np.float32:
                return kept
    encoding = laplacian_eigenvectors(graph.indptr, graph.indices, count)[1].astype(np.float32)
    if path is not None:
        _save(path, encoding)
    return encoding


def _save(path: Path, array: np.ndarray) -> None:
    part = path.with_name(f".{path.name}.{os.getpid()}.part")  # two runs may fill the cache at once
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with part.open("wb") as file:
            np.save(file, array)
        part.replace(path)
    except OSError as error:
        with contextlib.suppress(OSError):
            part.unlink()
        raise StorageError(
            f"could not write {path}: {error}; free some space or choose another cache folder"
        ) from error
