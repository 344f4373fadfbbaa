"""Any torch-geometric model under TOP: its layers run unchanged, on batches with made-up rows for missing neighbours.

    topped = top(model, graph)            # fits the compensation on the model's present weights
    topped.refresh()                      # ... and anew, now and then while it trains
    batch = topped.batch(nodes)
    logits = topped(x[nodes], batch)      # rows of nodes, as model(x, edge_index)[nodes] would give

Edges send from their source to their target, as in torch-geometric. What they carry is given to the model by the names
that torch-geometric's own models have for it, edge_weight and edge_attr; a model that takes neither is refused. Weights
that a layer makes of degrees are those of the whole graph. A layer of which a batch cannot be exact even with
the rows of all neighbours is refused when the model is wrapped.

Source: Shi et al., "Accurate and scalable graph neural networks via message invariance" (TOP), algorithm 2 and
appendix B.1.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from hopstate.compensation.top.batch import GeneralTop
from hopstate.compensation.top.config import TopConfig
from hopstate.compensation.top.probes import Embed, message_layers
from hopstate.compensation.top.top import Top
from hopstate.compensation.top.wrap.degrees import NumberedTop, WholeGraph, whole_weights
from hopstate.compensation.top.wrap.layers import Extend, Witness, extended
from hopstate.data.graph import Graph
from hopstate.errors import ConfigError, DataError
from hopstate.layers.evaluating import evaluating
from hopstate.layers.message import Adjacency
from hopstate.random import named_rng
from hopstate.sampling.adjacency import inside_adjacency, whole_adjacency

Call = Callable[..., Any]
WITNESSES = 128  # nodes on which layers are held to what they give on the whole graph


class ToppedModel(nn.Module):
    """A model of torch-geometric layers that takes compensated batches; made by `top`.

    Args:
        model: called as call(model, x, edge_index), with edge_weight and edge_attr where edges carry them; every
            message-passing layer in it may pass messages once a call.
        compensation: prepared for model and its graph.
        call: how model is called.
        embed: passes over the whole graph with model.
        whole: the graph's edges.
        names: of `edge_arguments`.
    """

    def __init__(
        self,
        model: nn.Module,
        compensation: Top,
        call: Call,
        embed: Embed,
        whole: WholeGraph,
        names: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__()
        self.model, self.call, self.names = model, call, dict(names or {})
        self.compensation, self.embed, self.whole = compensation, embed, whole

    def batch(self, nodes: np.ndarray) -> NumberedTop:
        """Return the compensated batch of nodes (distinct rows of the graph)."""
        made = self.compensation.batch(nodes)
        assert isinstance(made, GeneralTop)
        around = self.compensation.cutter.induced(nodes, halo=True)
        return NumberedTop(made, torch.from_numpy(around.nodes))

    def refresh(self) -> None:
        """Fit the compensation on the model's present weights; do so while training moves them, each few epochs."""
        self.compensation.refresh(self.model, self.embed)

    def forward(self, x: Tensor, batch: NumberedTop) -> Any:
        """Return what the model gives for the batch's nodes.

        Raises:
            ConfigError: a layer passes messages more than once a call, or normalises altered edges, or edges with other
                weights than the graph's, which cannot be compensated.
        """
        if torch.compiler.is_compiling():  # layers are exchanged for the call: run as it is
            return torch.compiler.disable(self.forward)(x, batch)
        return _run(self, x, batch, [batch.extended] * len(message_layers(self.model)))


def top(
    model: nn.Module, graph: Graph, config: TopConfig | None = None, *, seed: int = 0, call: Call | None = None
) -> ToppedModel:
    """Return a model of torch-geometric layers made to train and predict on node batches of graph.

    Args:
        model: any module of torch-geometric layers; it is wrapped, not changed.
        graph: the graph, with features.
        config: settings; the general form is used whatever they say.
        seed: fixes random initialisations and draws.
        call: how the model is called with (model, x, edge_index), and by keyword edge_weight and edge_attr where the
            graph has them; by default model(x, edge_index, ...).

    Raises:
        ConfigError: the model has no message-passing layer, or one that a batch cannot be exact for: it passes
            messages several times a call, or needs to know of the graph what a batch does not have.
        DataError: the graph has no features.
    """
    config = replace(config or TopConfig(), form="general")
    if graph.x is None:
        raise DataError(f"{graph.name} has no node features")
    names = edge_arguments(model, graph, call)
    call = call or _call
    compensation = Top(graph, config, "edges", seed=seed)
    x, adjacency = torch.from_numpy(np.array(graph.x)), whole_adjacency(graph)
    edges, carried = adjacency.edge_index(), _carried(adjacency, names)
    whole = partial(_over_all, call, x, edges, carried)
    embed = compensation.whole_pass(whole)
    topped = ToppedModel(model, compensation, call, embed, WholeGraph(edges, graph.num_nodes, carried), names)
    _check(topped, x, whole)
    compensation.prepare(model, embed)
    return topped


def _call(module: nn.Module, x: Tensor, edges: Tensor, **carried: Tensor) -> Any:
    return module(x, edges, **carried)


def _over_all(call: Call, x: Tensor, edges: Tensor, carried: Mapping[str, Tensor], model: nn.Module) -> Any:
    device = next(model.parameters()).device
    return call(model, x.to(device), edges.to(device), **{name: tensor.to(device) for name, tensor in carried.items()})


def edge_arguments(model: nn.Module, graph: Graph, call: Call | None = None) -> dict[str, str]:
    """Return by what name ("edge_weight", "edge_attr") a model takes the graph's edge weights and edge features.

    Edge features of one column are weights where the model takes only those, and weights features where it takes only
    those.

    Raises:
        ConfigError: the model, or call, has no place for them.
    """
    has = {"edge_weight": graph.edge_weight is not None, "edge_attr": graph.edge_attr is not None}
    other, found = {"edge_weight": "edge_attr", "edge_attr": "edge_weight"}, {}
    for name in (name for name, given in has.items() if given):
        thin = name == "edge_weight" or (graph.edge_attr is not None and graph.edge_attr.shape[1] == 1)
        if _takes(model, call, name):
            found[name] = name
        elif thin and not has[other[name]] and _takes(model, call, other[name]):
            found[name] = other[name]
        else:
            what = "edge weights" if name == "edge_weight" else f"edge features ({name})"
            raise ConfigError(
                f"{graph.name} has {what}, and {type(model).__name__} takes none: give `top` a call that passes {name} "
                f"to the layers that use it, or leave them out (graph.with_({name}=None))"
            )
    return found


def _takes(model: nn.Module, call: Call | None, name: str) -> bool:
    if call is None and not getattr(model, f"supports_{name}", True):  # torch-geometric's own models say so
        return False
    from torch_geometric.nn import Sequential

    if call is None and isinstance(model, Sequential):  # it takes any keyword and passes over those it does not know
        return name in model.signature.param_dict
    known = inspect.signature(model.forward if call is None else call).parameters.values()
    return any(p.name == name or p.kind is p.VAR_KEYWORD for p in known)


def _carried(adjacency: Adjacency, names: Mapping[str, str]) -> dict[str, Tensor]:
    """Return what edges carry by the model's name for it: weights (E,), features (E, D)."""
    carried = {"edge_weight": adjacency.weight, "edge_attr": adjacency.edge_attr}
    found = {}
    for name, argument in names.items():
        tensor = carried[name]
        assert tensor is not None
        found[argument] = tensor.reshape(len(tensor), -1) if argument == "edge_attr" else tensor.reshape(-1)
    return found


def _run(topped: ToppedModel, x: Tensor, batch: NumberedTop, extends: list[Extend]) -> Any:
    edges, carried = batch.around.edge_index(), _carried(batch.around, topped.names)
    with ExitStack() as stack:
        for number, (layer, extend) in enumerate(zip(message_layers(topped.model), extends)):
            stack.enter_context(extended(layer, number, batch.around.num_receivers, extend))
            stack.enter_context(whole_weights(layer, batch, topped.whole, edges, carried))
        return topped.call(topped.model, x, edges, **carried)


def _check(topped: ToppedModel, x: Tensor, whole: Callable[[nn.Module], Any]) -> None:
    graph, model = topped.compensation.graph, topped.model
    nodes = _witnesses(graph.incoming.count)
    around = topped.compensation.cutter.induced(nodes, halo=True)
    every, device = torch.from_numpy(around.nodes), next(model.parameters()).device
    adjacency = inside_adjacency(graph, around)
    batch = NumberedTop(GeneralTop(adjacency, []), every).to(device)
    layers = message_layers(model)
    witnesses = [Witness(layer, every, len(nodes)) for layer in layers]
    with evaluating(model):
        with ExitStack() as stack:
            for number, (layer, witness) in enumerate(zip(layers, witnesses)):
                stack.enter_context(extended(layer, number, graph.num_nodes, witness.keep))
                stack.callback(layer.register_forward_hook(witness.keep_output).remove)
            whole(model)
        with ExitStack() as stack:
            for layer, witness in zip(layers, witnesses):
                stack.callback(layer.register_forward_hook(witness.check_output).remove)
            _run(topped, x[nodes].to(device), batch, [w.give for w in witnesses])


def _witnesses(degree: np.ndarray) -> np.ndarray:
    """Return some nodes of few neighbours, whose neighbours then have many that a batch of them leaves out."""
    order = np.argsort(degree, kind="stable")
    order = order[degree[order] > 0] if degree.any() else order
    few = order[: max(1, len(order) // 2)]
    return np.sort(named_rng(0).permutation(few)[:WITNESSES])


__all__ = ["ToppedModel", "top"]
