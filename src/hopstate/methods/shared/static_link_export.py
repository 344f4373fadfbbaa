"""Links of one graph as a program: what the encoder takes and pairs of nodes in, a logit and a score a pair out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from hopstate.errors import ConfigError, ShapeError
from hopstate.layers.pair_decoders import PairDecoder
from hopstate.methods.shared.static_link import rows_of
from hopstate.training.exported import ExportSpec, Port
from hopstate.training.precision import bare
from hopstate.training.tasks.node import NodeBatches
from hopstate.training.tasks.static_link import LinkModel, StaticLinkTask

PAIRS = 4  # of the made graph that a program is traced with
ASKED = 100  # links that a check asks, and as many other pairs of their ends
Taken = Callable[[ExportSpec, NodeBatches[Any]], tuple[Tensor, ...]]
Vectors = Callable[[nn.Module, NodeBatches[Any]], Tensor]


class LinkProgram(nn.Module):
    """An encoder's inputs, pairs (P, 2) of its nodes, and (P, F) how near they are where that counts → P links.

    Args:
        encoder: inputs → (N, D) vectors of nodes.
        decoder: of pairs of them.
    """

    def __init__(self, encoder: nn.Module, decoder: PairDecoder) -> None:
        super().__init__()
        self.encoder, self.decoder = encoder, decoder

    def forward(self, *inputs: Tensor) -> tuple[Tensor, Tensor]:
        """Return (P,) logits and their sigmoid in float64."""
        near = inputs[-1] if self.decoder.near is not None else None
        first, pairs = (inputs[:-1], inputs[-1]) if near is None else (inputs[:-2], inputs[-2])
        z = self.encoder(*first)
        logit = self.decoder(z.index_select(0, pairs[:, 0]), z.index_select(0, pairs[:, 1]), near)
        return logit, torch.sigmoid(logit.double())


def link_form(
    task: StaticLinkTask, of_encoder: Callable[[nn.Module], ExportSpec], taken: Taken, vectors: Vectors
) -> ExportSpec:
    """Return the program of a task of links from that of its encoder, whose first input has a row a node.

    Args:
        task: the task.
        of_encoder: encoder → its program.
        taken: an encoder's program and a source → what the program takes of it.
        vectors: encoder and source → (N, D) its own vectors.

    Raises:
        ConfigError: what `of_encoder` raises, or a decoder that is not of pairs.
    """
    model = bare(task.model)
    if not isinstance(model, LinkModel) or not isinstance(model.decoder, PairDecoder):
        raise ConfigError(f"{type(model).__name__} has no program: it is no encoder with a decoder of pairs")
    form, decoder = of_encoder(model.encoder), model.decoder
    meaning = "int64 sources and targets of the pairs, by their rows among the nodes"
    inputs, example = [Port(name="pairs", meaning=meaning, axes=("pair", ""))], [torch.tensor([[0, 1]] * PAIRS)]
    preprocessing = f"{form.preprocessing}; messages are the training links, those of other splits left out"
    if decoder.near is not None:
        first = next(decoder.near.parameters())
        meaning = f"{first.shape[1]} numbers a pair, how near its nodes are by the links that are messages"
        inputs.append(Port(name="near", meaning=meaning, axes=("pair", "")))
        example.append(torch.rand(PAIRS, first.shape[1]).to(first))
        preprocessing += "; near is hopstate.ops.proximity.Proximity(indptr, indices).features(sources, targets)"
    outputs = (
        Port(name="logit", meaning="of a link between the two nodes", axes=("pair",)),
        Port(name="score", meaning="sigmoid of the logit", axes=("pair",)),
    )

    def fill(pairs: Any) -> tuple[Tensor, ...]:
        ends = ends_of(task, pairs)
        return (*taken(form, task.vectors("test")[0]), torch.from_numpy(ends), *near_of(task, decoder, ends))

    def said(pairs: Any) -> Tensor:
        ends = torch.from_numpy(ends_of(task, pairs))
        z = vectors(model.encoder, task.vectors("test")[0])
        return decoder(z[ends[:, 0]], z[ends[:, 1]], *near_of(task, decoder, ends.numpy()))

    return replace(
        form, module=LinkProgram(form.module, decoder), inputs=(*form.inputs, *inputs), outputs=outputs,
        example=(*form.example, *example), preprocessing=preprocessing, fill=fill, reference=said,
    )  # fmt: skip


def ends_of(task: StaticLinkTask, pairs: Any) -> np.ndarray:
    """Return (P, 2) rows of pairs of ids; None asks links of the test split, and other pairs of their ends.

    Raises:
        ShapeError, DataError: no pairs, or ids that are no nodes.
    """
    if pairs is None:
        links = task.split.pairs["test"][:ASKED]
        return np.concatenate([links, np.stack([links[:, 0], np.roll(links[:, 1], 1)], 1)])
    given = np.asarray(pairs)
    if given.ndim != 2 or given.shape[1] != 2:
        raise ShapeError(f"pairs are (P, 2) ids of sources and targets; got {given.shape}")
    return np.stack([rows_of(task.messages, column, "pairs") for column in given.T], 1)


def near_of(task: StaticLinkTask, decoder: PairDecoder, ends: np.ndarray) -> tuple[Tensor, ...]:
    """Return how near pairs are by the links that the test split is judged over, where the decoder reads that."""
    if decoder.near is None:
        return ()
    found = task.near(task.vectors("test")[1]).features(*np.ascontiguousarray(ends.T))
    return (torch.from_numpy(found).to(next(decoder.parameters())),)


__all__ = ["LinkProgram", "link_form"]
