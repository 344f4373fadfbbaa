"""Graph Mamba Networks and GIN over a set of graphs, equally searched by validation.

Run: python benchmarks/graph_sets.py --data MUTAG.txt --folds 0-2 --epochs 30 --out runs/search
Each try changes one setting of what suits the set; the last one joins all that were above it, where there are several.
Both methods have the same number of tries and of epochs, and no test figure is read. The search goes on where it was
stopped. Then `hopstate compare gin-graphs,gmn-graphs --splits 0-9` of the choice prints the paired test.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np

from common import machine
from hopstate.cli.compare import numbers
from hopstate.runs.api import fit

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


def validation(method: str, data: str, fold: int, epochs: int, settings: Settings, out: Path) -> float:
    """Return the validation accuracy in percent at the epoch that it chose, from the run's folder where it is done."""
    words = [f"{name}={value}" for name, value in settings.items()]
    where = out / "-".join([method, Path(data).stem, str(fold), str(epochs), *words])
    if not (where / "result.json").is_file():
        spelled = {name.replace(".", "__"): value for name, value in settings.items()}
        given = {"fold": fold, "loop__epochs": epochs, "loop__progress": False, **spelled}
        fit(method, data, out=where, resume=where.exists(), **given)
    return 100 * json.loads((where / "result.json").read_text())["metrics"]["val"]["accuracy"]


def search(method: str, data: str, folds: list[int], epochs: int, out: Path) -> None:
    """Print the mean validation accuracy of every try."""

    def tried(settings: Settings) -> float:
        found = float(np.mean([validation(method, data, fold, epochs, settings, out) for fold in folds]))
        print(f"{method} {Path(data).stem} {settings or 'as it suits'}: validation {found:.2f}", flush=True)
        return found

    first, *others = [(tried(settings), settings) for settings in TRIES[method]]
    better = [settings for found, settings in sorted(others, key=lambda pair: pair[0]) if found > first[0]]
    if len(better) > 1:  # of two values of one setting the better one stays
        tried({name: value for settings in better for name, value in settings.items()})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", required=True)
    parser.add_argument("--folds", default="0-2")
    parser.add_argument("--epochs", type=int, required=True)
    parser.add_argument("--out", type=Path, required=True, help="folder of all runs")
    options = parser.parse_args()
    print(machine(), flush=True)
    for method in TRIES:
        search(method, options.data, list(numbers(options.folds)), options.epochs, options.out)


if __name__ == "__main__":
    main()
