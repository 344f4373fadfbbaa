"""CTDG-SSM's sequence classification (tables 4 and 13): accuracy by path length, order of the filter, start, node read.

Every run is a folder under --out; one that is finished is not run again. A run ends at the first of EPOCHS at which its
validation accuracy is 100%; test metrics are shown next to validation's and do not select or stop anything.

    python benchmarks/ctdg_sequences.py --lengths 3,9,15,20 --orders 0-3 --seeds 0-4 --out runs/sequences
    python benchmarks/ctdg_sequences.py --lengths 20 --orders 1-3 --starts critical,1.0 --out runs/sequences
    python benchmarks/ctdg_sequences.py --lengths 20 --orders 2 --reads -1,18 --out runs/sequences
"""

from __future__ import annotations

import argparse
import itertools
import math
import time
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import hopstate
from common import machine, require_green
from hopstate.cli.compare import numbers
from hopstate.io.files import write_text
from hopstate.training.run_folder import RunFolder

# longest path → the bias of its first step: the memory must outlast the path
STEP_BIAS = {20: -3.0, 50: -4.0, 100: -5.0, math.inf: -6.0}
EPOCHS = (5, 10, 20, 35, 50, 75, 100)


class Row(NamedTuple):
    """The settings of a row of the table."""

    variant: str
    length: int
    order: int
    start: str
    read: int

    @property
    def folder(self) -> str:
        """The name of its run folders, without the seed."""
        return f"{self.variant}-L{self.length}-order{self.order}-{self.start}-read{self.read}"

    @property
    def settings(self) -> dict[str, Any]:
        """Its options."""
        return {
            "read__variant": self.variant,
            "read__length": self.length,
            "model__order": self.order,
            "model__filter_init": self.start if self.start == "critical" else float(self.start),
            "model__step_bias": next(bias for most, bias in STEP_BIAS.items() if self.length <= most),
            "read_node": self.read,
        }


def main() -> None:
    """Run missing runs and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--variants", default="ctan")
    parser.add_argument("--lengths", default="3,9,15,20")
    parser.add_argument("--orders", default="0-3")
    parser.add_argument("--starts", default="critical", help="critical, or numbers, joined by commas")
    parser.add_argument("--reads", default="-1", help="nodes that are read; -1 is the last")
    parser.add_argument("--seeds", default="0-4")
    parser.add_argument("--epochs", type=int, default=100, help="at most")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--table", action="store_true", help="print the table of what is there; run nothing")
    args = parser.parse_args()
    reads = [int(x) for x in args.reads.split(",")]
    axes = (args.variants.split(","), numbers(args.lengths), numbers(args.orders), args.starts.split(","), reads)
    rows = [Row(*values) for values in itertools.product(*axes)]
    print(machine())
    if not args.table:
        require_green("tests/training/tasks/test_sequence.py", "tests/methods/ctdg_ssm/test_hippo.py")
        for row in rows:
            for seed in numbers(args.seeds):
                fit(args, row, seed)
    text = "\n".join(lines(args.out, rows))
    print(text)
    write_text(args.out / "table.md", text + "\n")


def fit(args: argparse.Namespace, row: Row, seed: int) -> None:
    """Run one seed until validation is at 100%, or to the end."""
    where = args.out / f"{row.folder}-{seed}"
    for epochs in sorted({e for e in EPOCHS if e < args.epochs} | {args.epochs}):
        if (where / "result.json").is_file() and (epochs_of(where) >= epochs or accuracy(where, "val") == 1.0):
            continue
        began = time.perf_counter()
        done = epochs_of(where) if where.is_dir() else 0
        settings = {**row.settings, "loop__epochs": epochs, "loop__seed": seed, "loop__logger": "none"}
        hopstate.fit("ctdg-ssm-sequences", "path-sequences", out=where, resume=where.is_dir(), **settings)
        seconds = (time.perf_counter() - began) / (epochs - done)
        found = accuracy(where, "val")
        print(f"{where.name}: {epochs} epochs, validation {found:.4f}, {seconds:.2f} s an epoch", flush=True)


def epochs_of(where: Path) -> int:
    """Return the number of finished epochs of a run."""
    metrics = where / "metrics.csv"
    return len(metrics.read_text().splitlines()) - 1 if metrics.is_file() else 0


def accuracy(where: Path, part: str) -> float:
    """Return a finished run's accuracy."""
    return float(RunFolder.open(where).read_json("result.json")["metrics"][part]["accuracy"])


def lines(out: Path, rows: list[Row]) -> list[str]:
    """Return the table: percent over the finished seeds."""
    table = ["| data | L | order | start | node read | seeds | epochs | validation | test | worst seed |"]
    table.append("|---|---|---|---|---|---|---|---|---|---|")
    for row in rows:
        done = [run for run in sorted(out.glob(f"{row.folder}-[0-9]*")) if (run / "result.json").is_file()]
        if not done:
            continue
        val, test = (100 * np.array([accuracy(run, part) for run in done]) for part in ("val", "test"))
        seen = sorted(epochs_of(run) for run in done)
        read = "last" if row.read == -1 else str(row.read)
        cells = [row.variant, row.length, row.order, row.start, read, len(done), f"{seen[0]} to {seen[-1]}"]
        cells += [
            f"{val.mean():.2f} ± {val.std():.2f}",
            f"{test.mean():.2f} ± {test.std():.2f}",
            f"{test.min():.2f}",
        ]
        table.append(f"| {' | '.join(map(str, cells))} |")
    return table


if __name__ == "__main__":
    main()
