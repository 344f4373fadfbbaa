"""Regret of automatic settings on many graphs: validation of every preset, of an MLP and of logistic regression.

Run: python benchmarks/defaults.py --folder DATA [--methods gcn,sage] [--graphs "cora;far-clues"] [--epochs 100]
         [--seed 0] [--cells FILE]
All runs have one width and at most --epochs epochs, and stop after 25 epochs without a better metric. Wide data (1e6
features in all) get only the presets for many features. Regret is the best preset's metric minus that of the chosen
one, in points. Test labels select nothing. --cells stores finished runs in a file, so that an interrupted run
resumes. Graphs without files in --folder are skipped. --seed draws other generated graphs and other splits.
"""

from __future__ import annotations

import argparse
import json
import math
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import torch

from common import machine, require_green, rmat_edges
from hopstate.data.graph import Graph
from hopstate.data.splits import masks_from_rows, random_split
from hopstate.datasets.generators import minesweeper, stochastic_block_model
from hopstate.methods import get_method
from hopstate.methods.config import parse_given
from hopstate.methods.message_passing.backbones import BACKBONES
from hopstate.methods.message_passing.method import PRESETS, choose_preset
from hopstate.methods.method import Context
from hopstate.methods.shared.baselines import graph_baselines
from hopstate.methods.shared.node import graph_stats
from hopstate.random import named_rng
from hopstate.runs.data import load_data, preprocess
from hopstate.runs.run import fit_config, resolve_config
from range_graphs import far_clues

FILES = {
    "cora": "gnn-benchmark/cora.npz",
    "photo": "gnn-benchmark/amazon_electronics_photo.npz",
    "minesweeper": "heterophilous/minesweeper.npz",
    "chameleon": "heterophilous/chameleon_filtered.npz",
    "squirrel": "heterophilous/squirrel_filtered.npz",
    **{
        name: f"graphdata/{name}.npz" for name in ("acm", "blogcatalog", "cora_ml", "dblp", "flickr", "polblogs", "uai")
    },
}


def without_edges(num_nodes: int = 3000, seed: int = 0) -> Graph:
    """Return a graph of labeled nodes without any edge."""
    made = stochastic_block_model(num_nodes, degree=0.0, signal=2.0, seed=seed)
    return made.with_(name="without-edges")


def directed_cycle_of_classes(num_nodes: int = 3000, num_classes: int = 4, degree: int = 6, seed: int = 0) -> Graph:
    """Return a directed graph whose edges lead from a class to the next one, in both features and labels noisy."""
    rng = named_rng(seed)
    y = rng.integers(num_classes, size=num_nodes)
    source, target = rng.integers(num_nodes, size=(2, 20 * degree * num_nodes))
    fits = (y[source] + 1) % num_classes == y[target]
    keep = np.flatnonzero(fits | (rng.random(len(fits)) < 0.1))[: degree * num_nodes]
    x = rng.standard_normal((num_nodes, 16), np.float32)
    x[np.arange(num_nodes), y] += 1
    return _split(np.stack([source[keep], target[keep]], 1), x, y, "directed", undirected=False)


def weighted_blocks(num_nodes: int = 3000, num_classes: int = 4, degree: int = 10, seed: int = 0) -> Graph:
    """Return a graph with edges between any classes, and larger weights inside a class."""
    rng = named_rng(seed)
    y = rng.integers(num_classes, size=num_nodes)
    pairs = rng.integers(num_nodes, size=(degree * num_nodes // 2, 2))
    weight = np.where(y[pairs[:, 0]] == y[pairs[:, 1]], 1.0, 0.1) * rng.uniform(0.5, 1.5, len(pairs))
    x = rng.standard_normal((num_nodes, 16), np.float32)
    x[np.arange(num_nodes), y] += 1
    return _split(pairs, x, y, "weighted", edge_weight=weight.astype(np.float32))


def power_law(scale: int = 12, num_classes: int = 4, seed: int = 0) -> Graph:
    """Return an R-MAT graph whose labels depend on a node's own features and on the mean of its neighbors'."""
    num_nodes = 1 << scale
    x = named_rng(seed).standard_normal((num_nodes, 16), np.float32)
    graph = Graph.from_edges(rmat_edges(num_nodes, 6 * num_nodes, seed), num_nodes, self_loops="drop", x=x)
    assert graph.x is not None
    source, target = graph.edge_index()
    total = np.zeros_like(graph.x)
    np.add.at(total, target, graph.x[source])
    mean = total / np.maximum(np.bincount(target, minlength=graph.num_nodes), 1)[:, None]
    rng = named_rng(seed)
    maps = rng.standard_normal((2, 16, num_classes), np.float32)
    y = (graph.x @ maps[0] + 2 * mean @ maps[1]).argmax(1)
    return graph.with_(y=y, masks=_masks(y), name="power-law")


def polblogs(graph: Graph) -> Graph:
    """Return the graph with one-hot features: its file has none."""
    return graph.with_(x=np.eye(graph.num_nodes, dtype=np.float32))


blocks = partial(stochastic_block_model, 3000)
GENERATED: dict[str, Callable[..., Graph]] = {
    "homophilous": partial(blocks, degree=8.0, homophily=0.7, signal=1.0),
    "heterophilous": partial(blocks, degree=16.0, homophily=0.02, signal=1.0),
    "near-clues": partial(minesweeper, 60, num_splits=1),
    "far-clues": partial(far_clues, 4, 1200),
    "power-law": power_law,
    "dense-features": partial(blocks, degree=6.0, homophily=0.5, num_features=512, signal=4.0),
    "random-edges": partial(blocks, degree=10.0, homophily=0.2, signal=2.0),
    "random-features": partial(blocks, degree=10.0, homophily=0.6, signal=0.0),
    "directed": directed_cycle_of_classes,
    "weighted": weighted_blocks,
    "without-edges": without_edges,
}
WIDTH, PATIENCE, WIDE = 64, 25, 1e6
MAX_LINEAR = 5000  # number of features above which logistic regression takes minutes
Cell: TypeAlias = tuple[str, str, Callable[[], dict[str, Any]]]
FEW_LABELS = "cora, 20 per class"
CHANGES = {"polblogs": polblogs}


def _masks(y: np.ndarray) -> dict[str, np.ndarray]:
    return masks_from_rows([random_split(y, stratified=True)], len(y))


def _split(edges: np.ndarray, x: np.ndarray, y: np.ndarray, name: str, **options: Any) -> Graph:
    return Graph.from_edges(edges, len(y), self_loops="drop", x=x, y=y, masks=_masks(y), name=name, **options)


def graphs(folder: Path, names: list[str], seed: int) -> Mapping[str, tuple[Callable[[], Graph], dict[str, Any]]]:
    """Return a loader and the settings of each graph of the suite."""
    found: dict[str, tuple[Callable[[], Graph], dict[str, Any]]] = {}

    def load(name: str) -> Graph:
        config = get_method("sage").config(data=str(folder / FILES[name]))
        graph = load_data(config.data, config.read, "graph")
        return CHANGES.get(name, lambda same: same)(graph)

    for name, path in FILES.items():
        if (folder / path).is_file():
            found[name] = partial(load, name), {"split.number": seed}
    if "cora" in found:
        found[FEW_LABELS] = found["cora"][0], {"split.number": seed, "split.per_class": (20, 30)}
    found |= {name: (partial(make, seed=seed), {}) for name, make in GENERATED.items()}
    return {name: found[name] for name in names or found if name in found}


def settings_of(method: str, graph: Graph, settings: Mapping[str, Any]) -> Any:
    """Return the configuration of a run, with automatic values for settings that are not given."""
    chosen = get_method(method)
    given = {"data": "memory:graph", "loop.progress": False, "loop.logger": "none", **settings}
    if graph.edge_weight is not None and BACKBONES[method].edges == "none":
        given["edges.use"] = "drop"
    return resolve_config(chosen, parse_given(chosen, given), record=graph)[0]


def fitted(method: str, graph: Graph, settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the validation metric in percent, the selected epoch, and the seconds of training."""
    with tempfile.TemporaryDirectory() as home:
        start = time.process_time()
        run = fit_config(
            get_method(method), settings_of(method, graph, settings), out=Path(home) / "run", record=graph,
            splits=("train", "val"),
        )  # fmt: skip
        seconds = time.process_time() - start
        epochs = len((run.path / "metrics.jsonl").read_text().splitlines())
    metric = next(iter(run.metrics["val"]))
    return {"value": 100 * run.metrics["val"][metric], "best": run.best_epoch, "epochs": epochs, "seconds": seconds}


def linear(graph: Graph, settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the validation metric in percent of logistic regression on the features."""
    method, config = get_method("mlp"), settings_of("mlp", graph, settings)
    with tempfile.TemporaryDirectory() as home:
        context = Context(run=Path(home), cache=Path(home))
        ready, _ = preprocess(graph, config, context, edges=False)
        start = time.process_time()
        task = method.build(ready, config, context)
        found = graph_baselines(ready, config, context, task)["logistic"][f"val_{task.metric}"]
    return {"value": 100 * found, "seconds": time.process_time() - start}


def cells(graph: Graph, settings: Mapping[str, Any], methods: list[str], epochs: int) -> Iterator[Cell]:
    """Yield (method, preset, function that runs it) of a graph."""
    wide = graph.num_nodes * graph.num_features > WIDE
    shared = {**settings, "model.dim": WIDTH, "loop.epochs": epochs, "loop.patience": PATIENCE}
    if graph.num_features < MAX_LINEAR:
        yield "logistic", "", partial(linear, graph, settings)
    yield "mlp", "", partial(fitted, "mlp", graph, shared)
    for method in methods:
        for name in ("shallow", "residual") if wide else PRESETS:
            yield method, name, partial(fitted, method, graph, {**shared, **PRESETS[name]})


def measure(options: argparse.Namespace) -> list[dict[str, Any]]:
    """Return the finished runs of the suite."""
    file: Path | None = options.cells
    stored = [json.loads(line) for line in file.read_text().splitlines()] if file and file.exists() else []
    rows = [row for row in stored if row["seed"] == options.seed]
    done = {(row["graph"], row["method"], row["preset"]) for row in rows}
    names = [name for name in options.graphs.split(";") if name]
    for name, (load, settings) in graphs(options.folder, names, options.seed).items():
        graph = load()
        settings = {**settings, "loop.seed": options.seed}
        config = settings_of("gcn", graph, settings)
        chosen = choose_preset(graph_stats(graph, config.split))
        for method, preset, work in cells(graph, settings, options.methods.split(","), options.epochs):
            if (name, method, preset) in done:
                continue
            row = {"graph": name, "seed": options.seed, "method": method, "preset": preset, **work()}
            rows.append(row)
            print(json.dumps(row), flush=True)
            if file:
                with file.open("a") as out:
                    out.write(json.dumps(row) + "\n")
        for row in rows:
            if row["graph"] == name:
                row["chosen"] = chosen
    return [row for row in rows if "chosen" in row]


def show(rows: list[dict[str, Any]], method: str) -> None:
    """Print the table of a method: one row per graph, and the mean regret."""
    names = list(dict.fromkeys(row["graph"] for row in rows))
    print(f"\n| {method} | logistic | mlp | " + " | ".join(PRESETS) + " | chosen | regret | best epoch | seconds |")
    print("|---" * (len(PRESETS) + 7) + "|")
    regrets = []
    for name in names:
        own = {(row["method"], row["preset"]): row for row in rows if row["graph"] == name}
        found = {preset: own[method, preset] for preset in PRESETS if (method, preset) in own}
        chosen = own["mlp", ""]["chosen"]
        regrets.append(max(cell["value"] for cell in found.values()) - found[chosen]["value"])
        cells = [("logistic", ""), ("mlp", ""), *((method, preset) for preset in PRESETS)]
        values = [own[cell]["value"] if cell in own else math.nan for cell in cells]
        shown = " | ".join("" if math.isnan(value) else f"{value:.1f}" for value in values)
        run = found[chosen]
        print(
            f"| {name} | {shown} | {chosen} | {regrets[-1]:.1f} | {run['best']} of {run['epochs']} | "
            f"{run['seconds']:.0f} |"
        )
    print(f"\nMean regret of {method} over {len(regrets)} graphs: {np.mean(regrets):.2f} points.")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, default=Path("data"))
    parser.add_argument("--methods", default="gcn,sage")
    parser.add_argument("--graphs", default="", help="joined by ;")
    parser.add_argument("--epochs", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--cells", type=Path)
    options = parser.parse_args()
    require_green("tests/methods/shared/test_auto_config_nodes.py")
    torch.set_num_threads(1)
    print(machine(), flush=True)
    rows = measure(options)
    for method in options.methods.split(","):
        show(rows, method)


if __name__ == "__main__":
    main()
