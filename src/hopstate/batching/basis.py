"""Basic embeddings of TOP and a small basis of what they span.

Basic embeddings are what a model's message-passing layers receive, with its present weights or at one or more random
initialisations. Every column is scaled to length one. Where there are more of them than a basis may have, the basis is
found by the randomised range finder with power iterations, its columns weighted by their singular values, so that a
small ridge weakens just the directions that carry almost nothing.

Source: Shi et al., "Accurate and scalable graph neural networks via message invariance" (TOP), section 5.1 and
appendix B.5; Halko, Martinsson & Tropp 2011, algorithms 4.3 and 5.1.
Deviation: columns are normalised, and batch-norm layers use the statistics of the embeddings themselves while these
are made (their running averages have not been trained).
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from hopstate.errors import ConfigError, DataError

Forward = Callable[[nn.Module], object]

POWER = 2  # power iterations of the range finder
CUTOFF = 1e-6  # directions with a smaller singular value than this, relative to the largest, are noise


def basic_embeddings(model: nn.Module, forward: Forward, *, initialisations: int, seed: int) -> list[list[Tensor]]:
    """Return what each message-passing layer of freshly initialised copies of model receives, (N, d) for each copy.

    Args:
        model: any module with torch-geometric layers; it is not changed.
        forward: runs a copy on the whole graph.
        initialisations: number of copies.
        seed: fixes their weights.

    Raises:
        ConfigError: the model has no message-passing layer.
    """
    found: list[list[Tensor]] = [[] for _ in message_layers(model)]
    for number in range(initialisations):
        other = _statistics_of_the_batch(_reinitialised(model, seed + number))
        for layer, embeddings in zip(found, current_embeddings(other, forward)):
            layer += embeddings
    return found


def current_embeddings(model: nn.Module, forward: Forward) -> list[list[Tensor]]:
    """Return what each message-passing layer of model receives with its present weights, (N, d) for each call."""
    layers = message_layers(model)
    found: list[list[Tensor]] = [[] for _ in layers]

    def keeper(kept: list[Tensor]) -> Callable[..., None]:
        def keep(_: nn.Module, args: tuple[object, ...], kwargs: dict[str, object]) -> None:
            first = next(iter([*args, *kwargs.values()]))
            tensor = first[0] if isinstance(first, (tuple, list)) else first
            assert isinstance(tensor, Tensor)
            kept.append(tensor.detach())

        return keep

    handles = [layer.register_forward_pre_hook(keeper(kept), with_kwargs=True) for layer, kept in zip(layers, found)]
    try:
        with torch.no_grad():
            forward(model)
    finally:
        for handle in handles:
            handle.remove()
    return found


def message_layers(model: nn.Module) -> list[nn.Module]:
    """Return a model's torch-geometric message-passing layers.

    Raises:
        ConfigError: there is none.
    """
    from torch_geometric.nn import MessagePassing

    layers = [module for module in model.modules() if isinstance(module, MessagePassing)]
    if not layers:
        raise ConfigError(
            f"{type(model).__name__} has no torch-geometric message-passing layer, so there is nothing to compensate; "
            f"train it on node batches instead"
        )
    return layers


def range_basis(columns: list[Tensor], rank: int, *, seed: int) -> Tensor:
    """Return Q (N, r), r <= rank: the leading left singular vectors of the joined columns times singular values.

    Up to rank columns are turned into them by their Gram matrix; of more, the range finder takes the leading part.

    Args:
        columns: (N, d) tensors, joined side by side without being copied together.
        rank: most columns of the basis.
        seed: fixes the random test matrix.

    Raises:
        DataError: embeddings that are not finite.
    """
    device, scales = columns[0].device, _inverse_lengths(columns)
    if not all(bool(torch.isfinite(scale).all()) for scale in scales):
        raise DataError("basic embeddings hold NaN or infinities; check the features, or use a normalised model")
    width = sum(c.shape[1] for c in columns)
    if width <= rank:
        return _turned(torch.cat([c * scale for c, scale in zip(columns, scales)], 1))
    size = min(rank + 8, width, len(columns[0]))
    draw = torch.Generator().manual_seed(seed)
    test = torch.randn(width, size, generator=draw).to(device)
    basis = torch.linalg.qr(_times(columns, scales, test))[0]
    for _ in range(POWER):
        other = torch.linalg.qr(_transposed_times(columns, scales, basis))[0]
        basis = torch.linalg.qr(_times(columns, scales, other))[0]
    left, values, _ = torch.linalg.svd(_transposed_times(columns, scales, basis).T, full_matrices=False)
    count = min(rank, int((values > CUTOFF * values[:1]).sum()))
    return basis @ (left[:, :count] * (values[:count] / values[:1].clamp_min(torch.finfo(values.dtype).tiny)))


def _turned(columns: Tensor) -> Tensor:
    """Return left singular vectors times singular values of all columns, without those that are noise."""
    gram = sum(part.double().T @ part.double() for part in columns.split(8192))
    assert isinstance(gram, Tensor)
    squares, vectors = torch.linalg.eigh(gram)
    keep = squares > CUTOFF**2 * squares[-1:]
    return columns @ (vectors[:, keep] / squares[-1:].clamp_min(CUTOFF).sqrt()).to(columns.dtype)


def combinations(columns: list[Tensor], count: int, *, seed: int) -> Tensor:
    """Return (N, count) random combinations of the joined columns, each column scaled to length one first."""
    draw = torch.Generator().manual_seed(seed + 1)
    test = torch.randn(sum(c.shape[1] for c in columns), count, generator=draw).to(columns[0])
    return _times(columns, _inverse_lengths(columns), test)


def _inverse_lengths(columns: list[Tensor]) -> list[Tensor]:
    """Return what scales each column to length one; 0 for columns of zeros, NaN for columns that are not finite."""
    lengths = [c.norm(dim=0) for c in columns]
    return [
        torch.where(n > 0, 1 / n, torch.where(n == 0, 0.0, torch.nan)).where(n < torch.inf, torch.nan) for n in lengths
    ]


def _times(columns: list[Tensor], scales: list[Tensor], right: Tensor) -> Tensor:
    """Return the joined scaled columns times right, without a copy of the columns."""
    total = columns[0].new_zeros(len(columns[0]), right.shape[1])
    for part, scale, rows in zip(columns, scales, right.split([c.shape[1] for c in columns])):
        total.addmm_(part, scale[:, None] * rows)
    return total


def _transposed_times(columns: list[Tensor], scales: list[Tensor], left: Tensor) -> Tensor:
    """Return the transpose of the joined scaled columns times left."""
    return torch.cat([scale[:, None] * (c.T @ left) for c, scale in zip(columns, scales)])


def _reinitialised(model: nn.Module, seed: int) -> nn.Module:
    """Return a copy with freshly drawn weights; the caller's random state is left as it was."""
    other = copy.deepcopy(model)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(7_919 + 1_000_003 * seed)  # a user who seeds with the same number gets other weights
        for module in other.modules():
            reset = getattr(module, "reset_parameters", None)
            if callable(reset):
                reset()
    return other


def _statistics_of_the_batch(model: nn.Module) -> nn.Module:
    """Put a model in eval mode, but let batch norms use the statistics of what they see."""
    model.eval()
    for module in model.modules():
        if isinstance(module, nn.modules.batchnorm._BatchNorm):
            module.train()
    return model


@contextmanager
def evaluating(model: nn.Module) -> Iterator[nn.Module]:
    """Put a model in eval mode, and back into its own at the end."""
    was = model.training
    try:
        yield model.eval()
    finally:
        model.train(was)
