"""Compiled kernels if the usual caches are not writable: a private temporary cache and one warning.

Tests may run as root, who ignores permissions: a file in place of a folder makes a path unwritable.
"""

import os
import shutil
import subprocess
import sys
import warnings
from pathlib import Path

import pytest

import hopstate
from hopstate.errors import HopstateWarning
from hopstate.io import kernel_cache
from hopstate.io.kernel_cache import ensure_kernel_cache

PACKAGE = Path(hopstate.__file__).parent


@pytest.fixture
def sealed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An installation that is read-only, without a home directory, with its own temporary folder."""
    (tmp_path / "file").touch()
    (tmp_path / "tmp").mkdir()
    (tmp_path / "hopstate").mkdir()
    (tmp_path / "hopstate/ops").touch()
    monkeypatch.setattr(kernel_cache, "__file__", str(tmp_path / "hopstate/io/kernel_cache.py"))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "tmp"))
    monkeypatch.setenv("HOME", str(tmp_path / "file"))
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setenv("NUMBA_CACHE_DIR", "")
    monkeypatch.delitem(sys.modules, "numba", raising=False)
    return tmp_path


def test_usual_cache_folders_are_not_changed(sealed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(sealed / "home"))  # does not exist yet, as on a fresh account
    ensure_kernel_cache()
    monkeypatch.setenv("HOME", str(sealed / "file"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(sealed / "home"))
    ensure_kernel_cache()
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert os.environ["NUMBA_CACHE_DIR"] == ""
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(sealed / "kernels"))
    ensure_kernel_cache()
    monkeypatch.setattr(kernel_cache, "__file__", str(PACKAGE / "io/cache.py"))
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(sealed / "file/kernels"))
    ensure_kernel_cache()  # numba uses the folder of the sources


def test_a_temporary_folder_is_private_and_named_once(sealed: Path) -> None:
    os.environ["NUMBA_CACHE_DIR"] = str(sealed / "file/kernels")
    with pytest.warns(HopstateWarning, match="NUMBA_CACHE_DIR"):
        ensure_kernel_cache()
    folder = Path(os.environ["NUMBA_CACHE_DIR"])
    assert folder.parent == sealed / "tmp"
    assert folder.stat().st_mode & 0o777 == 0o700
    ensure_kernel_cache()  # no second warning: the folder is there now


def test_no_writable_folder_gives_a_warning(sealed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(sealed / "file"))
    with pytest.warns(HopstateWarning, match="NUMBA_CACHE_DIR"):
        ensure_kernel_cache()


def test_without_a_home_no_folder_is_created_in_the_working_directory(
    sealed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("os.path.expanduser", lambda path: path)  # an unknown user without HOME
    monkeypatch.chdir(sealed)
    with pytest.warns(HopstateWarning, match="NUMBA_CACHE_DIR"):
        ensure_kernel_cache()
    assert not (sealed / "~").exists()


@pytest.mark.slow
def test_a_read_only_installation_computes_with_one_warning(tmp_path: Path) -> None:
    shutil.copytree(PACKAGE, tmp_path / "site/hopstate", ignore=shutil.ignore_patterns("__pycache__"))
    for folder in (tmp_path / "site/hopstate").rglob("*"):
        if folder.is_dir():
            (folder / "__pycache__").touch()
    (tmp_path / "tmp").mkdir()
    (tmp_path / "home").touch()
    code = (
        "from numpy import int64; from hopstate.ops.cpu.random_kernels import seeded; print(seeded(int64(1), int64(2)))"
    )
    drop = ("XDG_CACHE_HOME", "NUMBA_CACHE_DIR", "HOPSTATE_TYPECHECK")
    environment = {key: value for key, value in os.environ.items() if key not in drop}
    environment |= {"HOME": str(tmp_path / "home"), "TMPDIR": str(tmp_path / "tmp"), "PYTHONDONTWRITEBYTECODE": "1"}
    environment |= {"PYTHONPATH": str(tmp_path / "site"), "PYTHONWARNINGS": "always"}
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip().isdigit()
    assert done.stderr.count("HopstateWarning: compiled kernels") == 1
    assert not list((tmp_path / "tmp").iterdir())


def test_a_writable_installation_gives_no_warning() -> None:
    before = os.environ.get("NUMBA_CACHE_DIR")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        ensure_kernel_cache()
    assert os.environ.get("NUMBA_CACHE_DIR") == before
