"""The content of the golden files: every method on three small datasets of its kind, trained for about 20 steps.

The data are in tests/golden/data, in file formats of users. Everything goes through the public interface
(command line, run object), so that the golden values survive refactoring.
"""

from __future__ import annotations

import io
import os
import signal
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pandas as pd
import torch

import hopstate
import hopstate.errors
from hopstate.cli.main import main

HERE = Path(__file__).parent
DATA = HERE / "data"
STEPS = 20  # stored losses
ROWS = 50  # pairs, nodes or graphs with stored scores
PLAIN = "--no-auto"  # no automatic settings
QUIET = ("--loop.progress", "false", "--loop.logger", "none", "--loop.device", "cpu")


@dataclass(frozen=True)
class Kind:
    """Three datasets of one kind of task.

    Args:
        sets: name to the words of the command line that name the data.
        pairs: whether a run scores pairs of nodes; otherwise it predicts.
    """

    sets: Mapping[str, tuple[str, ...]]
    pairs: bool = False


def _graph(name: str, *more: str) -> tuple[str, ...]:
    files = [str(DATA / f"{name}_{part}.csv") for part in ("edges", "features", "labels")]
    return ("--data", files[0], "--read.features", files[1], "--read.labels", files[2], *more)


def _file(name: str, *more: str) -> tuple[str, ...]:
    return ("--data", str(DATA / name), *more)


def _paths(**options: Any) -> tuple[str, ...]:
    read = [word for key, value in {"count": 60, **options}.items() for word in (f"--read.{key}", str(value))]
    return ("--data", "path-sequences", *read)


_EVENT_LABELS = ("--read.label_column", "label", "--read.edge_columns", "[amount]")
KINDS = {
    "nodes": Kind(
        {
            "clubs": _graph("clubs"),
            "roads": _graph("roads", "--read.undirected", "false"),
            "clubs-links": _graph("clubs", "--task", "link", "--link.batch_size", "40", "--link.dim", "8"),
        }
    ),
    "graphs": Kind({"rings": _file("rings.txt"), "shapes": _file("shapes.txt"), "chains": _file("chains.txt")}),
    "events": Kind(
        {
            "messages": _file("messages.csv"),
            "shop": _file("shop.csv", "--read.edge_columns", "[amount, rating]"),
            "follows": _file("follows.csv"),
        },
        pairs=True,
    ),
    "event-labels": Kind(
        {
            "fraud": _file("fraud.csv", *_EVENT_LABELS),
            "states": _file("states.csv", *_EVENT_LABELS),
            "sums": _file("sums.csv", *_EVENT_LABELS, "--read.task", "regression"),
        }
    ),
    "sequences": Kind(
        {
            "paths-4": _paths(length=4),
            "paths-6": _paths(length=6),
            "paths-random-times": _paths(length=5, variant="ctdg-ssm"),
        }
    ),
}

_NODES = {"loop.epochs": 20, "loop.optim.lr": 0.01}
_BACKBONE = _NODES | {"model.dim": 8, "model.num_layers": 2, "model.dropout": 0.2}
_LINKS = {"loop.epochs": 3, "batch_size": 30, "loop.optim.lr": 0.003}
_HISTORY = _LINKS | {"model.channel_dim": 6, "model.time_dim": 6, "model.out_dim": 6}
_MEMORY = {
    "loop.epochs": 3,
    "batch_size": 10,
    "tbptt_window": 2,
    "model.dim": 6,
    "model.time_dim": 4,
    "model.hidden": 8,
}
_EVALUATION = {"evaluation.strategies": "[random, historical]", "evaluation.batch_size": 32}
_SETS = {"loop.epochs": 4, "batch_size": 6, "loop.optim.lr": 0.01}
_WALKS = {"model.dim": 8, "model.state_dim": 4, "walks.max_length": 2, "walks.repeats": 2, "walks.walks": 2}
METHODS: dict[str, tuple[str, dict[str, Any]]] = {  # "method" or "method+variant" to its kind and settings
    **dict.fromkeys(("mlp", "gcn", "sage", "gin", "pna", "gcnii"), ("nodes", _BACKBONE)),
    "gat": ("nodes", _BACKBONE | {"model.heads": 2}),
    "sage+top": (
        "nodes",
        _BACKBONE
        | {"batching.kind": "top", "batching.num_clusters": 6, "batching.clusters_per_batch": 2}
        | {"batching.partitioner": "bisection", "batching.top.refresh": 2, "batching.top.rank": 6},
    ),
    "nagphormer": (
        "nodes",
        {"loop.epochs": 10, "loop.optim.lr": 0.01, "batch_size": 10, "model.dim": 8, "model.num_heads": 2}
        | {"tokens.num_hops": 3, "tokens.eigenvectors": 2},
    ),
    "gmn": ("nodes", {"loop.epochs": 10, "loop.optim.lr": 0.01, "batch_size": 10} | _WALKS),
    "gmn-graphs": ("graphs", _SETS | _WALKS),
    "gin-graphs": ("graphs", _SETS | {"model.dim": 8, "model.num_layers": 2}),
    "dyg-mamba": ("events", _HISTORY | _EVALUATION | {"history.max_length": 6}),
    "dygformer": ("events", _HISTORY | _EVALUATION | {"model.max_length": 6}),
    "graphmixer": (
        "events",
        _LINKS | _EVALUATION | {"model.num_links": 4, "model.dim": 6, "model.time_dim": 6, "model.out_dim": 4},
    ),
    "ctdg-ssm": ("events", _MEMORY | _EVALUATION),
    "pair-trees": ("events", _EVALUATION | {"model.num_trees": 20, "model.min_leaf": 5}),
    "recency": ("events", _EVALUATION),
    "edgebank": ("events", _EVALUATION),
    "dyg-mamba-nodes": ("event-labels", _HISTORY | {"history.max_length": 6}),
    "ctdg-ssm-nodes": ("event-labels", _MEMORY),
    "ctdg-ssm-sequences": ("sequences", {"loop.epochs": 6, "batch_size": 12, "model.dim": 6, "model.order": 1}),
}

EDGES: dict[tuple[str, str], dict[str, Any]] = {  # two edge features for a backbone that reads none
    ("gcn", "roads"): {"edges.weight": 0},
    ("gcnii", "roads"): {"edges.weight": 0},
    ("nagphormer", "roads"): {"edges.weight": 0},
    ("sage", "roads"): {"edges.use": "drop"},
    ("sage+top", "roads"): {"edges.use": "drop"},
}

REPRESENTATIVES = (  # one method of each code path: the quick tests cover these on all of their datasets
    *("gcn", "nagphormer", "gmn", "gmn-graphs", "dyg-mamba", "ctdg-ssm", "pair-trees", "ctdg-ssm-nodes"),
    "ctdg-ssm-sequences",
)


def words(settings: Mapping[str, Any]) -> list[str]:
    """Return settings as words of a command line."""
    return [word for key, value in settings.items() for word in (f"--{key}", str(value))]


def command(*argv: str) -> None:
    """Run a command of the command line.

    Raises:
        RuntimeError: it failed.
    """
    with warnings.catch_warnings(), redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()) as trouble:
        warnings.simplefilter("ignore", hopstate.errors.HopstateWarning)
        status = main(list(argv))
    if status not in (0, 130):
        raise RuntimeError(f"exit status {status}: {' '.join(argv)}\n{trouble.getvalue()}")


@contextmanager
def losses(stop_after: int | None = None) -> Iterator[list[float]]:
    """Collect the loss of every step; after `stop_after` of them press Ctrl-C."""
    found: list[float] = []
    backward = torch.Tensor.backward

    def noted(loss: torch.Tensor, *rest: Any, **named: Any) -> None:
        found.append(loss.item())
        backward(loss, *rest, **named)
        if len(found) == stop_after:
            os.kill(os.getpid(), signal.SIGINT)

    with patch.object(torch.Tensor, "backward", noted):
        yield found


@dataclass
class Fit:
    """A finished fit of a golden case."""

    run: hopstate.Run
    losses: list[float]
    metrics: dict[str, float]
    scores: list[float]

    def values(self) -> dict[str, Any]:
        """Return the values of a golden file."""
        return {"losses": self.losses[:STEPS], "metrics": self.metrics, "scores": self.scores}


def fit(method: str, name: str, out: Path, precision: str) -> Fit:
    """Train a golden case and return its values.

    Args:
        method: name of the method.
        name: of the dataset.
        out: folder of the run.
        precision: "64" or "32".
    """
    argv = fit_words(method, name, out, precision)
    with losses() as found:
        command(*argv)
    run = hopstate.load(out)
    return Fit(run, found, dict(sorted(run.metrics["test"].items())), scores(run, method, name))


def fit_words(method: str, name: str, out: Path, precision: str) -> list[str]:
    """Return the command that trains a golden case."""
    kind, settings = METHODS[method]
    own = words(settings | EDGES.get((method, name), {}))
    argv = ["fit", method.partition("+")[0], *KINDS[kind].sets[name], "--out", str(out), *own, PLAIN, *QUIET]
    return [*argv, "--loop.precision", precision]


def stop_and_resume(method: str, name: str, out: Path, precision: str) -> list[float]:
    """Train a golden case, interrupt it after seven steps, resume it, and return the losses of all steps."""
    argv = fit_words(method, name, out, precision)
    with losses(stop_after=7) as first:
        command(*argv)
    with losses() as rest:
        command(*argv, "--resume")
    return first + rest


def scores(run: hopstate.Run, method: str, name: str) -> list[float]:
    """Return scores of the first pairs of the data after its last event, or predictions of the first rows."""
    kind = KINDS[METHODS[method][0]]
    if kind.pairs:
        table = pd.read_csv(DATA / f"{name}.csv")
        return run.score(table.iloc[:ROWS, :2])["score"].tolist()
    numbers = run.predict(split="all").select_dtypes("number")
    return numbers.iloc[:ROWS, -1].to_numpy(np.float64).tolist()
