"""GAS (GNNAutoScale): out-of-batch neighbors send their historical embeddings.

Historical embeddings are stored without dropout. For models with dropout, an extra forward pass per training step
computes them.

Source: Fey et al. 2021, arXiv:2106.05609 (GNNAutoScale), section 2.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from hopstate.data.graph import Graph
from hopstate.errors import CheckpointError, FormatError, MissingFileError
from hopstate.io.files import append_file, named_errors, remove_file, replace_file, reserve_array, sync_file
from hopstate.io.tensors import load_npy
from hopstate.layers.message import Adjacency, Normalization
from hopstate.ops.sampling import Neighborhoods
from hopstate.sampling.subgraph import Compensation, sampled_adjacency


class GasCache(Compensation):
    """Historical embeddings of all nodes for each layer: (N, d) tables on the CPU or on disk.

    Tables in memory are pinned if there is a GPU.

    Args:
        num_nodes: number of nodes N.
        widths: embedding width of each layer.
        folder: keep the tables in this folder as memory-mapped files. Existing tables are reused by `load_state` and
            otherwise cleared. Default: keep them in memory.
        dtype: data type of the tables. Default: float32.

    Raises:
        StorageError: the files cannot be created.
    """

    def __init__(
        self, num_nodes: int, widths: list[int], *, folder: Path | None = None, dtype: torch.dtype = torch.float32
    ) -> None:
        self.num_nodes, self.dtype = num_nodes, dtype
        used = folder is not None and (folder / "history-0.npy").is_file()
        self._made = False  # whether a table on disk was not there, or is of another graph or model
        self.tables = [self._table(i, width, folder) for i, width in enumerate(widths)]
        self._journal = None if folder is None else Journal(folder, self.tables, used=used)

    def _table(self, number: int, width: int, folder: Path | None) -> Tensor:
        if folder is None:
            table = torch.zeros(self.num_nodes, width, dtype=self.dtype)
            return table.pin_memory() if torch.cuda.is_available() else table
        shape, path = (self.num_nodes, width), folder / f"history-{number}.npy"
        kept = torch.empty(0, dtype=self.dtype).numpy().dtype
        if not self._fits(path, shape, kept):
            self._made = True
            replace_file(path, lambda part: reserve_array(part, shape, kept))
        with named_errors(path, "open"):
            return torch.from_numpy(np.load(path, mmap_mode="r+", allow_pickle=False))

    @staticmethod
    def _fits(path: Path, shape: tuple[int, int], dtype: np.dtype[Any]) -> bool:
        with named_errors(path, "open"), contextlib.suppress(FormatError, MissingFileError):
            found = load_npy(path, mmap=True)
            return found.shape == shape and found.dtype == dtype
        return False

    def push(self, layer: int, rows: Tensor, sent: Tensor) -> None:
        if self._journal is not None:
            self._journal.keep(layer, rows)
        self.tables[layer][rows] = sent.detach().to(self.dtype).cpu()

    def propagator(self, graph: Graph, cutter: Neighborhoods, nodes: np.ndarray) -> GasBatch:
        """Return a batch of nodes whose other neighbors send historical embeddings."""
        adjacency = cutter.induced(nodes, halo=True)
        return GasBatch(sampled_adjacency(graph, adjacency), torch.from_numpy(adjacency.nodes), self)

    def pull(self, layer: int, rows: Tensor) -> Tensor:
        """Return the historical embeddings of rows at a layer; zeros if they were never stored."""
        if self._journal is not None:
            self._journal.begin()
        return self.tables[layer][rows]

    def state(self) -> dict[str, Tensor]:
        """Return the tables by layer; for tables on disk, the journal mark to restore."""
        if self._journal is not None:
            return {"mark": torch.tensor([self._journal.mark(), *self._shape()])}
        return {f"history{i}": table for i, table in enumerate(self.tables)}

    def _shape(self) -> list[int]:
        return [self.num_nodes, *(table.shape[1] for table in self.tables)]

    def load_state(self, state: dict[str, Tensor]) -> None:
        """Restore a state from `state`."""
        mark = state.get("mark")
        saved = [state.get(f"history{i}") for i in range(len(self.tables))]
        shapes = [None if table is None else table.shape for table in saved]
        if self._made and mark is not None:
            raise CheckpointError(
                "the cached vectors in files are missing, damaged, or of another graph or model; start the run again"
            )
        if self._journal is not None and mark is not None and mark[1:].tolist() == self._shape():
            self._journal.go_back(int(mark[0]))
            return
        if mark is not None or shapes != [table.shape for table in self.tables]:
            raise CheckpointError("the saved cache is of another graph or model; start the run again")
        if self._journal is not None:
            self._journal.begin()
        for table, values in zip(self.tables, saved, strict=True):
            assert values is not None
            table.copy_(values)


class Journal:
    """Undo log for tables on disk, so a checkpoint stores only a mark and not a copy of the tables.

    Before a row changes for the first time after a mark, its old value is logged. Logs of the last two marks are kept
    because the checkpoint with the last mark may be incomplete.

    Args:
        folder: folder of the tables and the journal.
        tables: memory-mapped (N, d) tables from files there.
        used: whether an earlier run wrote the tables; their contents count only after `go_back`.
    """

    def __init__(self, folder: Path, tables: list[Tensor], *, used: bool) -> None:
        self.folder, self.tables, self.used = folder, tables, used
        self._last: int | None = None  # mark, once it is known what the tables hold
        self._written = [torch.zeros(len(table), dtype=torch.bool) for table in tables]

    def begin(self) -> None:
        """Clear the tables, unless they were restored or written before."""
        if self._last is not None:
            return
        for table in self.tables if self.used else ():
            table.zero_()
        for path in self.folder.glob("journal-*"):
            remove_file(path)
        self._last = 0

    def _sync(self) -> None:
        """Flush the tables to disk."""
        for number in range(len(self.tables)):
            sync_file(self.folder / f"history-{number}.npy")

    def keep(self, layer: int, rows: Tensor) -> None:
        """Log the values of rows that were not logged since the last mark."""
        self.begin()
        new = rows[~self._written[layer][rows]]
        if not len(new):
            return
        arrays = np.array([layer, len(new)], np.int64), new.numpy(), self.tables[layer][new].numpy()
        append_file(self._path(self._last), b"".join(array.tobytes() for array in arrays))
        sync_file(self._path(self._last))  # the system may bring the table's change to disk at any time after this
        self._written[layer][new] = True

    def mark(self) -> int:
        """Return a new mark for the present contents of the tables."""
        self.begin()
        assert self._last is not None
        self._sync()
        remove_file(self._path(self._last - 1))
        self._last += 1
        self._forget()
        return self._last

    def go_back(self, mark: int) -> None:
        """Restore the contents of the tables at a mark."""
        found = {int(path.name.rpartition("-")[2]) for path in self.folder.glob("journal-*")}
        if mark < max(found, default=mark) - 1:
            raise CheckpointError(f"the cached vectors in {self.folder} are of a later checkpoint; start the run again")
        for number in sorted((n for n in found if n >= mark), reverse=True):
            self._undo(self._path(number))
        self._sync()
        for number in sorted((n for n in found if n >= mark), reverse=True):
            remove_file(self._path(number))
        self._last = mark
        self._forget()

    def _undo(self, path: Path) -> None:
        with path.open("rb") as file:
            while len(head := np.fromfile(file, np.int64, 2)) == 2:
                if not 0 <= head[0] < len(self.tables) or not 0 <= head[1] <= len(self.tables[head[0]]):
                    raise CheckpointError(f"{path} is damaged; start the run again")
                table = self.tables[head[0]]
                rows = np.fromfile(file, np.int64, head[1])
                values = np.fromfile(file, table.numpy().dtype, head[1] * table.shape[1])
                if len(rows) and not 0 <= rows.min() <= rows.max() < len(table):
                    raise CheckpointError(f"{path} is damaged; start the run again")
                if len(values) == head[1] * table.shape[1]:  # else cut off, and the table was not changed after it
                    table[torch.from_numpy(rows)] = torch.from_numpy(values).view(-1, table.shape[1])

    def _forget(self) -> None:
        for written in self._written:
            written.zero_()

    def _path(self, number: int | None) -> Path:
        return self.folder / f"journal-{number}"


class GasBatch:
    """A batch whose out-of-batch neighbors send historical embeddings.

    Args:
        adjacency: adjacency of the batch rows over the batch nodes, followed by their out-of-batch neighbors.
        nodes: (|B| + m,) int64 graph rows, batch first.
        cache: the historical embeddings.
        writes: update the cache with the embeddings of the batch. Default: True.
    """

    def __init__(self, adjacency: Adjacency, nodes: Tensor, cache: GasCache, *, writes: bool = True) -> None:
        self.adjacency, self.nodes, self.cache, self.writes = adjacency, nodes, cache, writes

    def to(self, device: torch.device | str) -> GasBatch:
        """Return the batch on a device; the cache is not moved."""
        return GasBatch(self.adjacency.to(device), self.nodes, self.cache, writes=self.writes)

    def written_by(self, model: nn.Module, x: Tensor) -> GasBatch:
        """Return the batch for a training step, after an extra pass without dropout if the model has any."""
        drops = [m for m in model.modules() if isinstance(m, nn.Dropout) and m.training and m.p > 0]
        if not drops:
            return self
        with torch.no_grad(), _without(drops, model):
            model(x, self)
        return GasBatch(self.adjacency, self.nodes, self.cache, writes=False)

    def propagate(self, conv: nn.Module, normalization: Normalization, layer: int, *nodes: Tensor) -> Tensor:
        """Return the (|B|, F') output of a layer; the cache replaces the missing rows of the first tensor."""
        count = self.adjacency.num_receivers
        sent = nodes[0]
        if self.writes:
            self.cache.push(layer, self.nodes[:count], sent)
        far = self.cache.pull(layer, self.nodes[count:]).to(sent)
        rest = (torch.cat([h, h.new_zeros(len(far), h.shape[1])]) for h in nodes[1:])
        return self.adjacency.propagate(conv, normalization, layer, torch.cat([sent, far]), *rest)


@contextmanager
def _without(drops: list[nn.Dropout], model: nn.Module) -> Iterator[None]:
    """Disable dropout and freeze the running statistics of batch norms."""
    norms = [m for m in model.modules() if isinstance(m, nn.modules.batchnorm._BatchNorm)]
    kept = [(m.momentum, None if m.num_batches_tracked is None else m.num_batches_tracked.clone()) for m in norms]
    try:
        for drop in drops:
            drop.training = False
        for norm in norms:
            norm.momentum = 0.0
        yield
    finally:
        for drop in drops:
            drop.training = True
        for norm, (momentum, tracked) in zip(norms, kept):
            norm.momentum = momentum
            if tracked is not None and norm.num_batches_tracked is not None:
                norm.num_batches_tracked.copy_(tracked)
