"""A finished run, which tests damage."""

import shutil
from pathlib import Path

import numpy as np
import pytest

from hopstate import fit

QUICK = {"loop": {"epochs": 1, "progress": False, "logger": "none", "device": "cpu"}, "model": {"dim": 4}}


@pytest.fixture(scope="session")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    home = tmp_path_factory.mktemp("finished")
    x, y = np.random.default_rng(0).random((9, 3)).astype(np.float32), np.arange(9) % 2
    masks = {f"{name}_masks": (np.arange(9) % 3 == k)[None] for k, name in enumerate(("train", "val", "test"))}
    np.savez(home / "g.npz", node_features=x, node_labels=y, edges=np.array([[0, 1], [1, 2]]), **masks)
    return fit("mlp", home / "g.npz", out=home / "run", config=QUICK).path


@pytest.fixture
def run(finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A finished run of mlp."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOPSTATE_DATA", str(tmp_path / "cache"))
    return Path(shutil.copytree(finished, tmp_path / "run"))
