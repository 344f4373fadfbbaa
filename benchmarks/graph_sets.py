"""Graph Mamba Networks and GIN on a set of graphs, tuned equally on validation.

Run: python benchmarks/graph_sets.py --data MUTAG.txt --folds 0-2 --epochs 30 --out runs/search
     python benchmarks/graph_sets.py --data PROTEINS.txt --folds 0-9 --epochs 10 --few --out runs/few
Each trial changes one automatic setting; the last one combines all improvements if there are several.
Both methods have the same number of trials and epochs, and no test metric is read. An interrupted search resumes.
Then `hopstate compare gin-graphs,gmn-graphs --splits 0-9` of the choice prints the paired test.
--few: fewer trials for many folds, alternating between the methods, evaluated with the first of --seeds. The choice of
validation then runs with every seed, and the paired test uses each fold's mean over seeds.
"""

from __future__ import annotations

import argparse
import json
from itertools import zip_longest
from pathlib import Path
from typing import Any

import numpy as np

from common import machine, require_green
from hopstate.cli.compare import numbers
from hopstate.runs.run import fit
from hopstate.runs.summary import paired

Settings = dict[str, Any]
TRIES: dict[str, tuple[Settings, ...]] = {
    "gmn-graphs": (
        {},
        {"loop.optim.lr": 0.01},
        {"model.pooling": "mean"},
        {"model.dropout": 0.0},
        {"walks.max_length": 0},
        {"encoding.kind": "none"},
        {"model.mpnn_layers": 2},
        {"model.mpnn_layers": 6},
        {"model.readout": "mean"},
    ),
    "gin-graphs": (
        {},
        {"loop.optim.lr": 0.01},
        {"model.pooling": "mean"},
        {"model.dropout": 0.0},
        {"model.dim": 64},
        {"loop.optim.weight_decay": 1e-3},
        {"model.num_layers": 2},
        {"model.num_layers": 6},
        {"model.dim": 16},
    ),
}
FAST = {"loop.optim.lr": 0.01}
READ = {"model.mpnn_layers": 2, "model.graph_pooling": "all", "model.input_readout": True}
FEW: dict[str, tuple[Settings, ...]] = {
    "gmn-graphs": (
        {"model.mpnn_layers": 2},
        {"model.mpnn_layers": 2, "walks.max_length": 0},
        READ,
        READ | FAST,
    ),
    "gin-graphs": (
        {},
        {"model.dim": 64},
        {"model.pooling": "all"},
        FAST,
        {"loop.epochs": 30},
        FAST | {"model.pooling": "all"},
        FAST | {"model.pooling": "all", "model.dropout": 0.3},
        FAST | {"model.num_layers": 2},
    ),
}


def reached(method: str, data: str, fold: int, epochs: int, settings: Settings, out: Path) -> dict[str, float]:
    """Return the accuracy in percent of each split at the epoch selected on validation; finished runs are read."""
    words = [f"{name}={value}" for name, value in settings.items()]
    where = out / "-".join([method, Path(data).stem, str(fold), str(epochs), *words])
    if not (where / "result.json").is_file():
        spelled = {name.replace(".", "__"): value for name, value in settings.items()}
        given = {"fold": fold, "loop__epochs": epochs, "loop__progress": False, **spelled}
        fit(method, data, out=where, resume=where.exists(), **given)
    metrics = json.loads((where / "result.json").read_text())["metrics"]
    return {part: 100 * metrics[part]["accuracy"] for part in ("val", "test")}


def search(method: str, data: str, folds: list[int], epochs: int, out: Path) -> None:
    """Print the mean validation accuracy of every trial."""

    def tried(settings: Settings) -> float:
        found = float(np.mean([reached(method, data, fold, epochs, settings, out)["val"] for fold in folds]))
        print(f"{method} {Path(data).stem} {settings or 'automatic'}: validation {found:.2f}", flush=True)
        return found

    first, *others = [(tried(settings), settings) for settings in TRIES[method]]
    better = [settings for found, settings in sorted(others, key=lambda pair: pair[0]) if found > first[0]]
    if len(better) > 1:  # the better one of two values of a setting wins
        tried({name: value for settings in better for name, value in settings.items()})


def few(data: str, folds: list[int], epochs: int, tries: int, seeds: list[int], out: Path) -> None:
    """Print validation accuracies of the first trials of `FEW`, then the selected settings of both methods."""

    def over_folds(method: str, settings: Settings, seed: int) -> list[dict[str, float]]:
        own = settings | ({"loop.seed": seed} if seed else {})
        found = [reached(method, data, fold, epochs, own, out) for fold in folds]
        values = np.array([one["val"] for one in found])
        summary = f"validation {values.mean():.2f}" + (f" ± {values.std(ddof=1):.2f}" if len(values) > 1 else "")
        print(f"{method} {Path(data).stem} {own or 'automatic'}: {summary}", flush=True)
        return found

    validation: dict[str, list[tuple[float, Settings]]] = {method: [] for method in FEW}
    for pair in list(zip_longest(*FEW.values()))[:tries]:
        for method, settings in zip(FEW, pair, strict=True):
            if settings is not None:
                found = over_folds(method, settings, seeds[0])
                validation[method].append((float(np.mean([one["val"] for one in found])), settings))
    (first, second) = (max(validation[method], key=lambda one: one[0])[1] for method in FEW)
    runs = [[over_folds(*choice, seed) for seed in seeds] for choice in zip(FEW, (first, second), strict=True)]
    print(f"gmn-graphs {first or 'automatic'} - gin-graphs {second or 'automatic'}, means of seeds {seeds}")
    for part in ("val", "test"):
        mine, others = (np.mean([[one[part] for one in found] for found in own], 0) for own in runs)
        print(part, "gmn", np.round(mine, 1).tolist(), "gin", np.round(others, 1).tolist())
        test = paired(mine.tolist(), others.tolist())
        result = "no test of one fold" if test is None else f"paired {test}"
        print(f"  means {np.mean(mine):.2f} {np.mean(others):.2f}, {result}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", required=True)
    parser.add_argument("--folds", default="0-2")
    parser.add_argument("--epochs", type=int, required=True)
    parser.add_argument("--out", type=Path, required=True, help="folder of all runs")
    parser.add_argument("--few", action="store_true", help="the short lists, for many folds")
    parser.add_argument("--tries", type=int, default=8, help="of the short lists, of each method")
    parser.add_argument("--seeds", default="0", help="of --few: of weights, batches and walks; the first one chooses")
    options = parser.parse_args()
    require_green(
        "tests/methods/gmn/test_model_written_out.py",
        "tests/methods/gmn/test_directed_sets.py",
        "tests/runs/reproduce/test_statistics.py",
    )
    print(machine(), flush=True)
    if options.few:
        folds, seeds = list(numbers(options.folds)), list(numbers(options.seeds))
        few(options.data, folds, options.epochs, options.tries, seeds, options.out)
        return
    for method in TRIES:
        search(method, options.data, list(numbers(options.folds)), options.epochs, options.out)


if __name__ == "__main__":
    main()
