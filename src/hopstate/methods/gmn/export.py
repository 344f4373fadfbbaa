"""A Graph Mamba Network as a program: features, walks' tokens, edges and the order of nodes in, outputs out.

The program draws no walks: tokens are inputs, as `hopstate.export_inputs` makes them for a run's own data.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from hopstate.errors import ConfigError
from hopstate.methods.gmn.asked_graphs import graphs_of, sample_of
from hopstate.methods.gmn.export_program import GMNProgram
from hopstate.methods.gmn.inference import NodeOutputs
from hopstate.methods.gmn.inputs import GMNInputs
from hopstate.methods.gmn.local import SubgraphEncoder, WalkTokens
from hopstate.methods.gmn.model import GMN
from hopstate.methods.gmn.nodes import VisitedNodes, WholeSequence
from hopstate.methods.shared.static_link_export import link_form
from hopstate.training.exported import ExportSpec, Port
from hopstate.training.precision import bare
from hopstate.training.tasks.graph import GraphTask
from hopstate.training.tasks.node import NodeBatches, NodeTask
from hopstate.training.tasks.static_link import StaticLinkTask

NODES, ROWS = 6, 2  # of the made graph that a program is traced with, and of each of its tokens
EDGES = ((0, 1, 2, 3, 1), (1, 0, 1, 2, 4))
Inputs = dict[str, tuple[Port, Tensor]]  # by name, with an example
OUTPUTS = {"node": ("node", ""), "edge": ("pair", ""), "graph": ("graph", "")}


def export_form(task: NodeTask[Any] | StaticLinkTask | GraphTask) -> ExportSpec:
    """Return the program of a trained task.

    Raises:
        ConfigError: a network that is no Graph Mamba Network.
    """
    if isinstance(task, StaticLinkTask):
        encoder = partial(gmn_form, draws=_draws(task.source))
        return link_form(task, encoder, lambda form, source: as_taken(form, _whole(source)), answered)
    if isinstance(task, GraphTask):
        return _of_graphs(task)
    form = gmn_form(bare(task.model), draws=_draws(task.source))
    return replace(
        form,
        fill=lambda _: as_taken(form, _whole(task.source)),
        reference=lambda _: answered(task.model, task.source),
    )


def _of_graphs(task: GraphTask) -> ExportSpec:
    form = gmn_form(bare(task.model), draws=task.draws, many=True)

    def collated(ids: Any) -> GMNInputs:
        return task.collate(graphs_of(task, ids), 0, None)

    return replace(
        form,
        fill=lambda ids: as_taken(form, collated(ids)),
        reference=lambda ids: task.model(read_in(task.model, collated(ids))),
        sample=sample_of(task),
    )


def answered(model: nn.Module, source: NodeBatches[Any]) -> Tensor:
    """Return what a network itself says of all nodes, by the first draw of the walks."""
    return model(read_in(model, _whole(source)))


def read_in(model: nn.Module, inputs: GMNInputs) -> GMNInputs:
    """Return inputs in a model's precision."""
    from hopstate.training.double import Double  # of the library that trains: options are read without it

    return Double().convert_input(inputs) if next(model.parameters()).dtype == torch.float64 else inputs


def gmn_form(model: nn.Module, *, draws: int = 1, many: bool = False) -> ExportSpec:
    """Return the program of a trained network.

    Args:
        model: the network.
        draws: times that the run draws walks for an answer.
        many: its nodes are of several graphs, each a sequence of its own.

    Raises:
        ConfigError: another network.
    """
    if not isinstance(model, GMN):
        raise ConfigError(f"{type(model).__name__} is no Graph Mamba Network and has no program over tokens of walks")
    found = ports_of(model, many=many)
    meaning = f"a row a {model.level}, logits, or scaled amounts, of the run's target"
    told = (
        "all nodes of a graph, in the order that order.kind says; edges as flow left them; x ends "
        "with the encodings that encoding.kind names; tokens in the order in which hopstate.export_inputs has them"
    )
    if draws > 1:
        told += f"; the run's own answer is the mean of the outputs for {draws} draws of the walks"
    return ExportSpec(
        module=GMNProgram(model, tuple(found)),
        inputs=tuple(port for port, _ in found.values()),
        outputs=(Port(name="output", meaning=meaning, axes=OUTPUTS[model.level]),),
        example=tuple(example for _, example in found.values()),
        preprocessing=told,
    )


def ports_of(m: GMN, *, many: bool) -> Inputs:
    """Return the inputs of a network's program, each where the network computes from it."""
    like, found = next(m.parameters()), Found()
    found.add(
        "x", f"{m.in_dim} features and encodings of each node", "node", "", like=torch.randn(NODES, m.in_dim).to(like)
    )
    if len(m.gps) or len(m.node_blocks) or m.level == "graph":
        found.add("order", "int64 rows of x in the order of the sequence", "node", like=torch.arange(NODES).flip(0))
        if many:
            found.add(
                "sizes", "int64 nodes of each graph, in the order of x", "graph", like=torch.tensor([2, NODES - 2])
            )
    if m.mpnn is not None or len(m.gps):
        meaning = "int64 rows of x, those that send above those that receive"
        found.add("edge_index", meaning, "", "edge", like=torch.tensor(EDGES))
    if m.embed_edge is not None or (m.mpnn is not None and m.mpnn.embed_edge is not None):
        example = torch.randn(len(EDGES[0]), m.edge_dim).to(like)
        found.add("edge_attr", f"{m.edge_dim} features of each edge, scaled as in training", "edge", "", like=example)
    if m.local is not None:
        _token_ports(m, found)
    if m.level == "edge":
        meaning = "int64 rows of x, the ends of each edge that is asked for"
        found.add("pairs", meaning, "pair", "", like=torch.tensor([[0, 1], [2, 3], [5, 4]]))
    return dict(found)


class Found(Inputs):
    """Inputs as they are named."""

    def add(self, name: str, meaning: str, *axes: str, like: Tensor) -> None:
        """Add one, with an example."""
        self[name] = Port(name=name, meaning=meaning, axes=axes), like


def _token_ports(m: GMN, found: Found) -> None:
    rows, walked = NODES * m.tokens * ROWS, isinstance(m.local, WalkTokens)
    sizes, nodes = torch.full((NODES, m.tokens), ROWS), torch.arange(rows) // (ROWS * m.tokens)
    found.add("token_sizes", f"int64 rows of each of a node's {m.tokens} tokens, its own last", "node", "", like=sizes)
    what = "step of its walks" if walked else "node of its subgraph"
    found.add("token_nodes", f"int64 rows of x, token after token, a row a {what}", "row", like=nodes)
    taken, axis = torch.arange(3), "token_edge"
    if isinstance(m.local, WalkTokens):
        width = m.local.encoder.bits.in_features
        meaning = f"uint8 {width // 2} steps back: whether the node is the same, then whether it is adjacent"
        found.add("bits", meaning, "row", "", like=torch.randint(0, 2, (rows, width), dtype=torch.uint8))
        found.add("walk_sizes", "int64 steps of each walk", "walk", like=torch.full((rows // ROWS,), ROWS))
        taken, axis = torch.arange(rows) % 4 - 1, "row"
    elif isinstance(m.local, SubgraphEncoder) and len(m.local.mpnn.blocks):
        meaning = "int64 rows of token_nodes, those that send above those that receive: edges inside tokens"
        found.add("token_edge_index", meaning, "", axis, like=torch.tensor([[0, 1, 3], [1, 0, 2]]))
    if m.embed_edge is not None:
        none = ", -1 of a step that none led to" if walked else ""
        found.add("token_edges", f"int64 rows of edge_attr, of the tokens' edges{none}", axis, like=taken)


def as_taken(form: ExportSpec, inputs: GMNInputs) -> tuple[Tensor, ...]:
    """Return what a form's program takes of what the network itself reads, for all nodes, tokens as they were drawn."""
    i, like = inputs, form.example[0]
    told: dict[str, Tensor | None] = {"x": i.x, "order": i.order, "edge_attr": i.edge_attr, "pairs": i.pairs}
    told |= {"sizes": i.sequences.diff(), "edge_index": i.graph.edge_index(), "bits": i.bits}
    told |= {"token_nodes": i.token_nodes, "token_edges": i.token_edges}
    told["walk_sizes"] = None if i.walks is None else i.walks.diff()
    told["token_edge_index"] = None if i.token_graph is None else i.token_graph.edge_index()
    told["token_sizes"] = None if i.token_offsets is None else i.token_offsets.diff().view(len(i.x), -1)
    taken = []
    for port in form.inputs:
        value = told[port.name]
        assert value is not None
        taken.append(value.to(like) if value.is_floating_point() else value)
    return tuple(taken)


def _draws(source: NodeBatches[Any]) -> int:
    asked = source.predict_all if isinstance(source, VisitedNodes) else source
    return asked.draws if isinstance(asked, (NodeOutputs, WholeSequence)) else 1


def _whole(source: NodeBatches[Any]) -> GMNInputs:
    """Return what the network reads of a source's whole graph in the first round of evaluation."""
    assert isinstance(source, (WholeSequence, VisitedNodes))
    return WholeSequence(source.config, source.prepared, source.labels, seed=source.seed).evaluated()


__all__ = ["as_taken", "export_form", "gmn_form", "ports_of"]
