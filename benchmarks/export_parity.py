"""Differences between exported programs and their runs, for every method and both formats.

    python benchmarks/export_parity.py [--methods gcn,ctdg-ssm]

Each method is trained for an epoch on small synthetic data, with an additional run of links if it predicts links of a
graph, and exported as `hopstate export RUN --to torch|onnx --check` does. A difference is the largest over all outputs
and all queries; for a logit or a regression target z, relative to 1 + |z|.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

import hopstate
from common import machine, require_green
from hopstate.data.graph import Graph
from hopstate.data.graph_set import GraphSet
from hopstate.methods import MODULES, get_method
from hopstate.runs.export import FILES, export_run

LOOP = {"loop.epochs": 1, "loop.progress": False, "loop.device": "cpu", "loop.logger": "none"}
SMALL: dict[str, dict[str, Any]] = {
    "dyg-mamba": {"history.max_length": 8}, "dyg-mamba-nodes": {"history.max_length": 8},
    "dygformer": {"model.max_length": 8},
    "gmn": {"model.dim": 16}, "gmn-graphs": {"model.dim": 16},
}  # fmt: skip


def graphs(count: int = 60) -> GraphSet:
    """Return rings and chains of 5 to 12 nodes, labeled by their kind."""
    rng, parts = np.random.default_rng(0), []
    sizes, y = rng.integers(5, 13, count), np.arange(count) % 2
    for label, size, first in zip(y, sizes, np.cumsum(sizes) - sizes, strict=True):
        ring = np.stack([np.arange(size), (np.arange(size) + 1) % size], 1)
        parts.append(first + (ring if label else ring[:-1]))
    total = int(sizes.sum())
    x = rng.normal(size=(total, 3)).astype(np.float32)
    return GraphSet(
        union=Graph.from_edges(np.concatenate(parts), total, x=x), offsets=np.concatenate([[0], np.cumsum(sizes)]), y=y
    )


def data_of(method: str) -> Any:
    """Return the training data of a method."""
    kind = get_method(method).data
    if kind == "graph":
        return hopstate.load_dataset("sbm", num_nodes=400)
    if kind == "graphs":
        return graphs()
    if kind != "events":
        return None
    events = hopstate.load_dataset("messages-generated", num_events=1500)
    return events.with_(labels=np.arange(len(events)) % 3) if method.endswith("-nodes") else events


def difference(method: str, data: Any, to: Any, folder: Path, settings: dict[str, Any]) -> str:
    """Return the largest difference of a program as text, or why there is none."""
    run = folder / "run"
    if not run.exists():
        hopstate.fit(method, data, out=run, config={**LOOP, **SMALL.get(method, {}), **settings})
    export_run(run, to, folder / to)
    found = hopstate.check_program(run, folder / to)
    return f"{max(found.differences.values()):.1e} | {found.asked} {found.what}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--methods", default=",".join(MODULES))
    names = parser.parse_args().methods.split(",")
    require_green("tests/runs/test_export_check.py::test_a_number_that_is_none_is_a_difference")
    print(machine())
    print("| method | task | torch.export | ONNX | queries |\n|---|---|---:|---:|---:|")
    for name in names:
        method = get_method(name)
        if not callable(method.export):
            print(f"| `{name}` | | none: {method.export} | | |", flush=True)
            continue
        tasks = [{}, {"task": "link"}] if method.data == "graph" else [{}]
        data = data_of(name)
        for settings in tasks:
            with tempfile.TemporaryDirectory() as made:
                found = [difference(name, data, to, Path(made), settings).split(" | ") for to in FILES]
            words = "static links" if settings else {"graph": "nodes", "graphs": "graphs"}.get(method.data, "events")
            print(f"| `{name}` | {words} | {found[0][0]} | {found[1][0]} | {found[0][1]} |", flush=True)


if __name__ == "__main__":
    main()
