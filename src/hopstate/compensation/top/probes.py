"""Basic embeddings of TOP: what a model's message-passing layers receive, and its sums over all neighbors.

They are made with the model's present weights or with random ones, in one pass over the whole graph at once (any model)
or layer by layer in blocks of nodes (backbones), and only the rows that batches will hold are kept.

Source: Shi et al., "Accurate and scalable graph neural networks via message invariance" (TOP), section 5.1 and
appendix B.5.
Deviation: with random weights, batch-norm layers use the statistics of the embeddings themselves, over all nodes (their
running averages have not been trained).
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
    """What a layer received, (n, d), and its sums over all neighbors, (n, d) or (n, 0), at the rows that are kept.

    weight is 1 for what it did receive, less for what only a gradient passes through.
    """

    values: Tensor
    sums: Tensor
    weight: float = 1.0


Embed = Callable[[nn.Module], Iterable[list[LayerInputs]]]  # for each layer, one for each of its calls


class FullGraphPass:
    """Runs any model on the whole graph at once and keeps what its message-passing layers receive.

    Args:
        forward: runs a model on the whole graph.
        form: (N, N) sparse matrix of the sums, or None where none are kept.
        rows: (n,) rows that are kept; None keeps all.
    """

    def __init__(self, forward: Forward, form: Callable[[], Tensor] | None = None, rows: np.ndarray | None = None):
        self.forward, self.form = forward, form
        self.rows = None if rows is None else torch.from_numpy(rows)

    def __call__(self, model: nn.Module) -> list[list[LayerInputs]]:
        matrix = None if self.form is None else self.form()
        if matrix is not None and self.rows is not None:
            matrix = select_rows(matrix, self.rows)
        return current_embeddings(model, self.forward, lambda values: self._select(values, matrix))

    def _select(self, values: Tensor, matrix: Tensor | None) -> LayerInputs:
        values = values.cpu()
        kept = values if self.rows is None else values[self.rows]
        return LayerInputs(kept, kept[:, :0] if matrix is None else matrix.to(values.dtype) @ values)


class BlockPass:
    """Runs a model layer by layer in blocks of nodes and keeps what its layers receive.

    Args:
        run: gives, layer after layer, what all nodes send in a model, (N, d).
        sums: (what nodes send, rows) → its sums over all neighbors of the rows; None where none are kept.
        rows: (n,) rows that are kept; None keeps all.
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


def basic_embeddings(model: nn.Module, embed: Embed, *, initialisations: int, seed: int) -> list[list[LayerInputs]]:
    """Return what each message-passing layer of freshly initialised copies of model receives, one for each copy."""
    found: list[list[LayerInputs]] = [[] for _ in message_layers(model)]
    for number in range(initialisations):
        other = _recompute_batch_norm(_reinitialised(model, seed + number), embed)
        for layer, embeddings in zip(found, embed(other)):
            layer += embeddings
    return found


def with_changes(model: nn.Module, embed: Embed, count: int, *, seed: int) -> Iterator[list[LayerInputs]]:
    """Yield what each layer of model receives, and how that changes with its weights in count random directions.

    All weights change by draws of the same small spread, as in a step of an optimiser that scales its gradients.
    """
    passes = [embed(_perturbed(model, seed + number)) for number in range(count)]
    for layer, *moved in zip(embed(model), *passes):
        yield layer + [
            LayerInputs(after.values - before.values, after.sums - before.sums, CHANGES)
            for other in moved
            for before, after in zip(layer, other)
        ]


def current_embeddings(
    model: nn.Module, forward: Forward, keep: Callable[[Tensor], LayerInputs]
) -> list[list[LayerInputs]]:
    """Return what is kept of what each message-passing layer of model receives, one for each of its calls."""
    layers = message_layers(model)
    found: list[list[LayerInputs]] = [[] for _ in layers]

    def keeper(received: list[LayerInputs]) -> Callable[..., None]:
        def hook(_: nn.Module, args: tuple[object, ...], kwargs: dict[str, object]) -> None:
            first = next(iter([*args, *kwargs.values()]))
            tensor = first[0] if isinstance(first, (tuple, list)) else first
            assert isinstance(tensor, Tensor)
            received.append(keep(tensor.detach()))

        return hook

    handles = [layer.register_forward_pre_hook(keeper(kept), with_kwargs=True) for layer, kept in zip(layers, found)]
    try:
        with torch.no_grad():
            forward(model)
    finally:
        for handle in handles:
            handle.remove()
    return found


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


def _reinitialised(model: nn.Module, seed: int) -> nn.Module:
    """Return a copy with freshly drawn weights; the caller's random state is left as it was."""
    other = copy.deepcopy(model)
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
            f"random initialisations cannot draw {', '.join(kept)} anew: give the module that owns it a "
            f"reset_parameters(), or fit the basis on present weights (top.refresh above 0)"
        )
    return other


@torch.no_grad()
def _perturbed(model: nn.Module, seed: int) -> nn.Module:
    """Return a copy whose weights are a small random step away."""
    other = copy.deepcopy(model)
    weights = [p for p in other.parameters() if p.is_floating_point()]
    spread = STEP * torch.cat([p.flatten() for p in weights]).square().mean().sqrt()
    draw = torch_rng(15_485_863 + 1_000_003 * seed)
    for p in weights:
        p.add_(spread * torch.randn(p.shape, generator=draw).to(p))
    return other


@torch.no_grad()
def _recompute_batch_norm(model: nn.Module, embed: Embed) -> nn.Module:
    """Put a model in eval mode, but let batch norms use the mean and variance of what they see in all nodes.

    Where that comes in blocks, each batch norm is fixed by a pass of its own, those before it fixed already.
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
    """Sums up what a batch norm sees, block by block."""

    def __init__(self) -> None:
        self.count, self.sums, self.squares, self.like = 0, torch.zeros(()), torch.zeros(()), torch.zeros(())

    def __call__(self, _: nn.Module, args: tuple[Tensor, ...]) -> None:
        self.like, values = args[0], args[0].transpose(0, 1).flatten(1).double()
        self.count += values.shape[1]
        self.sums, self.squares = self.sums.to(values) + values.sum(1), self.squares.to(values) + values.square().sum(1)

    def mean_and_variance(self) -> tuple[Tensor, Tensor]:
        """Return both, (d,), in the type of what was seen."""
        mean = self.sums / self.count
        return mean.to(self.like), (self.squares / self.count - mean.square()).clamp_min(0).to(self.like)
