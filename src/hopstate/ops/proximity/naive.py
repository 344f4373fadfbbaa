"""Nearness of two nodes as its definitions are written, a pair at a time: what the sparse products are held to."""

from __future__ import annotations

import math

import numpy as np


def proximity_naive(
    edges: list[tuple[int, int]], num_nodes: int, kind: str, u: int, v: int, *, steps: int = 10
) -> float:
    """Return how near u and v are; see `Proximity` for the kinds.

    Args:
        edges: links in either direction, in any number.
        num_nodes: N.
        kind: "common_neighbors", "adamic_adar", "resource_allocation", "pagerank", or "paths" of three steps.
        u, v: the pair.
        steps: of the walk of "pagerank".
    """
    near: list[set[int]] = [set() for _ in range(num_nodes)]
    for a, b in edges:
        if a != b:
            near[a].add(b)
            near[b].add(a)
    common = near[u] & near[v]
    if kind == "common_neighbors":
        return float(len(common))
    if kind == "adamic_adar":
        return sum(1 / math.log(len(near[w])) for w in sorted(common) if len(near[w]) > 1)
    if kind == "resource_allocation":
        return sum(1 / len(near[w]) for w in sorted(common))
    if kind == "paths":
        ends = [(a, b) for a in near[u] - {v} for b in near[a] - {u, v} if v in near[b]]
        return sum((len(near[a]) * len(near[b])) ** -0.5 for a, b in sorted(ends))
    from hopstate.ops.proximity.proximity import RETURN

    here = np.zeros(num_nodes)
    here[u] = 1.0
    total = RETURN * here
    for _ in range(steps):
        there = np.zeros(num_nodes)
        for a in range(num_nodes):
            for b in near[a]:
                there[b] += here[a] / len(near[a])
        here = (1 - RETURN) * there
        total += RETURN * here
    return float(total[v])
