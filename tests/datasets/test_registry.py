"""The catalogue and downloads, from a server on this machine: checks, retries, errors with a remedy."""

from __future__ import annotations

import dataclasses
import hashlib
import http.server
import threading
import urllib.error
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hopstate.cli.main import main
from hopstate.data.graph import Graph
from hopstate.datasets import dataset_table, find_dataset, load_dataset, registry
from hopstate.datasets.registry import Dataset, RemoteFile, catalogue, fetch
from hopstate.errors import DataError, DownloadError, FormatError


class Server:
    """Serves bytes by path; a path listed in `fails` answers 503 that many times first."""

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}
        self.fails: dict[str, int] = {}
        self.requests: list[str] = []
        outer = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                outer.requests.append(self.path)
                left = outer.fails.get(self.path, 0)
                outer.fails[self.path] = left - 1
                content = outer.files.get(self.path)
                self.send_response(503 if left > 0 else 404 if content is None else 200)
                self.end_headers()
                if content is not None and left <= 0:
                    self.wfile.write(content)

            def log_message(self, *args: Any) -> None:
                pass

        self.http = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.http.server_port}"
        threading.Thread(target=self.http.serve_forever, daemon=True).start()


@pytest.fixture
def server() -> Iterator[Server]:
    made = Server()
    yield made
    made.http.shutdown()
    made.http.server_close()


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HOPSTATE_DATA", str(tmp_path / "cache"))
    return tmp_path / "cache"


def sha(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def test_fetch_downloads_once(server: Server, cache: Path) -> None:
    server.files["/a.npz"] = b"abc"
    for checksum in (None, sha(b"abc")):
        file = RemoteFile(url=f"{server.url}/a.npz", path=f"set/{checksum}.npz", sha256=checksum)
        assert fetch(file).read_bytes() == b"abc"
        assert fetch(file) == cache / "set" / f"{checksum}.npz"
    assert len(server.requests) == 2


def test_fetch_retries(server: Server) -> None:
    server.files["/a"], server.fails["/a"] = b"abc", 1
    assert fetch(RemoteFile(url=f"{server.url}/a", path="a"), retries=1).read_bytes() == b"abc"
    assert len(server.requests) == 2


def test_a_wrong_checksum_leaves_the_earlier_file_or_none(server: Server, cache: Path) -> None:
    server.files["/a"] = b"tampered"
    file = RemoteFile(url=f"{server.url}/a", path="set/a", sha256=sha(b"good"))
    with pytest.raises(DownloadError, match="set/a"):
        fetch(file, retries=0)
    assert list((cache / "set").iterdir()) == []
    (cache / "set" / "a").write_bytes(b"old")
    with pytest.raises(DownloadError):
        fetch(file, retries=0)
    assert (cache / "set" / "a").read_bytes() == b"old"
    (cache / "set" / "a").write_bytes(b"good")
    assert fetch(file).read_bytes() == b"good"


def test_a_failed_download_names_the_file_and_folder(server: Server, cache: Path) -> None:
    for url in (f"{server.url}/missing", "http://127.0.0.1:1/refused", "http://no-such-host.invalid/x"):
        with pytest.raises(DownloadError) as caught:
            fetch(RemoteFile(url=url, path="set/file.npz"), retries=0)
        text = str(caught.value)
        assert url in text
        assert str(cache / "set" / "file.npz") in text
        assert "HOPSTATE_DATA" in text


@pytest.fixture
def tiny(server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Dataset:
    masks = np.eye(3, dtype=bool)
    np.savez(
        tmp_path / "tiny.npz",
        node_features=np.ones((3, 2), np.float32),
        node_labels=np.array([0, 1, 0]),
        edges=np.array([[0, 1], [1, 2]]),
        train_masks=masks[:1],
        val_masks=masks[1:2],
        test_masks=masks[2:],
    )
    server.files["/tiny.npz"] = (tmp_path / "tiny.npz").read_bytes()
    base = find_dataset("questions")
    assert base is not None
    file = RemoteFile(url=f"{server.url}/tiny.npz", path="heterophilous/tiny.npz")
    entry = dataclasses.replace(base, name="tiny", file=file, nodes=3, features=2, classes=2)
    monkeypatch.setitem(catalogue(), "tiny", entry)
    return entry


def test_load_by_name_downloads_then_reads_from_disk(tiny: Dataset, server: Server) -> None:
    assert registry.on_disk(tiny) == "no"
    graph = load_dataset("Tiny")
    assert isinstance(graph, Graph)
    assert (graph.name, graph.num_nodes, graph.num_splits) == ("tiny", 3, 1)
    assert registry.on_disk(tiny) == "yes"
    assert load_dataset("tiny", undirected=False).num_edges == 2
    assert len(server.requests) == 1


def test_a_file_of_another_graph_is_rejected(tiny: Dataset, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(catalogue(), "tiny", dataclasses.replace(tiny, nodes=4))
    with pytest.raises(FormatError):
        load_dataset("tiny")


def test_unknown_and_unreadable_names() -> None:
    with pytest.raises(DataError, match="minesweeper"):
        load_dataset("minesweepr")
    with pytest.raises(DataError, match="aminer-cs"):
        load_dataset("aminer-cs")
    assert find_dataset("Photo") is find_dataset("photo") is not None
    assert find_dataset("nothing") is None


def test_generated_datasets_need_no_network_and_accept_options() -> None:
    assert load_dataset("minesweeper-generated", size=8, seed=1).num_nodes == 64
    assert load_dataset("sbm", num_nodes=50).num_nodes == 50
    assert load_dataset("messages-generated", num_events=300).num_events > 200
    assert load_dataset("path-sequences", length=4, count=10) is not None


def test_the_table_lists_every_dataset_of_the_papers() -> None:
    rows = dataset_table()
    names = [row["name"] for row in rows]
    assert len(set(names)) == len(names)
    assert all(name == name.lower() for name in names)
    expected = {
        *("roman-empire", "amazon-ratings", "minesweeper", "tolokers", "questions"),
        *("peptides-func", "peptides-struct", "pascalvoc-sp", "coco-sp", "mnist", "cifar10", "pattern", "malnet-tiny"),
        *("ogbn-arxiv", "ogbn-products", "ogbn-papers100m", "reddit", "yelp", "flickr", "amazon2m", "aminer-cs"),
        *("pubmed", "corafull", "computer", "photo", "cs", "physics", "cora", "citeseer", "mutag", "proteins"),
        *("wikipedia", "reddit-temporal", "mooc", "lastfm", "enron", "social-evo", "uci", "flights", "can-parl"),
        *("us-legis", "un-trade", "un-vote", "contact", "tgbl-wiki", "tgbl-coin", "path-sequences"),
    }
    assert expected <= set(names)
    for row in rows:
        assert all(row[key] for key in ("loader", "split", "metric", "on_disk", "address", "licence"))
        assert row["kind"] in ("node", "graph", "edge", "link", "sequence")
        assert row["address"].startswith("http") or row["on_disk"] == "built in"


def test_a_cached_tu_file_is_read_with_its_folds(tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("HOPSTATE_DATA", str(tmp_path))
    (tmp_path / "tu" / "10fold").mkdir(parents=True)
    (tmp_path / "tu" / "MUTAG.txt").write_text("10\n" + "2 0\n0 1 1\n0 1 0\n2 1\n0 1 1\n1 1 0\n" * 5)
    for fold in range(1, 11):
        train = "".join(f"{graph}\n" for graph in range(10) if graph != fold - 1)
        (tmp_path / "tu" / "10fold" / f"MUTAG-train_idx-{fold}.txt").write_text(train)
        (tmp_path / "tu" / "10fold" / f"MUTAG-test_idx-{fold}.txt").write_text(f"{fold - 1}\n")
    graphs = load_dataset("mutag")
    assert (graphs.num_graphs, graphs.num_splits) == (10, 10)
    assert {row["name"]: row["on_disk"] for row in dataset_table()}["mutag"] == "yes"


def test_torch_geometric_classes_of_the_catalogue_exist() -> None:
    from torch_geometric import datasets

    for entry in catalogue().values():
        if entry.pyg:
            assert entry.pyg.split(":")[1] in datasets.__all__
            assert entry.loader == f"torch_geometric.datasets.{entry.pyg.split(':')[1]}"


@pytest.mark.shared
@pytest.mark.parametrize("name", ["minesweeper", "cora", "photo"])
def test_published_files_have_the_stated_checksums(shared: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOPSTATE_DATA", str(shared / "data"))
    entry = find_dataset(name)
    assert entry is not None
    assert registry.on_disk(entry) == "yes"
    assert entry.file is not None
    assert sha(entry.file.local.read_bytes()) == entry.file.sha256
    assert load_dataset(name).num_nodes == entry.nodes


def test_a_missing_temporal_dataset_names_the_file_and_folder(cache: Path) -> None:
    with pytest.raises(DownloadError, match=r"ml_mooc\.csv"):
        load_dataset("mooc")


@pytest.mark.shared
def test_temporal_datasets_on_disk_are_read(shared: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOPSTATE_DATA", str(shared / "data"))
    stream = load_dataset("uci")
    assert (len(stream), stream.name) == (59_835, "uci")


@pytest.mark.parametrize("name", ["amazon2m", "aminer-cs"])
def test_a_dataset_without_a_source_is_rejected_before_any_download(name, tmp_path, monkeypatch, capsys) -> None:
    def never(*_: object, **__: object) -> None:
        raise AssertionError("something was fetched")

    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOPSTATE_DATA", str(tmp_path / "cache"))
    monkeypatch.setattr("urllib.request.urlopen", never)
    assert main(["fit", "nagphormer", "--data", name, "--out", "run"]) == 1
    captured = capsys.readouterr().err
    assert name in captured
    assert "read.features" in captured
    assert not (tmp_path / "run").exists()
    assert main(["reproduce", f"nagphormer/{name}", "--out", "again"]) != 0
    assert name in capsys.readouterr().err


def test_reddit_that_cannot_be_fetched_is_named(tmp_path, monkeypatch, capsys) -> None:
    def closed(*_: object, **__: object) -> None:
        raise urllib.error.URLError("no network")

    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOPSTATE_DATA", str(tmp_path / "cache"))
    monkeypatch.setattr("urllib.request.urlopen", closed)
    assert main(["fit", "nagphormer", "--data", "reddit", "--out", "run"]) == 1
    assert "pyg:Reddit" in capsys.readouterr().err
    assert not (tmp_path / "run").exists()
