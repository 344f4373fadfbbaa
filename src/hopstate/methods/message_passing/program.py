"""Backbones as programs: features and a list of edges in, outputs of all nodes out."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from hopstate.errors import ConfigError
from hopstate.layers.edge_list import EdgeList
from hopstate.layers.message import Adjacency
from hopstate.methods.message_passing.model import WITH_WEIGHTS, Backbone
from hopstate.methods.shared.programs import graph_spec, rows_port
from hopstate.sampling.subgraph import whole_graph
from hopstate.training.exported import ExportSpec, Port
from hopstate.training.tasks.node import NodeBatches, NodeTask, WholeGraph, as_taken
from hopstate.training.tasks.static_link import StaticLinkTask
from hopstate.training.tasks.subgraph import Subgraphs

NODES, EDGES = 6, ((0, 1, 2, 3, 1), (1, 0, 1, 2, 4))  # of the made graph that a program is traced with


class BackboneProgram(nn.Module):
    """x (N, F), edge_index (2, E), and weights (E,) or features (E, D) of the edges where they count → (N, C).

    Args:
        model: the trained backbone.
    """

    def __init__(self, model: Backbone) -> None:
        super().__init__()
        self.model, self.weighted = model, model.kind in WITH_WEIGHTS

    def forward(
        self,
        x: Tensor,
        edge_index: Tensor | None = None,
        edge_weight: Tensor | None = None,
        *,
        edge_attr: Tensor | None = None,
    ) -> Tensor:
        """Return the outputs of all nodes; a third tensor is what edges carry, weights or features."""
        carried = edge_weight if edge_attr is None else edge_attr
        if edge_index is None:  # a perceptron looks at no edge
            edge_index = torch.zeros(2, 0, dtype=torch.int64)
        weight, attr = (carried, None) if self.weighted else (None, carried)
        return self.model(x, EdgeList(edge_index, x.shape[0], weight, attr))


def export_spec(task: NodeTask[Any] | StaticLinkTask) -> ExportSpec:
    """Return what is exported of a trained task."""
    return graph_spec(task, _network_spec, _tensors, lambda model, source: model(*as_taken(_whole(source), model)))


def _tensors(source: NodeBatches[Any]) -> dict[str, Tensor | None]:
    x, graph = _whole(source)
    edges = graph.edge_index()
    weight = torch.ones(edges.shape[1]) if graph.weight is None else graph.weight
    return {"x": x, "edge_index": edges, "edge_weight": weight, "edge_attr": graph.edge_attr}


def _whole(source: NodeBatches[Any]) -> tuple[Tensor, Adjacency]:
    """Return features and adjacency of the whole graph, whatever a source cuts it into."""
    if isinstance(source, WholeGraph):
        return source.inputs[0], source.inputs[1]
    assert isinstance(source, Subgraphs)
    assert source.graph is not None
    return whole_graph(source.graph)


def _network_spec(model: nn.Module) -> ExportSpec:
    from torch_geometric.nn.dense import Linear

    if not isinstance(model, Backbone):
        raise ConfigError(f"{type(model).__name__} is no backbone and has no program over a list of edges")
    like, count = next(model.parameters()), len(EDGES[0])
    first: Any = next(m for m in model.modules() if isinstance(m, (nn.Linear, Linear)))
    width = first.in_features if isinstance(first, nn.Linear) else first.in_channels
    ports = [Port(name="x", meaning=f"{width} features of each node, scaled as in training", axes=("node", ""))]
    example = [torch.randn(NODES, width).to(like)]
    if model.kind != "mlp":
        meaning = "int64 node rows, those that send above those that receive; both directions where flow is both"
        ports.append(Port(name="edge_index", meaning=meaning, axes=("", "edge")))
        example.append(torch.tensor(EDGES))
    if model.kind in WITH_WEIGHTS:
        ports.append(
            Port(name="edge_weight", meaning="weight of each edge, 1 where the graph has none", axes=("edge",))
        )
        example.append(torch.rand(count).to(like) + 0.5)
    elif model.edge_dim:
        meaning = f"{model.edge_dim} features of each edge, scaled as in training"
        ports.append(Port(name="edge_attr", meaning=meaning, axes=("edge", "")))
        example.append(torch.randn(count, model.edge_dim).to(like))
    return ExportSpec(
        module=BackboneProgram(model),
        inputs=tuple(ports),
        outputs=(rows_port("node"),),
        example=tuple(example),
        preprocessing="the whole graph, or every node within as many hops as the model has layers of those asked for, "
        "with all edges among them and their neighbours; edges as edges.flow, read.undirected and read.self_loops left "
        "them",
    )


__all__ = ["export_spec"]
