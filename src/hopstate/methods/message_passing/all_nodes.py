"""A backbone over all nodes of a graph: at once, or layer by layer in blocks, rows of nodes in memory or in files."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from hopstate.compensation.top.probes import BlockPass, Embed
from hopstate.compensation.top.top import Top
from hopstate.data.graph import Graph
from hopstate.io.scratch import Scratch
from hopstate.methods.message_passing.model import HELD, Backbone, Cuts
from hopstate.sampling.adjacency import rows_adjacency
from hopstate.sampling.subgraph import all_features, blocks, whole_graph
from hopstate.training.precision import bare

ROWS = 4096  # receivers at a time in products over all nodes
PASS = 3  # rows a node of one layer: its input, what is sent, its output


def row_store(graph: Graph, model: Backbone, vectors: int, budget: int, folder: Path) -> Scratch:
    """Return what makes arrays of a row a node: in folder where those of a pass take more than half of a budget.

    Args:
        graph: the graph.
        model: the backbone.
        vectors: of the model's width that may be kept of each node besides those of a layer.
        budget: bytes.
        folder: for their files, which have no names.
    """
    size = next(model.parameters()).element_size() * model.config.dim
    large = (PASS + vectors) * size * graph.num_nodes > budget // 2
    return Scratch(folder if large else None, () if graph.x is None else (graph.x,))


def embedder(graph: Graph, top: Top, block_size: int, store: Scratch | None = None) -> Embed:
    """Return what embeds a backbone for TOP: on the whole graph at once where block_size allows, else in blocks."""
    made = store or Scratch()
    if graph.num_nodes > block_size:

        def run(model: nn.Module) -> Iterator[Tensor]:
            assert isinstance(model, Backbone)
            stages = model.stages(all_features(graph), cuts(graph, model, block_size), made)
            for _ in range(model.config.num_layers):  # not to the end: what the last layer makes of it is not needed
                sent = next(stages)[0]
                assert sent is not None
                yield sent
                del sent

        def sums(sent: Tensor, rows: np.ndarray | None) -> Tensor:
            every = np.arange(graph.num_nodes) if rows is None else rows
            degree = torch.from_numpy(graph.incoming.degree)
            out = made(len(every), sent.shape[1], sent.dtype)
            for start in range(0, len(every), ROWS):
                block = rows_adjacency(graph, every[start : start + ROWS], degree)
                out[start : start + ROWS] = block.normalized_adjacency(top.normalization, sent.dtype) @ sent
                if start % (HELD * ROWS) == 0:
                    made.let_go(out)
            made.let_go(sent, out)
            return out

        return BlockPass(run, sums if top.linear else None, top.rows)
    x, adjacency = whole_graph(graph)

    def forward(model: nn.Module) -> Tensor:
        first = next(model.parameters())
        return model(x.to(first.device, first.dtype), adjacency.to(first.device))

    return top.whole_pass(forward, adjacency)


def cuts(graph: Graph, model: Backbone, block_size: int) -> Cuts:
    """Return what cuts a graph for layer-wise passes: rows over all nodes, or with their halo alone.

    The halo is for layers that take lists of edges, and where all nodes' representations may be too much for a device.
    """
    halo = model.normalization == "edges" or next(model.parameters()).device.type != "cpu"
    return lambda: blocks(graph, block_size if halo else min(block_size, ROWS), halo=halo)


def exact_inference(graph: Graph, block_size: int, store: Scratch | None = None) -> Callable[[nn.Module], Tensor]:
    """Return a function model → (N, C) logits on the CPU: at once where block_size allows, else layer by layer."""
    whole = whole_graph(graph) if graph.num_nodes <= block_size else None

    def predict(model: nn.Module) -> Tensor:
        inner = bare(model)
        assert isinstance(inner, Backbone)
        if whole is None:
            return inner.layerwise(all_features(graph), cuts(graph, inner, block_size), store)
        first = next(inner.parameters())
        return inner(whole[0].to(first.device, first.dtype), whole[1].to(first.device)).float().cpu()

    return predict


__all__ = ["cuts", "embedder", "exact_inference", "row_store"]
