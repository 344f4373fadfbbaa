"""One network and one source of batches a method, and what is made of them: classes of nodes, or links."""

from __future__ import annotations

from typing import Any

from hopstate.data.graph import Graph
from hopstate.methods.method import Context
from hopstate.methods.shared.network import Make
from hopstate.methods.shared.node import NodeRun, check_width, node_labels
from hopstate.training.tasks.node import NodeTask
from hopstate.training.tasks.static_link import StaticLinkTask


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
    amounts = config.read.task == "regression"
    labels = node_labels(
        graph, config.split, config.metric, context, config.class_weights,
        amounts=amounts, positive=config.read.positive_class,
    )  # fmt: skip
    made = make(graph, context, labels, len(labels.class_names))
    return NodeTask(made.model, made.source, walks=made.walks)


__all__ = ["graph_task"]
