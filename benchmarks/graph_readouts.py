"""How a Graph Mamba Network should read out graphs where nothing is known of the labels: made sets of five kinds.

Run: python benchmarks/graph_readouts.py --out runs/readouts [--kinds count,share] [--seeds 0,1] [--epochs 30]
Graphs of 10 to 40 nodes whose class is a count of edges between two tags, their share among all edges, whether one
rare pattern is there, the size of the one ring, or how ties were made (no tags). Half a set is for training, half for
validation, which alone is read. Other settings are what suits a set.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from common import machine, require_green
from hopstate.cli.compare import numbers
from hopstate.runs.run import fit

GRAPHS = 800
READOUTS: dict[str, dict[str, Any]] = {
    "sum": {},
    "all": {"model.graph_pooling": "all"},
    "sum, features": {"model.input_readout": True},
    "all, features": {"model.graph_pooling": "all", "model.input_readout": True},
}
Made = tuple[np.ndarray, np.ndarray, float]  # tags, edges, and what is above or below its median


def tree(size: int, rng: np.random.Generator) -> np.ndarray:
    """Return the edges of a random tree whose nodes join one of the last four."""
    own = np.arange(1, size)
    return np.stack([own, own - rng.integers(1, np.minimum(own, 4) + 1)], 1)


def sparse(size: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Return random tags of 0..4 and a tree with half as many edges more."""
    more = rng.integers(0, size, (size // 2, 2))
    edges = np.concatenate([tree(size, rng), more[more[:, 0] != more[:, 1]]])
    return rng.integers(0, 5, size), edges


def count(size: int, rng: np.random.Generator) -> Made:
    tags, edges = sparse(size, rng)
    return tags, edges, float((np.sort(tags[edges], 1) == [0, 1]).all(1).sum() + rng.random() / 2)


def share(size: int, rng: np.random.Generator) -> Made:
    tags, edges, found = count(size, rng)
    return tags, edges, found / len(edges)


def presence(size: int, rng: np.random.Generator) -> Made:
    """One node of tag 0 beside one of tag 1, half the time; otherwise the two apart, at the ends of the numbers."""
    tags, edges = sparse(size, rng)
    tags[tags < 2] += 2
    wanted = rng.random() < 0.5
    one, other = edges[rng.integers(len(edges))] if wanted else (0, size - 1)
    tags[one], tags[other] = 0, 1
    return tags, edges, float(wanted)


def ring(size: int, rng: np.random.Generator) -> Made:
    """A ring of five or six nodes, trees on it; the number of nodes and edges says nothing."""
    wanted = int(rng.integers(5, 7))
    round_ = np.stack([np.arange(wanted), (np.arange(wanted) + 1) % wanted], 1)
    rest = np.arange(wanted, size)
    return rng.integers(0, 3, size), np.concatenate([round_, np.stack([rest, rng.integers(0, rest)], 1)]), wanted


def ties(size: int, rng: np.random.Generator) -> Made:
    """Ties at random, or half of them close triangles."""
    edges = {(0, 1), (1, 2)}
    closed = rng.random() < 0.5
    while len(edges) < 2 * size:
        a, b = rng.integers(0, size, 2)
        if closed and rng.random() < 0.5:
            first, second = list(edges)[rng.integers(len(edges))]
            beside = [u + v - second for u, v in edges if second in (u, v) and u + v - second != first]
            a, b = (first, beside[rng.integers(len(beside))]) if beside else (a, b)
        if a != b:
            edges.add((int(min(a, b)), int(max(a, b))))
    return np.zeros(size, np.int64), np.array(sorted(edges)), float(closed)


KINDS: dict[str, Callable[[int, np.random.Generator], Made]] = {
    "count": count, "share": share, "presence": presence, "ring": ring, "ties": ties,
}  # fmt: skip


def written(kind: str, seed: int, path: Path) -> Path:
    """Write a made set as a TU text file; the class is whether its figure is above the median."""
    rng = np.random.default_rng([seed, list(KINDS).index(kind)])
    made = [KINDS[kind](int(rng.integers(10, 41)), rng) for _ in range(GRAPHS)]
    figures = np.array([figure for _, _, figure in made])
    middle = (figures.max() + figures.min()) / 2 if len(np.unique(figures)) == 2 else np.median(figures)
    lines = [str(GRAPHS)]
    for (tags, edges, _), label in zip(made, figures > middle, strict=True):
        lines.append(f"{len(tags)} {int(label)}")
        for v, tag in enumerate(tags):
            beside = np.unique(np.concatenate([edges[edges[:, 0] == v, 1], edges[edges[:, 1] == v, 0]]))
            lines.append(" ".join(map(str, (tag, len(beside), *beside))))
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(lines) + "\n")
    return path


def reached(kind: str, seed: int, settings: dict[str, Any], epochs: int, out: Path) -> float:
    """Return validation's accuracy in percent at the epoch that it chose; a run that is done is read."""
    where = out / "-".join([kind, str(seed), str(epochs), *(f"{name}={value}" for name, value in settings.items())])
    if not (where / "result.json").is_file():
        data = written(kind, seed, out / f"{kind}-{seed}.txt")
        spelled = {name.replace(".", "__"): value for name, value in settings.items()}
        given = {"loop__epochs": epochs, "loop__seed": seed, "loop__progress": False, "metric": "accuracy"}
        halves = {"split__kind": "random", "split__fractions": (0.49, 0.49, 0.02)}
        fit("gmn-graphs", str(data), out=where, resume=where.exists(), **given, **halves, **spelled)
    return 100 * json.loads((where / "result.json").read_text())["metrics"]["val"]["accuracy"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, help="folder of all runs")
    parser.add_argument("--kinds", default=",".join(KINDS))
    parser.add_argument("--readouts", default=";".join(READOUTS), help="separated by semicolons")
    parser.add_argument("--seeds", default="0,1", help="of the data, the weights and the walks")
    parser.add_argument("--epochs", type=int, default=30)
    options = parser.parse_args()
    require_green(
        "tests/methods/gmn/test_model_written_out.py",
        "tests/methods/gmn/test_gmn.py::test_sets_of_graphs_are_learned_at_every_level",
    )
    print(machine(), flush=True)
    for kind in options.kinds.split(","):
        for name in options.readouts.split(";"):
            found = [reached(kind, s, READOUTS[name], options.epochs, options.out) for s in numbers(options.seeds)]
            print(f"| {kind} | {name} | {', '.join(f'{one:.1f}' for one in found)} |", flush=True)


if __name__ == "__main__":
    main()
