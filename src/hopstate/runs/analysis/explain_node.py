"""What a node's prediction owes to features and edges: gradient times input.

To first order, a logit changes by its gradient times x where features x become zero, and by the gradient of a mask on
messages where an edge is taken out.

Source: Shrikumar et al. 2016, arXiv:1605.01713 (gradient times input); Ying et al. 2019, arXiv:1903.03894 (edge masks).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import nn

from hopstate.data.vocabulary import Vocabulary
from hopstate.errors import ConfigError
from hopstate.runs.analysis.explain import row_of
from hopstate.runs.export import spec_of
from hopstate.training.tasks.node import NodeTask

if TYPE_CHECKING:
    import pandas as pd

    from hopstate.methods.method import AnyMethod


@dataclass(frozen=True, eq=False)
class NodeExplanation:
    """What a node's logit, or value, owes to the graph.

    Args:
        node: the user's id.
        output: the likeliest class, or the name of the target.
        logit: of that class, or the scaled value of the target.
        features: feature, value (as the network gets it) and contribution of the node's own features; of hop averages
            a row for each hop and feature.
        nodes: node and contribution: the sum over the features of each node that counts.
        edges: source, target and contribution of each edge that counts, by the messages along it: of a Graph Mamba
            Network those inside tokens too, but not that walks followed it. Empty where no messages are passed, as over
            hop averages.
    """

    node: Any
    output: str
    logit: float
    features: pd.DataFrame
    nodes: pd.DataFrame
    edges: pd.DataFrame


def explain_node(task: Any, method: AnyMethod, node: Any, names: Sequence[str] = ()) -> NodeExplanation:
    """Return the explanation of a node's likeliest class, or first target.

    Args:
        task: of a trained run on nodes.
        method: the run's.
        node: the user's id.
        names: of the features; by default their numbers.

    Raises:
        ConfigError: a run that predicts no nodes, or whose network has no program.
        DataError: an unknown id.
    """
    import pandas as pd
    from torch_geometric.explain.algorithm.utils import clear_masks, set_masks

    if not isinstance(task, NodeTask):
        raise ConfigError("--node is of runs that predict nodes; of links name a pair (--pair)")
    known = task.labels.node_ids or Vocabulary(np.arange(len(task.labels.y)))
    row = row_of(known, node, "node")
    if not callable(method.export):
        raise ConfigError(f"{method.name} has no program to take gradients of: {method.export}")
    form = spec_of(method, task, fills=True)
    inputs = dict(zip((port.name for port in form.inputs), form.filled(None), strict=True))
    name = "x" if "x" in inputs else "tokens"
    if name not in inputs:
        raise ConfigError(f"{method.name} has no features to take gradients of (inputs: {', '.join(inputs)})")
    x = inputs[name] = inputs[name].detach().requires_grad_()
    lists = _edge_lists(form.module, inputs)
    ends = torch.cat([torch.zeros(2, 0, dtype=torch.int64), *(own for *_, own in lists)], 1)
    edges, place = ends.unique(dim=1, return_inverse=True)
    mask = torch.ones(edges.shape[1], dtype=x.dtype, requires_grad=True)
    try:
        for (given, module, _), part in zip(lists, place.split([own.shape[1] for *_, own in lists])):
            set_masks(module, mask[part], given, apply_sigmoid=False)
            given.message_mask = mask[part]  # type: ignore[attr-defined]  # see `layers.edge_list`
        out = form.module(*inputs.values())[row]
        target = task.labels.target
        several = target.goal == "classes" and out.numel() > 1
        best = int(out.argmax()) if several else 0
        by_x, by_edge = torch.autograd.grad(out[best], (x, mask), allow_unused=True)
    finally:
        clear_masks(form.module)
    added = (torch.zeros_like(x) if by_x is None else by_x * x).detach().double().numpy()
    found = np.zeros(len(mask)) if by_edge is None else by_edge.double().numpy()
    output = target.names[best] if several else target.positive or target.names[0]
    width, word = x.shape[-1], "encoding " if names else ""  # encodings follow the features
    names = [*names, *(f"{word}{k}" for k in range(width - len(names)))][:width]
    columns = [f"hop {k}: {name}" for k in range(x.shape[1]) for name in names] if x.ndim == 3 else names
    own = {"feature": columns, "value": x[row].detach().flatten().numpy(), "contribution": added[row].ravel()}
    total = added.reshape(len(added), -1).sum(1)
    ids = known.names(np.arange(len(total)))
    counting, passing = np.flatnonzero(total), np.flatnonzero(found)
    ends = edges[:, passing].numpy()
    return NodeExplanation(
        node, str(output), float(out[best].detach()), _largest_first(pd.DataFrame(own)),
        _largest_first(pd.DataFrame({"node": ids[counting], "contribution": total[counting]})),
        _largest_first(pd.DataFrame({"source": ids[ends[0]], "target": ids[ends[1]], "contribution": found[passing]})),
    )  # fmt: skip


def _edge_lists(module: Any, inputs: dict[str, torch.Tensor]) -> list[tuple[torch.Tensor, nn.Module, torch.Tensor]]:
    """Return each list of edges (2, e), the module whose layers pass messages over it, and nodes (2, e) at the ends."""
    found = [(edges, module, edges) for edges in [inputs.get("edge_index")] if edges is not None]
    if (inside := inputs.get("token_edge_index")) is not None:  # of a Graph Mamba Network
        found.append((inside, module.model.local, inputs["token_nodes"][inside]))
    return found


def _largest_first(table: pd.DataFrame) -> pd.DataFrame:
    return table.sort_values("contribution", key=lambda c: -c.abs(), kind="stable", ignore_index=True)


__all__ = ["NodeExplanation", "explain_node"]
