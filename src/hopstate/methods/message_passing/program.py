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
from hopstate.training.exported import ExportSpec, Port, Program, Tensors
from hopstate.training.tasks.node import NodeBatches, NodeTask, WholeGraph, as_taken
from hopstate.training.tasks.static_link import StaticLinkTask
from hopstate.training.tasks.subgraph import Subgraphs

NODES, EDGES = 6, ((0, 1, 2, 3, 1), (1, 0, 1, 2, 4))  # of the made graph that a program is traced with


def export_spec(task: NodeTask[Any] | StaticLinkTask) -> ExportSpec:
    return graph_spec(task, _network_spec, _tensors, lambda model, source: model(*as_taken(_whole(source), model)))


def _tensors(source: NodeBatches[Any]) -> dict[str, Tensor | None]:
    x, graph = _whole(source)
    edges = graph.edge_index()
    weight = torch.ones(edges.shape[1]) if graph.weight is None else graph.weight
    return {"x": x, "edge_index": edges, "edge_weight": weight, "edge_attr": graph.edge_attr}


def _whole(source: NodeBatches[Any]) -> tuple[Tensor, Adjacency]:
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
    width, ports = first.in_features if isinstance(first, nn.Linear) else first.in_channels, []

    def add(name: str, example: Tensor, meaning: str, *axes: str) -> None:
        ports.append(Port(name=name, meaning=meaning, axes=axes, example=example))

    add("x", torch.randn(NODES, width).to(like), f"{width} features of each node, scaled as in training", "node", "")
    if model.kind != "mlp":
        meaning = "int64 node rows, those that send above those that receive; both directions where flow is both"
        add("edge_index", torch.tensor(EDGES), meaning, "", "edge")
    if model.kind in WITH_WEIGHTS:
        add("edge_weight", torch.rand(count).to(like) + 0.5, "weight of each edge, 1 where the graph has none", "edge")
    elif model.edge_dim:
        meaning = f"{model.edge_dim} features of each edge, scaled as in training"
        add("edge_attr", torch.randn(count, model.edge_dim).to(like), meaning, "edge", "")
    return ExportSpec(
        module=Program(model, ports, _call),
        inputs=tuple(ports),
        outputs=(rows_port("node"),),
        preprocessing="the whole graph, or every node within as many hops as the model has layers of those asked for, "
        "with all edges among them and their neighbours; edges as edges.flow, read.undirected and read.self_loops left "
        "them",
    )


def _call(model: Backbone, given: Tensors) -> Tensor:
    x, edges = given["x"], given.get("edge_index", torch.zeros(2, 0, dtype=torch.int64))  # a perceptron has no edges
    return model(x, EdgeList(edges, x.shape[0], given.get("edge_weight"), given.get("edge_attr")))


__all__ = ["export_spec"]
