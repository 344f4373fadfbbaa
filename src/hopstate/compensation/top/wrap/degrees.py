"""Weights that torch-geometric layers make of a whole graph's degrees, given to layers that run on a batch of it.

A layer that calls torch-geometric's gcn_norm or get_laplacian calls, within `whole_weights`, one that normalises the
whole graph, weighted where the layer weighs edges by the graph's own weights (once for each way in which it is called),
and returns the rows of a batch. Only that layer's own methods are
bound anew, so nothing changes for other models or other threads.
"""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from types import FunctionType, MethodType
from typing import Any

import torch
from torch import Tensor, nn

from hopstate.compensation.top.batch import GeneralTop
from hopstate.compensation.top.probes import select_rows
from hopstate.errors import ConfigError
from hopstate.layers.message import Adjacency

Normalise = Callable[..., Any]


class NumberedTop(GeneralTop):
    """A compensated batch that knows its nodes' rows in the graph.

    Args:
        batch: the compensated batch.
        nodes: (m,) rows of the whole graph that its nodes are, those of the batch first.
    """

    def __init__(self, batch: GeneralTop, nodes: Tensor) -> None:
        super().__init__(batch.around, batch.missing)
        self.nodes = nodes

    def to(self, device: torch.device | str) -> NumberedTop:
        return NumberedTop(super().to(device), self.nodes.to(device))


class WholeGraph:
    """A graph's edges, and what normalisations make of them, as rows of (N, N) sparse matrices.

    Args:
        edges: (2, E) senders above receivers.
        num_nodes: N.
        carried: what edges carry by the name that a model takes it under ("edge_weight", "edge_attr"), rows in the
            order of edges.
    """

    def __init__(self, edges: Tensor, num_nodes: int, carried: Mapping[str, Tensor] | None = None) -> None:
        self.edges, self.num_nodes, self.carried = edges, num_nodes, dict(carried or {})
        self._made: dict[tuple[Any, ...], Tensor] = {}

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_made": {}}  # torch copies no sparse CSR tensors

    def at(
        self, nodes: Tensor, around: Adjacency, normalise: Normalise, how: dict[str, Any], *, by: str | None = None
    ) -> tuple[Tensor, Tensor]:
        """Return edges (2, e), counted within nodes, and weights (e,) that the whole graph's normalisation has there.

        Args:
            nodes: (m,) rows of the graph, the batch's first.
            around: the batch's adjacency.
            normalise: torch-geometric's function.
            how: its arguments besides edges, their weights and their number of nodes.
            by: name of what weighs the edges; None where nothing does.
        """
        key = (normalise, by, *how.items())
        if key not in self._made:
            weight = None if by is None else self.carried[by].reshape(-1)
            whole = {"edge_index": self.edges, "edge_weight": weight, "num_nodes": self.num_nodes}
            with torch.inference_mode(False), torch.no_grad():
                self._made[key] = self._rows(*normalise(**whole, **how))
        nodes = nodes.cpu()
        matrix = select_rows(self._made[key], nodes[: around.num_receivers])
        ordered, place = nodes.sort()
        senders = place[torch.searchsorted(ordered, matrix.col_indices())]
        edges = torch.stack([senders, torch.repeat_interleave(matrix.crow_indices().diff())])
        device = around.indptr.device
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
def whole_weights(
    layer: nn.Module, batch: NumberedTop, whole: WholeGraph, edges: Tensor, carried: Mapping[str, Tensor]
) -> Iterator[None]:
    """Within it, layer's normalisations of edges, those of the batch, return what they have in the whole graph.

    Args:
        layer: the layer.
        batch: the batch.
        whole: the whole graph.
        edges: (2, e) the batch's edges.
        carried: what they carry, as `WholeGraph` has it of all edges.

    Raises:
        ConfigError: when the layer normalises others than the batch's edges, or weighs them by something else than
            what they carry in the graph.
    """
    own = vars(layer)
    changed: dict[str, Any] = {name: None for name in own if name.startswith("_cached_")}  # made for the whole graph
    if "cached" in own:
        changed["cached"] = False
    changed |= _bound_anew(layer, lambda normalise: _instead(normalise, layer, batch, whole, edges, carried))
    before = {name: own[name] for name in changed if name in own}
    own.update(changed)
    try:
        yield
    finally:
        for name in changed.keys() - before.keys():
            del own[name]
        own.update(before)


def _bound_anew(layer: nn.Module, instead: Callable[[Normalise], Normalise]) -> dict[str, MethodType]:
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


def _instead(
    normalise: Normalise,
    layer: nn.Module,
    batch: NumberedTop,
    whole: WholeGraph,
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
        return whole.at(batch.nodes, batch.around, normalise, how, by=by)

    return call


def _equal(given: Any, edges: Tensor) -> bool:
    if given is edges:
        return True
    plain = isinstance(given, Tensor) and given.layout == torch.strided
    return plain and given.shape == edges.shape and torch.equal(given, edges)


__all__ = ["NumberedTop", "WholeGraph", "whole_weights"]
