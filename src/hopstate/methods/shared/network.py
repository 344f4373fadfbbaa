"""One network and one source of batches, as a method gives them to whatever is made of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from torch import nn

from hopstate.data.graph import Graph
from hopstate.methods.method import Context
from hopstate.training.tasks.node import NodeBatches, NodeLabels


@dataclass(frozen=True, kw_only=True)
class NodeNetwork:
    """What a method makes of a graph.

    Args:
        model: gives each node outputs of the width asked for.
        source: of its batches.
        walks: numbers of walks that the source draws, which a run remembers.
        dropout: of the model, which what stands on it takes too.
        whole: a step encodes the whole graph, however many rows of it are asked for.
    """

    model: nn.Module
    source: NodeBatches[Any]
    walks: Mapping[str, int] | None = None
    dropout: float = 0.0
    whole: bool = False


Make = Callable[[Graph, Context, NodeLabels, int], NodeNetwork]  # graph, context, labels, width of the output
