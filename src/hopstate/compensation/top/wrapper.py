"""Any torch-geometric model under TOP: its layers run unchanged, on batches with made-up rows for missing neighbors.

    topped = top(model, graph)            # fits the compensation on the model's present weights
    topped.refresh()                      # ... and anew, now and then while it trains
    batch = topped.batch(nodes)
    logits = topped(x[nodes], batch)      # rows of nodes, as model(x, edge_index)[nodes] would give

Edges send from their source to their target, as in torch-geometric. What they carry is given to the model by the names
that torch-geometric's own models have for it, edge_weight and edge_attr; a model that takes neither is refused. Weights
that a layer makes of degrees are those of the whole graph. A layer of which a batch cannot be exact even with
the rows of all neighbors is refused when the model is wrapped.

Source: Shi et al., "Accurate and scalable graph neural networks via message invariance" (TOP), algorithm 2 and
appendix B.1.
"""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import partial
from types import FunctionType, MethodType
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from hopstate.compensation.top.batch import GeneralTop
from hopstate.compensation.top.probes import Embed, message_layers, select_rows
from hopstate.compensation.top.top import Top, TopConfig
from hopstate.data.graph import Graph
from hopstate.errors import ConfigError, DataError
from hopstate.layers.message import Adjacency
from hopstate.layers.modes import evaluating
from hopstate.random import named_rng
from hopstate.sampling.subgraph import full_adjacency, induced_adjacency

__all__ = ["ToppedModel", "top"]

Extend = Callable[[Tensor, int], Tensor]


@contextmanager
def extended(layer: Any, number: int, count: int, extend: Extend) -> Iterator[None]:
    """Context in which a layer receives extended node tensors and returns the rows of the batch; its code is unchanged.

    Args:
        layer: the layer.
        number: layer number, passed to `extend`.
        count: number of batch nodes.
        extend: maps (a (count, d) layer input, number) to (count + m, d).

    Raises:
        ConfigError: the layer passes messages more than once per call, which cannot be compensated.
    """
    names, passes = inspect.signature(layer.forward), 0

    def before(_: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        nonlocal passes
        passes = 0
        bound = names.bind(*args, **kwargs)
        for name, value in bound.arguments.items():
            if not name.startswith("edge"):
                bound.arguments[name] = _extend(value, count, lambda rows: extend(rows, number))
        return bound.args, bound.kwargs

    def tally(*_: Any) -> None:
        nonlocal passes
        passes += 1

    def after(_: nn.Module, __: Any, out: Any) -> Any:
        if passes > 1:
            raise ConfigError(_several(layer, passes))
        return out[:count] if isinstance(out, Tensor) else (out[0][:count], *out[1:])

    handles = [
        layer.register_forward_pre_hook(before, with_kwargs=True),
        layer.register_forward_hook(after),
        layer.register_propagate_forward_pre_hook(tally),
    ]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


class OutputCheck:
    """Checks that a layer returns the same on a batch as on the full graph if it receives the same inputs.

    Args:
        layer: the layer.
        nodes: (m,) graph rows to record.
        count: number of batch nodes, which come first; the others only send messages.
    """

    def __init__(self, layer: nn.Module, nodes: Tensor, count: int) -> None:
        self.layer, self.nodes, self.count = layer, nodes, count
        self.received: list[Tensor] = []
        self.returned: list[Tensor] = []

    def keep(self, rows: Tensor, _: int) -> Tensor:
        """Record a layer input on the full graph, and return it unchanged."""
        self.received.append(rows[self.nodes.to(rows.device)])
        return rows

    def keep_output(self, _: nn.Module, __: Any, out: Any) -> None:
        self.returned.append(_first(out)[self.nodes[: self.count].to(_first(out).device)])

    def give(self, rows: Tensor, _: int) -> Tensor:
        """Return the recorded layer input of the same call."""
        kept = self.received.pop(0) if self.received else rows
        if kept.shape[1:] != rows.shape[1:]:
            self._refuse()
        return kept

    def check_output(self, _: nn.Module, __: Any, out: Any) -> None:
        """Raise ConfigError if the layer output differs from the recorded one."""
        got = _first(out)[: self.count]
        expected = self.returned.pop(0) if self.returned else got[:0]
        if got.shape != expected.shape:
            self._refuse()
        error, scale = (t.double().square().sum().sqrt() for t in (got - expected, expected))
        if error > scale * torch.finfo(got.dtype).eps ** 0.5:  # not where something is NaN, which is named elsewhere
            self._refuse()

    def _refuse(self) -> None:
        raise ConfigError(
            f"{type(self.layer).__name__} returns something else on a batch than on the whole graph even where it "
            f"receives the same from every neighbor, so TOP would be wrong for it: it may weigh edges by degrees or "
            f"other properties of the graph that a batch does not have. Weigh them by torch-geometric's gcn_norm or "
            f"get_laplacian in the layer itself, which TOP gives the whole graph, or train it by plain node batches"
        )


def _extend(value: Any, count: int, extend: Callable[[Tensor], Tensor]) -> Any:
    if isinstance(value, (tuple, list)):
        return type(value)(_extend(v, count, extend) for v in value)
    rows = isinstance(value, Tensor) and value.is_floating_point() and value.ndim > 1 and len(value) == count
    return extend(value) if rows else value


def _first(out: Any) -> Tensor:
    first = out if isinstance(out, Tensor) else out[0]
    assert isinstance(first, Tensor)
    return first


def _several(layer: nn.Module, passes: int) -> str:
    return (
        f"{type(layer).__name__} passes messages {passes} times a call; TOP compensates once a layer, so use as many "
        f"layers of one pass instead"
    )


Normalise = Callable[..., Any]


class NumberedTop(GeneralTop):
    """A compensated batch with the graph rows of its nodes.

    Args:
        batch: the compensated batch.
        nodes: (m,) graph rows, batch nodes first.
    """

    def __init__(self, batch: GeneralTop, nodes: Tensor) -> None:
        super().__init__(batch.adjacency, batch.missing)
        self.nodes = nodes

    def to(self, device: torch.device | str) -> NumberedTop:
        return NumberedTop(super().to(device), self.nodes.to(device))


class FullGraphEdges:
    """Edges of the full graph and their normalized weights, as rows of (N, N) sparse matrices.

    Args:
        edges: (2, E) senders and receivers.
        num_nodes: number of nodes N.
        carried: edge data by model argument ("edge_weight", "edge_attr"), in the order of edges.
    """

    def __init__(self, edges: Tensor, num_nodes: int, carried: Mapping[str, Tensor] | None = None) -> None:
        self.edges, self.num_nodes, self.carried = edges, num_nodes, dict(carried or {})
        self._made: dict[tuple[Any, ...], Tensor] = {}

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_made": {}}  # torch copies no sparse CSR tensors

    def at(
        self, nodes: Tensor, adjacency: Adjacency, normalise: Normalise, how: dict[str, Any], *, by: str | None = None
    ) -> tuple[Tensor, Tensor]:
        """Return edges (2, e) within nodes (m,), and their weights (e,) normalized on the full graph.

        Args:
            nodes: (m,) graph rows, batch nodes first.
            adjacency: adjacency of the batch.
            normalise: torch-geometric's normalization function.
            how: its arguments, other than edges, weights and number of nodes.
            by: name of the edge weights. Default: unweighted.
        """
        key = (normalise, by, *how.items())
        if key not in self._made:
            weight = None if by is None else self.carried[by].reshape(-1)
            full_graph = {"edge_index": self.edges, "edge_weight": weight, "num_nodes": self.num_nodes}
            with torch.inference_mode(False), torch.no_grad():
                self._made[key] = self._rows(*normalise(**full_graph, **how))
        nodes = nodes.cpu()
        matrix = select_rows(self._made[key], nodes[: adjacency.num_receivers])
        ordered, place = nodes.sort()
        senders = place[torch.searchsorted(ordered, matrix.col_indices())]
        edges = torch.stack([senders, torch.repeat_interleave(matrix.crow_indices().diff())])
        device = adjacency.indptr.device
        return edges.to(device), matrix.values().to(device)

    def _rows(self, edges: Tensor, weights: Tensor) -> Tensor:
        order = edges[1].argsort(stable=True)
        counts = torch.bincount(edges[1], minlength=self.num_nodes)
        indptr = torch.cat([counts.new_zeros(1), counts.cumsum(0)])
        parts, size = (indptr, edges[0][order], weights[order]), (self.num_nodes, self.num_nodes)
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="Sparse CSR tensor support is in beta")
            return torch.sparse_csr_tensor(*parts, size, check_invariants=False)


@contextmanager
def full_graph_weights(
    layer: nn.Module, batch: NumberedTop, full_graph: FullGraphEdges, edges: Tensor, carried: Mapping[str, Tensor]
) -> Iterator[None]:
    """Context in which edge normalization inside a layer returns the weights of the full graph.

    Args:
        layer: the layer.
        batch: the compensated batch.
        full_graph: edges of the full graph.
        edges: (2, e) edges of the batch.
        carried: edge data of the batch.

    Raises:
        ConfigError: the layer normalizes other edges than the batch's, or uses other weights than the graph's.
    """
    own = vars(layer)
    changed: dict[str, Any] = {name: None for name in own if name.startswith("_cached_")}  # made for the whole graph
    if "cached" in own:
        changed["cached"] = False
    changed |= _rebind_methods(
        layer, lambda normalise: _replacement(normalise, layer, batch, full_graph, edges, carried)
    )
    before = {name: own[name] for name in changed if name in own}
    own.update(changed)
    try:
        yield
    finally:
        for name in changed.keys() - before.keys():
            del own[name]
        own.update(before)


def _rebind_methods(layer: nn.Module, instead: Callable[[Normalise], Normalise]) -> dict[str, MethodType]:
    from torch_geometric.nn.conv.gcn_conv import gcn_norm
    from torch_geometric.utils import get_laplacian

    found = {}
    for name, method in inspect.getmembers(type(layer), inspect.isfunction):
        known = method.__globals__
        used = [n for n in method.__code__.co_names if known.get(n) is gcn_norm or known.get(n) is get_laplacian]
        if used:
            theirs = known | {n: instead(known[n]) for n in used}
            copy = FunctionType(method.__code__, theirs, name, method.__defaults__, method.__closure__)
            copy.__kwdefaults__ = method.__kwdefaults__
            found[name] = MethodType(copy, layer)
    return found


def _replacement(
    normalise: Normalise,
    layer: nn.Module,
    batch: NumberedTop,
    full_graph: FullGraphEdges,
    edges: Tensor,
    carried: Mapping[str, Tensor],
) -> Normalise:
    names = inspect.signature(normalise)

    def call(*args: Any, **kwargs: Any) -> tuple[Tensor, Tensor]:
        bound = names.bind(*args, **kwargs)
        bound.apply_defaults()
        how = dict(bound.arguments)
        given, weight, _ = how.pop("edge_index"), how.pop("edge_weight"), how.pop("num_nodes")
        by = None
        if weight is not None:
            by = next((name for name, own in carried.items() if weight is own or _equal(weight, own.reshape(-1))), None)
        if not _equal(given, edges) or (weight is not None and by is None):
            raise ConfigError(
                f"{type(layer).__name__} normalises {'altered' if weight is None else 'weighted'} edges; TOP knows the "
                f"degrees of the graph's own edges, with the graph's own weights: pass both to the layer as they are"
            )
        return full_graph.at(batch.nodes, batch.adjacency, normalise, how, by=by)

    return call


def _equal(given: Any, edges: Tensor) -> bool:
    if given is edges:
        return True
    plain = isinstance(given, Tensor) and given.layout == torch.strided
    return plain and given.shape == edges.shape and torch.equal(given, edges)


Call = Callable[..., Any]
WITNESSES = 128  # nodes on which layers are held to what they give on the whole graph


class ToppedModel(nn.Module):
    """A model of torch-geometric layers that takes compensated batches; made by `top`.

    Args:
        model: called as call(model, x, edge_index), with edge_weight and edge_attr if the edges have them. Each
            message-passing layer may pass messages once per call.
        compensation: prepared for model and its graph.
        call: calls the model.
        embed: computes the layer inputs on the full graph.
        full_graph: edges of the graph.
        names: result of `edge_arguments`.
    """

    def __init__(
        self,
        model: nn.Module,
        compensation: Top,
        call: Call,
        embed: Embed,
        full_graph: FullGraphEdges,
        names: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__()
        self.model, self.call, self.names = model, call, dict(names or {})
        self.compensation, self.embed, self.full_graph = compensation, embed, full_graph

    def batch(self, nodes: np.ndarray) -> NumberedTop:
        """Return the compensated batch of nodes (distinct rows of the graph)."""
        made = self.compensation.batch(nodes)
        assert isinstance(made, GeneralTop)
        adjacency = self.compensation.cutter.induced(nodes, halo=True)
        return NumberedTop(made, torch.from_numpy(adjacency.nodes))

    def refresh(self) -> None:
        """Fit the compensation to the model's present weights. Call it every few epochs during training."""
        self.compensation.refresh(self.model, self.embed)

    def forward(self, x: Tensor, batch: NumberedTop) -> Any:
        """Return the model output for the batch nodes.

        Raises:
            ConfigError: a layer passes messages more than once per call, or normalizes other edges or weights.
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
        seed: fixes random initializations and draws.
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
    x, adjacency = torch.from_numpy(np.array(graph.x)), full_adjacency(graph)
    edges, carried = adjacency.edge_index(), _carried(adjacency, names)
    full_graph = partial(_over_all, call, x, edges, carried)
    embed = compensation.full_graph_pass(full_graph)
    topped = ToppedModel(model, compensation, call, embed, FullGraphEdges(edges, graph.num_nodes, carried), names)
    _check(topped, x, full_graph)
    compensation.prepare(model, embed)
    return topped


def _call(module: nn.Module, x: Tensor, edges: Tensor, **carried: Tensor) -> Any:
    return module(x, edges, **carried)


def _over_all(call: Call, x: Tensor, edges: Tensor, carried: Mapping[str, Tensor], model: nn.Module) -> Any:
    device = next(model.parameters()).device
    return call(model, x.to(device), edges.to(device), **{name: tensor.to(device) for name, tensor in carried.items()})


def edge_arguments(model: nn.Module, graph: Graph, call: Call | None = None) -> dict[str, str]:
    """Return the model argument ("edge_weight" or "edge_attr") for the graph's edge weights and edge features.

    One-column edge features become weights, and weights become features, if the model only takes the other.
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
    """Return edge data by model argument: weights (E,), features (E, D)."""
    carried = {"edge_weight": adjacency.weight, "edge_attr": adjacency.edge_attr}
    found = {}
    for name, argument in names.items():
        tensor = carried[name]
        assert tensor is not None
        found[argument] = tensor.reshape(len(tensor), -1) if argument == "edge_attr" else tensor.reshape(-1)
    return found


def _run(topped: ToppedModel, x: Tensor, batch: NumberedTop, extends: list[Extend]) -> Any:
    edges, carried = batch.adjacency.edge_index(), _carried(batch.adjacency, topped.names)
    with ExitStack() as stack:
        for number, (layer, extend) in enumerate(zip(message_layers(topped.model), extends)):
            stack.enter_context(extended(layer, number, batch.adjacency.num_receivers, extend))
            stack.enter_context(full_graph_weights(layer, batch, topped.full_graph, edges, carried))
        return topped.call(topped.model, x, edges, **carried)


def _check(topped: ToppedModel, x: Tensor, full_graph: Callable[[nn.Module], Any]) -> None:
    graph, model = topped.compensation.graph, topped.model
    nodes = _witnesses(graph.incoming.count)
    local = topped.compensation.cutter.induced(nodes, halo=True)
    every, device = torch.from_numpy(local.nodes), next(model.parameters()).device
    adjacency = induced_adjacency(graph, local)
    batch = NumberedTop(GeneralTop(adjacency, []), every).to(device)
    layers = message_layers(model)
    witnesses = [OutputCheck(layer, every, len(nodes)) for layer in layers]
    with evaluating(model):
        with ExitStack() as stack:
            for number, (layer, witness) in enumerate(zip(layers, witnesses)):
                stack.enter_context(extended(layer, number, graph.num_nodes, witness.keep))
                stack.callback(layer.register_forward_hook(witness.keep_output).remove)
            full_graph(model)
        with ExitStack() as stack:
            for layer, witness in zip(layers, witnesses):
                stack.callback(layer.register_forward_hook(witness.check_output).remove)
            _run(topped, x[nodes].to(device), batch, [w.give for w in witnesses])


def _witnesses(degree: np.ndarray) -> np.ndarray:
    """Return some nodes with few neighbors: these have other neighbors that a batch leaves out."""
    order = np.argsort(degree, kind="stable")
    order = order[degree[order] > 0] if degree.any() else order
    few = order[: max(1, len(order) // 2)]
    return np.sort(named_rng(0).permutation(few)[:WITNESSES])
