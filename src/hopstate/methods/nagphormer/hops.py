"""Hop2Token: each node as the sequence of its hop averages, made once before training.

A node averages over the nodes that it receives from, the sources of its in-edges (the paper's A_ij = 1 where (j, i) is
an edge), by the edges' weights if the graph has them; degrees are then sums of weights.

Tokens of more than half of a memory budget are written to one memory-mapped .npy file, a block of features at a time.

Source: Chen et al., ICLR 2023, arXiv:2206.04910, Algorithm 1.
"""

from __future__ import annotations

import hashlib
import mmap
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from hopstate.data.graph import Graph
from hopstate.errors import ConfigError, DataError, FormatError
from hopstate.io.files import replace_file, reserve_array
from hopstate.io.tensors import load_npy
from hopstate.ops.propagate import hop_powers


class HopTokens:
    """(N, K+1, F) float32 tokens in memory or in a file, read by rows.

    Args:
        array: the tokens, a plain array or a `np.memmap`.
    """

    def __init__(self, array: np.ndarray) -> None:
        self.array = array

    @property
    def path(self) -> Path | None:
        """The file of the tokens, None if they are in memory."""
        return Path(str(self.array.filename)) if isinstance(self.array, np.memmap) else None

    def rows(self, node_ids: np.ndarray) -> Tensor:
        """Return (b, K+1, F) float32 tokens of nodes (b,) in any order, a copy."""
        if self.path is None:
            return torch.from_numpy(self.array).index_select(0, torch.from_numpy(node_ids))
        out = np.asarray(self.array)[node_ids]
        if not np.isfinite(out).all():
            raise FormatError(
                f"{self.path} is damaged: it contains NaN or infinities. Delete it, and it is computed again"
            )
        return torch.from_numpy(out)


def hop_tokens(
    graph: Graph,
    num_hops: int,
    *,
    extra: np.ndarray | None = None,
    max_memory: int,
    folder: Path | None = None,
) -> HopTokens:
    """Return A_hat^k [x, extra] for k = 0..K of every node.

    Args:
        graph: with features x (N, F).
        num_hops: K.
        extra: (N, s) columns appended to x, such as Laplacian eigenvectors.
        max_memory: memory limit in bytes. Tokens larger than half of it are a memory-mapped file in folder.
        folder: folder of that file. An existing file of the same graph and settings is used.

    Raises:
        FormatError: the existing file is damaged.
        DataError: the graph has no features, or extra has another number of rows.
        ConfigError: the tokens exceed half the limit and there is no folder, or one column exceeds the limit.
        StorageError: the disk is full, or the file could not be written.

    Example:
        >>> graph = hopstate.load_dataset("sbm", num_nodes=120)
        >>> tokens = hopstate.hop_tokens(graph, 3, max_memory=2**30)
        >>> tokens.rows(np.arange(8)).shape
        torch.Size([8, 4, 32])
    """
    parts = _columns(graph, extra)
    shape = (graph.num_nodes, num_hops + 1, sum(p.shape[1] for p in parts))
    nbytes = 4 * int(np.prod(shape, dtype=np.int64))
    if nbytes <= max_memory // 2:
        return HopTokens(_averaged(graph, parts, slice(0, shape[2]), num_hops))
    if folder is None:
        raise ConfigError(
            f"hop tokens of {nbytes:,} bytes exceed half of the memory budget of {max_memory:,}; "
            f"raise it, or give a folder for them to be kept in"
        )
    column = 4 * shape[0] * shape[1]
    if column > max_memory // 2:
        raise ConfigError(
            f"the hops of one column take {column:,} bytes, more than half of the memory budget of {max_memory:,}; "
            f"raise it to {2 * column:,}"
        )
    path = folder / f"hops_{_key(graph, num_hops, extra)}.npy"

    def write(part: Path) -> None:
        reserve_array(part, shape)  # a full disk is an error here, not a fault when a mapped page is written
        tokens = np.lib.format.open_memmap(part, mode="r+")
        step = max_memory // 2 // column
        for start in range(0, shape[2], step):
            block = slice(start, min(start + step, shape[2]))
            tokens[:, :, block] = _averaged(graph, parts, block, num_hops)
        tokens.flush()

    if not path.is_file():
        replace_file(path, write)
    array = load_npy(path, mmap=True)
    if array.shape != shape or array.dtype != np.float32:
        raise FormatError(f"{path} holds {array.dtype} of shape {array.shape}, not tokens of {shape}; remove it")
    if isinstance(array, np.memmap) and hasattr(mmap, "MADV_RANDOM"):  # batches read rows in any order
        array._mmap.madvise(mmap.MADV_RANDOM)  # type: ignore[attr-defined]
    return HopTokens(array)


def _columns(graph: Graph, extra: np.ndarray | None) -> list[np.ndarray]:
    if graph.x is None:
        raise DataError(f"{graph.name} has no node features to make tokens of")
    if extra is None:
        return [graph.x]
    if extra.ndim != 2 or len(extra) != graph.num_nodes:
        raise DataError(f"extra columns must have shape ({graph.num_nodes}, s); got {extra.shape}")
    return [graph.x, extra]


def _averaged(graph: Graph, parts: list[np.ndarray], block: slice, num_hops: int) -> np.ndarray:
    """Return (N, K+1, w) hop averages of the columns of a block; the parts (N, F_i) are joined side by side."""
    tokens = np.empty((graph.num_nodes, num_hops + 1, block.stop - block.start), np.float32)
    at = 0
    for part in parts:
        low, high = max(block.start, at), min(block.stop, at + part.shape[1])
        if low < high:
            tokens[:, 0, low - block.start : high - block.start] = part[:, low - at : high - at]
        at += part.shape[1]
    into = graph.incoming
    hop_powers(into.indptr, into.indices, tokens, into.weight)
    return tokens


def _key(graph: Graph, num_hops: int, extra: np.ndarray | None) -> str:
    digest = hashlib.blake2b(f"{graph.content_hash} {num_hops} in-edges".encode(), digest_size=12)
    if extra is not None:
        digest.update(np.ascontiguousarray(extra, np.float32).tobytes())
    return digest.hexdigest()
