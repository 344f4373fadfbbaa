"""Any torch-geometric model under TOP: its layers run unchanged, on batches with made-up rows for missing neighbours.

    topped = top(model, graph)            # fits the compensation on the model's present weights
    topped.refresh()                      # ... and anew, now and then while it trains
    batch = topped.batch(nodes)
    logits = topped(x[nodes], batch)      # rows of nodes, as model(x, edge_index)[nodes] would give

Source: Shi et al., "Accurate and scalable graph neural networks via message invariance" (TOP), appendix B.1.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from hopstate.batching.embeddings import Embed, message_layers
from hopstate.batching.top import GeneralTop, Top, TopConfig
from hopstate.data.graph import Graph
from hopstate.errors import ConfigError, DataError

Call = Callable[[nn.Module, Tensor, Tensor], Any]


class ToppedModel(nn.Module):
    """A model of torch-geometric layers that takes compensated batches; made by `top`.

    Args:
        model: called as call(model, x, edge_index); every message-passing layer in it may pass messages once a call.
        compensation: prepared for model and its graph.
        call: how model is called.
        embed: passes over the whole graph with model.
    """

    def __init__(self, model: nn.Module, compensation: Top, call: Call, embed: Embed) -> None:
        super().__init__()
        self.model, self.call = model, call
        self.compensation, self.embed = compensation, embed

    def batch(self, nodes: np.ndarray) -> GeneralTop:
        """Return the compensated batch of nodes (distinct rows of the graph)."""
        made = self.compensation.batch(nodes)
        assert isinstance(made, GeneralTop)
        return made

    def refresh(self) -> None:
        """Fit the compensation on the model's present weights; do so while training moves them, each few epochs."""
        self.compensation.refresh(self.model, self.embed)

    def forward(self, x: Tensor, batch: GeneralTop) -> Any:
        """Return what the model gives for the batch's nodes.

        Raises:
            ConfigError: a layer passes messages more than once a call, which cannot be compensated.
        """
        edges = batch.around.edge_index()
        with ExitStack() as stack:
            for number, layer in enumerate(message_layers(self.model)):
                stack.enter_context(_extended(layer, number, batch, edges))
            return self.call(self.model, x, edges)


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
        ConfigError: the model has no message-passing layer.
        DataError: the graph has no features.
    """
    config = config or TopConfig(form="general")
    call = call or (lambda module, x, edges: module(x, edges))
    if graph.x is None:
        raise DataError(f"{graph.name} has no node features")
    compensation = Top(graph, config, "edges", seed=seed)
    x, edges = torch.from_numpy(np.array(graph.x)), torch.from_numpy(graph.edge_index()[::-1].copy())

    def whole(other: nn.Module) -> Any:
        device = next(other.parameters()).device
        return call(other, x.to(device), edges.to(device))

    embed = compensation.whole_pass(whole)
    compensation.prepare(model, embed)
    return ToppedModel(model, compensation, call, embed)


@contextmanager
def _extended(layer: Any, number: int, batch: GeneralTop, edges: Tensor) -> Iterator[None]:
    """Within it, layer receives extended node tensors and returns the batch's rows; its own code runs as it is."""
    count, names = batch.around.num_receivers, inspect.signature(layer.forward)
    weighs = getattr(layer, "normalize", None) is True and hasattr(layer, "add_self_loops")
    passes = 0

    def before(_: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        nonlocal passes
        passes = 0
        bound = names.bind(*args, **kwargs)
        for name, value in bound.arguments.items():
            if not name.startswith("edge"):
                bound.arguments[name] = _extend(value, batch, count, number)
        if weighs:  # as gcn_norm would over the whole graph
            bound.arguments["edge_index"], bound.arguments["edge_weight"] = _normalised(batch, layer.add_self_loops)
            layer.normalize = False
        return bound.args, bound.kwargs

    def after(_: nn.Module, __: Any, out: Any) -> Any:
        if weighs:
            layer.normalize = True
        if passes > 1:
            raise ConfigError(
                f"{type(layer).__name__} passes messages {passes} times a call; TOP compensates once a layer, so use "
                f"as many layers of one pass instead"
            )
        return out[:count] if isinstance(out, Tensor) else (out[0][:count], *out[1:])

    def tally(*_: Any) -> None:
        nonlocal passes
        passes += 1

    handles = [
        layer.register_forward_pre_hook(before, with_kwargs=True),
        layer.register_forward_hook(after),
        layer.register_propagate_forward_pre_hook(tally),
    ]
    try:
        yield
    finally:
        if weighs:
            layer.normalize = True
        for handle in handles:
            handle.remove()


def _extend(value: Any, batch: GeneralTop, count: int, number: int) -> Any:
    if isinstance(value, (tuple, list)):
        return type(value)(_extend(v, batch, count, number) for v in value)
    rows = isinstance(value, Tensor) and value.is_floating_point() and value.ndim > 1 and len(value) == count
    return batch.extended(value, number) if rows else value


def _normalised(batch: GeneralTop, loops: bool) -> tuple[Tensor, Tensor]:
    """Return edges and weights of D^-1/2 A D^-1/2 with the whole graph's degrees, with self-loops where loops."""
    form = batch.around.form("symmetric") if loops else None
    if form is not None:
        rows = torch.repeat_interleave(form.crow_indices().diff())
        return torch.stack([form.col_indices(), rows]), form.values()
    edges, degree = batch.around.edge_index(), batch.around.degree
    assert degree is not None
    scale = torch.where(degree > 0, degree.rsqrt(), 0.0)
    return edges, scale[edges[0]] * scale[edges[1]]


__all__ = ["ToppedModel", "top"]
