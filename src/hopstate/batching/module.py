"""Any torch-geometric model under TOP: its layers run unchanged, on batches with made-up rows for missing neighbours.

    topped = top(model, graph)            # fits the compensation on the model's present weights
    topped.refresh()                      # ... and anew, now and then while it trains
    batch = topped.batch(nodes)
    logits = topped(x[nodes], batch)      # rows of nodes, as model(x, edge_index)[nodes] would give

Weights that a layer makes of degrees are those of the whole graph. A layer of which a batch cannot be exact even with
the rows of all neighbours is refused when the model is wrapped.

Source: Shi et al., "Accurate and scalable graph neural networks via message invariance" (TOP), appendix B.1.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from hopstate.batching.compensated import GeneralTop
from hopstate.batching.embeddings import Embed, message_layers
from hopstate.batching.evaluating import evaluating
from hopstate.batching.extended import Extend, Witness, extended
from hopstate.batching.top import Top, TopConfig
from hopstate.batching.whole_weights import NumberedTop, WholeGraph, whole_weights
from hopstate.data.graph import Graph
from hopstate.errors import DataError
from hopstate.layers.message import Adjacency

Call = Callable[[nn.Module, Tensor, Tensor], Any]
WITNESSES = 128  # nodes on which layers are held to what they give on the whole graph


class ToppedModel(nn.Module):
    """A model of torch-geometric layers that takes compensated batches; made by `top`.

    Args:
        model: called as call(model, x, edge_index); every message-passing layer in it may pass messages once a call.
        compensation: prepared for model and its graph.
        call: how model is called.
        embed: passes over the whole graph with model.
        whole: the graph's edges.
    """

    def __init__(self, model: nn.Module, compensation: Top, call: Call, embed: Embed, whole: WholeGraph) -> None:
        super().__init__()
        self.model, self.call = model, call
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
            ConfigError: a layer passes messages more than once a call, or normalises weighted or altered edges, which
                cannot be compensated.
        """
        return _run(self.model, self.call, x, batch, self.whole, [batch.extended] * len(message_layers(self.model)))


def top(
    model: nn.Module, graph: Graph, config: TopConfig | None = None, *, seed: int = 0, call: Call | None = None
) -> ToppedModel:
    """Return a model of torch-geometric layers made to train and predict on node batches of graph.

    Args:
        model: any module of torch-geometric layers; it is wrapped, not changed.
        graph: the graph, with features.
        config: settings; the general form is used whatever they say.
        seed: fixes random initialisations and draws.
        call: how the model is called with (model, x, edge_index); by default model(x, edge_index).

    Raises:
        ConfigError: the model has no message-passing layer, or one that a batch cannot be exact for: it passes
            messages several times a call, or needs to know of the graph what a batch does not have.
        DataError: the graph has no features.
    """
    config = replace(config or TopConfig(), form="general")
    call = call or (lambda module, x, edges: module(x, edges))
    if graph.x is None:
        raise DataError(f"{graph.name} has no node features")
    compensation = Top(graph, config, "edges", seed=seed)
    x, edges = torch.from_numpy(np.array(graph.x)), torch.from_numpy(graph.edge_index()[::-1].copy())

    def whole(other: nn.Module) -> Any:
        device = next(other.parameters()).device
        return call(other, x.to(device), edges.to(device))

    embed = compensation.whole_pass(whole)
    topped = ToppedModel(model, compensation, call, embed, WholeGraph(edges, graph.num_nodes))
    _check(topped, x, whole)
    compensation.prepare(model, embed)
    return topped


def _run(model: nn.Module, call: Call, x: Tensor, batch: NumberedTop, whole: WholeGraph, extends: list[Extend]) -> Any:
    """Return what a model gives for a batch where each layer's input is extended by one of extends."""
    edges = batch.around.edge_index()
    with ExitStack() as stack:
        for number, (layer, extend) in enumerate(zip(message_layers(model), extends)):
            stack.enter_context(extended(layer, number, batch.around.num_receivers, extend))
            stack.enter_context(whole_weights(layer, batch, whole, edges))
        return call(model, x, edges)


def _check(topped: ToppedModel, x: Tensor, whole: Callable[[nn.Module], Any]) -> None:
    """Hold each layer, on a batch with the true rows of all neighbours, to what it gives on the whole graph."""
    graph, model = topped.compensation.graph, topped.model
    nodes = _witnesses(graph.degree)
    around = topped.compensation.cutter.induced(nodes, halo=True)
    every, device = torch.from_numpy(around.nodes), next(model.parameters()).device
    adjacency = Adjacency.of(around.indptr, around.indices, num_nodes=len(every))
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
            _run(model, topped.call, x[nodes].to(device), batch, topped.whole, [w.give for w in witnesses])


def _witnesses(degree: np.ndarray) -> np.ndarray:
    """Return some nodes of few neighbours, whose neighbours then have many that a batch of them leaves out."""
    order = np.argsort(degree, kind="stable")
    order = order[degree[order] > 0] if degree.any() else order
    few = order[: max(1, len(order) // 2)]
    return np.sort(np.random.default_rng(0).permutation(few)[:WITNESSES])


__all__ = ["ToppedModel", "top"]
