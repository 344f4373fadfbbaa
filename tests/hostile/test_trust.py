"""A run folder from elsewhere runs no code, opens no address, and writes and takes no more than its files stand for."""

from __future__ import annotations

import json
import pickle
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from hopstate import evaluate, fit
from hopstate.cli.main import main
from hopstate.data.readers.read_graph import read_graph
from hopstate.errors import ConfigError, HopstateError

LOOP = {"epochs": 1, "progress": False, "logger": "none", "device": "cpu"}


class Evil:
    """Makes a file when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (self.path,)


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    home = tmp_path_factory.mktemp("finished")
    x, y = np.random.default_rng(0).random((9, 3)).astype(np.float32), np.arange(9) % 2
    masks = {f"{name}_masks": (np.arange(9) % 3 == k)[None] for k, name in enumerate(("train", "val", "test"))}
    np.savez(home / "g.npz", node_features=x, node_labels=y, edges=np.array([[0, 1], [1, 2]]), **masks)
    return fit("mlp", home / "g.npz", out=home / "run", config={"loop": LOOP, "model": {"dim": 4}}).path


@pytest.fixture
def run(finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A finished run of mlp."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOPSTATE_DATA", str(tmp_path / "cache"))
    return Path(shutil.copytree(finished, tmp_path / "run"))


def change(run: Path, **settings: object) -> None:
    """Change settings in a run's config.json; a dot is written as two underscores."""
    config = json.loads((run / "config.json").read_text())
    for name, value in settings.items():
        *groups, last = name.split("__")
        place = config
        for group in groups:
            place = place[group]
        place[last] = value
    (run / "config.json").write_text(json.dumps(config))


# ---- what a run folder may name ------------------------------------------------------------------------------------
ADDRESSES = (
    "pyg:Planetoid:Cora",
    "pyg:Planetoid:Cora?root=http://127.0.0.1:9",
    "ogb:ogbn-arxiv",
    "citeseer",  # of the catalogue, but nobody publishes a checksum
    "postgresql://host/db?table=t",
    "https://host/g.npz",
    "\\\\host\\share\\g.npz",
    "//host/share/g.npz",
    "/proc/self/environ",
    "/dev/zero",
)


@pytest.mark.parametrize("source", ADDRESSES)
def test_data_that_are_no_plain_file_are_given_again(run: Path, source: str, capsys) -> None:
    own = json.loads((run / "config.json").read_text())["data"]
    change(run, data=source)
    with pytest.raises(ConfigError, match=r"config\.json"):
        evaluate(run)
    assert main(["fit", "mlp", "--resume", f"--out={run}"]) == 2
    assert "config.json" in capsys.readouterr().err
    assert evaluate(run, own)


def test_a_link_to_a_device_is_no_plain_file(run: Path, tmp_path: Path) -> None:
    (tmp_path / "g.npz").symlink_to("/proc/self/environ")
    change(run, data=str(tmp_path / "g.npz"))
    with pytest.raises(ConfigError, match=r"config\.json"):
        evaluate(run)


@pytest.mark.filterwarnings("ignore:sbm has changed")
def test_generated_data_sets_may_be_named(run: Path) -> None:
    change(run, data="sbm")
    with pytest.raises(HopstateError, match="features"):  # it was read, and is another one
        evaluate(run)


@pytest.mark.parametrize("setting", ["read__features", "read__labels", "link__file"])
def test_other_files_of_settings_are_plain_too(run: Path, setting: str) -> None:
    change(run, **{setting: "\\\\host\\share\\x.csv"})
    with pytest.raises(ConfigError, match=setting.replace("__", ".")):
        evaluate(run)


@pytest.mark.parametrize(("setting", "value"), [("read__num_nodes", 10**9), ("read__max_bytes", "1TiB")])
def test_settings_take_no_more_memory_than_files_stand_for(run: Path, setting: str, value: object) -> None:
    change(run, **{setting: value})
    with pytest.raises(ConfigError, match=setting.replace("__", ".")):
        evaluate(run)
    with pytest.raises(ConfigError, match=setting.replace("__", ".")):
        fit("mlp", json.loads((run / "config.json").read_text())["data"], out=run, resume=True)


# ---- torch-geometric -------------------------------------------------------------------------------------------------
def planetoid(root: Path, mark: Path, *, without: str = "") -> Path:
    """Lay out raw files of Planetoid that are pickles of one's own."""
    raw = root / "Cora" / "raw"
    raw.mkdir(parents=True)
    for name in ("x", "tx", "allx", "y", "ty", "ally", "graph", "test.index"):
        if name != without:
            (raw / f"ind.cora.{name}").write_bytes(pickle.dumps(Evil(mark)))
    return raw


@pytest.mark.parametrize("without", ["", "graph"])
def test_raw_files_that_were_there_are_not_unpickled(tmp_path: Path, monkeypatch, without: str) -> None:
    from torch_geometric.datasets import Planetoid

    raw = planetoid(tmp_path, tmp_path / "ran", without=without)
    fetched = []

    def download(self: Any) -> None:  # as torch-geometric's own, which leaves files alone that are there
        fetched.append(self.raw_dir)
        (raw / f"ind.cora.{without}").write_bytes(pickle.dumps({}))

    monkeypatch.setattr(Planetoid, "download", download)
    with pytest.raises(HopstateError, match="Planetoid"):
        read_graph(f"pyg:Planetoid:Cora?root={tmp_path}")
    assert not (tmp_path / "ran").exists()
    assert len(fetched) == bool(without)


def test_raw_files_that_were_just_fetched_are_unpickled(tmp_path: Path, monkeypatch) -> None:
    from torch_geometric.datasets import Planetoid

    def download(self: Any) -> None:
        shutil.rmtree(Path(self.raw_dir).parent)
        planetoid(tmp_path, tmp_path / "ran")

    monkeypatch.setattr(Planetoid, "download", download)
    with pytest.raises(Exception, match=r"."):  # they are no data of Planetoid
        read_graph(f"pyg:Planetoid:Cora?root={tmp_path}")
    assert (tmp_path / "ran").exists()


@pytest.mark.parametrize("root", ["file://{here}", "http://127.0.0.1:9", "memory://x", "simplecache::file://{here}"])
def test_a_root_is_a_folder(tmp_path: Path, root: str) -> None:
    planetoid(tmp_path, tmp_path / "ran")
    with pytest.raises(HopstateError, match="Planetoid"):
        read_graph(f"pyg:Planetoid:Cora?root={root.format(here=tmp_path)}")
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize("legacy", [True, False])
def test_processed_files_are_not_unpickled(tmp_path: Path, legacy: bool) -> None:
    raw = planetoid(tmp_path, tmp_path / "ran")
    (raw.parent / "processed").mkdir()
    torch.save(
        ({"x": Evil(tmp_path / "ran")}, None, dict),
        raw.parent / "processed" / "data.pt",
        _use_new_zipfile_serialization=not legacy,
    )
    with pytest.raises(HopstateError, match="Planetoid"):
        read_graph(f"pyg:Planetoid:Cora?root={tmp_path}")
    assert not (tmp_path / "ran").exists()
