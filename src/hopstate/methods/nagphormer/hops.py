"""Hop2Token: each node as the sequence of its hop averages, made once before training.

A node averages over the nodes that it receives from, the sources of its in-edges (the paper's A_ij = 1 where (j, i) is
an edge), by the edges' weights where the graph has them; degrees are then sums of weights.

Where the tokens would take more than half of a stated memory budget they are written to one .npy file in row-major
node order, a block of features at a time, so that a batch of nodes reads one contiguous stretch a node.

Source: Chen et al., ICLR 2023, arXiv:2206.04910, Algorithm 1.
"""

from __future__ import annotations

import hashlib
import mmap
import zlib
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from hopstate.data.graph import Graph
from hopstate.errors import ConfigError, DataError, FormatError
from hopstate.io.arrays import load_npy
from hopstate.io.files import Write, remove_file, replace_files
from hopstate.io.scratch import mapping_of
from hopstate.methods.nagphormer.hop_file import BUFFERS, HopFile
from hopstate.ops.propagate import hop_powers
from hopstate.training.ranks import ALONE, Ranks

_SUMMED = 256 << 20  # bytes of a file of tokens at most that is compared with its checksum, in a quarter of a second
_AROUND = 2 << 20  # bytes that Linux may map around what is read (the largest unit of its page cache)


class HopTokens:
    """(N, K+1, F) float32 tokens in memory or in a file, read by rows.

    Args:
        array: the tokens, a plain array or a `np.memmap`.
        memory_budget: bytes of a mapped file that may stay in memory between reads.
    """

    def __init__(self, array: np.ndarray, *, memory_budget: int) -> None:
        self.array, self.memory_budget = array, memory_budget
        self._read = 0  # bytes of the file mapped since they were last let go, at most

    @property
    def num_nodes(self) -> int:
        """N."""
        return self.array.shape[0]

    @property
    def num_hops(self) -> int:
        """K."""
        return self.array.shape[1] - 1

    @property
    def num_features(self) -> int:
        """F, joined columns included."""
        return self.array.shape[2]

    @property
    def nbytes(self) -> int:
        """Size of the tokens, wherever they are."""
        return self.array.nbytes

    @property
    def path(self) -> Path | None:
        """The file that holds the tokens, None where they are in memory."""
        return Path(str(self.array.filename)) if isinstance(self.array, np.memmap) else None

    def rows(self, node_ids: np.ndarray) -> Tensor:
        """Return the tokens of some nodes.

        Args:
            node_ids: (b,) int64, in any order.

        Returns:
            (b, K+1, F) float32, a copy.

        Raises:
            FormatError: the file of tokens is damaged.
        """
        if not isinstance(self.array, np.memmap):
            return torch.from_numpy(self.array).index_select(0, torch.from_numpy(node_ids))
        out = np.empty((len(node_ids), *self.array.shape[1:]), np.float32)
        step = max(1, self.memory_budget // 8 // _AROUND)
        for a in range(0, len(node_ids), step):
            out[a : a + step] = self.array[node_ids[a : a + step]]
            self._read += step * _AROUND
            if self._read > self.memory_budget // 8:
                _let_go(self.array)
                self._read = 0
        if not np.isfinite(out).all():
            raise FormatError(f"{self.path} is damaged: it holds NaN or infinities; delete it, it is made anew")
        return torch.from_numpy(out)


def hop_tokens(
    graph: Graph,
    num_hops: int,
    *,
    extra: np.ndarray | None = None,
    memory_budget: int,
    folder: Path | None = None,
    ranks: Ranks = ALONE,
) -> HopTokens:
    """Return A_hat^k [x, extra] for k = 0..K of every node.

    Args:
        graph: with features x (N, F).
        num_hops: K.
        extra: (N, s) columns joined to x, such as Laplacian eigenvectors.
        memory_budget: bytes that the process may take. Tokens of more than half of it (the rest is for graph, model
            and libraries) go to a file in folder, made in blocks of a quarter of it, or of what the graph leaves of a
            half where it is mapped; while that is done the folder holds them twice.
        folder: where that file goes; a file of the same graph and settings found there is used as it is. One of up to
            256 MiB is compared with the checksum beside it; of a larger one length and finite values alone are checked.
        ranks: processes of one machine that call this together, each of which makes its rows of the file.

    Raises:
        FormatError: the file found there is damaged.
        DataError: the graph has no features, or extra has other rows.
        ConfigError: the tokens exceed half the budget and no folder is given, or not one column fits the budget.
        StorageError: the disk has not enough room, or the file could not be written.
        RanksError: another rank has ended.
    """
    parts = _columns(graph, extra)
    shape = (graph.num_nodes, num_hops + 1, sum(p.shape[1] for p in parts))
    nbytes = 4 * int(np.prod(shape, dtype=np.int64))
    if nbytes <= memory_budget // 2:
        tokens = np.empty(shape, np.float32)
        np.concatenate(parts, 1, out=tokens[:, 0])
        into = graph.incoming
        hop_powers(into.indptr, into.indices, tokens, into.weight)
        return HopTokens(tokens, memory_budget=memory_budget)
    if folder is None:
        raise ConfigError(
            f"hop tokens of {nbytes:,} bytes exceed half of the memory budget of {memory_budget:,}; "
            f"raise it, or give a folder for them to be kept in"
        )
    path = folder / f"hops_{_key(graph, num_hops, extra)}.npy"
    if not ranks.told(path.is_file):
        _write(path, graph, parts, num_hops, memory_budget, ranks)
        ranks.wait()
    array = load_npy(path, mmap=True)
    if array.shape != shape or array.dtype != np.float32:
        raise FormatError(f"{path} holds {array.dtype} of shape {array.shape}, not tokens of {shape}; remove it")
    size = path.stat().st_size
    if isinstance(array, np.memmap) and array.offset + array.nbytes != size:
        raise FormatError(f"{path} is damaged: it holds {size:,} bytes, not {array.offset + array.nbytes:,}; remove it")
    _check_sum(path)
    _advise_random(array)
    return HopTokens(array, memory_budget=memory_budget)


def _columns(graph: Graph, extra: np.ndarray | None) -> list[np.ndarray]:
    if graph.x is None:
        raise DataError(f"{graph.name} has no node features to make tokens of")
    if extra is None:
        return [graph.x]
    if extra.ndim != 2 or len(extra) != graph.num_nodes:
        raise DataError(f"extra columns must have shape ({graph.num_nodes}, s); got {extra.shape}")
    return [graph.x, extra]


def _key(graph: Graph, num_hops: int, extra: np.ndarray | None) -> str:
    digest = hashlib.blake2b(f"{graph.content_hash} {num_hops}".encode(), digest_size=12)
    if not graph.is_undirected:
        digest.update(b"in-edges")  # files of version 0.1.0 averaged over out-edges
    if extra is not None:
        digest.update(np.ascontiguousarray(extra, np.float32).tobytes())
    return digest.hexdigest()


def _write(path: Path, graph: Graph, parts: list[np.ndarray], num_hops: int, memory_budget: int, ranks: Ranks) -> None:
    """Write the tokens to path, atomically; all ranks do."""
    n = graph.num_nodes
    columns = _room(graph, parts, memory_budget) // (4 * BUFFERS * n)
    if columns < 1:
        raise ConfigError(
            f"two hops of one column take {4 * BUFFERS * n:,} bytes, more than a quarter of the memory budget "
            f"of {memory_budget:,}; raise it to {16 * BUFFERS * n:,}"
        )
    tokens = HopFile(graph, parts, num_hops, columns, ranks)
    if not ranks.first:
        tokens.write(path)
        return
    made: list[Path] = []  # where the tokens stand before they have their name

    def write(part: Path) -> None:
        tokens.write(part)
        made.append(part)

    told = _sum_path(path)
    if told.exists():  # of earlier tokens
        remove_file(told)
    writes: dict[Path, Write] = {path: write}
    if 4 * int(np.prod(tokens.shape, dtype=np.int64)) <= _SUMMED:
        writes[told] = lambda part: part.write_text(_sum(made[0]))
    replace_files(writes)


def _room(graph: Graph, parts: list[np.ndarray], memory_budget: int) -> int:
    """Return the bytes that hops of a block may take: a quarter of the budget, or a half less the graph in memory."""
    into = graph.incoming
    arrays = [graph.indptr, graph.indices, into.indptr, into.indices, into.weight, *parts]
    held = {id(array): array.nbytes for array in arrays if array is not None and mapping_of(array) is None}
    return max(memory_budget // 4, memory_budget // 2 - sum(held.values()))


def _check_sum(path: Path) -> None:
    """Raise FormatError where tokens are not those that were written."""
    told = _sum_path(path)
    if told.is_file() and path.stat().st_size <= 2 * _SUMMED:
        with told.open("rb") as file:
            wanted = file.read(20)
        if wanted != _sum(path).encode():
            raise FormatError(f"{path} is damaged: its contents are not what was written; delete it, it is made anew")


def _sum_path(path: Path) -> Path:
    return path.with_suffix(".crc32")


def _sum(path: Path) -> str:
    found = 0
    with path.open("rb") as file:
        while block := file.read(1 << 24):
            found = zlib.crc32(block, found)
    return f"{found:08x}"


def _mapping(array: np.ndarray) -> mmap.mmap | None:
    """Return the mapping of a file behind an array, None where it lies in memory."""
    return array._mmap if isinstance(array, np.memmap) else None  # type: ignore[attr-defined]


def _advise_random(array: np.ndarray) -> None:
    mapped = _mapping(array)
    if mapped is not None and hasattr(mmap, "MADV_RANDOM"):
        mapped.madvise(mmap.MADV_RANDOM)


def _let_go(array: np.ndarray) -> None:
    """Unmap what was read; it stays in the system's page cache as long as there is room."""
    mapped = _mapping(array)
    if mapped is not None and hasattr(mmap, "MADV_DONTNEED"):
        mapped.madvise(mmap.MADV_DONTNEED)
