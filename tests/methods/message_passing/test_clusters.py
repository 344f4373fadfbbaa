"""A run keeps to the partitioner that made its clusters, whatever is installed later."""

import json
from pathlib import Path

import numpy as np
import pytest

from hopstate.data.graph import Graph
from hopstate.errors import CheckpointError, MissingExtraError
from hopstate.runs import api
from hopstate.runs.queries.card import run_card
from hopstate.sampling import partition as partition_module

SETTINGS = {"kind": "top", "num_clusters": 6, "clusters_per_batch": 2, "inference": "one-pass", "top": {"refresh": 0}}


@pytest.fixture
def installed(monkeypatch) -> set[str]:
    """Modules that seem installed; KaMinPar's stand-in deals nodes out by turns, METIS's in blocks."""
    there = {"kaminpar"}
    monkeypatch.setattr(partition_module, "find_spec", lambda name: object() if name in there else None)

    def turns(indptr: np.ndarray, indices: np.ndarray, clusters: int, seed: int) -> np.ndarray:
        used.append("kaminpar")
        return np.arange(len(indptr) - 1) % clusters

    def blocks(indptr: np.ndarray, indices: np.ndarray, clusters: int, seed: int) -> np.ndarray:
        used.append("metis")
        return np.arange(len(indptr) - 1) * clusters // (len(indptr) - 1)

    used.clear()
    monkeypatch.setattr(partition_module, "_kaminpar", turns)
    monkeypatch.setattr(partition_module, "_metis", blocks)
    return there


used: list[str] = []


def graph() -> Graph:
    rng = np.random.default_rng(0)
    y = np.arange(120) % 2
    return Graph.from_edges(rng.integers(0, 120, (400, 2)), 120, x=rng.random((120, 4), np.float32), y=y)


def fit(out: Path, epochs: int, *, resume: bool = False, progress: bool = False) -> api.Run:
    return api.fit(
        "gcn", graph(), out=out, resume=resume, batching=SETTINGS, model={"dim": 8},
        loop={"epochs": epochs, "patience": 100, "progress": progress},
    )  # fmt: skip


def kept(out: Path) -> dict:
    return json.loads((out / "data.json").read_text())


def test_a_run_says_and_keeps_its_partitioner(installed: set[str], tmp_path: Path, capsys) -> None:
    out = tmp_path / "run"
    whole = fit(tmp_path / "whole", 4)
    fit(out, 2, progress=True)
    assert "clusters by KaMinPar" in capsys.readouterr().err
    assert kept(out)["partitioner"] == "kaminpar"
    assert "clusters by KaMinPar" in run_card(out)
    installed.add("pymetis")
    used.clear()
    assert fit(out, 4, resume=True).metrics == whole.metrics
    assert set(used) == {"kaminpar"}
    assert kept(out)["partitioner"] == "kaminpar"
    installed.remove("kaminpar")
    with pytest.raises(MissingExtraError, match=r"hopstate\[kaminpar\]"):
        fit(out, 6, resume=True)
    with pytest.raises(MissingExtraError, match=r"hopstate\[kaminpar\]"):
        api.load(out).evaluate(graph())
    installed.add("kaminpar")
    api.load(out).evaluate(graph())
    assert set(used) == {"kaminpar"}


@pytest.mark.parametrize(("there", "expected"), [({"kaminpar", "pymetis"}, "metis"), ({"kaminpar"}, "bisection")])
def test_runs_with_nothing_written_down_go_on_as_they_did(
    there: set[str], expected: str, installed: set[str], tmp_path: Path
) -> None:
    installed.clear()
    installed |= there - {"kaminpar"}
    out = tmp_path / "run"
    fit(out, 2)
    known = kept(out)
    assert known.pop("partitioner") == expected
    (out / "data.json").write_text(json.dumps(known))
    installed |= there
    api.load(out).evaluate(graph())
    fit(out, 3, resume=True)
    assert "kaminpar" not in used
    assert kept(out)["partitioner"] == expected


def test_an_unknown_partitioner_is_named(installed: set[str], tmp_path: Path) -> None:
    fit(tmp_path, 1)
    (tmp_path / "data.json").write_text(json.dumps(kept(tmp_path) | {"partitioner": ["x"]}))
    with pytest.raises(CheckpointError, match="partitioner"):
        fit(tmp_path, 2, resume=True)
