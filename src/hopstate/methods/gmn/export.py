"""Graph Mamba Networks and GINs as programs: what they read of graphs, tensor by tensor.

A program draws no walks: tokens are inputs, as `hopstate.export_inputs` makes them for a run's own data.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from hopstate.errors import ConfigError
from hopstate.layers.message import EdgeList
from hopstate.methods.gmn.batches import FullGraphBatches, WalkedNodeBatches
from hopstate.methods.gmn.layerwise import NodeOutputs
from hopstate.methods.gmn.model import GMN, GMNInputs, WalkFeatureEncoder
from hopstate.methods.shared.programs import ExportSpec, Port, Program, Tensors, graph_spec, rows_port
from hopstate.training.tasks.node import NodeBatches, NodeTask
from hopstate.training.tasks.static_link import StaticLinkTask

NODES, ROWS = 6, 2  # of the made graph that a program is traced with, and of each of its tokens
EDGES = ((0, 1, 2, 3, 1), (1, 0, 1, 2, 4))
SENDERS = "int64 rows of x, those that send above those that receive"
SIZES = "int64 nodes of each graph, in the order of x"


def call(model: nn.Module, tensors: Tensors) -> Tensor:
    """Return what a network over `GMNInputs` says of them, made of tensors by the names of `ports_of`."""
    x, nodes, none = tensors["x"], tensors.get("token_nodes"), torch.zeros(2, 0, dtype=torch.int64)
    order = tensors.get("order", torch.arange(x.shape[0]))
    sizes = {"sizes": order.new_full((1,), order.shape[0])} | tensors
    bounds = {k: F.pad(v.flatten().cumsum(0), (1, 0)) for k, v in sizes.items() if k.endswith("sizes")}
    optional: dict[str, Any] = {k: tensors.get(k) for k in ("edge_attr", "token_nodes", "token_edges", "bits", "pairs")}
    if nodes is not None:
        optional["token_graph"] = EdgeList(tensors.get("token_edge_index", none), nodes.shape[0])
    return model(
        GMNInputs(
            x=x, graph=EdgeList(tensors.get("edge_index", none), x.shape[0]), order=order, sequences=bounds["sizes"],
            token_offsets=bounds.get("token_sizes"), walks=bounds.get("walk_sizes"), **optional,
        )
    )  # fmt: skip


def export_spec(task: NodeTask[Any] | StaticLinkTask) -> ExportSpec:
    """Return what is exported of a trained task of a Graph Mamba Network."""
    network = partial(gmn_spec, eval_samples=_num_eval_samples(task.source))
    return graph_spec(task, network, lambda source: tensors_of(_full_inputs(source)), _answers)


def gmn_spec(model: nn.Module, *, eval_samples: int = 1, many: bool = False) -> ExportSpec:
    """Return what is exported of a trained network, without what fills it; many: its nodes are of several graphs."""
    if not isinstance(model, GMN):
        raise ConfigError(
            f"{type(model).__name__} is not a Graph Mamba Network and has no program over tokens of walks"
        )
    ports = ports_of(model, many=many)
    about = (
        "all nodes of a graph, in the order that order.kind says; edges as flow left them; x ends "
        "with the encodings that encoding.kind names; tokens in the order in which hopstate.export_inputs has them"
    )
    if eval_samples > 1:
        about += f"; the run's own answer is the mean of the outputs for {eval_samples} samples of the walks"
    return ExportSpec(
        module=Program(model, ports, call),
        inputs=tuple(ports),
        outputs=(rows_port({"edge": "pair"}.get(model.level, model.level), model.level),),
        preprocessing=about,
    )


def ports_of(m: GMN, *, many: bool) -> list[Port]:
    """Return the inputs of a network's program, those that the network computes from."""
    ports: list[Port] = []

    def add(name: str, example: Tensor, meaning: str, *axes: str) -> None:
        ports.append(Port(name=name, meaning=meaning, axes=axes, example=example))

    weight, rows = next(m.parameters()), NODES * m.tokens * ROWS
    x, edge_attr = (torch.randn(n, width).to(weight) for n, width in ((NODES, m.in_dim), (len(EDGES[0]), m.edge_dim)))
    add("x", x, f"{m.in_dim} features and encodings of each node", "node", "")
    if len(m.gps) or len(m.node_blocks) or m.level == "graph":
        add("order", torch.arange(NODES).flip(0), "int64 rows of x in the order of the sequence", "node")
        if many:
            add("sizes", torch.tensor([2, NODES - 2]), SIZES, "graph")
    if m.mpnn is not None or len(m.gps):
        add("edge_index", torch.tensor(EDGES), SENDERS, "", "edge")
    if m.embed_edge is not None or (m.mpnn is not None and m.mpnn.embed_edge is not None):
        add("edge_attr", edge_attr, f"{m.edge_dim} features of each edge, scaled as in training", "edge", "")
    if m.local is not None:
        sizes, nodes = torch.full((NODES, m.tokens), ROWS), torch.arange(rows) // (ROWS * m.tokens)
        add("token_sizes", sizes, f"int64 rows of each of a node's {m.tokens} tokens, its own last", "node", "")
        edges, axis, by_walks = torch.arange(3), "token_edge", isinstance(m.local, WalkFeatureEncoder)
        what = "step of its walks" if by_walks else "node of its subgraph"
        add("token_nodes", nodes, f"int64 rows of x, token after token, a row a {what}", "row")
        if isinstance(m.local, WalkFeatureEncoder):
            width = m.local.encoder.bits.in_features
            meaning = f"uint8 {width // 2} steps back: whether the node is the same, then whether it is adjacent"
            add("bits", torch.randint(0, 2, (rows, width), dtype=torch.uint8), meaning, "row", "")
            add("walk_sizes", torch.full((rows // ROWS,), ROWS), "int64 steps of each walk", "walk")
            edges, axis = torch.arange(rows) % 4 - 1, "row"
        elif len(m.local.mpnn.blocks):  # type: ignore[arg-type,union-attr]
            meaning = "int64 rows of token_nodes, those that send above those that receive: edges inside tokens"
            add("token_edge_index", torch.tensor([[0, 1, 3], [1, 0, 2]]), meaning, "", axis)
        if m.embed_edge is not None:
            none = ", -1 of a step that none led to" if by_walks else ""
            add("token_edges", edges, f"int64 rows of edge_attr, of the tokens' edges{none}", axis)
    if m.level == "edge":
        meaning = "int64 rows of x, the ends of each edge that is asked for"
        add("pairs", torch.tensor([[0, 1], [2, 3], [5, 4]]), meaning, "pair", "")
    return ports


def tensors_of(i: GMNInputs) -> dict[str, Tensor | None]:
    """Return what a network reads of all nodes, by the names of a program's inputs, tokens as they were drawn."""
    return {
        "x": i.x, "order": i.order, "edge_attr": i.edge_attr, "pairs": i.pairs, "bits": i.bits,
        "sizes": i.sequences.diff(), "edge_index": i.graph.edge_index(),
        "token_nodes": i.token_nodes, "token_edges": i.token_edges,
        "walk_sizes": None if i.walks is None else i.walks.diff(),
        "token_edge_index": None if i.token_graph is None else i.token_graph.edge_index(),
        "token_sizes": None if i.token_offsets is None else i.token_offsets.diff().view(len(i.x), -1),
    }  # fmt: skip


def _answers(model: nn.Module, source: NodeBatches[Any]) -> Tensor:
    return model(in_precision(model, _full_inputs(source)))


def in_precision(model: nn.Module, inputs: GMNInputs) -> GMNInputs:
    """Return inputs in the precision of a model's weights."""
    from hopstate.training.devices import Double  # of the library that trains: options are read without it

    return Double().convert_input(inputs) if next(model.parameters()).dtype == torch.float64 else inputs


def _num_eval_samples(source: NodeBatches[Any]) -> int:
    sampler = source.predict_all if isinstance(source, WalkedNodeBatches) else source
    return sampler.eval_samples if isinstance(sampler, (NodeOutputs, FullGraphBatches)) else 1


def _full_inputs(source: NodeBatches[Any]) -> GMNInputs:
    assert isinstance(source, (FullGraphBatches, WalkedNodeBatches))
    return FullGraphBatches(source.config, source.prepared, source.labels, seed=source.seed).evaluation_inputs()


__all__ = ["export_spec", "gmn_spec"]
