"""Nodes and links of a graph that a run was not trained with: which they are, and what their coming changes."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from hopstate.data.graph import Graph
from hopstate.data.splits import kept_pairs, link_keys
from hopstate.data.validate import SPLITS
from hopstate.errors import DataError, HopstateWarning
from hopstate.io.files import replace_file, save_array
from hopstate.io.opening import exists
from hopstate.io.tensors import load_npy
from hopstate.methods.method import Method, RunConfig
from hopstate.methods.shared.node import save_npz
from hopstate.training.run_folder import RunFolder

if TYPE_CHECKING:
    from hopstate.methods.method import Record

FILE = "node_ids.npy"
SPLIT = "split.npz"
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
    both = _ids(run, graph, num_nodes)
    if both is None:
        return np.empty(0, np.int64), 0
    own, run_ids = both
    known = np.isin(own, run_ids)
    return own[~known], int(known.sum())


def _ids(run: RunFolder, graph: Graph, num_nodes: int) -> tuple[np.ndarray, np.ndarray] | None:
    """Return the ids of a graph's nodes and of a run's, each in order of rows; None where the run's are not kept."""
    path, ids = run.path / FILE, graph.node_ids
    own = np.arange(graph.num_nodes) if ids is None else ids.ids
    if not exists(path):  # not kept, or rows
        return (own, np.arange(num_nodes)) if own.dtype.kind == "i" else None
    run_ids = load_npy(path, mmap=True)
    if own.dtype.kind != run_ids.dtype.kind:  # texts beside numbers: numbers may be written as texts
        own, run_ids = own.astype(str), run_ids.astype(str)
    return own, run_ids


# ---- links -------------------------------------------------------------------------------------------------
def tell_links(run: RunFolder, graph: Graph, num_nodes: int, into: Path, *, tabled: bool) -> None:
    """Write how another graph's links are shared out by what a run of links knows of them, and say so.

    Of a graph that holds most links that the run was trained on, the grown one, those of its validation stay there,
    what it does not know is for test (its own test links where it knows all), and all others are messages. Of another
    graph nothing is written, so that its links are shared out anew.

    Args:
        run: the run.
        graph: the other graph.
        num_nodes: nodes of the run's own.
        into: the folder that gets split.npz.
        tabled: whether the graph is a table, whose nodes are called by the user's own ids.

    Raises:
        DataError: most of its nodes are the run's own, but not their links: it is a file of pairs.
    """
    both = _ids(run, graph, num_nodes)
    known = None if both is None else _known_links(run, graph, *both)
    if both is None or known is None:
        _warn_anew(graph)
        return
    every = np.unique(link_keys(graph.edge_index().T[_between(graph)], graph.num_nodes))
    there = {name: key[np.isin(key, every)] for name, key in known.items()}
    new = every[~np.isin(every, np.concatenate(list(there.values())))]
    if len(there["train"]) * 2 >= len(known["train"]) and len(there["val"]):
        told = {"val": there["val"], "test": new if len(new) else there["test"]}
        pairs = {name: np.stack([key // graph.num_nodes, key % graph.num_nodes], 1) for name, key in told.items()}
        replace_file(into / SPLIT, lambda part: save_npz(part, pairs))
        if len(new):
            warnings.warn(
                f"{len(new):,} of {len(every):,} links of {graph.name} are new to the run: they are its test, and the "
                "others are messages, but those of the run's validation",
                HopstateWarning,
                stacklevel=5,
            )
        return
    met = int(np.isin(both[0], both[1]).sum())
    if tabled and met * 2 >= graph.num_nodes:
        raise DataError(
            f"{graph.name} has {len(there['train']):,} of the {len(known['train']):,} links that the run was trained "
            f"on, and {met:,} of its {graph.num_nodes:,} nodes are the run's own: it is not the run's graph, grown. "
            f"Score pairs with `hopstate score {run.path} --pairs FILE`; of a graph that has grown give all links, old "
            "and new"
        )
    _warn_anew(graph)


def _warn_anew(graph: Graph) -> None:
    warnings.warn(
        f"the links of {graph.name} are shared out anew, so those of any split may have been trained on; `hopstate "
        "score` and `rank` ask the run of pairs",
        HopstateWarning,
        stacklevel=6,
    )


def _between(graph: Graph) -> np.ndarray:
    sources, targets = graph.edge_index()
    return sources != targets


def _known_links(run: RunFolder, graph: Graph, own: np.ndarray, run_ids: np.ndarray) -> dict[str, np.ndarray] | None:
    """Return split → keys of a run's links among a graph's nodes, -1 where it lacks an end; None without a split."""
    if not exists(run.path / SPLIT):
        return None
    order = np.argsort(own, kind="stable")
    at = np.minimum(np.searchsorted(own[order], run_ids), max(len(own) - 1, 0))
    row = np.where(own[order][at] == run_ids, order[at], -1) if len(own) else np.full(len(run_ids), -1)
    found = {}
    kept = kept_pairs(run.path / SPLIT, len(run_ids))
    for name in SPLITS:
        pairs = row[kept[name]] if name in kept else np.empty((0, 2), np.int64)
        found[name] = np.where((pairs >= 0).all(1), link_keys(pairs, graph.num_nodes), -1)
    return found


__all__ = ["keep_ids", "tell_links", "tell_new"]
