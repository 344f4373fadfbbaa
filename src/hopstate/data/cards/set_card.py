"""The data card of a set of graphs: sizes, features, what could be predicted, and what looks wrong."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from hopstate.data.cards.card import Card, feature_doubts, feature_text, missing_facts, spread
from hopstate.data.graph_set import GraphSet

FEW = 0.01  # share of the labelled rows below which a class is worth a word


def inspect_set(graphs: GraphSet) -> Card:
    """Return the card of a set of graphs: counts, sizes, features, targets, splits, and what looks wrong."""
    union, sizes = graphs.union, np.diff(graphs.offsets)
    edges = np.diff(union.indptr[graphs.offsets])
    facts: dict[str, Any] = {
        "graphs": graphs.num_graphs,
        "nodes of all": graphs.num_nodes,
        "stored edges of all": union.num_edges,
        "nodes of a graph, median / mean / most": spread(sizes),
        "stored edges of a graph, median / mean / most": spread(edges),
        "undirected": union.is_undirected,
        "self-loops": union.num_self_loops,
        "node features": feature_text(union.x),
        "edge features": feature_text(union.edge_attr),
    }
    facts |= missing_facts(union.table) | missing_facts(union.edge_table, "missing values of edges")
    targets = _targets(graphs)
    for level, y in targets.items():
        facts |= _target_facts(level, y, graphs)
    facts["to fit"] = _suggestion(targets)
    if graphs.num_splits:
        facts["stored splits"] = graphs.num_splits
        facts |= {f"{name} graphs": len(ids) for name, ids in graphs.split(0).items()}
    return Card(
        title=f"{graphs.name} (set of graphs{f', {graphs.source}' if graphs.source else ''})",
        facts=facts,
        suspicious=tuple(_doubts(graphs, sizes, edges, targets)),
        notes=union.notes,
    )


def _targets(graphs: GraphSet) -> dict[str, np.ndarray]:
    """Return the targets by what they label."""
    every = {"graph": graphs.y, "node": graphs.union.y, "edge": graphs.edge_y}
    return {level: y for level, y in every.items() if y is not None}


def _goal(y: np.ndarray) -> str:
    if y.dtype.kind in "iu":
        return "classes"
    return "labels" if np.isin(y[~np.isnan(y)], (0, 1)).all() else "values"


def _unknown(y: np.ndarray) -> np.ndarray:
    return y < 0 if y.dtype.kind in "iu" else np.isnan(y)


def _target_facts(level: str, y: np.ndarray, graphs: GraphSet) -> dict[str, Any]:
    goal, unknown = _goal(y), int(_unknown(y).sum())
    facts: dict[str, Any] = {}
    if goal == "classes":
        facts[f"classes of {level}s"] = ", ".join(f"{name}: {n:,}" for name, n in _classes(level, y, graphs))
    else:
        width = 1 if y.ndim == 1 else y.shape[1]
        known = y[~np.isnan(y)]
        span = f", {known.min():.4g} to {known.max():.4g}, mean {known.mean():.4g}" if known.size else ""
        what = "labels of 0 and 1" if goal == "labels" else "values"
        facts[f"targets of {level}s"] = f"{width} {what}{span}"
    return facts | ({f"missing targets of {level}s": unknown} if unknown else {})


def _classes(level: str, y: np.ndarray, graphs: GraphSet) -> list[tuple[str, int]]:
    names = graphs.class_names if level == "graph" else graphs.union.class_names
    counts = np.bincount(y[y >= 0], minlength=len(names or ()))
    listed = list(zip(names or map(str, range(len(counts))), counts.tolist(), strict=True))
    return [*listed[:24], ("others", int(counts[24:].sum()))] if len(listed) > 24 else listed


def _suggestion(targets: dict[str, np.ndarray]) -> str:
    if not targets:
        return "there are no targets"
    level = next(iter(targets))
    what = {"classes": "classes", "labels": "several labels", "values": "values"}[_goal(targets[level])]
    return f"{what} of {level}s: gmn-graphs{'' if level == 'graph' else f' --level {level}'}" + (
        " or gin-graphs" if level == "graph" else ""
    )


def _doubts(graphs: GraphSet, sizes: np.ndarray, edges: np.ndarray, targets: dict[str, np.ndarray]) -> Iterator[str]:
    union = graphs.union
    bare = int((edges == 0).sum())
    if bare:
        yield f"{bare:,} graphs have no edge"
    if len(sizes) > 4 and sizes.max() > 100 * np.median(sizes):
        yield f"graph {int(sizes.argmax())} has {sizes.max():,} nodes, over 100 times the median"
    if union.num_self_loops:
        yield f"{union.num_self_loops:,} edges join a node to itself"
    if not union.is_undirected:
        yield "edges are directed: most methods here expect both directions stored"
    yield from feature_doubts("node", union.x, union.table)
    yield from feature_doubts("edge", union.edge_attr, union.edge_table)
    if union.x is None:
        yield "there are no node features"
    for level, y in targets.items():
        yield from _target_doubts(level, y, graphs)


def _target_doubts(level: str, y: np.ndarray, graphs: GraphSet) -> Iterator[str]:
    known = ~_unknown(y)
    if not known.any():
        yield f"no target of a {level} is known"
        return
    if _goal(y) != "classes":
        constant = int((np.nanmin(y.reshape(len(y), -1), 0) == np.nanmax(y.reshape(len(y), -1), 0)).sum())
        if constant:
            yield f"{constant} targets of {level}s never change"
        return
    counts = dict(_classes(level, y, graphs))
    if sum(n > 0 for n in counts.values()) < 2:
        yield f"all {level}s are of one class: there is nothing to classify"
    for name, count in counts.items():
        if count < FEW * known.sum():
            yield f"class {name} has {count:,} of {int(known.sum()):,} labelled {level}s"


__all__ = ["inspect_set"]
