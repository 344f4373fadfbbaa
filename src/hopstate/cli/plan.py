"""`hopstate plan METHOD --nodes N --edges E --features F`: time, memory and disk of a run by stage."""

from __future__ import annotations

import argparse
import sys
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from hopstate.cli.answer import Answer, lines
from hopstate.cli.options import Options
from hopstate.errors import ConfigError

if TYPE_CHECKING:
    from hopstate.runs.plan import Plan


def run(argv: list[str]) -> Answer:
    """Plan a run, or measure this machine."""
    parser = Options(prog="hopstate plan", description=__doc__, allow_abbrev=False)
    known = "nagphormer, gcn (by TOP), graphmixer, dyg-mamba, ctdg-ssm or pair-trees"
    parser.add_argument("method", nargs="?", help=known)
    parser.add_argument("--nodes", type=float, help="nodes, e.g. 111e6")
    parser.add_argument("--edges", type=float, help="edges as they are stored: of an undirected graph both directions")
    parser.add_argument("--events", type=float, help="events, in place of edges, for a method of events")
    parser.add_argument("--features", type=float, default=None, help="of a node; of an event for a method of events")
    parser.add_argument("--train", type=float, default=None, help="share of the nodes that train (default: 0.5)")
    parser.add_argument("--measure", action="store_true", help="measure METHOD, or all, on this machine (minutes)")
    o = parser.parse_args(argv[1:])
    from hopstate.runs.plan import measure, plan
    from hopstate.runs.plan.stages import PLANS, SHARE

    if o.measure:
        if any(value is not None for value in (o.nodes, o.edges, o.events, o.features, o.train)):
            raise ConfigError("--measure takes points of its own sizes; leave --nodes, --edges and the others out")
        methods = [o.method] if o.method else list(PLANS)
        path = measure(methods, say=lambda text: print(text, file=sys.stderr))
        return Answer({"file": path, "methods": methods}, lines(f"{', '.join(methods)}: measured, kept in {path}"))
    if o.method is None:
        raise ConfigError(f"which method? one of {', '.join(PLANS)}")
    nodes, edges, features = _sizes(o)
    train = SHARE if o.train is None else o.train
    found = plan(o.method, nodes=nodes, edges=edges, features=features, train=train)
    return Answer(asdict(found), lines(*_shown(found)))


def _sizes(o: argparse.Namespace) -> tuple[float, float, float]:
    """Return nodes, edges (or events) and features as they are asked for."""
    from hopstate.runs.plan.stages import PLANS

    events = o.method in PLANS and PLANS[o.method].events
    many, other = ("events", "edges") if events else ("edges", "events")
    if o.method in PLANS and getattr(o, other) is not None:
        raise ConfigError(f"{o.method} reads {many}; give --{many} in place of --{other}")
    if o.train is not None and o.method in PLANS and not PLANS[o.method].tokens:
        raise ConfigError(f"--train counts where tokens of training nodes alone are read, not for {o.method}")
    features = 0.0 if events and o.features is None else o.features
    edges = o.edges if o.edges is not None else o.events
    missing = [
        f"--{name}" for name, size in (("nodes", o.nodes), (many, edges), ("features", features)) if size is None
    ]
    if missing and o.method in PLANS:
        raise ConfigError(f"a plan needs {', '.join(missing)}")
    return o.nodes or 0.0, edges or 0.0, features or 0.0


def _shown(plan: Plan) -> list[str]:
    from hopstate.io.scratch import machine_memory
    from hopstate.training.progress import duration

    sizes = ", ".join(f"{value:,.0f} {name}" if name != "train" else f"{value:.3g} of them train"
                      for name, value in plan.sizes.items())  # fmt: skip
    told = [f"{plan.method}: {sizes}", f"settings: {', '.join(f'{k}={v}' for k, v in plan.settings.items())}"]
    told.append(
        f"measured on {'this machine' if plan.own else 'another machine, shipped with the package'}: {plan.machine}"
        + ("" if plan.own else " (hopstate plan --measure takes the points here)")
    )
    points = plan.measured
    head = ["stage", "one core", "memory", "disk", *(f"measured: {_short(one)}" for one in points)]
    rows = [head]
    for row in plan.stages:
        beside = [one["stages"][row["stage"]] for one in points]
        rows.append([
            row["stage"], duration(row["seconds"]), _bytes(row["memory"]), _bytes(row["disk"]) if row["disk"] else "",
            *(f"{duration(one['seconds'])}, {_bytes(one['memory'])}" for one in beside),
        ])  # fmt: skip
    widths = [max(len(row[i]) for row in rows) for i in range(len(head))]
    told += ["  ".join(cell.ljust(w) for cell, w in zip(row, widths, strict=True)).rstrip() for row in rows]
    peak, there = max(row["memory"] for row in plan.stages), machine_memory()
    if there < peak:
        told.append(f"memory: {_bytes(peak)} with all in memory, more than this machine has ({_bytes(there)})")
    return told + [_judged(row) for row in plan.judged]


def _short(one: dict[str, Any]) -> str:
    return f"{one['nodes']:.2g}, {one['edges']:.2g}, {one['features']}".replace("e+0", "e")


def _judged(row: dict[str, Any]) -> str:
    from hopstate.training.progress import duration

    ratio = row["predicted_seconds"] / max(row["measured_seconds"], 1e-9)
    return (
        f"a point not fitted ({_short(row)}), {row['stage']}: predicted {duration(row['predicted_seconds'])}, measured "
        f"{duration(row['measured_seconds'])} ({ratio:.2f} of it)"
    )


def _bytes(size: float) -> str:
    for unit, scale in (("TiB", 2**40), ("GiB", 2**30)):
        if size >= scale:
            return f"{size / scale:,.3g} {unit}"
    return f"{size / 2**20:,.0f} MiB"
