"""Any torch-geometric model under TOP: its layers run unchanged, on batches with made-up rows for missing neighbors.

    topped = top(model, graph)            # fits the compensation on the model's present weights
    topped.refresh()                      # fits it again, every few epochs
    batch = topped.batch(nodes)
    logits = topped(x[nodes], batch)      # rows of nodes, as model(x, edge_index)[nodes] would give

Edges send from their source to their target, as in torch-geometric. What they carry is given to the model by the names
that torch-geometric's own models have for it, edge_weight and edge_attr; a model that uses neither is refused. Weights
that a layer makes of degrees are those of the whole graph. `check_mixing` refuses a model of which a batch cannot be
exact even with the rows of all neighbors.

Source: Shi et al., "Accurate and scalable graph neural networks via message invariance" (TOP), algorithm 2 and
appendix B.1.
"""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import partial
from types import FunctionType, MethodType
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from hopstate.compensation.top.batch import GeneralTop
from hopstate.compensation.top.probes import Embed, FullGraphPass, message_layers, perturbed, select_rows, tensors
from hopstate.compensation.top.top import Top, TopConfig
from hopstate.data.graph import Graph
from hopstate.errors import ConfigError, DataError
from hopstate.layers.message import Adjacency
from hopstate.random import named_rng, torch_seeded
from hopstate.sampling.samplers import cutter_of
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
        extend: maps (a (count, ...) layer input, number) to (count + m, ...).
    """
    names = inspect.signature(layer.forward)

    def before(_: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        bound = names.bind(*args, **kwargs)
        for name, value in bound.arguments.items():
            if not name.startswith("edge"):
                bound.arguments[name] = _extend(value, count, lambda rows: extend(rows, number))
        return bound.args, bound.kwargs

    def after(_: nn.Module, __: Any, out: Any) -> Any:
        return out[:count] if isinstance(out, Tensor) else (out[0][:count], *out[1:])

    handles = [
        layer.register_forward_pre_hook(before, with_kwargs=True),
        layer.register_forward_hook(after),
    ]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


def _extend(value: Any, count: int, extend: Callable[[Tensor], Tensor]) -> Any:
    if isinstance(value, (tuple, list)):
        return type(value)(_extend(v, count, extend) for v in value)
    rows = isinstance(value, Tensor) and value.is_floating_point() and value.ndim > 1 and len(value) == count
    return extend(value) if rows else value


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
        adjacency: adjacency of the full graph.
        names: result of `edge_arguments`.
    """

    def __init__(self, adjacency: Adjacency, names: Mapping[str, str]) -> None:
        self.edges, self.num_nodes, self.names = adjacency.edge_index(), adjacency.num_nodes, dict(names)
        self.carried = self.carried_by(adjacency)
        self._made: dict[tuple[Any, ...], Tensor] = {}

    def carried_by(self, adjacency: Adjacency) -> dict[str, Tensor]:
        """Return the edge data of an adjacency by model argument: weights (E,), features (E, D)."""
        carried = {}
        for name, argument in self.names.items():
            tensor = adjacency.weight if name == "edge_weight" else adjacency.edge_attr
            assert tensor is not None
            carried[argument] = tensor.reshape(len(tensor), -1) if argument == "edge_attr" else tensor.reshape(-1)
        return carried

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
    attributes = vars(layer)
    changed = _without_cache(layer) | _rebind_methods(
        layer, lambda normalise: _replacement(normalise, layer, batch, full_graph, edges, carried)
    )
    originals = {name: attributes[name] for name in changed if name in attributes}
    attributes.update(changed)
    try:
        yield
    finally:
        for name in changed.keys() - originals.keys():
            del attributes[name]
        attributes.update(originals)


def _without_cache(layer: nn.Module) -> dict[str, Any]:
    """Return attributes with which a layer neither uses nor keeps weights of the edges that it was called with."""
    own = vars(layer)
    emptied: dict[str, Any] = {name: None for name in own if name.startswith("_cached_")}
    return emptied | ({"cached": False} if "cached" in own else {})


def _rebind_methods(layer: nn.Module, instead: Callable[[Normalise], Normalise]) -> dict[str, MethodType]:
    from torch_geometric.nn.conv.gcn_conv import gcn_norm
    from torch_geometric.utils import get_laplacian

    bound = {}
    for name, method in inspect.getmembers(type(layer), inspect.isfunction):
        known = method.__globals__
        used = [n for n in method.__code__.co_names if known.get(n) is gcn_norm or known.get(n) is get_laplacian]
        if used:
            theirs = known | {n: instead(known[n]) for n in used}
            copy = FunctionType(method.__code__, theirs, name, method.__defaults__, method.__closure__)
            copy.__kwdefaults__ = method.__kwdefaults__
            bound[name] = MethodType(copy, layer)
    return bound


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
        arguments = dict(bound.arguments)
        given, weight, _ = arguments.pop("edge_index"), arguments.pop("edge_weight"), arguments.pop("num_nodes")
        weight_name = None
        if weight is not None:
            weight_name = next(
                (name for name, values in carried.items() if weight is values or _equal(weight, values.reshape(-1))),
                None,
            )
        if not _equal(given, edges) or (weight is not None and weight_name is None):
            raise ConfigError(
                f"{type(layer).__name__} normalises {'altered' if weight is None else 'weighted'} edges; TOP knows the "
                f"degrees of the graph's own edges, with the graph's own weights: pass both to the layer as they are"
            )
        return full_graph.at(batch.nodes, batch.adjacency, normalise, arguments, by=weight_name)

    return call


def _equal(given: Any, edges: Tensor) -> bool:
    if given is edges:
        return True
    plain = isinstance(given, Tensor) and given.layout == torch.strided
    return plain and given.shape == edges.shape and torch.equal(given, edges)


Call = Callable[..., Any]


class ToppedModel(nn.Module):
    """A model of torch-geometric layers that takes compensated batches; made by `top`.

    Args:
        model: called as call(model, x, edge_index), with edge_weight and edge_attr if the edges have them. Each
            message-passing layer may pass messages once per call.
        compensation: prepared for model and its graph.
        call: calls the model.
        embed: computes the layer inputs on the full graph.
        full_graph: edges of the graph.
    """

    def __init__(
        self, model: nn.Module, compensation: Top, call: Call, embed: Embed, full_graph: FullGraphEdges
    ) -> None:
        super().__init__()
        self.model, self.call = model, call
        self.compensation, self.embed, self.full_graph = compensation, embed, full_graph

    def batch(self, nodes: np.ndarray) -> NumberedTop:
        """Return the compensated batch of nodes (distinct rows of the graph)."""
        batch = self.compensation.batch(nodes)
        assert isinstance(batch, GeneralTop)
        adjacency = self.compensation.cutter.induced(nodes, halo=True)
        return NumberedTop(batch, torch.from_numpy(adjacency.nodes))

    def refresh(self) -> None:
        """Fit the compensation to the model's present weights. Call it every few epochs during training.

        Raises:
            ConfigError: see `top`; a model may have changed how it mixes nodes.
        """
        check_mixing(self.model, self.compensation.graph, self.call)
        self.compensation.refresh(self.model, self.embed)

    def forward(self, x: Tensor, batch: NumberedTop) -> Any:
        """Return the model output for the batch nodes.

        Raises:
            ConfigError: a layer normalizes other edges or weights than the graph's.
        """
        if torch.compiler.is_compiling():  # layers are exchanged for the call: run as it is
            return torch.compiler.disable(self.forward)(x, batch)
        extends = [batch.extended] * len(message_layers(self.model))
        return _on_batch(self.model, self.call, x, batch, self.full_graph, extends)


def top(
    model: nn.Module, graph: Graph, config: TopConfig | None = None, *, seed: int = 0, call: Call | None = None
) -> ToppedModel:
    """Return a model of torch-geometric layers that trains and predicts on node batches of graph.

    Args:
        model: any module of torch-geometric layers; it is wrapped, not changed.
        graph: the graph, with features.
        config: settings. The form is always "general".
        seed: random seed. Default: 0.
        call: function of (model, x, edge_index) that calls the model. It also gets the keywords edge_weight and
            edge_attr if the graph has them. Default: model(x, edge_index, ...).

    Raises:
        ConfigError: the model has no message-passing layer, does not use the graph's edge data, or mixes nodes beyond
            one pass of messages per layer.
        DataError: the graph has no features.

    Example:
        >>> from torch_geometric.nn.models import GraphSAGE
        >>> graph = hopstate.load_dataset("sbm", num_nodes=120)
        >>> model = hopstate.top(GraphSAGE(graph.num_features, 8, num_layers=2, out_channels=5), graph)
        >>> nodes = np.arange(0, graph.num_nodes, 2)
        >>> model(torch.from_numpy(graph.x[nodes]), model.batch(nodes)).shape
        torch.Size([60, 5])
    """
    config = replace(config or TopConfig(), form="general")
    if graph.x is None:
        raise DataError(f"{graph.name} has no node features")
    call = call or _call
    names = check_mixing(model, graph, call)
    compensation = Top(graph, config, "edges", seed=seed)
    x, full_graph = torch.tensor(graph.x), FullGraphEdges(full_adjacency(graph), names)
    embed = FullGraphPass(partial(_on_full_graph, call=call, x=x, full_graph=full_graph), every=True)
    compensation.prepare(model, embed)
    return ToppedModel(model, compensation, call, embed, full_graph)


def _call(module: nn.Module, x: Tensor, edges: Tensor, **carried: Tensor) -> Any:
    return module(x, edges, **carried)


def _device(model: nn.Module) -> torch.device:
    return next((p.device for p in model.parameters()), torch.device("cpu"))


def _on_full_graph(model: nn.Module, call: Call, x: Tensor, full_graph: FullGraphEdges) -> Any:
    device = _device(model)
    carried = {name: tensor.to(device) for name, tensor in full_graph.carried.items()}
    return call(model, x.to(device), full_graph.edges.to(device), **carried)


def _on_batch(
    model: nn.Module, call: Call, x: Tensor, batch: NumberedTop, full_graph: FullGraphEdges, extends: Sequence[Extend]
) -> Any:
    edges, carried = batch.adjacency.edge_index(), full_graph.carried_by(batch.adjacency)
    with ExitStack() as stack:
        for number, (layer, extend) in enumerate(zip(message_layers(model), extends)):
            stack.enter_context(extended(layer, number, batch.adjacency.num_receivers, extend))
            stack.enter_context(full_graph_weights(layer, batch, full_graph, edges, carried))
        return call(model, x.to(edges.device), edges, **carried)


# ---- the check of a model on a small graph ---------------------------------------------------------------------------
PROBE_NODES, PROBE_EDGES, PROBE_BATCH = 61, 400, 23
NUDGE = 0.1  # change of the weights, relative to their root mean square, so that no gate is closed
ADVICE = (
    "Leave out what a batch cannot compute (norms, attention or pooling over all nodes, tables of nodes, layers of "
    "several passes, weights of degrees other than by torch-geometric's gcn_norm or get_laplacian), or train on plain "
    "node batches"
)


def check_mixing(model: nn.Module, graph: Graph, call: Call) -> dict[str, str]:
    """Return `edge_arguments`, if a model on a batch with exact rows for all missing neighbors is the full model.

    This is tried with a copy of the model in evaluation mode, on a small random graph.

    Raises:
        ConfigError: it is not, because a module mixes nodes beyond one pass of messages per layer.
    """
    message_layers(model)
    probe, nodes = _probe_graph(graph)
    try:
        model = perturbed(model, NUDGE, seed=0).eval()
    except Exception as error:
        raise ConfigError(f"{type(model).__name__} cannot be copied ({_cause(error)}), which TOP needs") from error
    layers = message_layers(model)
    for layer in layers:
        vars(layer).update(_without_cache(layer))
    with torch.no_grad(), torch_seeded(0, devices=[]):
        names = edge_arguments(model, probe, call)
        x, full_graph = torch.tensor(probe.x), FullGraphEdges(full_adjacency(probe), names)
        local = cutter_of(probe).induced(nodes, halo=True)
        order = torch.from_numpy(local.nodes)
        batch = NumberedTop(GeneralTop(induced_adjacency(probe, local), []), order).to(_device(model))
        received: list[list[Tensor]] = [[] for _ in layers]

        def record(rows: Tensor, number: int) -> Tensor:
            received[number].append(rows[order[len(nodes) :]])
            return rows

        def exact(rows: Tensor, number: int) -> Tensor:
            return torch.cat([rows, received[number].pop(0)])

        with ExitStack() as stack:
            expected = Trace(model, [PROBE_NODES], order[: len(nodes)], stack)
            for number, layer in enumerate(layers):
                stack.enter_context(extended(layer, number, PROBE_NODES, record))
            expected.run(lambda x: _on_full_graph(model, call, x, full_graph), x)
        for layer, inputs in zip(layers, received):
            if not inputs:
                raise ConfigError(
                    f"{type(layer).__name__} of {type(model).__name__} does not receive one row of numbers per node, "
                    f"which TOP needs"
                )
        with ExitStack() as stack:
            trace = Trace(model, [len(nodes), len(order)], torch.arange(len(nodes)), stack)
            trace.run(lambda x: _on_batch(model, call, x, batch, full_graph, [exact] * len(layers)), x[nodes])
    trace.compare(expected)
    return names


def edge_arguments(model: nn.Module, graph: Graph, call: Call) -> dict[str, str]:
    """Return the model argument ("edge_weight" or "edge_attr") for the graph's edge weights and edge features.

    One-column edge features become weights, and weights become features, if the model only uses the other.

    Raises:
        ConfigError: the model does not use them: its output is the same for others, or it fails.
    """
    edge_data = {"edge_weight": graph.edge_weight, "edge_attr": graph.edge_attr}
    has = {name: values for name, values in edge_data.items() if values is not None}
    candidates, unused, cause = [{name: name for name in has}], list(has), ""
    if len(has) == 1 and all(values.size == len(values) for values in has.values()):
        candidates.append({name: "edge_attr" if name == "edge_weight" else "edge_weight" for name in has})
    for names in candidates:
        try:
            unused = _unused(model, graph, call, names)
        except Exception as error:
            cause = f" ({_cause(error)})"
            continue
        if not unused:
            return names
    what = "edge weights" if unused[0] == "edge_weight" else f"edge features ({unused[0]})"
    raise ConfigError(
        f"{graph.name} has {what}, and {type(model).__name__} does not use them{cause}: give `top` a model or a call "
        f"that passes {unused[0]} to the layers, or leave them out (graph.with_({unused[0]}=None))"
    )


def _unused(model: nn.Module, graph: Graph, call: Call, names: Mapping[str, str]) -> list[str]:
    """Return the edge data without influence on the model's output."""

    def outputs(graph: Graph) -> list[Tensor]:
        x, full_graph = torch.tensor(graph.x), FullGraphEdges(full_adjacency(graph), names)
        return list(tensors(_on_full_graph(model, call, x, full_graph)))

    unused = []
    for name in names:
        values = getattr(graph, name)
        smaller = values * named_rng(0).uniform(0.5, 1, values.shape).astype(values.dtype)
        if all(map(_equal, outputs(graph), outputs(graph.with_(**{name: smaller})))):
            unused.append(name)
    return unused


def _probe_graph(graph: Graph) -> tuple[Graph, np.ndarray]:
    """Return a small random graph with rows of the graph's data, and nodes for a batch of it.

    The first node has more neighbors in both directions than any node of the batch.
    """
    draw = named_rng(0)
    ends = draw.integers(0, PROBE_NODES, (PROBE_EDGES, 2))
    ends[:30, 1], ends[30:60, 0] = 0, 0
    ends = ends[ends[:, 0] != ends[:, 1]]
    if graph.num_self_loops:
        ends = np.concatenate([ends, np.arange(0, PROBE_NODES, 3)[:, None].repeat(2, 1)])

    def rows(values: np.ndarray | None, count: int) -> np.ndarray | None:
        if values is None:
            return None
        if not len(values):
            return np.ones((count, *values.shape[1:]), values.dtype)
        return np.array(values[draw.integers(0, len(values), count)])

    weight, attr, x = rows(graph.edge_weight, len(ends)), rows(graph.edge_attr, len(ends)), rows(graph.x, PROBE_NODES)
    probe = Graph.from_edges(
        ends, PROBE_NODES, undirected=False, x=x, name=graph.name, edge_weight=weight, edge_attr=attr
    )
    return probe, draw.permutation(np.arange(PROBE_NODES // 2, PROBE_NODES))[:PROBE_BATCH]


class ModuleCall(NamedTuple):
    """Rows of the batch nodes that a module received and returned."""

    title: str
    received: list[Tensor]
    returned: list[Tensor]


class Trace:
    """Records what the modules of a model receive and return for the nodes of a batch.

    Modules inside a message-passing layer are left out: they see edges.

    Args:
        model: the model.
        sizes: lengths of the tensors that hold one row per node.
        rows: rows of the batch nodes in them.
        stack: removes the hooks when it closes.
    """

    def __init__(self, model: nn.Module, sizes: list[int], rows: Tensor, stack: ExitStack) -> None:
        self.title, self.sizes, self.rows = type(model).__name__, sizes, rows
        self.running: list[tuple[str, list[Tensor]]] = []
        self.calls: list[ModuleCall] = []
        inner = {module for layer in message_layers(model) for module in layer.modules() if module is not layer}
        for name, module in model.named_modules():
            if name and module not in inner:
                enter = partial(self._enter, f"{name} ({type(module).__name__})")
                stack.callback(module.register_forward_pre_hook(enter, with_kwargs=True).remove)
                stack.callback(module.register_forward_hook(self._leave).remove)

    def run(self, forward: Callable[[Tensor], Any], x: Tensor) -> None:
        """Record forward(x).

        Raises:
            ConfigError: the model fails.
        """
        self._enter(self.title, None, x, {})
        try:
            self._leave(None, None, forward(x))
        except Exception as error:
            raise ConfigError(
                f"{self.running[-1][0]} fails on {len(x)} nodes ({_cause(error)}), and TOP runs a model on "
                f"any part of a graph. {ADVICE}"
            ) from error

    def compare(self, expected: Trace) -> None:
        """Raise ConfigError naming the first module that returns other rows than expected for the same ones."""
        if not expected.calls[-1].returned:
            raise ConfigError(f"{self.title} does not return one row per node, which TOP needs")
        same = [(call, other) for call, other in zip(self.calls, expected.calls) if call.title == other.title]
        for call, other in [*same, (self.calls[-1], expected.calls[-1])]:  # the last one is the model
            if _close(call.received, other.received) and not _close(call.returned, other.returned):
                raise ConfigError(
                    f"{call.title} mixes nodes beyond one pass of messages: on a batch it returns something else than "
                    f"on the whole graph, even with exact rows for all neighbors. {ADVICE}"
                )

    def _enter(self, title: str, _: Any, args: Any, kwargs: dict[str, Any]) -> None:
        self.running.append((title, self._of_nodes([args, kwargs])))

    def _leave(self, _: Any, __: Any, out: Any) -> None:
        self.calls.append(ModuleCall(*self.running.pop(), self._of_nodes(out)))

    def _of_nodes(self, values: Any) -> list[Tensor]:
        return [t[self.rows.to(t.device)] for t in tensors(values) if t.ndim and len(t) in self.sizes]


def _close(given: list[Tensor], expected: list[Tensor]) -> bool:
    return len(given) == len(expected) and all(map(_close_rows, given, expected))


def _close_rows(given: Tensor, expected: Tensor) -> bool:
    if given.shape != expected.shape:
        return False
    eps = torch.finfo(given.dtype if given.is_floating_point() else torch.float32).eps
    given, expected = given.double().nan_to_num(), expected.double().nan_to_num()  # NaN is an error elsewhere
    return bool((given - expected).norm() <= expected.norm() * eps**0.5)


def _cause(error: Exception) -> str:
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
