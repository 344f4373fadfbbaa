"""Walks are exact, uniform or biased, reproducible; tokens are the induced subgraphs."""

from itertools import pairwise

import networkx as nx
import numpy as np
import pytest
import scipy.stats

from hopstate.errors import ConfigError, DataError
from hopstate.ops.walks import WalkTable, random_walks, random_walks_naive, walk_features, walk_subgraphs
from torch_threads import with_threads

WALKS = {"max_length": 4, "repeats": 2, "walks": 3, "seed": 5}


def csr(graph: nx.Graph) -> tuple[np.ndarray, np.ndarray]:
    a = nx.to_scipy_sparse_array(graph, nodelist=range(len(graph)), format="csr")
    a.sort_indices()
    return a.indptr.astype(np.int64), a.indices.astype(np.int64)


@pytest.fixture(scope="module")
def graph() -> nx.Graph:
    g = nx.gnm_random_graph(60, 150, seed=1)
    g.add_edge(3, 3)
    g.add_nodes_from(range(60, 63))  # isolated
    return g


@pytest.mark.parametrize("length", [0, 1, 2, 5])
def test_walks_equal_the_definition(graph, length):
    indptr, indices = csr(graph)
    nodes = np.array([0, 7, 61, 7])
    fast = random_walks(WalkTable.of(indptr, indices), nodes, length, walks=3, seed=9)
    assert fast.dtype == np.int32
    np.testing.assert_array_equal(fast, random_walks_naive(indptr, indices, nodes, length, walks=3, seed=9))


def test_walks_are_seeded_by_node_names(graph):
    table, nodes, names = WalkTable.of(*csr(graph)), np.arange(63), np.arange(63)[::-1] + 7
    two = nx.disjoint_union(graph, graph)
    doubled, second = WalkTable.of(*csr(two)), nodes + 63
    once = random_walks(table, nodes, 5, walks=3, names=names)
    np.testing.assert_array_equal(random_walks(doubled, second, 5, walks=3, names=names) - 63, once)
    assert (once != random_walks(table, nodes, 5, walks=3)).any()
    for own in ({}, {"edges": False, "keep_walks": True}):
        a = walk_subgraphs(table, nodes, **WALKS, **own, names=names)
        b = walk_subgraphs(doubled, second, **WALKS, **own, names=names)
        np.testing.assert_array_equal(b.nodes - 63, a.nodes)
        np.testing.assert_array_equal(b.target, a.target)
        assert not np.array_equal(walk_subgraphs(table, nodes, **WALKS, **own).nodes, a.nodes)


def test_every_step_is_an_edge_and_an_isolated_node_stays(graph):
    table = WalkTable.of(*csr(graph))
    for p in (1, 0.5):
        rows = random_walks(table, np.arange(63), 6, walks=20, p=p)
        for a, b in zip(rows[:, :-1].ravel(), rows[:, 1:].ravel()):
            assert graph.has_edge(a, b) or (a == b and graph.degree(a) == 0)


def test_a_walk_stays_at_a_directed_sink():
    table = WalkTable.of(np.array([0, 1, 1]), np.array([1]))
    assert random_walks(table, np.array([0]), 3).tolist() == [[0, 1, 1, 1]]


def test_first_and_later_steps_are_uniform():
    g = nx.complete_graph(7)
    g.add_edge(0, 7)
    table = WalkTable.of(*csr(g))
    rows = random_walks(table, np.zeros(1, np.int64), 9, walks=60_000, seed=3)
    for t in range(9):
        here = rows[rows[:, t] == 1]
        counts = np.bincount(here[:, t + 1], minlength=8) if t else np.bincount(rows[:, 1], minlength=8)
        counts = np.delete(counts, [1, 7] if t else [0])
        assert counts.sum() == (len(here) if t else len(rows))
        assert scipy.stats.chisquare(counts).pvalue > 1e-4
    pairs = np.bincount(rows[:, 1] * 8 + rows[:, 3], minlength=64).reshape(8, 8)
    first = pairs[1:7][:, 1:7]
    off = ~np.eye(6, dtype=bool)  # steps 1 and 3 are not independent, but equally likely for all different pairs
    assert scipy.stats.chisquare(first[off]).pvalue > 1e-4


@pytest.mark.parametrize("p", [4.0, 0.05, 1e6])
def test_second_steps_return_with_the_probability_of_p(p):
    g = nx.Graph([(0, 1), (0, 2), (1, 2), (1, 3), (1, 4), (1, 5), (1, 6), (4, 5)])
    indptr, indices = csr(g)
    rows = random_walks(WalkTable.of(indptr, indices), np.zeros(1, np.int64), 2, walks=80_000, p=p)
    rows = rows[rows[:, 1] == 1]
    weight = np.where(indices[indptr[1] : indptr[2]] == 0, 1 / p, 1.0)
    counts = np.bincount(rows[:, 2], minlength=7)[indices[indptr[1] : indptr[2]]]
    expected = weight / weight.sum() * len(rows)
    likely = expected > 5
    assert counts[~likely].sum() < 10
    total = expected[likely] / expected[likely].sum() * counts[likely].sum()
    assert scipy.stats.chisquare(counts[likely], total).pvalue > 1e-4


def test_a_walk_returns_at_a_dead_end_and_follows_directed_edges():
    path = WalkTable.of(*csr(nx.path_graph(2)))
    assert random_walks(path, np.zeros(1, np.int64), 3, p=1e6).tolist() == [[0, 1, 0, 1]]
    circle = WalkTable.of(np.arange(4), np.array([1, 2, 0]))
    assert random_walks(circle, np.zeros(1, np.int64), 4, p=0.01).tolist() == [[0, 1, 2, 0, 1]]


def test_walks_do_not_depend_on_batch_or_threads(graph):
    table = WalkTable.of(*csr(graph))
    nodes = np.tile(np.arange(63), 40)
    (one, again), (many, tokens) = with_threads(
        lambda: (random_walks(table, nodes, 5, walks=4), walk_subgraphs(table, nodes, **WALKS))
    )
    np.testing.assert_array_equal(many, one)
    np.testing.assert_array_equal(many[:4], random_walks(table, nodes[:1], 5, walks=4))
    for name in ("offsets", "nodes", "degree", "target"):
        np.testing.assert_array_equal(getattr(tokens, name), getattr(again, name))
    assert not np.array_equal(random_walks(table, nodes, 5, walks=4, seed=1), one)


@pytest.mark.parametrize("loops", [False, True])
def test_tokens_are_induced_subgraphs(graph, loops):
    g = graph if loops else nx.gnm_random_graph(40, 90, seed=2)
    indptr, indices = csr(g)
    table, nodes = WalkTable.of(indptr, indices), np.arange(len(g))
    tokens = walk_subgraphs(table, nodes, **WALKS, edge_ids=True, keep_walks=True)
    assert len(tokens.offsets) == len(g) * 9 + 1
    source, target = tokens.edge_index()
    np.testing.assert_array_equal(indices[tokens.edge_ids], tokens.nodes[target])
    np.testing.assert_array_equal(np.searchsorted(indptr, tokens.edge_ids, side="right") - 1, tokens.nodes[source])
    hops = [4, 4, 3, 3, 2, 2, 1, 1, 0] * len(g)
    step = 0
    for token, h in enumerate(hops):
        v, mine = token // 9, slice(tokens.offsets[token], tokens.offsets[token + 1])
        members = tokens.nodes[mine].tolist()
        assert members[0] == v
        assert len(set(members)) == len(members) <= 3 * h + 1
        assert max(nx.single_source_shortest_path_length(g, v)[u] for u in members) <= h
        walked = tokens.walked[step : step + (3 * (h + 1) if h else 1)]
        step += len(walked)
        assert set(table.table[walked].tolist()) == set(members)
        inside = (source >= mine.start) & (source < mine.stop)
        got = sorted(zip(tokens.nodes[source[inside]].tolist(), tokens.nodes[target[inside]].tolist()))
        directed = g.subgraph(members).to_directed()
        assert got == sorted(directed.edges())
    assert step == len(tokens.walked)


def test_tokens_of_given_lengths_contain_walks_of_those_lengths(graph):
    table, options = WalkTable.of(*csr(graph)), {"repeats": 2, "walks": 3, "seed": 5, "keep_walks": True}
    tokens = walk_subgraphs(table, np.arange(63), max_length=6, lengths=[1, 3, 6], **options)
    assert len(tokens.offsets) == 63 * 7 + 1
    step = 0
    for token, h in enumerate([6, 6, 3, 3, 1, 1, 0] * 63):
        walks = table.table[tokens.walked[step : step + (3 * (h + 1) if h else 1)]].reshape(-1, h + 1)
        step += walks.size
        assert (walks[:, 0] == token // 7).all()
        assert all(graph.has_edge(u, v) or not graph.degree(u) for u, v in zip(walks[:, :-1].flat, walks[:, 1:].flat))
        assert set(walks.flat) == set(tokens.nodes[tokens.offsets[token] : tokens.offsets[token + 1]])
    assert step == len(tokens.walked)
    every = [walk_subgraphs(table, np.arange(63), max_length=3, lengths=h, **options) for h in (None, [1, 2, 3])]
    np.testing.assert_array_equal(every[0].walked, every[1].walked)
    for wrong in ([1, 2], [3, 1], [0, 3], [1, 1, 3], [1, 4], []):
        with pytest.raises(ConfigError):
            walk_subgraphs(table, np.arange(3), max_length=3, lengths=wrong, **options)


@pytest.mark.parametrize("loops", [False, True])
def test_large_tokens_are_induced_subgraphs(loops):
    g = nx.barabasi_albert_graph(300, 6, seed=3)
    g.add_edges_from([(0, 0), (9, 9)] if loops else [])
    g.add_nodes_from(range(300, 303))
    indptr, indices = csr(g)
    table, nodes = WalkTable.of(indptr, indices), np.arange(303)
    assert table.loops == loops
    for m, s, M in ((3, 2, 9), (1, 5, 2), (2, 1, 40)):  # tokens of up to 82 nodes: some share slots of a hash table
        tokens = walk_subgraphs(table, nodes, max_length=m, repeats=s, walks=M)
        bare = walk_subgraphs(table, nodes, max_length=m, repeats=s, walks=M, edges=False)
        np.testing.assert_array_equal(bare.nodes, tokens.nodes)
        with_edges = walk_subgraphs(table, nodes, max_length=m, repeats=s, walks=M, edge_ids=True)
        np.testing.assert_array_equal(with_edges.target, tokens.target)
        np.testing.assert_array_equal(indices[with_edges.edge_ids], tokens.nodes[tokens.edge_index()[1]])
        row = 0
        for lo, hi in pairwise(tokens.offsets.tolist()):
            place = {v: k for k, v in enumerate(tokens.nodes[lo:hi].tolist())}
            assert len(place) == hi - lo
            for v, degree in zip(place, tokens.degree[lo:hi].tolist(), strict=True):
                near = [place[u] for u in indices[indptr[v] : indptr[v + 1]].tolist() if u in place]
                assert tokens.target[row : row + degree].tolist() == near
                row += degree


def test_no_walks_make_each_node_its_token(graph):
    tokens = walk_subgraphs(WalkTable.of(*csr(graph)), np.arange(63), max_length=0, repeats=4, walks=4)
    np.testing.assert_array_equal(tokens.nodes, np.arange(63))
    assert len(tokens.target) == 1  # node 3's self-loop
    empty = walk_subgraphs(WalkTable.of(*csr(graph)), np.empty(0, np.int64), max_length=2, repeats=1, walks=1)
    assert empty.offsets.tolist() == [0]


def test_a_graph_without_edges_or_with_one_node():
    table = WalkTable.of(np.zeros(4, np.int64), np.empty(0, np.int64))
    tokens = walk_subgraphs(table, np.arange(3), max_length=3, repeats=1, walks=2)
    assert tokens.nodes.tolist() == [0] * 4 + [1] * 4 + [2] * 4
    assert not len(tokens.target)


def test_random_walk_bits_are_identity_and_adjacency(graph):
    indptr, indices = csr(graph)
    table = WalkTable.of(indptr, indices)
    tokens = walk_subgraphs(table, np.arange(63), max_length=4, repeats=1, walks=2, keep_walks=True)
    lengths = np.tile([5, 5, 4, 4, 3, 3, 2, 2, 1], 63)
    starts = np.concatenate([[0], np.cumsum(lengths)])
    ids, bits, edge = walk_features(table, tokens.walked, starts, 3)
    for w in range(len(lengths)):
        walk = ids[starts[w] : starts[w + 1]]
        for k in range(len(walk)):
            for j in (1, 2, 3):
                same = k >= j and walk[k] == walk[k - j]
                near = k >= j and graph.has_edge(walk[k - j], walk[k])
                assert bits[starts[w] + k].tolist()[j - 1 :: 3] == [same, near]
            e = edge[starts[w] + k]
            if k == 0 or not graph.has_edge(walk[k - 1], walk[k]):
                assert e == -1
            else:
                assert indices[e] == walk[k]
                assert indptr[walk[k - 1]] <= e < indptr[walk[k - 1] + 1]


def test_bad_input_is_named(graph):
    indptr, indices = csr(graph)
    table = WalkTable.of(indptr, indices)
    with pytest.raises(ConfigError, match="length"):
        random_walks(table, np.zeros(1, np.int64), -1)
    with pytest.raises(DataError):
        random_walks(table, np.array([63]), 1)
    with pytest.raises(ConfigError, match="repeats"):
        walk_subgraphs(table, np.zeros(1, np.int64), max_length=1, repeats=0, walks=1)
