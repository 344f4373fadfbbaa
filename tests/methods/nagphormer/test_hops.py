import os
import shutil
from pathlib import Path

import networkx as nx
import numpy as np
import pytest
import torch

from hopstate.data.graph import Graph
from hopstate.errors import ConfigError, DataError, FormatError, StorageError
from hopstate.methods.nagphormer import hops
from hopstate.methods.nagphormer.hops import hop_tokens
from hopstate.ops.propagate import hop_powers_naive
from hopstate.testing.conformance import assert_close_rmse

PLENTY = 1 << 30


def graph(n: int = 50, width: int = 21) -> Graph:
    edges = np.array(nx.barabasi_albert_graph(n, 3, seed=0).edges)
    x = np.random.default_rng(0).standard_normal((n, width)).astype(np.float32)
    return Graph.from_edges(edges, n, x=x)


@pytest.mark.parametrize("on_disk", [False, True])
@pytest.mark.parametrize("extra_width", [None, 0, 3])
def test_equals_definition(on_disk: bool, extra_width: int | None, tmp_path: Path) -> None:
    g, generator = graph(), np.random.default_rng(1)
    extra = None if extra_width is None else generator.standard_normal((50, extra_width)).astype(np.float32)
    # on disk: room for two columns at a time, so that blocks straddle features and extra columns
    budget = 2 * 4 * (4 * 50 * 2) if on_disk else PLENTY
    tokens = hop_tokens(g, 3, extra=extra, max_memory=budget, folder=tmp_path / "tokens")
    joined = g.x if extra is None else np.concatenate([g.x, extra], 1)
    expected = hop_powers_naive(g.indptr, g.indices, joined, 3)
    assert tokens.array.shape == (50, 4, joined.shape[1])
    assert (tokens.path is not None) == on_disk
    rows = np.array([7, 0, 49, 7])
    assert_close_rmse(tokens.rows(rows), expected[rows])
    assert_close_rmse(tokens.rows(np.arange(50)), expected)
    assert tokens.rows(rows[:0]).shape == (0, 4, joined.shape[1])


def test_disk_and_memory_agree(tmp_path: Path) -> None:
    g, rows = graph(2500, 33), np.arange(2500)[::-1].copy()
    stored = hop_tokens(g, 4, max_memory=2500 * 5 * 4 * 4 * 10, folder=tmp_path)
    torch.testing.assert_close(stored.rows(rows), hop_tokens(g, 4, max_memory=PLENTY).rows(rows))


def test_rows_are_copies() -> None:
    tokens = hop_tokens(graph(), 2, max_memory=PLENTY)
    first = tokens.rows(np.array([3]))
    first.zero_()
    assert tokens.rows(np.array([3])).any()


def test_an_existing_token_file_is_reused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    small = 4 * (4 * 50 * 4)
    first = hop_tokens(graph(), 3, max_memory=small, folder=tmp_path)
    monkeypatch.setattr(hops, "replace_file", None)
    again = hop_tokens(graph(), 3, max_memory=small, folder=tmp_path)
    assert again.path == first.path
    with pytest.raises(TypeError):  # other features: another file, which would be written
        hop_tokens(graph().with_(x=graph().x + 1), 3, max_memory=small, folder=tmp_path)


def test_one_node_and_no_edges() -> None:
    for n in (1, 6):
        g = Graph.from_edges(np.zeros((0, 2), np.int64), n, x=np.ones((n, 2), np.float32))
        torch.testing.assert_close(hop_tokens(g, 2, max_memory=PLENTY).rows(np.arange(n)), torch.ones(n, 3, 2))


def test_token_errors_name_the_problem(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(DataError, match="features"):
        hop_tokens(graph().with_(x=None), 2, max_memory=PLENTY)
    with pytest.raises(DataError, match="49"):
        hop_tokens(graph(), 2, extra=np.zeros((49, 2), np.float32), max_memory=PLENTY)
    with pytest.raises(ConfigError):
        hop_tokens(graph(), 2, max_memory=100)
    with pytest.raises(ConfigError):
        hop_tokens(graph(), 2, max_memory=100, folder=tmp_path)
    usage = shutil.disk_usage(tmp_path)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage._replace(free=10))
    with pytest.raises(StorageError, match="10"):
        hop_tokens(graph(), 2, max_memory=4000, folder=tmp_path)
    assert os.listdir(tmp_path) == []


def test_an_interrupted_token_write_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(hops, "hop_powers", stop)
    with pytest.raises(KeyboardInterrupt):
        hop_tokens(graph(), 2, max_memory=4000, folder=tmp_path)
    assert os.listdir(tmp_path) == []


def test_a_damaged_token_file_is_rejected(tmp_path: Path) -> None:
    made = hop_tokens(graph(), 3, max_memory=3200, folder=tmp_path)
    expected = made.rows(np.arange(50))
    path = next(tmp_path.glob("hops_*.npy"))
    data = path.read_bytes()
    for wrong in (data[:-8], data[:100], b"", data[:-4] + np.float32("nan").tobytes()):
        path.write_bytes(wrong)
        with pytest.raises(FormatError, match=r"hops_.*\.npy"):
            hop_tokens(graph(), 3, max_memory=3200, folder=tmp_path).rows(np.arange(50))
    path.unlink()
    assert torch.equal(hop_tokens(graph(), 3, max_memory=3200, folder=tmp_path).rows(np.arange(50)), expected)
