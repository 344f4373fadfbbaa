"""The content of a saved model; damaged, foreign or hostile folders are rejected."""

from __future__ import annotations

import hashlib
import json
import os
import pickle
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from hopstate.errors import CheckpointError, ConfigError, HopstateError, StorageError
from hopstate.runs.hub import check_saved, from_pretrained, save_pretrained
from hopstate.runs.run import Run

NEGATIVES = "negatives/test_random.npz"


@pytest.fixture
def run(trained: Callable[[str], Run]) -> Path:
    return trained("dyg-mamba").path


@pytest.fixture
def saved(run: Path, tmp_path: Path) -> Path:
    return save_pretrained(run, tmp_path / "saved")


def resummed(folder: Path, **more: str) -> None:
    head = json.loads((folder / "hopstate.json").read_text())
    for name in head["sha256"]:
        if (folder / name).exists():
            head["sha256"][name] = hashlib.sha256((folder / name).read_bytes()).hexdigest()
    head["sha256"] |= more
    (folder / "hopstate.json").write_text(json.dumps(head))


def test_only_safetensors_json_arrays_and_the_card(saved: Path, run: Path) -> None:
    assert {file.suffix for file in saved.rglob("*") if file.is_file()} == {".json", ".safetensors", ".npz", ".md"}
    texts = "".join(file.read_text("utf-8") for file in (*saved.glob("*.json"), saved / "README.md"))
    assert str(run.parent) not in texts
    assert '"command"' not in texts


def test_saving_again_replaces_only_its_own_folder(saved: Path, run: Path, tmp_path: Path) -> None:
    before = {file.name: file.read_bytes() for file in saved.rglob("*.*")}
    save_pretrained(run, saved)
    assert {file.name: file.read_bytes() for file in saved.rglob("*.*")} == before
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("mine")
    with pytest.raises(ConfigError, match="mine"):
        save_pretrained(run, tmp_path / "mine")
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match="file"):
        save_pretrained(run, tmp_path / "file")


def test_a_full_disk_leaves_the_earlier_folder(saved: Path, run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    before = {file.name: file.read_bytes() for file in saved.rglob("*.*")}
    monkeypatch.setattr(shutil, "copyfile", full)
    with pytest.raises(StorageError):
        save_pretrained(run, saved)
    assert {file.name: file.read_bytes() for file in saved.rglob("*.*") if file.name != ".lock"} == before


def test_unfinished_or_damaged_runs_are_not_saved(run: Path, tmp_path: Path) -> None:
    shutil.copytree(run, tmp_path / "run")
    (tmp_path / "run" / "model.safetensors").write_bytes(b"half")
    with pytest.raises(CheckpointError, match=r"model\.safetensors"):
        save_pretrained(tmp_path / "run", tmp_path / "out")
    (tmp_path / "run" / "result.json").unlink()
    with pytest.raises(CheckpointError, match="run"):
        save_pretrained(tmp_path / "run", tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_links_as_in_the_cache_of_the_hub_are_followed(saved: Path, tmp_path: Path) -> None:
    (tmp_path / "blobs").mkdir()
    for file in [file for file in saved.rglob("*.*") if file.is_file()]:
        file.rename(tmp_path / "blobs" / file.name)
        file.symlink_to(tmp_path / "blobs" / file.name)
    again = from_pretrained(saved, out=tmp_path / "again")
    assert not any(file.is_symlink() for file in again.path.rglob("*"))


@pytest.mark.parametrize("name", ["config.json", "data.json", "result.json", "model.safetensors", NEGATIVES])
@pytest.mark.parametrize("how", ["cut", "gone", "changed"])
def test_a_damaged_folder_is_named_and_leaves_nothing(saved: Path, name: str, how: str, tmp_path: Path) -> None:
    path = saved / name
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2] if how == "cut" else whole[:-2] + b"!!")
    if how == "gone":
        path.unlink()
    with pytest.raises(CheckpointError, match=name):
        from_pretrained(saved, out=tmp_path / "again")
    assert not (tmp_path / "again" / "config.json").exists()


class Trap:
    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.system, ("touch sprung",)


def test_no_pickle_is_loaded(saved: Path, run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    whole = (saved / "model.safetensors").read_bytes()
    for name in ("model.safetensors", NEGATIVES):
        (saved / name).write_bytes(pickle.dumps(Trap()))
        resummed(saved)
        with pytest.raises(HopstateError):
            from_pretrained(saved, out=tmp_path / name, data=run.with_suffix(".csv")).evaluate()
        (saved / "model.safetensors").write_bytes(whole)
    assert not (tmp_path / "sprung").exists()


def test_unknown_files_methods_and_formats_are_rejected(saved: Path, tmp_path: Path) -> None:
    whole = (saved / "hopstate.json").read_text()
    for evil in ("../evil.json", "/etc/evil", "negatives/../../evil.npz", "evil.py", "negatives/evil.npz.py"):
        resummed(saved, **{evil: "0"})
        with pytest.raises(CheckpointError, match="evil"):
            from_pretrained(saved, out=tmp_path / "again")
        (saved / "hopstate.json").write_text(whole)
    assert not list(tmp_path.rglob("evil*"))
    head = json.loads(whole)
    (saved / "hopstate.json").write_text(json.dumps(head | {"format": "hopstate-pretrained-9"}))
    with pytest.raises(CheckpointError, match="hopstate-pretrained-9"):
        check_saved(saved)
    config = json.loads((saved / "config.json").read_text())
    (saved / "config.json").write_text(json.dumps(config | {"method": "os:system"}))
    (saved / "hopstate.json").write_text(json.dumps(head))
    resummed(saved)
    with pytest.raises(HopstateError, match="os:system"):
        from_pretrained(saved, out=tmp_path / "again")
    shutil.rmtree(saved)
    saved.mkdir()
    with pytest.raises(CheckpointError, match="saved"):
        check_saved(saved)


def test_saved_addresses_omit_host_and_password(run: Path, tmp_path: Path) -> None:
    shutil.copytree(run, tmp_path / "run")
    config = json.loads((tmp_path / "run" / "config.json").read_text())
    config["data"] = "postgresql://me:secret@host.example/base/events?x=1"
    (tmp_path / "run" / "config.json").write_text(json.dumps(config))
    folder = save_pretrained(tmp_path / "run", tmp_path / "out")
    texts = "".join(file.read_text("utf-8") for file in (*folder.glob("*.json"), folder / "README.md"))
    assert "secret" not in texts
    assert "host.example" not in texts
    assert json.loads((folder / "config.json").read_text())["data"] == "events"


def test_saved_arrays_equal_those_of_the_run(saved: Path, run: Path, tmp_path: Path) -> None:
    again = from_pretrained(saved, out=tmp_path / "again").path
    own = sorted(file.relative_to(run) for file in run.rglob("*.np[yz]"))
    assert own == sorted(file.relative_to(again) for file in again.rglob("*.np[yz]"))
    assert own
    for name in own:
        with np.load(run / name) as one, np.load(again / name) as other:
            assert sorted(one.files) == sorted(other.files)
            assert all(np.array_equal(one[key], other[key]) and one[key].dtype == other[key].dtype for key in one.files)
