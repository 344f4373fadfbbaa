"""Graph Mamba Networks and GIN over a set of graphs, equally searched by validation.

Run: python benchmarks/graph_sets.py --data MUTAG.txt --folds 0-2 --epochs 30 --out runs/search
     python benchmarks/graph_sets.py --data PROTEINS.txt --folds 0-9 --epochs 10 --few --out runs/few
Each try changes one setting of what suits the set; the last one joins all that were above it, where there are several.
Both methods have the same number of tries and of epochs, and no test figure is read. The search goes on where it was
stopped. Then `hopstate compare gin-graphs,gmn-graphs --splits 0-9` of the choice prints the paired test.
--few: fewer tries, for many folds, the methods by turns, judged by the first of --seeds; then what validation chose is
run with every seed, and the paired test is of each fold's mean over them.
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
    """Return the accuracy in percent of each part at the epoch that validation chose; a run that is done is read."""
    words = [f"{name}={value}" for name, value in settings.items()]
    where = out / "-".join([method, Path(data).stem, str(fold), str(epochs), *words])
    if not (where / "result.json").is_file():
        spelled = {name.replace(".", "__"): value for name, value in settings.items()}
        given = {"fold": fold, "loop__epochs": epochs, "loop__progress": False, **spelled}
        fit(method, data, out=where, resume=where.exists(), **given)
    metrics = json.loads((where / "result.json").read_text())["metrics"]
    return {part: 100 * metrics[part]["accuracy"] for part in ("val", "test")}


def search(method: str, data: str, folds: list[int], epochs: int, out: Path) -> None:
    """Print the mean validation accuracy of every try."""

    def tried(settings: Settings) -> float:
        found = float(np.mean([reached(method, data, fold, epochs, settings, out)["val"] for fold in folds]))
        print(f"{method} {Path(data).stem} {settings or 'as it suits'}: validation {found:.2f}", flush=True)
        return found

    first, *others = [(tried(settings), settings) for settings in TRIES[method]]
    better = [settings for found, settings in sorted(others, key=lambda pair: pair[0]) if found > first[0]]
    if len(better) > 1:  # of two values of one setting the better one stays
        tried({name: value for settings in better for name, value in settings.items()})


def few(data: str, folds: list[int], epochs: int, tries: int, seeds: list[int], out: Path) -> None:
    """Print validation's accuracy of the first tries of `FEW`, then what it chose of each method beside the other."""

    def over_folds(method: str, settings: Settings, seed: int) -> list[dict[str, float]]:
        own = settings | ({"loop.seed": seed} if seed else {})
        found = [reached(method, data, fold, epochs, own, out) for fold in folds]
        values = np.array([one["val"] for one in found])
        said = f"validation {values.mean():.2f}" + (f" ± {values.std(ddof=1):.2f}" if len(values) > 1 else "")
        print(f"{method} {Path(data).stem} {own or 'as it suits'}: {said}", flush=True)
        return found

    judged: dict[str, list[tuple[float, Settings]]] = {method: [] for method in FEW}
    for pair in list(zip_longest(*FEW.values()))[:tries]:
        for method, settings in zip(FEW, pair, strict=True):
            if settings is not None:
                found = over_folds(method, settings, seeds[0])
                judged[method].append((float(np.mean([one["val"] for one in found])), settings))
    (first, second) = (max(judged[method], key=lambda one: one[0])[1] for method in FEW)
    runs = [[over_folds(*choice, seed) for seed in seeds] for choice in zip(FEW, (first, second), strict=True)]
    print(f"gmn-graphs {first or 'as it suits'} - gin-graphs {second or 'as it suits'}, means of seeds {seeds}")
    for part in ("val", "test"):
        mine, others = (np.mean([[one[part] for one in found] for found in own], 0) for own in runs)
        print(part, "gmn", np.round(mine, 1).tolist(), "gin", np.round(others, 1).tolist())
        told = paired(mine.tolist(), others.tolist())
        said = "no test of one fold" if told is None else f"paired {told}"
        print(f"  means {np.mean(mine):.2f} {np.mean(others):.2f}, {said}", flush=True)


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
