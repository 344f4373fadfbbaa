import errno
import os
from pathlib import Path
from typing import IO

import numpy as np
import pytest

from hopstate.data.graph import Graph
from hopstate.errors import StorageError
from hopstate.methods.nagphormer import hop_file
from hopstate.methods.nagphormer.hop_file import HopFile
from hopstate.methods.nagphormer.hops import hop_tokens
from hopstate.training.ranks import ALONE, Ranks


def star(n: int = 60, width: int = 40) -> Graph:
    """Node 0 has half of all entries."""
    edges = np.stack([np.zeros(n - 1, np.int64), np.arange(1, n)], 1)
    return Graph.from_edges(edges, n, x=np.random.default_rng(0).standard_normal((n, width), np.float32))


def made(graph: Graph, columns: int, ranks: Ranks = ALONE) -> HopFile:
    assert graph.x is not None
    return HopFile(graph, [graph.x], 2, columns, ranks)


@pytest.mark.parametrize("size", [1, 2, 3, 7])
def test_ranks_own_all_rows_between_them_by_work(size: int) -> None:
    graph = star()
    owned = [made(graph, 4, Ranks(rank, size)).rows for rank in range(size)]
    assert np.concatenate([np.arange(60)[rows] for rows in owned]).tolist() == list(range(60))
    if size == 2:  # node 0 alone has a third of the work
        assert owned[0].stop < 25


@pytest.mark.parametrize(
    ("columns", "widths"), [(3, [3] * 13 + [1]), (16, [16, 16, 8]), (31, [16, 16, 8]), (39, [32, 8]), (99, [40])]
)
def test_blocks_are_whole_cache_lines_where_there_is_room(columns: int, widths: list[int]) -> None:
    blocks = made(star(), columns).blocks
    assert [block.stop - block.start for block in blocks] == widths
    assert [block.start for block in blocks] == [0, *np.cumsum(widths)[:-1]]


def test_a_disk_too_full_for_waiting_hops_raises_and_nothing_is_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(_: IO[bytes], size: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(hop_file, "reserve_room", full)
    with pytest.raises(StorageError):
        hop_tokens(star(), 2, memory_budget=16 * 8 * 60, folder=tmp_path)
    assert os.listdir(tmp_path) == []
