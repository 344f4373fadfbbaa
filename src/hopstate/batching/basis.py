"""Basic embeddings of TOP and a small basis of what they span.

Basic embeddings are what a model's message-passing layers receive, at one or more random initialisations. Every
column is scaled to length one. The basis is found by the randomised range finder with power iterations, its columns
weighted by their singular values, so that a small ridge weakens just the directions that carry almost nothing.

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

POWER = 2  # power iterations of the range finder
CUTOFF = 1e-6  # directions with a smaller singular value than this, relative to the largest, are noise


def basic_embeddings(
    model: nn.Module, forward: Callable[[nn.Module], object], *, initialisations: int, seed: int
) -> list[Tensor]:
    """Return what the message-passing layers of freshly initialised copies of model receive, (N, d) each.

    Args:
        model: any module with torch-geometric layers; it is not changed.
        forward: runs a copy on the whole graph.
        initialisations: number of copies.
        seed: fixes their weights.

    Raises:
        ConfigError: the model has no message-passing layer.
    """
    found: list[Tensor] = []
    for number in range(initialisations):
        other = _statistics_of_the_batch(_reinitialised(model, seed + number))
        found += current_embeddings(other, forward)
    return found


def current_embeddings(model: nn.Module, forward: Callable[[nn.Module], object]) -> list[Tensor]:
    """Return what the message-passing layers of model receive with its present weights, (N, d) each."""
    found: list[Tensor] = []
    layers = message_layers(model)

    def keep(_: nn.Module, args: tuple[object, ...], kwargs: dict[str, object]) -> None:
        first = next(iter([*args, *kwargs.values()]))
        tensor = first[0] if isinstance(first, (tuple, list)) else first
        assert isinstance(tensor, Tensor)
        found.append(tensor.detach())

    handles = [layer.register_forward_pre_hook(keep, with_kwargs=True) for layer in layers]
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

    Args:
        columns: (N, d) tensors, joined side by side without being copied together.
        rank: most columns of the basis.
        seed: fixes the random test matrix.

    Raises:
        DataError: embeddings that are not finite, or all zero.
    """
    device, scales = columns[0].device, _inverse_lengths(columns)
    if not all(bool(torch.isfinite(scale).all()) for scale in scales):
        raise DataError("basic embeddings hold NaN or infinities; check the features, or use a normalised model")
    width = sum(c.shape[1] for c in columns)
    size = min(rank + 8, width, len(columns[0]))
    draw = torch.Generator().manual_seed(seed)
    test = torch.randn(width, size, generator=draw).to(device)
    basis = torch.linalg.qr(_times(columns, scales, test))[0]
    for _ in range(POWER):
        other = torch.linalg.qr(_transposed_times(columns, scales, basis))[0]
        basis = torch.linalg.qr(_times(columns, scales, other))[0]
    left, values, _ = torch.linalg.svd(_transposed_times(columns, scales, basis).T, full_matrices=False)
    keep = values > CUTOFF * values[:1]
    if not bool((values > 0).any()):
        raise DataError("basic embeddings are all zero; the model or the features carry nothing")
    count = min(rank, int(keep.sum()))
    return basis @ (left[:, :count] * (values[:count] / values[0]))


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
