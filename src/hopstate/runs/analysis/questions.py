"""Explanations of a trained run: why a pair got its score, or a node its prediction."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import nn

from hopstate.data.vocabulary import Vocabulary
from hopstate.errors import ConfigError, HopstateWarning
from hopstate.io.output import check_figure_path, check_table_path, write_table
from hopstate.runs.analysis.explain import Explanation, FeatureExplanation, explain_pair, row_of
from hopstate.runs.analysis.similarity import SimilarityMap
from hopstate.runs.analysis.similarity import similarity_map as alike_tokens
from hopstate.runs.data import known_data, settings_of_run
from hopstate.runs.export import spec_of
from hopstate.runs.going_on import kept_state
from hopstate.runs.load import load_run
from hopstate.training.run_folder import RunFolder
from hopstate.training.tasks.events import EventTask
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


def explain(
    run: str | Path,
    source: Any = None,
    target: Any = None,
    t: Any = None,
    *,
    node: Any = None,
    data: Any = None,
    out: str | Path | None = None,
    plot: str | Path | None = None,
    device: str | None = None,
    method: str | None = None,
    raw: bool = False,
) -> Explanation | FeatureExplanation | NodeExplanation:
    """Return what each past event, or feature, added to the score of a pair, or what a node's prediction is made of.

    See `hopstate.runs.analysis.explain` and `hopstate.runs.analysis.questions`.

    Args:
        run: a run folder of dyg-mamba, pair-trees, an ensemble, or of nodes of a graph.
        source, target: the user's ids of a pair.
        node: of a run on a graph: the user's id of the node, in place of a pair.
        t: time of the query, a number in the stream's unit or a date; only events strictly before it are seen. Without
            any, the first time after the last event of the data.
        data: other events than the run was trained on.
        out: also write the table there (.csv or .parquet); of events, what the pair's own history tells goes to a file
            of its own beside it (`features_path`).
        plot: also draw the timeline there (.png, .pdf or .svg).
        device: where to compute; None takes the run's own setting.
        method: as in `hopstate.evaluate`.
        raw: as in `hopstate.io.output.write_table`.

    Warns:
        HopstateWarning: what `hopstate stream` has added, which `score` knows, lies before the time and is not seen.
    """
    _check_paths(out, plot)
    if node is not None:
        if plot is not None:
            raise ConfigError("plot is of pairs; a node's explanation is a table (out)")
        return _explain_node(run, node, data, out, method, raw=raw)
    with load_run(run, data, device=device, method=method) as (trainer, task), trainer.precision():
        found = explain_pair(task, source, target, t)
        if data is None and isinstance(task, EventTask) and found.t > task.stream.t[-1]:
            _tell_streamed(trainer.run)
    if out is not None:
        write_table(found.table, Path(out), raw=raw)
        if isinstance(found, Explanation) and len(found.features):
            write_table(found.features, features_path(out), raw=raw)
    if plot is not None:
        found.plot(plot)
    return found


def _explain_node(
    run: str | Path, node: Any, data: Any, out: str | Path | None, method: str | None, *, raw: bool
) -> NodeExplanation:
    known, folder = settings_of_run(RunFolder.open(run), method)[0], RunFolder.open(run)
    names = (known_data(folder).get("features") or {}).get("x", {}).get("columns") or ()
    with load_run(run, data, device="cpu", method=method) as (_, task):
        found = explain_node(task, known, node, names)
    if out is not None:
        for path, table in zip((out, *parts_paths(out)), (found.features, found.nodes, found.edges), strict=True):
            write_table(table, Path(path), raw=raw)
    return found


def parts_paths(out: str | Path) -> tuple[Path, Path]:
    """Return where the tables of nodes and edges go beside that of features."""
    path = Path(out)
    stem, dot, ends = path.name.partition(".")
    return path.with_name(f"{stem}-nodes{dot}{ends}"), path.with_name(f"{stem}-edges{dot}{ends}")


def similarity_map(
    run: str | Path,
    source: Any,
    target: Any,
    t: Any = None,
    *,
    latest: int = 16,
    data: Any = None,
    plot: str | Path | None = None,
    device: str | None = None,
) -> SimilarityMap:
    """Return how alike a pair's past events are to DyG-Mamba; see `hopstate.runs.analysis.similarity`.

    Args:
        run: a run folder of dyg-mamba.
        source, target, t, data, device: as in `explain`.
        latest: tokens of each end, the latest ones.
        plot: also draw it there (.png, .pdf or .svg).
    """
    _check_paths(None, plot)
    with load_run(run, data, device=device) as (trainer, task), trainer.precision():
        found = alike_tokens(task, source, target, t, latest=latest)
    if plot is not None:
        found.plot(plot)
    return found


def _tell_streamed(run: RunFolder) -> None:
    """Warn where a run has a state after events that its own data lack: `score` answers from there."""
    kept = kept_state(run)
    if kept is not None:
        warnings.warn(
            f"what `hopstate stream` has added in {kept} is not seen here, while score and rank know it; give --data "
            "all of the events, if these are to count",
            HopstateWarning,
            stacklevel=3,
        )


def features_path(out: str | Path) -> Path:
    """Return where the features of an explanation by events are written beside its table: why.csv, why-features.csv."""
    name, dot, rest = Path(out).name.partition(".")
    return Path(out).with_name(f"{name}-features{dot}{rest}")


def _check_paths(out: str | Path | None, plot: str | Path | None) -> None:
    """Refuse a name that could not be written, before any work."""
    if out is not None:
        check_table_path(out)
    if plot is not None:
        check_figure_path(plot)
