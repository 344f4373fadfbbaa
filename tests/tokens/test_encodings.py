import os
import warnings
from pathlib import Path

import networkx as nx
import numpy as np
import pytest

from hopstate.data.graph import Graph
from hopstate.errors import HopstateWarning, StorageError
from hopstate.io import files as kept
from hopstate.ops.eigenvectors import laplacian_eigenvectors
from hopstate.tokens import encodings
from hopstate.tokens.encodings import laplacian_encoding


def ring(n: int = 12) -> Graph:
    return Graph.from_edges(np.array(nx.cycle_graph(n).edges), n)


def test_equals_eigenvectors(tmp_path: Path) -> None:
    graph = ring()
    expected = laplacian_eigenvectors(graph.indptr, graph.indices, 4)[1].astype(np.float32)
    for cache in (None, tmp_path / "new" / "folder", tmp_path / "new" / "folder"):
        np.testing.assert_allclose(laplacian_encoding(graph, 4, cache), expected, rtol=1e-5, atol=1e-6)


def test_second_time_reads_the_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = laplacian_encoding(ring(), 4, tmp_path)
    monkeypatch.setattr(encodings, "laplacian_eigenvectors", None)
    assert np.array_equal(laplacian_encoding(ring(), 4, tmp_path), first)
    assert len(list(tmp_path.iterdir())) == 1  # no partial file is left


def test_each_graph_and_count_has_its_own_cache_file(tmp_path: Path) -> None:
    for graph, count in ((ring(), 4), (ring(), 3), (ring(13), 4)):
        assert laplacian_encoding(graph, count, tmp_path).shape == (graph.num_nodes, count)
    assert len(list(tmp_path.iterdir())) == 3


def test_a_damaged_cache_is_recomputed(tmp_path: Path) -> None:
    first = laplacian_encoding(ring(), 4, tmp_path)
    (file,) = tmp_path.iterdir()
    file.write_bytes(file.read_bytes()[:60])
    assert np.array_equal(laplacian_encoding(ring(), 4, tmp_path), first)
    assert np.array_equal(np.load(file), first)


def test_a_failed_cache_write_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(path: Path, array: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(kept, "save_array", full)
    with pytest.raises(StorageError, match="No space left"):
        laplacian_encoding(ring(), 4, tmp_path)
    assert os.listdir(tmp_path) == []


def test_a_cache_that_cannot_be_written_names_the_setting(tmp_path: Path) -> None:
    (tmp_path / "home").touch()
    with pytest.raises(StorageError, match="HOPSTATE_DATA"):
        laplacian_encoding(ring(), 4, tmp_path / "home/.cache")


def islands() -> Graph:
    """A ring of 30 nodes, then a path of 5, a pair, and an isolated node."""
    ends = [*nx.cycle_graph(30).edges, (30, 31), (31, 32), (32, 33), (33, 34), (35, 36)]
    return Graph.from_edges(np.array(ends), 38, name="islands")


def test_components_without_eigenvectors_are_named(tmp_path: Path) -> None:
    for _ in range(2):  # also if they are read from the cache
        with pytest.warns(HopstateWarning, match="islands"):
            encoding = laplacian_encoding(islands(), 4, tmp_path)
    assert (np.abs(encoding[:30]).sum(0) > 0).all()
    assert not encoding[30:].any()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert laplacian_encoding(ring(), 4, tmp_path).any()  # one component
        assert laplacian_encoding(islands(), 60, tmp_path)[30:37].any(1).all()  # enough for all
