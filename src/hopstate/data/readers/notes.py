"""What reading a list of edges leaves out or adds, in sentences: duplicates, directions, self-loops."""

from __future__ import annotations

from typing import Any

import numpy as np


def notes_of_list(edges: Any, num_nodes: int, options: dict[str, Any]) -> tuple[str, ...]:
    """Return `edge_notes` of a list of edges with options of `Graph.from_edges`; none where it is no good list.

    Args:
        edges: (E, 2) or (2, E) integers.
        num_nodes: N.
        options: undirected, duplicates and self_loops, at their defaults where absent.
    """
    edges = np.asarray(edges)
    if edges.ndim != 2 or 2 not in edges.shape or edges.dtype.kind not in "iu" or not edges.size:
        return ()
    edges = (edges if edges.shape[1] == 2 else edges.T).astype(np.int64, copy=False)
    if edges.min() < 0 or edges.max() >= num_nodes:
        return ()  # building the graph says what is amiss
    build = {"undirected": True, "duplicates": "drop", "self_loops": "keep"}
    build |= {key: value for key, value in options.items() if key in build}
    return edge_notes(edges, num_nodes, **build, features=options.get("edge_attr") is not None)  # type: ignore[arg-type]


def edge_notes(
    edges: np.ndarray, num_nodes: int, *, undirected: bool, duplicates: str, self_loops: str, features: bool
) -> tuple[str, ...]:
    """Return sentences on what `Graph.from_edges` does to a list of edges.

    Args:
        edges: (E, 2) rows 0..num_nodes-1.
        num_nodes: N.
        undirected, duplicates, self_loops: as given to `Graph.from_edges`.
        features: the edges have features.
    """
    sources, targets = edges[:, 0], edges[:, 1]
    loop = sources == targets
    key = sources * num_nodes + targets
    distinct = np.unique(key)
    repeated = len(key) - len(distinct)
    distinct = distinct[distinct // num_nodes != distinct % num_nodes]
    back = (distinct % num_nodes) * num_nodes + distinct // num_nodes
    place = np.minimum(np.searchsorted(distinct, back), max(len(distinct) - 1, 0))
    both = int((distinct[place] == back).sum()) // 2 if len(distinct) else 0
    said = []
    if repeated and duplicates == "drop":
        whose = ", with the features of the first" if features else ""
        said.append(
            f"{repeated:,} of {len(key):,} edges are listed more than once and were merged{whose} "
            f"(--read.duplicates keep)"
        )
    if undirected and 2 * both < len(distinct):
        pairs = f"; {both:,} pairs of nodes are listed in both directions, the others in one" if both else ""
        said.append(
            f"every edge is stored in both directions, so that the direction it is listed in is lost{pairs} "
            f"(--read.undirected false keeps it)"
        )
    if undirected and both and features and duplicates == "drop":
        said.append(f"of {both:,} edges listed in both directions the features of the first were kept")
    if loop.any():
        what = "dropped" if self_loops == "drop" else "kept (--read.self_loops drop leaves them out)"
        said.append(f"{int(loop.sum()):,} edges join a node to itself: {what}")
    return tuple(said)
