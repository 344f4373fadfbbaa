"""NAGphormer as a program: tokens of nodes in (and pairs of them), outputs of nodes or of pairs out."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from hopstate.errors import ConfigError
from hopstate.methods.nagphormer.model import NAGphormer
from hopstate.methods.shared.static_link_export import link_form
from hopstate.training.exported import ExportSpec, Port
from hopstate.training.precision import bare
from hopstate.training.tasks.node import NodeBatches, NodeTask, RowBatches
from hopstate.training.tasks.static_link import StaticLinkTask

SAMPLE = 1000  # nodes that a check asks of


def export_form(task: NodeTask[Any] | StaticLinkTask) -> ExportSpec:
    """Return the program of a trained task."""
    if isinstance(task, StaticLinkTask):
        return link_form(task, hops_form, lambda form, source: tokens_of(form, source, None), answered)
    form, source = hops_form(bare(task.model)), task.source
    return replace(
        form,
        fill=lambda rows: tokens_of(form, source, rows),
        reference=lambda rows: source.logits(task.model, rows),
        sample=np.arange(min(SAMPLE, len(source.labels.y))),
    )


def tokens_of(form: ExportSpec, source: NodeBatches[Any], rows: np.ndarray | None) -> tuple[Tensor, ...]:
    """Return the tokens of nodes, of all where rows is None."""
    assert isinstance(source, RowBatches)
    rows = np.arange(len(source.labels.y)) if rows is None else rows
    return (source.inputs(rows).to(form.example[0]),)


def answered(model: nn.Module, source: NodeBatches[Any]) -> Tensor:
    """Return what a network itself says of all nodes."""
    return source.logits(model, np.arange(len(source.labels.y))).to(next(model.parameters()))


def hops_form(model: nn.Module) -> ExportSpec:
    """Return the program of a trained network.

    Raises:
        ConfigError: a network that is no NAGphormer.
    """
    if not isinstance(model, NAGphormer):
        raise ConfigError(f"{type(model).__name__} is no NAGphormer and has no program over tokens of hops")
    tokens = Port(
        name="tokens",
        meaning=f"hop averages of each node, hop 0 first: {model.num_hops + 1} tokens of {model.in_dim} features",
        axes=("node", "", ""),
    )
    return ExportSpec(
        module=model,
        inputs=(tokens,),
        outputs=(
            Port(
                name="output",
                meaning="a row a node, logits, or scaled amounts, of the run's target",
                axes=("node", ""),
            ),
        ),
        example=(torch.randn(3, model.num_hops + 1, model.in_dim).to(next(model.parameters())),),
        preprocessing=(
            "tokens[v, k] = (A_hat^k X)[v], A_hat the graph's (D+I)^-1/2 (A+I) (D+I)^-1/2 and X its features, scaled "
            "as in training, with Laplacian eigenvectors beside them where tokens.eigenvectors is above 0: "
            "hopstate.export_inputs(RUN) gives them for the run's own nodes"
        ),
    )
