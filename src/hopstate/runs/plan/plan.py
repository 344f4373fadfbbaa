"""What a run of a size will take, by stage, from what was measured at smaller sizes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from hopstate.errors import ConfigError, nearest
from hopstate.runs.plan.cost import Law, Point, law
from hopstate.runs.plan.measured import Measured, stored
from hopstate.runs.plan.stages import PLANS, SHARE, MethodPlan

LARGEST = 2  # measured points that are shown
MOST = 1e15  # nodes, edges or features
_MEMORY = ("one", "nodes", "edges", "values")
_EVENT_MEMORY = ("one", "nodes", "edges", "messages")


@dataclass(frozen=True)
class Plan:
    """A plan.

    Args:
        method: of the run.
        sizes: nodes, edges (or events), features, and the share of nodes that train where that counts.
        settings: of the method, at which it holds.
        machine: on which the points were measured.
        own: whether that is this machine; else they came with the package.
        stages: a dict each: stage, seconds (processor time), memory (peak resident bytes), disk (bytes).
        measured: the largest points: sizes, and seconds and memory by stage.
        judged: the point that was not fitted: for each stage seconds and memory, as measured and as predicted.
    """

    method: str
    sizes: dict[str, float]
    settings: dict[str, Any]
    machine: str
    own: bool
    stages: list[dict[str, Any]]
    measured: list[dict[str, Any]]
    judged: list[dict[str, Any]]


def plan(
    method: str, *, nodes: float, edges: float, features: float, train: float = SHARE, measured: Measured | None = None
) -> Plan:
    """Return what a run takes on one core of the machine that was measured.

    Args:
        method: one of `PLANS`.
        nodes, edges, features: of the data; edges as they are stored, both directions counted. For a method of
            events edges are events, and features those of an event.
        train: share of the nodes that train, for methods that read the tokens of those alone.
        measured: points; by default those of this machine, else those of the package.

    Raises:
        ConfigError: a method without a cost model, or a size that cannot be.
        DataError: the method was measured neither here nor for the package.
    """
    if method not in PLANS:
        raise ConfigError(f"plan knows no costs of {method!r}{nearest(method, PLANS)}; it knows: {', '.join(PLANS)}")
    own = PLANS[method]
    sizes = {"nodes": nodes, "events" if own.events else "edges": edges, "features": features}
    for name, size in sizes.items():
        least = 0 if name == "features" and own.events else 1
        if not (math.isfinite(size) and least <= size <= MOST):
            raise ConfigError(f"--{name} is a number of {least} to {MOST:.0e}; got {size:g}")
    if not 0 < train <= 1:
        raise ConfigError(f"--train is a share of the nodes, above 0 and at most 1; got {train:g}")
    known = measured or stored(method)
    points = [point for point in known.points if point.method == method]
    laws = _laws(own, points)
    at = (nodes, edges, features)
    rows = [
        {"stage": stage, **_cost(own, laws, stage, at, train), "disk": own.disk(stage, *at)} for stage in own.stages
    ]
    return Plan(
        method, sizes | ({"train": train} if own.tokens else {}), own.at(int(nodes)), known.machine, known.own, rows,
        _largest(points), [row for point in points if not point.fitted for row in _judged(own, laws, point)],
    )  # fmt: skip


Laws = dict[tuple[str, str], Law]


def _laws(own: MethodPlan, points: Sequence[Point]) -> Laws:
    found = {(stage, "seconds"): law(points, stage, "seconds", terms) for stage, terms in own.stages.items()}
    for stage in own.stages:
        terms = own.memory.get(stage, _EVENT_MEMORY if own.events else _MEMORY)
        found[stage, "memory"] = law(points, stage, "memory", terms)
    return found


def _cost(
    own: MethodPlan, laws: Laws, stage: str, at: tuple[float, float, float], train: float = SHARE
) -> dict[str, float]:
    share = train / SHARE if own.tokens and stage == "epoch" else 1.0
    return {
        "seconds": share * laws[stage, "seconds"].at(*at),
        "memory": laws[stage, "memory"].at(*at),
    }


def _largest(points: Sequence[Point]) -> list[dict[str, Any]]:
    largest = sorted(points, key=lambda point: (point.edges, point.nodes), reverse=True)[:LARGEST]
    return [
        {"nodes": one.nodes, "edges": one.edges, "features": one.features, "stages": dict(one.stages)}
        for one in largest
    ]


def _judged(own: MethodPlan, laws: Laws, point: Point) -> list[dict[str, Any]]:
    rows = []
    for stage in own.stages:
        told = _cost(own, laws, stage, point.sizes)
        rows.append({
            "stage": stage, "nodes": point.nodes, "edges": point.edges, "features": point.features,
            **{f"predicted_{what}": value for what, value in told.items()},
            **{f"measured_{what}": point.stages[stage][what] for what in told},
        })  # fmt: skip
    return rows
