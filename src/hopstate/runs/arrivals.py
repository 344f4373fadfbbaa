"""Nodes of a graph that a run was not trained with: which they are, and what their coming changes for the others."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING

import numpy as np

from hopstate.data.graph import Graph
from hopstate.errors import HopstateWarning
from hopstate.io.arrays import load_npy
from hopstate.io.files import replace_file, save_array
from hopstate.io.opening import exists
from hopstate.methods.method import Method, RunConfig
from hopstate.training.run_folder import RunFolder

if TYPE_CHECKING:
    from hopstate.methods.method import Record

FILE = "node_ids.npy"
MOST = 1 << 28  # bytes of ids that are kept
SHOWN = 10


def keep_ids(run: RunFolder, record: Record) -> None:
    """Keep the user's own ids of a graph's nodes with a run; ids that are rows, and more than `MOST`, are not kept."""
    ids = record.node_ids.ids if isinstance(record, Graph) and record.node_ids is not None else None
    if ids is not None and ids.nbytes <= MOST:
        replace_file(run.path / FILE, lambda part: save_array(part, ids))


def tell_new(run: RunFolder, method: Method, config: RunConfig, graph: Graph, num_nodes: int) -> None:
    """Warn of nodes of a graph that a run does not know, and of answers for known ones that change with them.

    Nothing is told of a graph that has no node in common with the run's: it is another one.

    Args:
        run: the run.
        method, config: its method, and how it is applied.
        graph: the other graph.
        num_nodes: nodes of the run's own.
    """
    new, known = _new(run, graph, num_nodes)
    if not len(new) or not known:
        return
    first = ", ".join(map(str, new[:SHOWN].tolist())) + (", ..." if len(new) > SHOWN else "")
    fixed = method.transductive(config) if method.transductive is not None else ""
    told = f". {fixed}: answers for the {known:,} known ones change too" if fixed else ""
    warnings.warn(
        f"{len(new):,} of {len(new) + known:,} nodes of {graph.name} are new to the run: {first}{told}",
        HopstateWarning,
        stacklevel=5,
    )


def _new(run: RunFolder, graph: Graph, num_nodes: int) -> tuple[np.ndarray, int]:
    """Return the ids of a graph's nodes that a run does not know, and how many of them it does."""
    path, ids = run.path / FILE, graph.node_ids
    if not exists(path):
        if ids is not None and ids.ids.dtype.kind != "i":
            return np.empty(0, np.int64), 0  # a run whose ids are not kept, or are rows
        own = np.arange(graph.num_nodes) if ids is None else ids.ids
        known = (own >= 0) & (own < num_nodes)
        return own[~known], int(known.sum())
    run_ids = load_npy(path, mmap=True)
    own = np.arange(graph.num_nodes) if ids is None else ids.ids
    if own.dtype.kind != run_ids.dtype.kind:  # texts beside numbers: numbers may be written as texts
        own = own.astype(str)
        run_ids = run_ids.astype(str)
    known = np.isin(own, run_ids)
    return own[~known], int(known.sum())


__all__ = ["keep_ids", "tell_new"]
