"""Finds a place for compiled kernels where none of the usual ones can be written: a temporary folder, with a warning.

numba keeps kernels in NUMBA_CACHE_DIR, beside their sources, or in the user's cache folder, and refuses to compile
where it can write to none of them: an installation for reading only, no home. Files in its folder are run as code, so
a temporary one is used again only where it belongs to this user and is open to nobody else.

`import hopstate` runs this, so it imports nothing that Python has not loaded at its start.
"""

from __future__ import annotations

import os
import sys
import warnings

# where kernels lie, below the package
FOLDERS = (
    "data",
    "data/prepare",
    "datasets",
    "methods/gmn",
    "methods/pair_trees",
    "ops/conv1d",
    "ops/cpu",
    "ops/edge_attention",
    "ops/gated",
    "ops/neighbor_statistics",
    "ops/neighbors",
    "ops/propagate",
    "ops/proximity",
    "ops/returns",
    "ops/sampling",
    "ops/selective_scan",
    "ops/span_step",
    "ops/walks",
    "sampling",
    "tokens",
)


def ensure_kernel_cache() -> None:
    """Point NUMBA_CACHE_DIR to a temporary folder, with one warning, where numba would find no place of its own."""
    package = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    named, user = os.environ.get("NUMBA_CACHE_DIR"), _user_folder()
    if named and _can_write(named):
        return
    if all(_can_write(os.path.join(package, folder, "__pycache__")) for folder in FOLDERS):
        return
    if user is None or _can_write(user):
        return
    from hopstate.errors import HopstateWarning

    try:
        folder = _temporary_folder()
    except OSError:
        told = "and there is no temporary folder either"
    else:
        told = f"and are in {folder} for now"
        os.environ["NUMBA_CACHE_DIR"] = folder  # of processes that are started from here too
        if "numba" in sys.modules:
            sys.modules["numba"].config.CACHE_DIR = folder  # type: ignore[attr-defined]
    warnings.warn(
        f"compiled kernels can be kept neither beside hopstate nor in {named or user}, {told}; "
        "set NUMBA_CACHE_DIR to a folder that can be written",
        HopstateWarning,
        stacklevel=3,
    )


def _user_folder() -> str | None:
    """Return the user's cache folder as numba finds it; None where that is left to numba."""
    if sys.platform == "win32":
        return None
    given = None if sys.platform == "darwin" else os.environ.get("XDG_CACHE_HOME")
    usual = "~/Library/Caches" if sys.platform == "darwin" else "~/.cache"
    return os.path.join(given or os.path.expanduser(usual), "numba")


def _can_write(folder: str) -> bool:
    """Return whether files can be made in folder, which may have to be made itself."""
    if folder.split(os.sep)[0] == "~":  # nobody's home
        return False
    while not os.path.lexists(folder) and folder != os.path.dirname(folder):
        folder = os.path.dirname(folder) or os.curdir
    return os.path.isdir(folder) and os.access(folder, os.W_OK | os.X_OK)


def _temporary_folder() -> str:
    """Return the user's own temporary folder of kernels, or one for this process alone.

    Raises:
        OSError: none can be made.
    """
    import atexit
    import shutil
    import stat
    import tempfile
    from contextlib import suppress

    if hasattr(os, "getuid"):
        folder = os.path.join(tempfile.gettempdir(), f"hopstate-kernels-{os.getuid()}")
        try:
            with suppress(FileExistsError):
                os.mkdir(folder, 0o700)
            found = os.lstat(folder)
            mine = stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid() and not found.st_mode & 0o077
            if mine and os.access(folder, os.W_OK):
                return folder
        except OSError:
            pass
    made = tempfile.mkdtemp(prefix="hopstate-kernels-")
    atexit.register(shutil.rmtree, made, ignore_errors=True)
    return made
