"""A run keeps the partitioner of its clusters, whatever is installed later."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hopstate.data.graph import Graph
from hopstate.errors import CheckpointError, MissingExtraError
from hopstate.methods.message_passing.batching import Batching
from hopstate.methods.message_passing.method import METHODS, FullBatchRun, with_partitioner
from hopstate.methods.message_passing.model import Backbone
from hopstate.methods.method import Context
from hopstate.sampling import partition as partition_module
from hopstate.training.config import LoopConfig

QUIET = LoopConfig(progress=False)
TOP = Batching(kind="top", num_clusters=6, clusters_per_batch=2)


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """Modules that seem installed."""
    there: set[str] = set()
    monkeypatch.setattr(partition_module, "find_spec", lambda name: object() if name in there else None)
    return there


def chosen(folder: Path, batching: Batching = TOP, **context: Any) -> tuple[str, Any]:
    """Return the partitioner of a run in a folder, and its record."""
    surroundings = Context(run=folder, cache=folder, **context)
    return with_partitioner(batching, surroundings, QUIET).partitioner, surroundings.noted.get("partitioner")


def note(folder: Path, **known: Any) -> None:
    (folder / "data.json").write_text(json.dumps(known))


@pytest.mark.parametrize(
    ("there", "first"),
    [({"kaminpar", "pymetis"}, "kaminpar"), ({"pymetis"}, "metis"), (set(), "bisection")],
)
def test_a_new_run_uses_and_records_the_first_installed_partitioner(
    there: set[str], first: str, installed: set[str], tmp_path: Path
) -> None:
    installed |= there
    assert chosen(tmp_path) == (first, first)
    assert chosen(tmp_path, Batching(kind="top", partitioner="metis")) == ("metis", "metis")
    assert chosen(tmp_path, Batching(kind="top", nodes="random")) == ("auto", None)
    assert chosen(tmp_path, Batching(kind="neighbor")) == ("auto", None)


def test_a_resumed_or_applied_run_keeps_its_partitioner(installed: set[str], tmp_path: Path) -> None:
    installed.add("kaminpar")
    note(tmp_path, partitioner="metis")
    assert chosen(tmp_path) == ("metis", "metis")
    assert chosen(tmp_path, trained={"partitioner": "bisection"}) == ("bisection", "bisection")


def test_an_unknown_partitioner_is_named(installed: set[str], tmp_path: Path) -> None:
    note(tmp_path, partitioner=["x"])
    with pytest.raises(CheckpointError, match="partitioner"):
        chosen(tmp_path)


def test_the_clusters_of_a_run_come_from_its_partitioner(
    installed: set[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A fake KaMinPar assigns nodes in turns; without it the run cannot resume."""

    def turns(indptr: np.ndarray, indices: np.ndarray, clusters: int, seed: int) -> np.ndarray:
        return np.arange(len(indptr) - 1) % clusters

    monkeypatch.setattr(partition_module, "_kaminpar", turns)
    rng = np.random.default_rng(0)
    x, y = rng.random((60, 4), np.float32), np.arange(60) % 2
    graph = Graph.from_edges(rng.integers(0, 60, (200, 2)), 60, x=x, y=y)
    model = Backbone.Config(dim=4, num_layers=1)
    config = FullBatchRun(
        data="x", model=model, batching=Batching(kind="cluster", num_clusters=6, clusters_per_batch=1), loop=QUIET
    )
    context = Context(run=tmp_path, cache=tmp_path)
    installed.add("kaminpar")
    source = METHODS["gcn"].build(graph, config, context).source.source
    assert context.noted["partitioner"] == "kaminpar"
    for number in range(6):
        nodes = source.batch(0, number).nodes
        assert len(nodes) == 10
        assert len(set(nodes % 6)) == 1
    installed.clear()
    note(tmp_path, partitioner="kaminpar")
    with pytest.raises(MissingExtraError, match="kaminpar"):
        METHODS["gcn"].build(graph, config, context)
