"""The graph object: its invariants, constructors, and lossless conversions."""

from __future__ import annotations

import copy
import pickle
import tracemalloc
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import scipy.sparse
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from hopstate.data.events import EventStream
from hopstate.data.graph import Graph
from hopstate.data.graph_set import GraphSet
from hopstate.data.vocabulary import Vocabulary
from hopstate.errors import DataError

EDGES = np.array([[0, 1], [1, 2], [2, 2], [1, 0], [0, 3]])


def csr_naive(
    edges: np.ndarray, num_nodes: int, undirected: bool, drop_duplicates: bool, drop_self_loops: bool
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return (indptr, indices, row of edges that each entry came from) by plain sorting: the definition."""
    entries = []
    for row, (u, v) in enumerate(np.asarray(edges).reshape(-1, 2).tolist()):
        if u == v and drop_self_loops:
            continue
        entries.append((u, v, row))
        if undirected and u != v:
            entries.append((v, u, row))
    entries.sort()
    if drop_duplicates:
        entries = [e for i, e in enumerate(entries) if i == 0 or entries[i - 1][:2] != e[:2]]
    counts = np.bincount([u for u, _, _ in entries], minlength=num_nodes) if entries else np.zeros(num_nodes, int)
    table = np.array(entries, np.int64).reshape(-1, 3)
    return np.concatenate([[0], np.cumsum(counts)]).astype(np.int64), table[:, 1], table[:, 2]


@st.composite
def edge_lists(draw: st.DrawFn) -> tuple[np.ndarray, int]:
    """A few edges on a few nodes, with duplicates, self-loops, isolated nodes, none at all."""
    n = draw(st.integers(1, 7))
    count = draw(st.integers(0, 20))
    return draw(hnp.arrays(np.int64, (count, 2), elements=st.integers(0, n - 1))), n


@settings(max_examples=80, deadline=None)
@given(edge_lists(), st.booleans(), st.booleans(), st.booleans())
def test_csr_equals_sorting(case: tuple[np.ndarray, int], undirected: bool, unique: bool, no_loops: bool) -> None:
    edges, n = case
    attr = np.arange(len(edges), dtype=np.float32)
    options = {
        "undirected": undirected,
        "duplicates": "drop" if unique else "keep",
        "self_loops": "drop" if no_loops else "keep",
    }
    graph = Graph.from_edges(edges, n, edge_attr=attr, **options)
    want_indptr, want_indices, rows = csr_naive(edges, n, undirected, unique, no_loops)
    np.testing.assert_array_equal(graph.indptr, want_indptr)
    np.testing.assert_array_equal(graph.indices, want_indices)
    np.testing.assert_array_equal(graph.edge_attr[:, 0], attr[rows])
    without = Graph.from_edges(edges, n, **options)
    np.testing.assert_array_equal(without.indices, want_indices)
    assert without.edge_attr is None


@settings(max_examples=40, deadline=None)
@given(edge_lists(), st.booleans())
def test_edges_to_scipy_and_back(case: tuple[np.ndarray, int], undirected: bool) -> None:
    edges, n = case
    graph = Graph.from_edges(edges, n, undirected=undirected)
    again = Graph.from_scipy(graph.to_scipy())
    assert again.content_hash == graph.content_hash
    assert graph.is_undirected or not undirected
    dense = np.zeros((n, n))
    dense[edges[:, 0], edges[:, 1]] = 1
    np.testing.assert_array_equal(graph.to_scipy().toarray(), np.maximum(dense, dense.T) if undirected else dense)


@settings(max_examples=25, deadline=None)
@given(edge_lists(), st.booleans(), st.integers(0, 3))
def test_pyg_and_back_with_string_ids(case: tuple[np.ndarray, int], undirected: bool, width: int) -> None:
    edges, n = case
    rng = np.random.default_rng(n)
    mask = np.arange(n) == 0
    graph = Graph.from_edges(
        edges,
        n,
        undirected=undirected,
        duplicates="keep",
        edge_attr=rng.normal(size=(len(edges), 2)),
        x=rng.normal(size=(n, width)),
        y=np.arange(n) % 2,
        masks={"train": mask} if n < 4 else {"train": np.stack([mask, mask[::-1]])},
        node_ids=Vocabulary(np.array([f"node {i}" for i in range(n)])),
        class_names=("a", "b"),
    )
    again = Graph.from_pyg(graph.to_pyg())
    assert again.content_hash == graph.content_hash
    assert again.node_ids is not None
    np.testing.assert_array_equal(again.node_ids.ids, graph.node_ids.ids)
    np.testing.assert_array_equal(again.masks["train"], graph.masks["train"])
    assert again.class_names == ("a", "b")


def test_from_edges_takes_both_layouts_and_counts_nodes() -> None:
    graph = Graph.from_edges(EDGES)
    assert (graph.num_nodes, graph.num_edges, graph.num_self_loops) == (4, 7, 1)
    assert Graph.from_edges(EDGES.T).content_hash == graph.content_hash
    assert Graph.from_edges(EDGES, self_loops="drop").num_edges == 6
    assert Graph.from_edges(EDGES, duplicates="keep").num_edges == 9
    assert Graph.from_edges(EDGES, undirected=False).indices.tolist() == [1, 3, 0, 2, 2]
    assert Graph.from_edges(EDGES, x=np.zeros((6, 2))).num_nodes == 6


def test_first_of_equal_edges_keeps_its_features_in_both_directions() -> None:
    graph = Graph.from_edges([[0, 1], [1, 0], [0, 1]], edge_attr=np.array([5.0, 6.0, 7.0]))
    assert graph.edge_attr.ravel().tolist() == [5, 5]


@pytest.mark.parametrize("n", [1, 3])
def test_one_node_and_edgeless_graphs_work(n: int, tmp_path: Path) -> None:
    graph = Graph.from_edges(np.empty((0, 2), int), n, x=np.ones((n, 2)), y=np.zeros(n, int))
    assert (graph.num_nodes, graph.num_edges, graph.is_undirected, graph.num_classes) == (n, 0, True, 1)
    assert graph.edge_index().shape == (2, 0)
    assert Graph.from_scipy(graph.to_scipy(), x=graph.x, y=graph.y).content_hash == graph.content_hash
    assert Graph.from_pyg(graph.to_pyg()).content_hash == graph.content_hash
    graph.save(str(tmp_path / "g"))
    assert Graph.load(str(tmp_path / "g")).content_hash == graph.content_hash


def test_record_converts_types_and_leaves_the_callers_arrays_writeable() -> None:
    x, y = np.ones((4, 2)), np.array([[0], [1], [1], [-1]], np.int8)
    graph = Graph.from_edges(EDGES, x=x, y=y)
    assert graph.x.dtype == np.float32
    assert graph.y.dtype == np.int64
    assert graph.y.shape == (4,)
    with pytest.raises(ValueError, match="read-only"):
        graph.x[0] = 2
    x[0] = 2
    kept = np.ones((4, 2), np.float32)
    graph = Graph.from_edges(EDGES, x=kept)
    assert np.shares_memory(graph.x, kept)
    kept[0] = 3


def test_hashes_see_structure_and_content() -> None:
    graph = Graph.from_edges(EDGES, x=np.zeros((4, 2)))
    other = graph.with_(x=np.ones((4, 2)))
    assert graph.structure_hash == other.structure_hash
    assert graph.content_hash != other.content_hash
    assert graph.structure_hash != Graph.from_edges(EDGES[:3], 4).structure_hash


FOUR = {"num_nodes": 4, "name": "g"}
MASK = np.array([True, False, False, False])


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"x": np.zeros((3, 2))}, "x"),
        ({"x": np.zeros(4)}, "x"),
        ({"x": np.array([[0], [np.nan], [1], [np.inf]])}, "1, 3"),
        ({"x": np.array([[0], [0], [-np.inf], [0]])}, "row 2"),
        ({"y": np.zeros(5, int)}, "y"),
        ({"y": np.array([0, -2, 1, 1])}, "row 1"),
        ({"y": np.array(["a", "b", "a", "b"])}, r"class_names"),
        ({"y": np.array([0, 1, 2, 1]), "class_names": ("a", "b")}, "row 2"),
        ({"masks": {"train": np.ones(3, bool)}}, "train"),
        ({"masks": {"train": np.ones((0, 4), bool)}}, "train"),
        ({"masks": {"training": MASK}}, "training"),
        ({"masks": {"train": MASK, "test": np.zeros(4, bool)}}, "test"),
        ({"masks": {"val": np.stack([MASK, ~MASK, MASK & False])}}, "val.*2"),
        ({"masks": {"train": MASK, "val": np.stack([MASK] * 2)}}, ""),
        ({"masks": {"train": MASK, "test": MASK | True}}, "row 0"),
        ({"masks": {"train": MASK}, "y": np.array([-1, 0, 1, 1])}, ""),
        ({"node_ids": Vocabulary(np.arange(3))}, ""),
    ],
)
def test_broken_invariants_of_graphs_are_named(fields: dict, message: str) -> None:
    with pytest.raises(DataError, match=message or None):
        Graph.from_edges(EDGES, **{**FOUR, **fields})


@pytest.mark.parametrize(
    ("edges", "options", "message"),
    [
        ([[0, 1], [1, 4], [2, -1]], {"num_nodes": 4}, "4.*rows 1"),
        ([[-1, 1]], {}, "-1.*row 0"),
        ([[0.0, 1.0]], {}, ""),
        ([[0, 1, 2]], {}, r"\(1, 3\)"),
        ([[0, 1]], {"edge_attr": np.zeros((2, 1))}, "2"),
        ([[0, 1]], {"edge_attr": np.array([np.nan])}, ""),
        ([], {}, ""),
    ],
)
def test_broken_edges_are_named(edges: list, options: dict, message: str) -> None:
    with pytest.raises(DataError, match=message or None):
        Graph.from_edges(np.array(edges), **options)


def test_broken_csr_is_named() -> None:
    good = np.array([0, 2, 3])
    for indptr, indices, message in [
        (np.array([0, 2, 1]), [0, 1, 1], "indptr"),
        (np.array([1, 2, 3]), [0, 1, 1], ""),
        (good, [1, 0, 1], "node 0"),
        (good, [0, 2, 1], "row 1"),
        (np.array([0]), [], ""),
        (np.array([[0, 3]]), [0, 1, 1], ""),
    ]:
        with pytest.raises(DataError, match=message or None):
            Graph(indptr=indptr, indices=np.array(indices, int))
    Graph(indptr=np.array([0, 0, 3, 3, 4]), indices=np.array([1, 2, 3, 0]))  # decreases only at the start of a row


def test_sortedness_is_checked_across_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hopstate.io.scratch.BLOCK", 2)
    indices = np.arange(9)
    Graph(indptr=np.array([0, 9] + [9] * 8), indices=indices)
    for place in range(1, 9):
        broken = indices.copy()
        broken[place] = broken[place - 1] - 1 if place > 1 else -0
        broken[place - 1] = max(broken[place - 1], 1)
        with pytest.raises(DataError):
            Graph(indptr=np.array([0, 9] + [9] * 8), indices=broken)
    x = np.zeros((9, 1))
    x[7] = np.nan
    with pytest.raises(DataError, match="7"):
        Graph(indptr=np.array([0, 9] + [9] * 8), indices=indices, x=x)


def test_a_memory_map_is_checked_in_blocks(tmp_path: Path) -> None:
    path = tmp_path / "x.npy"
    n = 400_000
    np.save(path, np.zeros((n, 64), np.float32))  # 102 MB
    x = np.load(path, mmap_mode="r")
    edges = np.array([[0, 1]])
    Graph.from_edges(edges[:1], 2)  # compiles before memory is measured
    tracemalloc.start()
    graph = Graph.from_edges(edges, n, x=x)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 40e6
    assert np.shares_memory(graph.x, x)


def test_stored_splits() -> None:
    masks = {
        "train": np.array([[1, 0, 0, 0], [0, 1, 0, 0]], bool),
        "test": np.array([[0, 1, 0, 0], [1, 0, 0, 0]], bool),
    }
    graph = Graph.from_edges(EDGES, y=np.array([0, 1, -1, -1]), masks=masks, name="g")
    assert graph.num_splits == 2
    assert graph.split(1)["train"].tolist() == [1]
    with pytest.raises(DataError, match="2"):
        graph.split(2)
    with pytest.raises(DataError):
        Graph.from_edges(EDGES).split()


def test_from_scipy_drops_stored_zeros_and_requires_a_square_matrix() -> None:
    matrix = scipy.sparse.csr_array(([1.0, 0.0, 2.0], ([0, 0, 1], [1, 2, 0])), shape=(3, 3))
    assert Graph.from_scipy(matrix).num_edges == 2
    with pytest.raises(DataError):
        Graph.from_scipy(scipy.sparse.csr_array((2, 3)))


def test_from_pyg_converts_or_names_tensors_without_a_numpy_type() -> None:
    from torch_geometric.data import Data

    edges = torch.tensor([[0], [1]])
    half = Graph.from_pyg(Data(x=torch.eye(2, dtype=torch.bfloat16), edge_index=edges))
    assert np.array_equal(half.x, np.eye(2))
    with pytest.raises(DataError, match="x is a tensor"):
        Graph.from_pyg(Data(x=torch.eye(2, device="meta"), edge_index=edges))
    with pytest.raises(DataError, match=r"edge_index.*\(3, 2\)"):
        Graph.from_pyg(Data(x=torch.eye(4), edge_index=torch.tensor([[0, 1], [1, 2], [2, 3]])))


def test_from_pyg_sparse_transposed_and_without_edges() -> None:
    from torch_geometric.data import Data

    data = Data(x=torch.eye(3).to_sparse(), edge_index=torch.tensor([[0, 1], [1, 2]]), y=torch.tensor([[0], [1], [0]]))
    graph = Graph.from_pyg(data, name="mine", undirected=True)
    assert (graph.num_edges, graph.name, graph.y.tolist()) == (4, "mine", [0, 1, 0])
    np.testing.assert_array_equal(graph.x, np.eye(3))
    with pytest.raises(DataError, match="edge_index"):
        Graph.from_pyg(Data(x=torch.eye(3)))


def test_vocabulary() -> None:
    words = Vocabulary.of(np.array(["b", "a"]), np.array(["c", "a"]))
    assert words.ids.tolist() == ["a", "b", "c"]
    assert words.rows(["c", "x", "a"]).tolist() == [2, -1, 0]
    assert words.names(np.array([2, 0])).tolist() == ["c", "a"]
    assert "b" in words
    assert "x" not in words
    assert words.grown(["d", "a", "d", "e"])[0].ids.tolist() == ["a", "b", "c", "d", "e"]
    assert words.grown([])[0] is words.grown(["a"])[0] is words
    with pytest.raises(DataError, match="user 71"):
        Vocabulary(np.array(["user 71", "who"])).row("user 17")
    with pytest.raises(DataError, match="'a'"):
        Vocabulary(np.array(["a", "b", "a"]))
    with pytest.raises(DataError):
        Vocabulary(np.array([0.5]))
    numbers = Vocabulary(np.array([7, 3], np.int32))
    assert numbers.ids.dtype == np.int64
    assert numbers.rows(np.array(["7"])).tolist() == [-1]
    assert numbers.rows(np.array([3, 7])).tolist() == [1, 0]


def test_records_are_copied_and_pickled():
    """A spawned DataLoader worker gets an equal graph."""
    rng = np.random.default_rng(0)
    masks = {"train": np.arange(12) < 6}
    graph = Graph.from_edges(
        rng.integers(0, 12, (40, 2)), 12, x=rng.normal(size=(12, 3)).astype(np.float32), masks=masks
    )
    events = EventStream(src=np.arange(5), dst=np.arange(5, 10), t=np.arange(5), num_nodes=10)
    graphs = GraphSet(union=graph, offsets=np.array([0, 12]), masks={"train": np.array([True])})
    for record in (graph, events, graphs):
        expected = record.content_hash
        for made in (copy.copy(record), copy.deepcopy(record), pickle.loads(pickle.dumps(record))):
            assert made.content_hash == expected


def test_arrays_of_other_libraries_are_read_as_numpy_arrays():
    edges, x = np.array([[0, 1], [1, 2]]), np.arange(6.0).reshape(3, 2)
    for array in (torch.tensor(x, requires_grad=True), scipy.sparse.csr_matrix(x), pd.DataFrame(x)):
        assert np.array_equal(Graph.from_edges(edges, x=array).x, x)
    assert Graph.from_edges(edges, y=pd.Series([1, None, 0], dtype="Int64")).y.tolist() == [1, -1, 0]
    with pytest.raises(DataError, match="x is an array of complex"):
        Graph.from_edges(edges, x=x + 1j)
