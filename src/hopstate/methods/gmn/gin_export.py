"""A GIN over sets of graphs as a program: features, edges and sizes of packed graphs in, a row a graph out."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from hopstate.errors import ConfigError
from hopstate.layers.plain import Sequences
from hopstate.methods.gmn.asked_graphs import graphs_of, sample_of
from hopstate.methods.gmn.gin import GIN
from hopstate.methods.gmn.inputs import GMNInputs
from hopstate.training.exported import ExportSpec, Port
from hopstate.training.precision import bare
from hopstate.training.tasks.graph import GraphTask


class GINProgram(nn.Module):
    """x (N, F), edge_index (2, E) and sizes (G,) of graphs → (G, out_dim): the sums of `GIN` over a list of edges.

    Args:
        model: the trained network.
    """

    def __init__(self, model: GIN) -> None:
        super().__init__()
        self.model = model

    def forward(self, x: Tensor, edge_index: Tensor, sizes: Tensor) -> Tensor:
        """Return the outputs of all graphs."""
        m, h, own = self.model, x, Sequences(sizes, x.shape[0])
        out = m.heads[0](own.pooled(h, m.config.pooling))
        for conv, norm, head in zip(m.convs, m.norms, m.heads[1:]):
            received = torch.zeros_like(h).index_add(0, edge_index[1], h[edge_index[0]])
            h = F.relu(norm(conv.nn(received + (1 + conv.eps) * h)))  # type: ignore[operator]
            out = out + head(own.pooled(h, m.config.pooling))
        return out


def export_form(task: GraphTask) -> ExportSpec:
    """Return the program of a trained task.

    Raises:
        ConfigError: a network that is no GIN.
    """
    model = bare(task.model)
    if not isinstance(model, GIN):
        raise ConfigError(f"{type(model).__name__} is no GIN and has no program over packed graphs")
    inputs = (
        Port(name="x", meaning=f"{model.in_dim} features of each node, graph after graph", axes=("node", "")),
        Port(name="edge_index", meaning="int64 rows of x, those that send above those that receive", axes=("", "edge")),
        Port(name="sizes", meaning="int64 nodes of each graph, in the order of x", axes=("graph",)),
    )
    example = (
        torch.randn(7, model.in_dim).to(next(model.parameters())),
        torch.tensor([[0, 1, 2, 4, 5], [1, 0, 1, 5, 6]]),
        torch.tensor([3, 2, 2]),
    )
    meaning = "a row a graph, logits, or scaled amounts, of the run's target"
    return ExportSpec(
        module=GINProgram(model), inputs=inputs, example=example,
        outputs=(Port(name="output", meaning=meaning, axes=("graph", "")),),
        preprocessing=(
            "edges within each graph, as flow, read.undirected and read.self_loops left them; "
            "features as they were read"
        ),
        fill=lambda ids: taken(task, model, ids), sample=sample_of(task),
        reference=lambda ids: model(task.collate(graphs_of(task, ids), 0, None)),
    )  # fmt: skip


def taken(task: GraphTask, model: GIN, ids: Any) -> tuple[Tensor, ...]:
    """Return what the program takes of graphs, by their numbers; None for all."""
    batch: GMNInputs = task.collate(graphs_of(task, ids), 0, None)
    return batch.x.to(next(model.parameters())), batch.graph.edge_index(), batch.sequences.diff()


__all__ = ["GINProgram", "export_form"]
