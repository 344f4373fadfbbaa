"""DyG-Mamba's ablations (tables 5, 6, 12 and 13 of the paper, and open choices) as one table.

Every variant is a run folder under --out; a finished one is not run again, and more --epochs continue where fewer
ended. The epoch is selected on validation; test metrics are shown next to validation's and select nothing.

    python benchmarks/dyg_mamba_ablation.py --data uci --seeds 0-2 --epochs 4 --out runs/ablation [--variants a,b]
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

import hopstate
from common import machine, require_green
from hopstate.cli.compare import numbers
from hopstate.io.files import write_text
from hopstate.training.run_folder import RunFolder

BLOCK = "model__block__"
VARIANTS: dict[str, dict[str, Any]] = {
    "DyG-Mamba": {},
    "w/o timespan": {f"{BLOCK}step": "data"},
    "w/o time encoding": {"model__time_encoding": False},
    "w/o time": {f"{BLOCK}step": "data", "model__time_encoding": False},
    "w/o selective": {f"{BLOCK}step": "fixed", f"{BLOCK}bc_source": "fixed"},
    "w/o data-dependent": {f"{BLOCK}bc_source": "span"},
    "w/o spectral bound": {f"{BLOCK}spectral_bound": False},
    "w/o co-occurrence": {"model__cooccurrence": False},
    "w/o skip (gate)": {f"{BLOCK}gate": False},
    "w/o skip (residual)": {f"{BLOCK}residual": False},
    "one direction": {f"{BLOCK}bidirectional": False},
    "step: linear": {f"{BLOCK}step_function": "linear"},
    "step: logarithmic": {f"{BLOCK}step_function": "log"},
    "step: sigmoid": {f"{BLOCK}step_function": "sigmoid"},
    "step: exponential": {f"{BLOCK}step_function": "exponential"},
    "step: w/o tau - t_1": {f"{BLOCK}step_function": "unnormalized"},
    "span and data": {f"{BLOCK}step": "both"},
    "independent encoders": {"model__encoders": "independent"},
    "cross-attention": {"model__cross_attention": 2},
    "target node last": {"history__target": "last"},
    "no target node": {"history__target": "none"},
}
COLUMNS = ("val_average_precision", "val_new_average_precision", "average_precision", "new_average_precision")


def main() -> None:
    """Run missing runs and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", default="uci")
    parser.add_argument("--seeds", default="0")
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--variants", default=None, help="names joined by commas; all by default")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--table", action="store_true", help="print the table of what is there; run nothing")
    args = parser.parse_args()
    names = list(VARIANTS) if args.variants is None else args.variants.split(",")
    print(machine())
    if not args.table:
        require_green("tests/methods/dyg_mamba/test_dyg_mamba.py", "tests/methods/dyg_mamba/test_timespan.py")
        for name in names:
            for seed in numbers(args.seeds):
                fit(args, name, seed)
    rows = list(lines(args.out, names))
    print("\n".join(rows))
    write_text(args.out / "table.md", "\n".join(rows) + "\n")


def folder(out: Path, name: str, seed: int) -> Path:
    """Return the run folder of a variant."""
    return out / f"{name.replace('/', '').replace(' ', '-').replace(':', '')}-{seed}"


def fit(args: argparse.Namespace, name: str, seed: int) -> None:
    """Run a variant to a number of epochs, continuing an earlier run."""
    settings = {
        "split__kind": "dyglib",
        "evaluation__protocol": "dyglib",
        "evaluation__strategies": ["random"],
        "loop__epochs": args.epochs,
        "loop__seed": seed,
        "loop__logger": "none",
        **VARIANTS[name],
    }
    where = folder(args.out, name, seed)
    if (where / "result.json").is_file() and len(metrics(where)) >= args.epochs:
        return
    hopstate.fit("dyg-mamba", args.data, out=where, resume=where.is_dir(), **settings)


def metrics(where: Path) -> list[str]:
    """Return the lines of a run's metrics, one per epoch."""
    return (where / "metrics.csv").read_text().splitlines()[1:]


def lines(out: Path, names: list[str]) -> Iterator[str]:
    """Yield the table: percent, mean and deviation over the finished seeds."""
    yield "| variant | seeds | epochs | val AP | val AP, new nodes | test AP | test AP, new nodes |"
    yield "|---|---|---|---|---|---|---|"
    for name in names:
        done = [
            run
            for run in sorted(out.glob(folder(out, name, 0).name[:-1] + "[0-9]*"))
            if (run / "result.json").is_file()
        ]
        if not done:
            continue
        found = []
        for run in done:
            kept = RunFolder.open(run).read_json("result.json")["metrics"]
            flat = {f"val_{k}": v for k, v in kept["val"].items()} | kept["test"]
            found.append([100 * flat[column] for column in COLUMNS])
        table = np.array(found)
        cells = [f"{m:.2f} ± {s:.2f}" if len(done) > 1 else f"{m:.2f}" for m, s in zip(table.mean(0), table.std(0))]
        epochs = "/".join(str(len(metrics(run))) for run in done)
        yield f"| {name} | {len(done)} | {epochs} | {' | '.join(cells)} |"


if __name__ == "__main__":
    main()
