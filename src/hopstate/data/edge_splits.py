"""Links of one graph shared out to training, validation and test, and the graph that messages may pass over.

A link is what joins two different nodes: both directions and all duplicates of it go to one split together, so that no
copy of a held-out link stays behind. Self-loops are no links. Messages pass over training links alone (and self-loops).

Source: torch-geometric's RandomLinkSplit and Hu et al. 2020, arXiv:2005.00687 (OGB): training links are messages and
are learned from, unless a share is set apart.
Deviation: in a directed graph the two directions of a link are kept together too.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from hopstate.data.graph import Graph
from hopstate.data.validate import SPLITS
from hopstate.errors import CheckpointError, DataError, FormatError
from hopstate.io.tensors import Archive
from hopstate.ops.rows import bounds_of
from hopstate.random import named_rng


@dataclass(frozen=True, eq=False, kw_only=True)
class EdgeSplit:
    """Links by split.

    Args:
        pairs: "train", "val", "test" to (n, 2) int64 rows of nodes: (source, target) of a directed graph, each link
            once, the smaller first, of an undirected one.
        directed: whether the graph is.
    """

    pairs: Mapping[str, np.ndarray]
    directed: bool


def split_edges(
    graph: Graph,
    fractions: tuple[float, float, float] = (0.85, 0.05, 0.10),
    *,
    seed: int = 0,
    times: np.ndarray | None = None,
) -> EdgeSplit:
    """Return the links of a graph shared out, by chance or by time.

    Args:
        graph: the graph.
        fractions: shares of train, val and test, which sum to 1.
        seed: fixes what chance decides: the split, or the order of links of equal time.
        times: (E,) of the stored edges; the latest links are then for test, those before them for validation. A link
            that is stored several times is as old as the first of them.

    Raises:
        DataError: fewer than three links, or a time that is no number.
    """
    key, first = _links(graph)
    order = named_rng(seed).permutation(len(key))
    if times is not None:
        order = order[np.argsort(_first_times(graph, times, key)[order], kind="stable")]
    if len(key) < 3:
        raise DataError(
            f"{graph.name} has {len(key)} links between different nodes; training, validation and test take one each "
            "at least"
        )
    val, test = (max(1, round(share * len(key))) for share in fractions[1:])
    test = min(test, len(key) - 2)
    val = min(val, len(key) - 1 - test)
    which = np.empty(len(key), np.int8)
    which[order] = np.repeat(np.arange(3, dtype=np.int8), [len(key) - val - test, val, test])
    return _by_split(graph, key, which, first)


def given_split(graph: Graph, pairs: Mapping[str, np.ndarray]) -> EdgeSplit:
    """Return the split in which val and test hold the links given, and train all others.

    Args:
        graph: the graph.
        pairs: "val" and "test" to (n, 2) rows of nodes, in either direction; "train", where it is there, is checked.

    Raises:
        DataError: a pair that is no link of the graph, one in two splits, or an empty split.
    """
    key, first = _links(graph)
    which = np.zeros(len(key), np.int8)
    taken = np.zeros(len(key), bool)
    for name, own in pairs.items():
        wanted = link_keys(own, graph.num_nodes)
        at = np.minimum(np.searchsorted(key, wanted), max(len(key) - 1, 0))
        bad = np.flatnonzero(key[at] != wanted) if len(key) else np.arange(len(wanted))
        if len(bad):
            u, v = own[bad[0]]
            raise DataError(f"the split's {name} pair of rows ({u}, {v}) is no link of {graph.name} between two nodes")
        number = SPLITS.index(name)
        twice = np.flatnonzero(taken[at] & (which[at] != number))
        if len(twice):
            u, v = own[twice[0]]
            raise DataError(f"the pair of rows ({u}, {v}) stands in {name} and in {SPLITS[int(which[at[twice[0]]])]}")
        which[at], taken[at] = number, True
    sizes = np.bincount(which, minlength=3)
    if sizes.min() == 0:
        raise DataError(f"the given split leaves {SPLITS[int(sizes.argmin())]} of {graph.name} without a link")
    return _by_split(graph, key, which, first)


def kept_pairs(path: Path, num_nodes: int) -> dict[str, np.ndarray]:
    """Return the pairs (n, 2) of each split that a run of links kept.

    Args:
        path: its split.npz.
        num_nodes: of the run's own graph.

    Raises:
        CheckpointError: it is damaged, or holds something else.
    """
    try:
        with Archive(path) as file:
            found = {name: file[name] for name in SPLITS if name in file}
    except FormatError as error:
        raise CheckpointError(f"{path} is damaged; train again ({error})") from None
    shaped = all(a.ndim == 2 and a.shape[1] == 2 and a.dtype.kind in "iu" for a in found.values())
    if not {"val", "test"} <= found.keys() or not shaped:
        raise CheckpointError(f"{path} holds no split of links; train again")
    if any(((pairs < 0) | (pairs >= num_nodes)).any() for pairs in found.values()):
        raise CheckpointError(f"{path} holds links of nodes that the run's {num_nodes:,} are not; train again")
    return found


def message_edges(graph: Graph, messages: np.ndarray) -> Graph:
    """Return the graph with only the edges of some links, and its self-loops, each with what it carries.

    Args:
        graph: the graph.
        messages: (n, 2) rows of nodes, the links over which messages pass.
    """
    rows = edges_of_links(graph, messages, loops=True)
    kept = np.zeros(graph.num_edges, bool)
    kept[rows] = True
    changes: dict[str, object] = {
        "indptr": bounds_of(kept)[graph.indptr],
        "indices": graph.indices[rows],
        "edge_table": None if graph.edge_table is None else graph.edge_table.take(rows),
    }
    for name in ("edge_attr", "edge_weight"):
        values = getattr(graph, name)
        changes[name] = None if values is None else values[rows]
    return graph.with_(**changes)


def edges_of_links(graph: Graph, links: np.ndarray, *, loops: bool = False) -> np.ndarray:
    """Return the stored edges, ascending, of links (n, 2) in both directions; with loops the self-loops too."""
    sources, targets = graph.edge_index()
    allowed = np.unique(link_keys(links, graph.num_nodes))
    own = link_keys(np.stack([sources, targets], 1), graph.num_nodes)
    kept = (sources == targets) & loops
    if len(allowed):
        kept |= allowed[np.minimum(np.searchsorted(allowed, own), len(allowed) - 1)] == own
    return np.flatnonzero(kept)


def link_keys(pairs: np.ndarray, num_nodes: int) -> np.ndarray:
    """Return (n,) int64, equal for the two directions of a link, of pairs (n, 2)."""
    pairs = np.asarray(pairs, np.int64).reshape(-1, 2)
    return pairs.min(1) * num_nodes + pairs.max(1)


def _links(graph: Graph) -> tuple[np.ndarray, np.ndarray]:
    """Return (L,) ascending keys of the links, and the stored edges that are links."""
    sources, targets = graph.edge_index()
    rows = np.flatnonzero(sources != targets)
    return np.unique(link_keys(np.stack([sources[rows], targets[rows]], 1), graph.num_nodes)), rows


def _first_times(graph: Graph, times: np.ndarray, key: np.ndarray) -> np.ndarray:
    """Return (L,) the first time of each link."""
    times = np.asarray(times, np.float64)
    bad = np.flatnonzero(~np.isfinite(times))
    sources, targets = graph.edge_index()
    if len(bad):
        raise DataError(
            f"{graph.name}: the edge of rows ({sources[bad[0]]}, {targets[bad[0]]}) has no time ({len(bad)} edges have "
            "none); fill them in, or split by chance (--link.split random)"
        )
    rows = np.flatnonzero(sources != targets)
    at = np.searchsorted(key, link_keys(np.stack([sources[rows], targets[rows]], 1), graph.num_nodes))
    found = np.full(len(key), np.inf)
    np.minimum.at(found, at, times[rows])
    return found


def _by_split(graph: Graph, key: np.ndarray, which: np.ndarray, rows: np.ndarray) -> EdgeSplit:
    n = max(graph.num_nodes, 1)
    if graph.is_undirected:
        pairs = {name: np.stack([key[which == i] // n, key[which == i] % n], 1) for i, name in enumerate(SPLITS)}
        return EdgeSplit(pairs=pairs, directed=False)
    edges = np.unique(graph.edge_index()[:, rows].T, axis=0)
    own = which[np.searchsorted(key, link_keys(edges, n))]
    return EdgeSplit(pairs={name: edges[own == i] for i, name in enumerate(SPLITS)}, directed=True)


__all__ = ["EdgeSplit", "edges_of_links", "given_split", "link_keys", "message_edges", "split_edges"]
