"""Where downloads and what is expensive to compute are kept between runs."""

from __future__ import annotations

import contextlib
import os
import sys
import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np

from hopstate.errors import StorageError
from hopstate.io.files import remove_stale, replace_file, save_array


def cache_folder() -> Path:
    """Return the folder named by HOPSTATE_DATA, else the platform's cache folder for hopstate; may not exist yet."""
    named = os.environ.get("HOPSTATE_DATA")
    if named:
        return Path(named).expanduser()
    import pooch

    return Path(pooch.os_cache("hopstate"))


def cached_array(path: Path | None, shape: tuple[int, ...], compute: Callable[[], np.ndarray]) -> np.ndarray:
    """Return compute() as float32, kept in the .npy file at path, or read from there where it is."""
    if path is not None and path.is_file():
        with contextlib.suppress(ValueError, EOFError, OSError):
            kept = np.load(path, allow_pickle=False)
            if kept.shape == shape and kept.dtype == np.float32:
                return kept
    made = compute().astype(np.float32)
    if path is not None:
        try:
            remove_stale(path.parent)
            replace_file(path, lambda part: save_array(part, made))
        except StorageError as error:
            raise StorageError(f"{error}: HOPSTATE_DATA names the cache") from error
    return made


def ensure_kernel_cache() -> None:
    """Point NUMBA_CACHE_DIR to a temporary folder, with one warning, if numba would find no place of its own."""
    if sys.platform == "win32":
        return
    package = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    usual = "~/Library/Caches" if sys.platform == "darwin" else "~/.cache"
    user = os.path.join(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser(usual), "numba")
    places = (os.environ.get("NUMBA_CACHE_DIR"), os.path.join(package, "ops", "cpu", "__pycache__"), user)
    if any(place and _can_write(place) for place in places):
        return
    from hopstate.errors import HopstateWarning

    try:
        folder = _temporary_folder()
    except OSError:
        found = "and there is no temporary folder either"
    else:
        found = f"and are in {folder} for now"
        os.environ["NUMBA_CACHE_DIR"] = folder  # of processes that are started from here too
        if "numba" in sys.modules:
            sys.modules["numba"].config.CACHE_DIR = folder  # type: ignore[attr-defined]
    warnings.warn(
        f"compiled kernels can be kept neither next to hopstate nor in {places[0] or user}, {found}; "
        "set NUMBA_CACHE_DIR to a writable folder",
        HopstateWarning,
        stacklevel=3,
    )


def _can_write(folder: str) -> bool:
    """Return whether files can be made in folder, which may have to be made itself."""
    if folder.startswith("~"):  # a user without a home
        return False
    while not os.path.lexists(folder) and folder != os.path.dirname(folder):
        folder = os.path.dirname(folder) or os.curdir
    return os.path.isdir(folder) and os.access(folder, os.W_OK | os.X_OK)


def _temporary_folder() -> str:
    """Return this user's own temporary folder of kernels, or one for this process only."""
    import atexit
    import shutil
    import tempfile

    folder = os.path.join(tempfile.gettempdir(), f"hopstate-kernels-{os.getuid()}")
    try:
        os.makedirs(folder, 0o700, exist_ok=True)
        found = os.lstat(folder)
        private = found.st_uid == os.getuid() and not found.st_mode & 0o077
        if private and not os.path.islink(folder) and os.access(folder, os.W_OK):
            return folder
    except OSError:
        pass
    made = tempfile.mkdtemp(prefix="hopstate-kernels-")
    atexit.register(shutil.rmtree, made, ignore_errors=True)
    return made
