"""A graph without node features: links and labels train nevertheless."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import hopstate
from hopstate.data.graph import Graph, with_codes
from hopstate.data.vocabulary import Vocabulary

QUIET = {"progress": False, "logger": "none"}


def blocks(count: int = 60, groups: int = 4, seed: int = 0) -> pd.DataFrame:
    """Links within groups, and a few others."""
    rng = np.random.default_rng(seed)
    u, v = np.triu_indices(count, 1)
    linked = rng.random(len(u)) < np.where(u % groups == v % groups, 0.5, 0.01)
    return pd.DataFrame({"source": u[linked], "target": v[linked]}).map(lambda node: f"n{node}")


@pytest.mark.parametrize("method", ["gcn", "sage", "gat", "nagphormer"])
def test_links_train_without_features(method: str, tmp_path: Path) -> None:
    blocks().to_csv(tmp_path / "edges.csv", index=False)
    config = {"task": "link", "loop.epochs": 30, "link.structural_features": False}
    run = hopstate.fit(method, tmp_path / "edges.csv", config=config, loop=QUIET, out=tmp_path / "run")
    assert run.metrics["test"]["roc_auc"] > 0.7
    assert any("no node features" in note for note in run.model.task.messages.notes)
    best = run.rank("n0", top=5).dst
    assert len(best) == 5
    grown = pd.concat([blocks(), pd.DataFrame({"source": ["n0", "n4"], "target": ["new", "new"]})])
    with pytest.warns(UserWarning, match="new"):
        found = run.predict(grown, split="test")
    assert found.target.str.contains("new").any() | found.source.str.contains("new").any()


def test_labels_train_without_features(tmp_path: Path) -> None:
    nodes = [f"n{i}" for i in range(60)]
    labels = pd.DataFrame({"id": nodes, "label": [f"g{i % 4}" for i in range(60)]})
    run = hopstate.fit("gcn", blocks(), labels=labels, config={"loop.epochs": 60}, loop=QUIET, out=tmp_path / "run")
    assert run.metrics["test"]["accuracy"] > 0.5
    assert len(run.predict()) == 60


def test_a_code_belongs_to_an_id() -> None:
    edges = np.array([[0, 1], [1, 2]])
    one = with_codes(Graph.from_edges(edges, node_ids=Vocabulary(np.array(["a", "b", "c"]))))
    other = with_codes(Graph.from_edges(edges, node_ids=Vocabulary(np.array(["b", "c", "d"]))))
    assert one.x is not None
    assert other.x is not None
    np.testing.assert_array_equal(one.x[1:], other.x[:2])
    assert set(np.unique(one.x)) == {-1, 1}


def test_codes_are_nearly_orthogonal() -> None:
    x = with_codes(Graph.from_edges(np.array([[0, 1999]]))).x
    assert x is not None
    products = x @ x.T / x.shape[1]
    off = products[~np.eye(len(x), dtype=bool)]
    assert abs(off.mean()) < 0.01
    assert off.std() == pytest.approx(1 / np.sqrt(x.shape[1]), rel=0.05)


def test_too_many_nodes_get_a_constant_feature(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hopstate.data.graph.MOST", 2)
    graph = with_codes(Graph.from_edges(np.array([[0, 1], [1, 2]])))
    assert graph.x.tolist() == [[1], [1], [1]]  # type: ignore[union-attr]
    assert "constant" in graph.notes[-1]
