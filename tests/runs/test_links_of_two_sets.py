"""Static links between two sets of nodes: the negative of a link is a node of the same side."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import scipy.sparse
from sklearn.metrics import roc_auc_score

import hopstate
from hopstate.data.graph import Graph
from hopstate.data.readers.read_graph import read_graph
from hopstate.data.splits import message_edges
from hopstate.errors import DataError

QUIET = {"progress": False, "logger": "none"}
USERS, ITEMS = 20, 15


def links(first: str = "user", second: str = "item", seed: int = 0) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    found = {(u, i) for u in range(USERS) for i in rng.choice(ITEMS, 5, replace=False).tolist()}
    return pd.DataFrame([(f"u{u}", f"i{i}") for u, i in sorted(found)], columns=[first, second])


@pytest.mark.parametrize("names", [("user", "item"), ("source", "target"), ("gene", "disease"), ("a", "b")])
def test_disjoint_columns_are_two_sets(names: tuple[str, str], tmp_path: Path) -> None:
    links(*names).to_csv(tmp_path / "edges.csv", index=False)
    for source in (tmp_path / "edges.csv", links(*names)):
        graph = read_graph(source)
        assert graph.two_sets
        ids = graph.node_ids.ids  # type: ignore[union-attr]
        assert (graph.node_type == np.char.startswith(ids.astype(str), "i")).all()
        assert any("two sets of nodes" in note for note in graph.notes)
        assert not read_graph(source, bipartite=False).two_sets


def test_equal_ids_of_users_and_items_are_distinct_nodes() -> None:
    table = pd.DataFrame({"user": [1, 1, 2, 3], "item": [1, 2, 3, 3]})
    graph = read_graph(table)
    assert graph.node_ids.ids.tolist() == ["i1", "i2", "i3", "u1", "u2", "u3"]  # type: ignore[union-attr]
    assert not read_graph(table, bipartite="false").two_sets
    plain = table.set_axis(["a", "b"], axis=1)
    assert not read_graph(plain).two_sets
    assert read_graph(plain, bipartite=True).two_sets


def test_one_set_if_a_node_is_in_both_columns() -> None:
    table = pd.concat([links("a", "b"), pd.DataFrame({"a": ["u1"], "b": ["u2"]})])
    assert not read_graph(table).two_sets
    with pytest.raises(DataError):
        read_graph(table, bipartite=True, num_nodes=3)


def test_sets_survive_saving_and_conversion(tmp_path: Path) -> None:
    graph = read_graph(links())
    graph.save(str(tmp_path / "saved"))
    part = message_edges(graph, graph.edge_index().T[:20])
    back = Graph.from_pyg(graph.to_pyg())
    for other in (Graph.load(str(tmp_path / "saved")), part, back, graph.reversed()):
        np.testing.assert_array_equal(other.node_type, graph.node_type)
    block = scipy.sparse.coo_array((np.ones(3), ([0, 1, 1], [2, 2, 3])), (5, 5))
    assert Graph.from_scipy(block).node_type.tolist() == [0, 0, 1, 1, -1]  # type: ignore[union-attr]
    with pytest.raises(DataError):
        graph.with_(node_type=np.zeros(graph.num_nodes, np.int8))


@pytest.mark.parametrize(
    "config",
    [
        {},
        {"link.negatives": "two-hop"},
        {"link.negatives": "degree"},
        {"batching.kind": "cluster", "batching.num_clusters": 2, "batching.clusters_per_batch": 1},
        {"read.undirected": False},
    ],
)
def test_negatives_and_candidates_are_of_the_other_side(config: dict[str, Any], tmp_path: Path) -> None:
    x = pd.DataFrame({"id": [f"u{u}" for u in range(USERS)] + [f"i{i}" for i in range(ITEMS)]})
    x["a"] = np.random.default_rng(0).normal(size=len(x))
    chosen = {"task": "link", "loop.epochs": 1} | config
    run = hopstate.fit("gcn", links(), features=x, config=chosen, loop=QUIET, out=tmp_path / "run")
    ranked = run.rank("u3", top=None)
    assert len(ranked) == ITEMS
    assert ranked.dst.str.startswith("i").all()
    assert run.rank("i3", top=None).dst.str.startswith("u").all()
    assert run.rank("u3", top=None, exclude_seen=True).dst.str.startswith("i").all()
    task = run.model.task
    types = task.messages.node_type
    for split in ("train", "val", "test"):
        negatives = task.question(split).negatives()
        negatives = negatives[negatives[:, 1] >= 0]
        assert len(negatives)
        assert (types[negatives].sum(1) == 1).all()
    rng = np.random.default_rng(1)
    rows = np.repeat(np.arange(len(types)), 20)
    for strategy in ("uniform", "degree", "two-hop"):
        drawn = task.untrained.draw(rows, rng, strategy)
        known = drawn >= 0
        assert (types[rows[known]] + types[drawn[known]] == 1).all()
        assert not task.untrained.linked(rows[known], drawn[known]).any()


def test_metrics_use_possible_pairs(tmp_path: Path) -> None:
    """Side features separate impossible pairs from links, but carry no information among possible pairs."""
    edges = links(seed=3)
    x = pd.DataFrame({"id": [f"u{u}" for u in range(USERS)] + [f"i{i}" for i in range(ITEMS)]})
    x["is_user"] = x.id.str.startswith("u").astype(float)
    run = hopstate.fit(
        "gcn", edges, features=x, config={"task": "link", "loop.epochs": 20}, loop=QUIET, out=tmp_path / "run"
    )
    task = run.model.task
    question = task.question("test")
    negatives = question.negatives()
    pairs = np.concatenate([question.pairs, negatives[negatives[:, 1] >= 0]])
    y = np.arange(len(pairs)) < len(question.pairs)
    names = task.messages.node_ids.names(pairs)
    scores = run.score([tuple(pair) for pair in names.tolist()]).score
    assert run.metrics["test"]["roc_auc"] == pytest.approx(roc_auc_score(y, scores), abs=1e-6)
    assert {tuple(sorted((a[0], b[0]))) for a, b in names.tolist()} == {("i", "u")}


def test_equal_numbers_in_both_columns_are_queried_as_written(tmp_path: Path) -> None:
    table = links().map(lambda name: int(name[1:]))
    run = hopstate.fit("gcn", table, config={"task": "link", "loop.epochs": 1}, loop=QUIET, out=tmp_path / "run")
    found = run.score([(7, 7)])
    assert found[["src", "dst"]].to_numpy().tolist() == [["u7", "i7"]]
    assert run.rank(7, top=None).dst.str.startswith("i").all()
    assert run.rank("i7", top=None).dst.str.startswith("u").all()
    assert sorted(run.rank(7, top=None, candidates=[1, 2]).dst) == ["i1", "i2"]
