"""Basic embeddings of TOP: what a model's message-passing layers receive, and its sums over all neighbours.

They are made with the model's present weights or with random ones, in one pass over the whole graph at once (any model)
or layer by layer in blocks of nodes (backbones), and only the rows that batches will hold are kept.

Source: Shi et al., "Accurate and scalable graph neural networks via message invariance" (TOP), section 5.1 and
appendix B.5.
Deviation: with random weights, batch-norm layers use the statistics of the embeddings themselves (their running
averages have not been trained).
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from hopstate.errors import ConfigError
from hopstate.layers.message import Adjacency, Weighting

Forward = Callable[[nn.Module], object]


@dataclass(frozen=True, eq=False)
class Received:
    """What a layer received, (n, d), and its sums over all neighbours, (n, d) or (n, 0), at the rows that are kept."""

    values: Tensor
    sums: Tensor


Embed = Callable[[nn.Module], list[list[Received]]]  # for each layer, one for each of its calls


class WholePass:
    """Runs any model on the whole graph at once and keeps what its message-passing layers receive.

    Args:
        forward: runs a model on the whole graph.
        form: (N, N) sparse matrix of the sums, or None where none are kept.
        rows: (n,) rows that are kept; None keeps all.
    """

    def __init__(self, forward: Forward, form: Callable[[], Tensor] | None = None, rows: np.ndarray | None = None):
        self.forward, self.form = forward, form
        self.rows = None if rows is None else torch.from_numpy(rows)

    def __call__(self, model: nn.Module) -> list[list[Received]]:
        """Return what each layer of model receives with its present weights."""
        form = None if self.form is None else self.form()
        if form is not None and self.rows is not None:
            form = select_rows(form, self.rows)
        return current_embeddings(model, self.forward, lambda values: self._kept(values, form))

    def _kept(self, values: Tensor, form: Tensor | None) -> Received:
        values = values.cpu()
        kept = values if self.rows is None else values[self.rows]
        return Received(kept, kept[:, :0] if form is None else form.to(values.dtype) @ values)


class BlockPass:
    """Runs a backbone layer by layer in blocks of nodes and keeps what its layers receive.

    Args:
        run: runs a model layer by layer over blocks, each handed through the given function before it is used.
        num_nodes: N.
        weighting: of the sums, or None where none are kept.
        rows: (n,) rows that are kept, ascending; None keeps all.
    """

    def __init__(
        self,
        run: Callable[[nn.Module, Callable[[np.ndarray, Adjacency], Any]], object],
        num_nodes: int,
        weighting: Weighting | None,
        rows: np.ndarray | None,
    ) -> None:
        self.run, self.weighting = run, weighting
        self.rows = np.arange(num_nodes) if rows is None else rows

    def __call__(self, model: nn.Module) -> list[list[Received]]:
        """Return what each layer of model receives with its present weights."""
        kept: dict[int, Received] = {}
        with torch.no_grad():
            self.run(model, lambda nodes, adjacency: _Observed(nodes, adjacency, self, kept))
        return [[kept[layer]] for layer in sorted(kept)]

    def keep(
        self, kept: dict[int, Received], layer: int, nodes: np.ndarray, adjacency: Adjacency, sent: Tensor
    ) -> None:
        """Keep what the receivers of a block sent at a layer, and their sums."""
        count, width = adjacency.num_receivers, sent.shape[1]
        if layer not in kept:
            sums = 0 if self.weighting is None else width
            kept[layer] = Received(torch.zeros(len(self.rows), width), torch.zeros(len(self.rows), sums))
        place = np.searchsorted(self.rows, nodes[:count])
        found = place < len(self.rows)
        found[found] = self.rows[place[found]] == nodes[:count][found]
        to, own = torch.from_numpy(place[found]), torch.from_numpy(np.flatnonzero(found))
        kept[layer].values[to] = sent[own.to(sent.device)].cpu().float()
        if self.weighting is not None:
            form = select_rows(adjacency.form(self.weighting), own.to(sent.device))
            kept[layer].sums[to] = (form @ sent).cpu().float()


def select_rows(form: Tensor, rows: Tensor) -> Tensor:
    """Return the given rows (n,) of a sparse CSR matrix (m, N) as one (n, N)."""
    starts = form.crow_indices()[rows]
    counts = form.crow_indices()[rows + 1] - starts
    indptr = torch.cat([counts.new_zeros(1), counts.cumsum(0)])
    place = torch.arange(int(indptr[-1]), device=rows.device) + (starts - indptr[:-1]).repeat_interleave(counts)
    parts = indptr, form.col_indices()[place], form.values()[place]
    return torch.sparse_csr_tensor(*parts, (len(rows), form.shape[1]), check_invariants=False)


class _Observed:
    """A block's adjacency that shows what its nodes send."""

    def __init__(self, nodes: np.ndarray, adjacency: Adjacency, seen: BlockPass, kept: dict[int, Received]) -> None:
        self.nodes, self.adjacency, self.seen, self.kept = nodes, adjacency, seen, kept
        self.num_receivers = adjacency.num_receivers

    def to(self, device: torch.device | str) -> _Observed:
        return _Observed(self.nodes, self.adjacency.to(device), self.seen, self.kept)

    def convolve(self, conv: nn.Module, weighting: Weighting, layer: int, *nodes: Tensor) -> Tensor:
        self.seen.keep(self.kept, layer, self.nodes, self.adjacency, nodes[0])
        return self.adjacency.convolve(conv, weighting, layer, *nodes)


def basic_embeddings(model: nn.Module, embed: Embed, *, initialisations: int, seed: int) -> list[list[Received]]:
    """Return what each message-passing layer of freshly initialised copies of model receives, one for each copy.

    Args:
        model: any module with torch-geometric layers; it is not changed.
        embed: passes over the whole graph with a copy.
        initialisations: number of copies.
        seed: fixes their weights.

    Raises:
        ConfigError: the model has no message-passing layer.
    """
    found: list[list[Received]] = [[] for _ in message_layers(model)]
    for number in range(initialisations):
        other = _statistics_of_the_batch(_reinitialised(model, seed + number))
        for layer, embeddings in zip(found, embed(other)):
            layer += embeddings
    return found


def current_embeddings(model: nn.Module, forward: Forward, keep: Callable[[Tensor], Received]) -> list[list[Received]]:
    """Return what is kept of what each message-passing layer of model receives, one for each of its calls.

    Raises:
        ConfigError: the model has no message-passing layer.
    """
    layers = message_layers(model)
    found: list[list[Received]] = [[] for _ in layers]

    def keeper(kept: list[Received]) -> Callable[..., None]:
        def hook(_: nn.Module, args: tuple[object, ...], kwargs: dict[str, object]) -> None:
            first = next(iter([*args, *kwargs.values()]))
            tensor = first[0] if isinstance(first, (tuple, list)) else first
            assert isinstance(tensor, Tensor)
            kept.append(keep(tensor.detach()))

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
