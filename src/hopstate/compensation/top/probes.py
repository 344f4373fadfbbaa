"""Basic embeddings of TOP: the inputs of a model's message-passing layers, and their sums over all neighbors.

They are computed with the present weights or random ones: in one pass over the full graph (any model), or layer by
layer in blocks of nodes (backbones). Only the rows that batches need are kept.

Source: Shi et al., "Accurate and scalable graph neural networks via message invariance" (TOP), section 5.1 and
appendix B.5.
Deviation: with random weights, batch norms use the statistics of the embeddings over all nodes, because their running
averages are untrained.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from hopstate.errors import ConfigError
from hopstate.random import torch_rng, torch_seeded

Forward = Callable[[nn.Module], object]
STEP = 0.01  # spread of a small change of weights, as a share of the weights' root mean square
CHANGES = 0.1  # how much less than messages their changes count where a basis cannot express both


@dataclass(frozen=True, eq=False)
class LayerInputs:
    """Inputs (n, d) of a layer at the kept rows, and their sums over all neighbors, (n, d) or (n, 0).

    weight is 1 for inputs, and smaller for changes of inputs, which only gradients depend on.
    """

    values: Tensor
    sums: Tensor
    weight: float = 1.0


Embed = Callable[[nn.Module], Iterable[list[LayerInputs]]]  # for each layer, one for each of its calls


class FullGraphPass:
    """Runs a model on the full graph and records the inputs of its message-passing layers.

    Args:
        forward: runs a model on the full graph.
        form: returns the (N, N) sparse matrix of the neighbor sums. Default: no sums.
        rows: (n,) rows to keep. Default: all.
        every: record each layer input with one row per node, such as positions; otherwise only the first.
    """

    def __init__(
        self,
        forward: Forward,
        form: Callable[[], Tensor] | None = None,
        rows: np.ndarray | None = None,
        *,
        every: bool = False,
    ) -> None:
        self.forward, self.form, self.every = forward, form, every
        self.rows = None if rows is None else torch.from_numpy(rows)

    def __call__(self, model: nn.Module) -> list[list[LayerInputs]]:
        matrix = None if self.form is None else self.form()
        if matrix is not None and self.rows is not None:
            matrix = select_rows(matrix, self.rows)
        return current_embeddings(model, self.forward, lambda values: self._select(values, matrix), every=self.every)

    def _select(self, values: Tensor, matrix: Tensor | None) -> LayerInputs:
        values = values.cpu()
        kept = values if self.rows is None else values[self.rows]
        return LayerInputs(kept, kept[:, :0] if matrix is None else matrix.to(values.dtype) @ values)


class BlockPass:
    """Runs a model layer by layer in blocks of nodes and records the layer inputs.

    Args:
        run: yields for each layer the (N, d) messages of all nodes.
        sums: maps (messages, rows) to the sums over all neighbors of the rows; None for no sums.
        rows: (n,) rows to keep; None keeps all.
    """

    def __init__(
        self,
        run: Callable[[nn.Module], Iterator[Tensor]],
        sums: Callable[[Tensor, np.ndarray | None], Tensor] | None,
        rows: np.ndarray | None,
    ) -> None:
        self.run, self.sums, self.rows = run, sums, rows

    def __call__(self, model: nn.Module) -> Iterator[list[LayerInputs]]:
        with torch.no_grad():
            for sent in self.run(model):
                kept = sent if self.rows is None else sent[torch.from_numpy(self.rows)]
                yield [LayerInputs(kept, kept[:, :0] if self.sums is None else self.sums(sent, self.rows))]


def select_rows(matrix: Tensor, rows: Tensor) -> Tensor:
    """Return the given rows (n,) of a sparse CSR matrix (m, N) as one (n, N)."""
    starts = matrix.crow_indices()[rows]
    counts = matrix.crow_indices()[rows + 1] - starts
    indptr = torch.cat([counts.new_zeros(1), counts.cumsum(0)])
    place = torch.arange(int(indptr[-1]), device=rows.device) + (starts - indptr[:-1]).repeat_interleave(counts)
    parts = indptr, matrix.col_indices()[place], matrix.values()[place]
    return torch.sparse_csr_tensor(*parts, (len(rows), matrix.shape[1]), check_invariants=False)


def basic_embeddings(model: nn.Module, embed: Embed, *, num_initializations: int, seed: int) -> list[list[LayerInputs]]:
    """Return the inputs of each message-passing layer in randomly initialized copies of a model, one per copy."""
    inputs_of_layers: list[list[LayerInputs]] = [[] for _ in message_layers(model)]
    for number in range(num_initializations):
        other = _recompute_batch_norm(_reinitialised(model, seed + number), embed)
        for layer, embeddings in zip(inputs_of_layers, embed(other)):
            layer += embeddings
    return inputs_of_layers


def with_changes(model: nn.Module, embed: Embed, count: int, *, seed: int) -> Iterator[list[LayerInputs]]:
    """Yield the inputs of each layer, and their changes under small random weight changes in count directions."""
    passes = [embed(perturbed(model, STEP, seed=seed + number)) for number in range(count)]
    for layer, *moved in zip(embed(model), *passes):
        yield layer + [
            LayerInputs(after.values - before.values, after.sums - before.sums, CHANGES)
            for other in moved
            for before, after in zip(layer, other)
        ]


def current_embeddings(
    model: nn.Module, forward: Forward, keep: Callable[[Tensor], LayerInputs], *, every: bool = False
) -> list[list[LayerInputs]]:
    """Return the recorded inputs of each message-passing layer of a model, of all calls of the layer.

    Args:
        model: the model.
        forward: runs a model on the full graph.
        keep: what to record of an input (N, d).
        every: record each input with one row per node, such as positions; otherwise only the first.
    """
    layers = message_layers(model)
    inputs_of_layers: list[list[LayerInputs]] = [[] for _ in layers]

    def keeper(received: list[LayerInputs]) -> Callable[..., None]:
        def hook(_: nn.Module, args: tuple[object, ...], kwargs: dict[str, object]) -> None:
            first, *other_tensors = tensors([args, kwargs])
            same = {
                id(t): t
                for t in other_tensors
                if every and t.is_floating_point() and t.ndim > 1 and len(t) == len(first)
            }
            received.extend(keep(rows.detach().flatten(1)) for rows in ({id(first): first} | same).values())

        return hook

    handles = [
        layer.register_forward_pre_hook(keeper(kept), with_kwargs=True) for layer, kept in zip(layers, inputs_of_layers)
    ]
    try:
        with torch.no_grad():
            forward(model)
    finally:
        for handle in handles:
            handle.remove()
    return inputs_of_layers


def tensors(values: object) -> Iterator[Tensor]:
    """Yield the dense tensors in nested tuples, lists and dicts."""
    if isinstance(values, Tensor):
        yield from [values] if values.layout == torch.strided else []
    elif isinstance(values, (tuple, list, dict)):
        for value in values.values() if isinstance(values, dict) else values:
            yield from tensors(value)


def message_layers(model: nn.Module) -> list[nn.Module]:
    """Return a model's torch-geometric message-passing layers."""
    from torch_geometric.nn import MessagePassing

    layers = [module for module in model.modules() if isinstance(module, MessagePassing)]
    if not layers:
        raise ConfigError(
            f"{type(model).__name__} has no torch-geometric message-passing layer, so there is nothing to compensate; "
            f"train it on node batches instead"
        )
    return layers


def _copied(model: nn.Module) -> nn.Module:
    """Return a copy, also of a model that stores intermediate results with gradients, which torch does not copy."""
    stored = [value for module in model.modules() for value in vars(module).values() if isinstance(value, Tensor)]
    return copy.deepcopy(model, {id(value): value.detach() for value in stored})


def _reinitialised(model: nn.Module, seed: int) -> nn.Module:
    """Return a copy with random weights, without a change to the caller's random state."""
    other = _copied(model)
    trained = {name: p for name, p in other.named_parameters() if p.requires_grad and not is_lazy(p)}
    for p in trained.values():
        p.data.fill_(torch.nan)  # what is still so afterwards nothing has drawn
    with torch_seeded(7_919 + 1_000_003 * seed, devices=[]):  # a user who seeds with the same number gets other weights
        for module in other.modules():
            reset = getattr(module, "reset_parameters", getattr(module, "_reset_parameters", None))
            if callable(reset):
                reset()
    kept = [name for name, p in trained.items() if bool(p.isnan().any())]
    if kept:
        raise ConfigError(
            f"random initializations cannot draw {', '.join(kept)}: give its module a reset_parameters(), "
            "or fit the basis to trained weights (top.refresh above 0)"
        )
    return other


@torch.no_grad()
def perturbed(model: nn.Module, step: float, *, seed: int) -> nn.Module:
    """Return a copy with random changes to the weights, of step times their root mean square."""
    other = _copied(model)
    weights = [p for p in other.parameters() if p.is_floating_point() and not is_lazy(p)]
    if not weights:
        return other
    scale = step * torch.cat([p.flatten() for p in weights]).square().mean().sqrt()
    draw = torch_rng(15_485_863 + 1_000_003 * seed)
    for p in weights:
        p.add_(scale * torch.randn(p.shape, generator=draw).to(p))
    return other


@torch.no_grad()
def _recompute_batch_norm(model: nn.Module, embed: Embed) -> nn.Module:
    """Put a model in eval mode with batch-norm statistics computed over all nodes.

    For block-wise passes, each batch norm needs its own pass, after those before it.
    """
    model.eval()
    norms = [module for module in model.modules() if isinstance(module, nn.modules.batchnorm._BatchNorm)]
    for norm in norms:
        if not isinstance(embed, BlockPass):
            norm.train()
            continue
        moments = _Moments()
        handle = norm.register_forward_pre_hook(moments)
        for _ in embed.run(model):
            pass
        handle.remove()
        if moments.count:
            norm.running_mean, norm.running_var = moments.mean_and_variance()
    return model


class _Moments:
    """Accumulates mean and variance of a batch norm's inputs over blocks."""

    def __init__(self) -> None:
        self.count, self.sums, self.squares, self.like = 0, torch.zeros(()), torch.zeros(()), torch.zeros(())

    def __call__(self, _: nn.Module, args: tuple[Tensor, ...]) -> None:
        self.like, values = args[0], args[0].transpose(0, 1).flatten(1).double()
        self.count += values.shape[1]
        self.sums, self.squares = self.sums.to(values) + values.sum(1), self.squares.to(values) + values.square().sum(1)

    def mean_and_variance(self) -> tuple[Tensor, Tensor]:
        """Return mean and variance (d,) with the dtype of the inputs."""
        mean = self.sums / self.count
        return mean.to(self.like), (self.squares / self.count - mean.square()).clamp_min(0).to(self.like)
