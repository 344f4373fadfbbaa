"""The hub is used only through its library, which a fake with a folder replaces here."""

from __future__ import annotations

import inspect
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import hopstate
from hopstate.errors import ConfigError, DownloadError, MissingExtraError
from hopstate.runs.hub import FILES, fetched
from hopstate.runs.run import Run


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A hub in a folder, with the signatures of the real functions."""
    there = tmp_path / "hub"

    class Api:
        def create_repo(self, repo_id: str, *, private: bool, exist_ok: bool) -> None:
            assert private
            (there / repo_id).mkdir(parents=True, exist_ok=exist_ok)

        def upload_folder(self, *, repo_id: str, folder_path: Path, allow_patterns: list[str], **more: Any) -> str:
            if more.get("commit_message") == "refused":
                raise OSError("403 Forbidden")
            shutil.copytree(folder_path, there / repo_id, dirs_exist_ok=True)
            return f"https://hub.example/{repo_id}"

    def snapshot_download(repo_id: str, *, revision: str | None, allow_patterns: list[str]) -> str:
        assert allow_patterns == FILES
        if not (there / repo_id).is_dir() or revision not in (None, "main"):
            raise OSError("404 Not Found")
        return str(there / repo_id)

    fake_hub = SimpleNamespace(HfApi=Api, snapshot_download=snapshot_download)
    monkeypatch.setitem(sys.modules, "huggingface_hub", fake_hub)
    return there


def test_save_and_load_round_trip(hub: Path, trained: Callable[[str], Run], tmp_path: Path) -> None:
    run = trained("recency")
    assert hopstate.push_to_hub(run.path, "me/recency") == "https://hub.example/me/recency"
    assert (hub / "me" / "recency" / "README.md").is_file()
    again = hopstate.from_pretrained("me/recency", out=tmp_path / "again", data=run.path.with_suffix(".csv"))
    assert again.evaluate() == pytest.approx(run.metrics["test"])


def test_errors_of_the_hub_are_named(hub: Path, trained: Callable[[str], Run]) -> None:
    run = trained("recency")
    with pytest.raises(DownloadError, match="403 Forbidden"):
        hopstate.push_to_hub(run.path, "me/recency", commit_message="refused")
    with pytest.raises(ConfigError, match="recency"):
        hopstate.push_to_hub(run.path, "../recency")
    for name, revision in (("me/missing", None), ("me/recency", "v9")):
        with pytest.raises(DownloadError, match="404 Not Found"):
            fetched(name, revision)


def test_without_the_library_its_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(MissingExtraError, match=r"hopstate\[hub\]"):
        fetched("me/model")


def test_the_real_library_accepts_our_calls() -> None:
    true = pytest.importorskip("huggingface_hub", reason="huggingface_hub is not installed")
    api = true.HfApi()
    inspect.signature(true.snapshot_download).bind("a/b", revision=None, allow_patterns=FILES)
    inspect.signature(api.create_repo).bind("a/b", private=True, exist_ok=True)
    inspect.signature(api.upload_folder).bind(repo_id="a/b", folder_path=Path(), allow_patterns=FILES)
