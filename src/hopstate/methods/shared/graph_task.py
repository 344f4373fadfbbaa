"""One network and one source of batches a method, and what is made of them: classes of nodes, or links."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from torch import nn

from hopstate.data.graph import Graph
from hopstate.methods.method import Context
from hopstate.methods.shared.node import NodeRun, check_width, node_labels
from hopstate.training.tasks.node import NodeBatches, NodeLabels, NodeTask
from hopstate.training.tasks.static_link import StaticLinkTask


@dataclass(frozen=True, kw_only=True)
class NodeNetwork:
    """What a method makes of a graph.

    Args:
        model: gives each node outputs of the width asked for.
        source: of its batches.
        walks: numbers of walks that the source draws, which a run remembers.
    """

    model: nn.Module
    source: NodeBatches[Any]
    walks: Mapping[str, int] | None = None


Make = Callable[[Graph, Context, NodeLabels, int], NodeNetwork]  # graph, context, labels, width of the output


def graph_task(graph: Graph, config: NodeRun, context: Context, make: Make) -> NodeTask[Any] | StaticLinkTask:
    """Return the task that a run's settings name.

    Args:
        graph: the data.
        config: settings.
        context: of the build.
        make: graph that messages pass over, context, labels and width of the output → network and source.
    """
    check_width(graph, context)
    if config.task == "link":
        from hopstate.methods.shared.static_link import link_task

        return link_task(graph, config, context, make)
    labels = node_labels(graph, config.split, config.metric, context, config.class_weights)
    made = make(graph, context, labels, len(labels.class_names))
    return NodeTask(made.model, made.source, walks=made.walks)


__all__ = ["Make", "NodeNetwork", "graph_task"]
