"""Graphs on disk: round trips, memory maps, and files after a failure."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from hopstate.cli.main import main
from hopstate.data import store
from hopstate.data.graph import Graph
from hopstate.data.readers.read_events import read_events
from hopstate.data.readers.read_graph import read_graph
from hopstate.data.store import load_events
from hopstate.data.vocabulary import Vocabulary
from hopstate.errors import FormatError, MissingFileError, StorageError
from hopstate.io import files


@pytest.fixture
def graph() -> Graph:
    rng = np.random.default_rng(0)
    return Graph.from_edges(
        rng.integers(0, 20, (50, 2)),
        20,
        x=rng.normal(size=(20, 3)),
        y=np.arange(20) % 3,
        edge_attr=rng.normal(size=50),
        masks={"train": np.arange(20) < 9, "val": np.arange(20) == 10, "test": np.arange(20) > 12},
        node_ids=Vocabulary(np.array([f"n{i}é" for i in range(20)])),
        class_names=("x", "y", "z"),
        name="mine",
        source="here",
    )


@pytest.mark.parametrize("mmap", [True, False])
def test_save_and_load(graph: Graph, tmp_path: Path, mmap: bool) -> None:
    graph.save(str(tmp_path / "new" / "g"))
    again = Graph.load(str(tmp_path / "new" / "g"), mmap=mmap)
    assert again.content_hash == graph.content_hash
    assert again.node_ids.ids.tolist() == graph.node_ids.ids.tolist()
    assert (again.name, again.source, again.class_names) == ("mine", "here", ("x", "y", "z"))
    for name, mask in graph.masks.items():
        np.testing.assert_array_equal(again.masks[name], mask)
    mapped = isinstance(again.x.base, np.memmap) or isinstance(getattr(again.x.base, "base", None), np.memmap)
    assert mapped is mmap or not mmap
    if mmap:
        assert _root(again.x).__class__.__name__ == "mmap"
    assert [p.name for p in (tmp_path / "new").iterdir()] == ["g"]


def _root(array: np.ndarray) -> object:
    while getattr(array, "base", None) is not None:
        array = array.base
    return array


def test_a_graph_is_replaced_atomically(graph: Graph, tmp_path: Path) -> None:
    folder = tmp_path / "g"
    graph.save(str(folder))
    Graph.from_edges(np.array([[0, 1]])).save(str(folder))
    assert Graph.load(str(folder)).num_nodes == 2
    assert not (folder / "x.npy").exists()


def test_another_folder_is_never_overwritten(graph: Graph, tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("years of work")
    with pytest.raises(StorageError):
        graph.save(str(tmp_path / "mine"))
    assert (tmp_path / "mine" / "thesis.txt").read_text() == "years of work"


def test_a_full_disk_leaves_the_previous_graph(graph: Graph, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "g"
    graph.save(str(folder))
    calls = []

    def full(path: Path, array: np.ndarray) -> None:
        calls.append(array)
        if len(calls) == 3:
            raise OSError(28, "No space left on device")
        files.save_array(path, array)

    monkeypatch.setattr(store, "save_array", full)
    with pytest.raises(StorageError, match="No space left"):
        graph.with_(x=None).save(str(folder))
    monkeypatch.undo()
    assert Graph.load(str(folder)).content_hash == graph.content_hash
    assert [p.name for p in tmp_path.iterdir()] == ["g"]


def test_a_failed_rename_puts_the_previous_graph_back(
    graph: Graph, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "g"
    graph.save(str(folder))
    rename = Path.rename

    def fails(self: Path, target: Path) -> Path:
        if Path(target) == folder and not self.name.endswith(".old"):
            raise OSError("no")
        return rename(self, target)

    monkeypatch.setattr(Path, "rename", fails)
    with pytest.raises(StorageError):
        graph.with_(x=None).save(str(folder))
    monkeypatch.undo()
    assert Graph.load(str(folder)).content_hash == graph.content_hash
    assert [p.name for p in tmp_path.iterdir()] == ["g"]


def _stale(path: Path) -> Path:
    """Return the name of a temporary file that an ended process left for path."""
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    part = files.temporary_name(path)
    return part.with_name(part.name.replace(f"-{os.getpid()}.", f"-{ended.pid}."))


def test_a_kill_between_two_renames_is_recovered(graph: Graph, tmp_path: Path) -> None:
    folder = tmp_path / "g"
    graph.save(str(folder))
    folder.rename(tmp_path / ".g.old")
    _stale(folder).mkdir()
    assert Graph.load(str(folder)).content_hash == graph.content_hash
    folder.rename(tmp_path / ".g.old")
    graph.with_(x=None).save(str(folder))
    assert Graph.load(str(folder)).x is None
    assert [p.name for p in tmp_path.iterdir()] == ["g"]


def test_a_damaged_graph_is_named(graph: Graph, tmp_path: Path) -> None:
    with pytest.raises(MissingFileError):
        Graph.load(str(tmp_path / "nowhere"))
    with pytest.raises(FormatError, match=r"graph\.json"):
        Graph.load(str(tmp_path))
    folder = tmp_path / "g"
    graph.save(str(folder))
    meta = json.loads((folder / "graph.json").read_text())
    whole = (folder / "x.npy").read_bytes()
    (folder / "x.npy").write_bytes(whole[:-40])
    with pytest.raises(FormatError, match=r"x\.npy"):
        Graph.load(str(folder))
    (folder / "x.npy").unlink()
    with pytest.raises(FormatError, match=r"x\.npy"):
        Graph.load(str(folder))
    (folder / "graph.json").write_text(json.dumps({**meta, "version": 99}))
    with pytest.raises(FormatError, match="99"):
        Graph.load(str(folder))
    (folder / "graph.json").write_text("{")
    with pytest.raises(FormatError):
        Graph.load(str(folder))


def test_a_pickled_array_is_not_loaded(graph: Graph, tmp_path: Path) -> None:
    folder = tmp_path / "g"
    graph.save(str(folder))
    np.save(folder / "x.npy", np.array([{"a": 1}] * 20, dtype=object), allow_pickle=True)
    with pytest.raises(FormatError, match=r"x\.npy"):
        Graph.load(str(folder))


@pytest.mark.parametrize("left", [("src",), ("dst", "t"), ("t", "edge_attr"), ("indptr",), ("indices", "x")])
def test_an_incomplete_store_is_named(left: tuple[str, ...], tmp_path: Path, capsys) -> None:
    for name in left:
        np.save(tmp_path / f"{name}.npy", np.arange(4))
    marker = "graph.json" if left[0].startswith("ind") else "events.json"
    named = rf"{left[0]}\.npy.*{marker}"
    for read in (read_events, read_graph, load_events):
        with pytest.raises(FormatError, match=named):
            read(tmp_path)
    assert main(["inspect", str(tmp_path)]) != 0
    assert "half-written" in capsys.readouterr().err


def test_a_folder_of_other_arrays_is_not_part_of_a_store(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.arange(4))
    with pytest.raises(FormatError):
        read_events(tmp_path)
