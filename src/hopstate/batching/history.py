"""GAS: out-of-batch neighbours send what they last sent when they were in a batch themselves.

Source: Fey et al. 2021, arXiv:2106.05609 (GNNAutoScale), section 2.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from hopstate.errors import CheckpointError, StorageError
from hopstate.layers.message import Adjacency, Weighting


class History:
    """What every node sent last, for each layer: (N, d) float32 on the CPU, pinned where there is a GPU, or on disk.

    Args:
        num_nodes: N.
        widths: what each layer's nodes send, numbers a node.
        folder: keep the tables there as memory-mapped files; None keeps them in memory.

    Raises:
        StorageError: the files cannot be made.
    """

    def __init__(self, num_nodes: int, widths: list[int], *, folder: Path | None = None) -> None:
        self.num_nodes = num_nodes
        self.tables = [self._table(i, width, folder) for i, width in enumerate(widths)]

    def _table(self, number: int, width: int, folder: Path | None) -> Tensor:
        if folder is None:
            table = torch.zeros(self.num_nodes, width)
            return table.pin_memory() if torch.cuda.is_available() else table
        try:
            folder.mkdir(parents=True, exist_ok=True)
            path = folder / f"history-{number}.npy"
            shape = (self.num_nodes, width)
            return torch.from_numpy(np.lib.format.open_memmap(path, mode="w+", dtype=np.float32, shape=shape))
        except OSError as error:
            raise StorageError(f"could not make histories in {folder}: {error}; choose another folder") from error

    def push(self, layer: int, rows: Tensor, sent: Tensor) -> None:
        """Keep what rows sent at a layer."""
        self.tables[layer][rows] = sent.detach().float().cpu()

    def pull(self, layer: int, rows: Tensor) -> Tensor:
        """Return what rows sent last at a layer; zeros where they never did."""
        return self.tables[layer][rows]

    def state(self) -> dict[str, Tensor]:
        """Return the tables by layer."""
        return {f"history{i}": table for i, table in enumerate(self.tables)}

    def load_state(self, state: dict[str, Tensor]) -> None:
        """Take back what `state` returned.

        Raises:
            CheckpointError: tables of another graph or model.
        """
        for i, table in enumerate(self.tables):
            saved = state.get(f"history{i}")
            if saved is None or saved.shape != table.shape:
                raise CheckpointError("the saved histories are of another graph or model; start the run anew")
            table.copy_(saved)


class GasBatch:
    """A batch whose out-of-batch neighbours send their histories.

    Args:
        around: adjacency of the batch's rows over its nodes and then their out-of-batch neighbours.
        nodes: (|B| + m,) int64 rows of the graph, the batch's first.
        history: read, and written with what the batch's nodes send.
    """

    def __init__(self, around: Adjacency, nodes: Tensor, history: History) -> None:
        self.around, self.nodes, self.history = around, nodes, history

    def to(self, device: torch.device | str) -> GasBatch:
        """Return the batch on a device; histories stay where they are."""
        return GasBatch(self.around.to(device), self.nodes, self.history)

    def convolve(self, conv: nn.Module, weighting: Weighting, layer: int, *nodes: Tensor) -> Tensor:
        """Return (|B|, F'): the layer's output with histories in place of the missing rows of the first tensor."""
        count = self.around.num_receivers
        sent = nodes[0]
        self.history.push(layer, self.nodes[:count], sent)
        far = self.history.pull(layer, self.nodes[count:]).to(sent)
        rest = (torch.cat([h, h.new_zeros(len(far), h.shape[1])]) for h in nodes[1:])
        return self.around.convolve(conv, weighting, layer, torch.cat([sent, far]), *rest)
