"""The contribution of each part of a Graph Mamba Network: its published ablations in one table.

Run: python benchmarks/gmn_ablation.py --data minesweeper --out runs/ablation [--splits 0-2] [--rows full,"no MPNN"]
         [--set model.dim=40 --set loop.epochs=100 ...]
Rows share every setting but the one that names them. A row's finished splits are read from --out, so an
interrupted run resumes. The test metric is that of the epoch selected on validation.

Source: Behrouz & Hashemi 2024, arXiv:2402.08678, Table 4.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np

from common import machine, require_green
from hopstate.cli.compare import numbers
from hopstate.runs.run import fit

ROWS: dict[str, dict[str, Any]] = {
    "full": {},
    "one direction": {"model.bidirectional": False},
    "no MPNN": {"model.mpnn": "none"},
    "no PE": {"encoding.kind": "none"},
    "random-walk PE": {"encoding.kind": "rwse"},
    "Laplacian PE": {"encoding.kind": "laplacian"},
    "PPR order": {"order.kind": "ppr"},
    "GMN- (no PE; no MPNN)": {"model.variant": "gmn-"},
    "GMN- (tokens by GatedGCN)": {"model.variant": "gmn-", "model.local": "gatedgcn"},
    "two blocks over the nodes": {"model.node_layers": 2},
    "walks kept for two epochs": {"walks.resample_every": 2},
    "last of the walks' tokens": {"model.node_token": False},
    "mean of the walks' tokens": {"model.node_token": False, "model.readout": "mean"},
    "s = 2; half the walks": {"walks.repeats": 2, "walks.walks": 8},
    "only MPNN": {"model.token_layers": 0, "model.node_layers": 0, "walks.max_length": 0},
}


def run(data: str, split: int, settings: dict[str, Any], where: Path) -> dict[str, float]:
    """Return validation and test metrics of one run, from its folder if it is finished."""
    if not (where / "result.json").is_file():
        spelled = {name.replace(".", "__"): value for name, value in settings.items()}
        fit("gmn", data, out=where, resume=where.exists(), split__number=split, **spelled)
    found = json.loads((where / "result.json").read_text())
    return {part: 100 * found["metrics"][part][found["metric"]] for part in ("val", "test")}


def value_of(text: str) -> Any:
    """Return a number, true, false or null; anything else is text ("no" is text here, unlike in YAML)."""
    try:
        return json.loads(text)
    except json.JSONDecodeError:
        return text


def line(name: str, found: list[dict[str, float]]) -> str:
    """Return one row: means and standard deviations over splits."""
    texts = []
    for part in ("val", "test"):
        values = [f[part] for f in found]
        spread = f" ± {np.std(values, ddof=1):.2f}" if len(values) > 1 else ""
        texts.append(f"{np.mean(values):.2f}{spread}")
    return f"| {name} | {texts[0]} | {texts[1]} | {len(found)} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", default="minesweeper")
    parser.add_argument("--out", required=True, help="folder of all runs")
    parser.add_argument("--splits", default="0-2")
    parser.add_argument("--rows", help=f"some of: {', '.join(ROWS)}; all by default")
    parser.add_argument("--set", action="append", default=[], metavar="NAME=VALUE", help="a setting of every row")
    options = parser.parse_args()
    shared = {name: value_of(value) for name, _, value in (text.partition("=") for text in options.set)}
    chosen = list(ROWS) if options.rows is None else options.rows.split(",")
    require_green(
        "tests/methods/gmn/test_gmn_model.py",
        "tests/methods/gmn/test_model_written_out.py",
        "tests/methods/gmn/test_walk_tokens.py",
    )
    print(machine(), flush=True)
    found: dict[str, list[dict[str, float]]] = {name: [] for name in chosen}
    for split in numbers(options.splits):  # all rows of a split first: rows stay comparable after an interrupt
        for name in chosen:
            where = Path(options.out) / f"{''.join(c for c in name if c.isalnum())}-{split}"
            found[name].append(run(options.data, split, {**shared, **ROWS[name]}, where))
            print(f"split {split}, {name}: {found[name][-1]}", flush=True)
    print("\n| row | validation | test | splits |\n|---|---|---|---|")
    print("\n".join(line(name, results) for name, results in found.items()))


if __name__ == "__main__":
    main()
