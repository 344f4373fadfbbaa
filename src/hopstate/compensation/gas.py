"""GAS (GNNAutoScale): out-of-batch neighbors send their historical embeddings.

Historical embeddings are stored without dropout. For models with dropout, an extra forward pass per training step
computes them.

Source: Fey et al. 2021, arXiv:2106.05609 (GNNAutoScale), section 2.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch
from torch import Tensor, nn

from hopstate.data.graph import Graph
from hopstate.errors import CheckpointError
from hopstate.layers.message import Adjacency, Normalization
from hopstate.ops.sampling import Neighborhoods
from hopstate.sampling.subgraph import Compensation, sampled_adjacency


class GasCache(Compensation):
    """Historical embeddings of all nodes for each layer: (N, d) tables on the CPU, pinned if there is a GPU.

    Args:
        num_nodes: number of nodes N.
        widths: embedding width of each layer.
        dtype: data type of the tables. Default: float32.
    """

    def __init__(self, num_nodes: int, widths: list[int], *, dtype: torch.dtype = torch.float32) -> None:
        pinned = torch.cuda.is_available()
        self.tables = [torch.zeros(num_nodes, width, dtype=dtype, pin_memory=pinned) for width in widths]

    def push(self, layer: int, rows: Tensor, sent: Tensor) -> None:
        self.tables[layer][rows] = sent.detach().to(self.tables[layer].dtype).cpu()

    def propagator(self, graph: Graph, cutter: Neighborhoods, nodes: np.ndarray) -> GasBatch:
        """Return a batch of nodes whose other neighbors send historical embeddings."""
        adjacency = cutter.induced(nodes, halo=True)
        return GasBatch(sampled_adjacency(graph, adjacency), torch.from_numpy(adjacency.nodes), self)

    def pull(self, layer: int, rows: Tensor) -> Tensor:
        """Return the historical embeddings of rows at a layer; zeros if they were never stored."""
        return self.tables[layer][rows]

    def state(self) -> dict[str, Tensor]:
        """Return the tables by layer."""
        return {f"history{i}": table for i, table in enumerate(self.tables)}

    def load_state(self, state: dict[str, Tensor]) -> None:
        """Restore a state from `state`."""
        if {name: table.shape for name, table in state.items()} != {n: t.shape for n, t in self.state().items()}:
            raise CheckpointError("the saved cache is of another graph or model; start the run again")
        for name, table in self.state().items():
            table.copy_(state[name])


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
