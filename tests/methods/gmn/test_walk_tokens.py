"""Packed walk tokens, their shuffles and resampling; orders; structural encodings."""

import networkx as nx
import numpy as np
import pytest
import torch

from hopstate.data.graph import Graph
from hopstate.errors import ConfigError, DataError
from hopstate.methods.gmn.orders import OrderConfig, node_keys, node_order, order_key
from hopstate.methods.gmn.tokens import (
    WalkSettings,
    anonymize_walks,
    anonymous_walk_encoding,
    nondiagonal_encoding,
    random_walk_encoding,
    relative_encoding,
    token_order,
    walk_tokens,
)
from hopstate.ops.returns import return_probabilities, return_probabilities_naive
from hopstate.ops.walks import WalkTable
from hopstate.testing.conformance import F32, F32_LAST, F32_TIGHT

SETTINGS = WalkSettings(max_length=3, repeats=2, walks=2, window=3)


@pytest.fixture(scope="module")
def g() -> nx.Graph:
    graph = nx.barabasi_albert_graph(50, 2, seed=4)
    graph.add_node(50)
    return graph


@pytest.fixture(scope="module")
def record(g) -> Graph:
    return Graph.from_edges(np.array(g.edges()), 51)


@pytest.mark.parametrize("kind", ["subgraph", "walk"])
def test_tokens_of_a_batch_equal_those_of_the_full_graph(record, kind):
    table = WalkTable.of(record.indptr, record.indices)
    whole = walk_tokens(table, np.arange(51), SETTINGS, kind=kind, seed=3, edges=True)
    part = walk_tokens(table, np.array([9]), SETTINGS, kind=kind, seed=3, edges=True)
    lo, hi = whole["offsets"][9 * 7], whole["offsets"][10 * 7]
    assert torch.equal(part["nodes"], whole["nodes"][lo:hi])
    assert torch.equal(part["offsets"], whole["offsets"][9 * 7 : 10 * 7 + 1] - lo)
    if kind == "walk":
        assert torch.equal(part["bits"], whole["bits"][lo:hi])
        assert whole["walks"][-1] == len(whole["nodes"]) == whole["offsets"][-1]
        assert len(whole["walks"]) - 1 == 51 * (3 * 2 * 2 + 1)
    else:
        source = torch.repeat_interleave(whole["indptr"].diff())
        token = torch.searchsorted(whole["offsets"], source, right=True)
        assert torch.equal(token, torch.searchsorted(whole["offsets"], whole["indices"], right=True))
        got = torch.from_numpy(record.indices)[whole["edges"]]
        assert torch.equal(got, whole["nodes"][whole["indices"]])


def test_doubling_lengths_include_the_longest_at_linear_cost():
    ladder = {m: WalkSettings(max_length=m, repeats=1, walks=1, lengths="doubling").ladder for m in (0, 1, 2, 5, 8, 80)}
    assert ladder == {0: [], 1: [1], 2: [1, 2], 5: [1, 2, 4, 5], 8: [1, 2, 4, 8], 80: [1, 2, 4, 8, 16, 32, 64, 80]}
    steps = [sum(WalkSettings(max_length=m, repeats=1, walks=1, lengths="doubling").ladder) for m in range(1, 200)]
    assert all(total < 3 * m for m, total in enumerate(steps, 1))
    with pytest.raises(ConfigError, match=r"walks\.lengths"):
        WalkSettings(max_length=1, repeats=1, walks=1, lengths="some")


@pytest.mark.parametrize("kind", ["subgraph", "walk"])
def test_tokens_of_doubling_lengths(record, kind):
    table, nodes = WalkTable.of(record.indptr, record.indices), np.arange(51)
    c = WalkSettings(max_length=5, repeats=2, walks=3, window=3, lengths="doubling")
    tokens = walk_tokens(table, nodes, c, kind=kind, seed=3)
    assert c.tokens == 9
    assert len(tokens["offsets"]) == 51 * 9 + 1
    assert (tokens["offsets"].diff().view(51, 9)[:, -1] == 1).all()
    if kind == "walk":
        assert tokens["walks"].diff().view(51, -1)[0].tolist() == [6] * 6 + [5] * 6 + [3] * 6 + [2] * 6 + [1]
        assert torch.equal(tokens["walks"][-1], tokens["offsets"][-1])
    order = token_order(51, c, np.random.default_rng(0)).view(51, 9) % 9
    assert order[:, -1].eq(8).all()
    assert torch.equal(order[:, :-1] // 2, (torch.arange(8) // 2).expand(51, 8))


def test_shuffle_permutes_equal_lengths_only_and_keeps_the_node_last():
    order = token_order(40, SETTINGS, np.random.default_rng(0)).view(40, 7)
    base = token_order(40, SETTINGS, None).view(40, 7)
    assert torch.equal(base.flatten(), torch.arange(280))
    assert torch.equal(order // 2, base // 2) or torch.equal((order % 7) // 2, (base % 7) // 2)
    assert torch.equal(order[:, -1], base[:, -1])
    assert not torch.equal(order, base)


def test_orders_equal_networkx(g, record):
    keys = {kind: order_key(record.indptr, record.indices, kind) for kind in ("degree", "pagerank", "kcore")}
    assert keys["degree"].tolist() == [g.degree(v) for v in range(51)]
    assert keys["kcore"].tolist() == [nx.core_number(g)[v] for v in range(51)]
    rank = nx.pagerank(g, tol=1e-12)
    np.testing.assert_allclose(
        keys["pagerank"], np.array([rank[v] for v in range(51)]) / max(rank.values()), atol=F32_LAST
    )
    hub = int(np.argmax(keys["degree"]))
    ppr = nx.pagerank(g, personalization={hub: 1}, dangling={hub: 1}, tol=1e-12)
    got = order_key(record.indptr, record.indices, "ppr")
    np.testing.assert_allclose(got, np.array([ppr[v] for v in range(51)]) / max(ppr.values()), atol=F32_LAST)
    vector = nx.eigenvector_centrality_numpy(g.subgraph(range(50)))
    got = order_key(record.indptr, record.indices, "eigenvector")[:50]
    np.testing.assert_allclose(got, np.array([vector[v] for v in range(50)]) / max(vector.values()), atol=F32_TIGHT)


def cores_by_definition(indptr: np.ndarray, indices: np.ndarray) -> list[int]:
    """Repeatedly remove the node with the fewest remaining entries; its core number is the maximum so far."""
    left, cores, core = set(range(len(indptr) - 1)), [0] * (len(indptr) - 1), 0
    while left:
        degree = {v: sum(u != v and u in left for u in indices[indptr[v] : indptr[v + 1]].tolist()) for v in left}
        least = min(left, key=degree.__getitem__)
        core = max(core, degree[least])
        cores[least] = core
        left.remove(least)
    return cores


@pytest.mark.parametrize("directed", [False, True])
def test_core_numbers_equal_the_definition(directed: bool) -> None:
    rng = np.random.default_rng(0)
    for n, e in ((1, 0), (1, 3), (7, 5), (12, 60), (20, 45), (25, 200)):  # with self-loops and duplicate edges
        ends = rng.integers(0, n, (2, e))
        graph = Graph.from_edges(ends, num_nodes=n, undirected=not directed, duplicates="keep", self_loops="keep")
        found = order_key(graph.indptr, graph.indices, "kcore")
        assert found.tolist() == cores_by_definition(graph.indptr, graph.indices)


def test_core_numbers_of_a_long_path_need_one_pass() -> None:
    n = 200_000
    graph = Graph.from_edges(np.stack([np.arange(n - 1), np.arange(1, n)]), num_nodes=n, undirected=True)
    assert (order_key(graph.indptr, graph.indices, "kcore") == 1).all()


def test_ties_are_broken_by_id_or_at_random_and_graphs_stay_together():
    key, graph = np.array([2.0, 1, 1, 3, 0]), np.array([0, 0, 0, 1, 1])
    assert node_order(key).tolist() == [4, 1, 2, 0, 3]
    assert node_order(key, None, graph).tolist() == [1, 2, 0, 4, 3]
    ties = {tuple(node_order(key, np.random.default_rng(i))) for i in range(20)}
    assert ties == {(4, 1, 2, 0, 3), (4, 2, 1, 0, 3)}


def test_a_feature_column_is_given_as_a_number_or_its_digits():
    x = np.arange(6, dtype=np.float32).reshape(3, 2)
    graph = Graph.from_edges(np.array([(0, 1)]), 3, x=x)
    for column in (1, "1"):  # parsers of a number or a name give its digits
        assert node_keys(graph, OrderConfig(kind="column", column=column)).tolist() == [1, 3, 5]
    for column in (2, "2", "-1", -1, "height", None):
        with pytest.raises(DataError, match="column"):
            node_keys(graph, OrderConfig(kind="column", column=column))


def test_order_columns_are_checked(record, tmp_path):
    path = tmp_path / "keys.csv"
    path.write_text("node,key\n" + "".join(f"{v},{v}\n" for v in range(51) if v != 3))
    with pytest.raises(DataError, match="3"):
        node_keys(record, OrderConfig(kind="column", file=str(path)))
    with pytest.raises(ConfigError, match="degre"):
        order_key(record.indptr, record.indices, "degre")


@pytest.mark.parametrize("directed", [False, True])
def test_return_probabilities_equal_dense_powers(g, directed):
    edges = np.array(g.edges())
    record = Graph.from_edges(edges, 51, undirected=not directed)
    naive = return_probabilities_naive(record.indptr, record.indices, 7)
    np.testing.assert_allclose(return_probabilities(record.indptr, record.indices, 7), naive, atol=F32_TIGHT)


def test_nondiagonal_sums_and_relative_differences(record):
    a = np.zeros((51, 51))
    sources, targets = record.edge_index()
    a[sources, targets] = 1
    a /= np.maximum(a.sum(1, keepdims=True), 1)
    got = nondiagonal_encoding(record, 3)
    for k in (1, 2, 3):
        power = np.linalg.matrix_power(a, k)
        off = power - np.diag(power.diagonal())
        np.testing.assert_allclose(got[:, k - 1], off.sum(1), atol=F32)
        np.testing.assert_allclose(got[:, 3 + k - 1], off.sum(0), atol=F32)
    np.testing.assert_array_equal(relative_encoding(got, record)[4], got[sources[4]] - got[targets[4]])


def test_anonymous_walks():
    rows = np.array([[5, 7, 5, 9, 7], [1, 1, 2, 1, 3]])
    assert anonymize_walks(rows).tolist() == [[0, 1, 0, 2, 1], [0, 0, 1, 0, 2]]
    triangle = Graph.from_edges(np.array([[0, 1], [1, 2], [0, 2]]))
    got = anonymous_walk_encoding(triangle, 2, walks=4000)
    np.testing.assert_allclose(got, np.tile([0, 1, 0.5, 0, 0.5], (3, 1)), atol=0.05)


def test_encodings_are_cached_by_content(record, tmp_path, monkeypatch):
    first = random_walk_encoding(record, 4, tmp_path)
    assert len(list(tmp_path.iterdir())) == 1
    monkeypatch.setattr("hopstate.methods.gmn.tokens.return_probabilities", None)
    np.testing.assert_array_equal(random_walk_encoding(record, 4, tmp_path), first)
    next(tmp_path.iterdir()).write_bytes(b"damaged")
    with pytest.raises(TypeError):
        random_walk_encoding(record, 4, tmp_path)
