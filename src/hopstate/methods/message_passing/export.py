"""A backbone as a program: features and a list of edges in, outputs of all nodes out."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from hopstate.errors import ConfigError
from hopstate.layers.edge_list import EdgeList
from hopstate.layers.message import Adjacency
from hopstate.methods.message_passing.blocks import WITH_WEIGHTS
from hopstate.methods.message_passing.model import Backbone
from hopstate.methods.shared.static_link_export import link_form
from hopstate.sampling.subgraph import whole_graph
from hopstate.training.exported import ExportSpec, Port
from hopstate.training.precision import bare
from hopstate.training.tasks.node import NodeBatches, NodeTask, WholeGraph, as_taken
from hopstate.training.tasks.static_link import StaticLinkTask
from hopstate.training.tasks.subgraph import Subgraphs

NODES, EDGES = 6, 5  # of the made graph that a program is traced with


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


def export_form(task: NodeTask[Any] | StaticLinkTask) -> ExportSpec:
    """Return the program of a trained task."""
    if isinstance(task, StaticLinkTask):
        return link_form(task, backbone_form, taken, answered)
    form = backbone_form(bare(task.model))
    return replace(form, fill=lambda _: taken(form, task.source), reference=lambda _: answered(task.model, task.source))


def taken(form: ExportSpec, source: NodeBatches[Any]) -> tuple[Tensor, ...]:
    """Return what a form's program takes of the whole graph of a source."""
    x, graph = whole(source)
    edges, weight = graph.edge_index(), graph.weight
    told = {"x": x, "edge_index": edges, "edge_attr": graph.edge_attr}
    told["edge_weight"] = torch.ones(edges.shape[1]) if weight is None else weight
    found = [(told[port.name], like) for port, like in zip(form.inputs, form.example, strict=True)]
    return tuple(value.to(like) for value, like in found if value is not None)


def answered(model: nn.Module, source: NodeBatches[Any]) -> Tensor:
    """Return what a model itself says of the whole graph of a source."""
    return model(*as_taken(whole(source), model))


def whole(source: NodeBatches[Any]) -> tuple[Tensor, Adjacency]:
    """Return features and adjacency of the whole graph, whatever a source cuts it into."""
    if isinstance(source, WholeGraph):
        return source.inputs[0], source.inputs[1]
    assert isinstance(source, Subgraphs)
    assert source.graph is not None
    return whole_graph(source.graph)


def backbone_form(model: nn.Module) -> ExportSpec:
    """Return the program of a backbone.

    Raises:
        ConfigError: a network that is no backbone.
    """
    if not isinstance(model, Backbone):
        raise ConfigError(f"{type(model).__name__} is no backbone and has no program over a list of edges")
    like = next(model.parameters())
    width = next(m.in_features if isinstance(m, nn.Linear) else m.in_channels for m in maps(model))
    inputs = [Port(name="x", meaning=f"{width} features of each node, scaled as in training", axes=("node", ""))]
    example = [torch.randn(NODES, width).to(like)]
    if model.kind != "mlp":
        meaning = "int64 node rows, those that send above those that receive; both directions where flow is both"
        inputs.append(Port(name="edge_index", meaning=meaning, axes=("", "edge")))
        example.append(torch.tensor([[0, 1, 2, 3, 1], [1, 0, 1, 2, 4]]))
    if model.kind in WITH_WEIGHTS:
        meaning = "weight of each edge, 1 where the graph has none"
        inputs.append(Port(name="edge_weight", meaning=meaning, axes=("edge",)))
        example.append(torch.rand(EDGES).to(like) + 0.5)
    elif model.edge_dim:
        meaning = f"{model.edge_dim} features of each edge, scaled as in training"
        inputs.append(Port(name="edge_attr", meaning=meaning, axes=("edge", "")))
        example.append(torch.randn(EDGES, model.edge_dim).to(like))
    return ExportSpec(
        module=BackboneProgram(model),
        inputs=tuple(inputs),
        outputs=(
            Port(
                name="output",
                meaning="a row a node, logits, or scaled amounts, of the run's target",
                axes=("node", ""),
            ),
        ),
        example=tuple(example),
        preprocessing=(
            "the whole graph, or every node within as many hops as the model has layers of those asked for, with all "
            "edges among them and their neighbours; edges as edges.flow, read.undirected and read.self_loops left them"
        ),
    )


def maps(model: nn.Module) -> list[Any]:
    """Return the linear maps of a model, the one that takes the features first."""
    from torch_geometric.nn.dense import Linear

    return [m for m in model.modules() if isinstance(m, (nn.Linear, Linear))]
