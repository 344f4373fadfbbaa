"""Finds a place for compiled kernels where none of the usual ones can be written: a temporary folder, with a warning.

numba keeps kernels in NUMBA_CACHE_DIR, beside their sources, or in the user's cache folder, and refuses to compile
where it can write to none of them: an installation for reading only, no home. Files in its folder are run as code, so
a temporary one is used again only where it belongs to this user and is open to nobody else.
"""

from __future__ import annotations

import os
import sys
import warnings
from pathlib import Path

# where kernels lie, below the package
FOLDERS = (
    "data",
    "datasets",
    "methods/gmn",
    "methods/pair_trees",
    "ops/conv1d",
    "ops/cpu",
    "ops/gated",
    "ops/neighbors",
    "ops/propagate",
    "ops/proximity",
    "ops/returns",
    "ops/row_linear",
    "ops/sampling",
    "ops/selective_scan",
    "ops/span_step",
    "ops/walks",
    "sampling",
    "tokens",
)


def ensure_kernel_cache() -> None:
    """Point NUMBA_CACHE_DIR to a temporary folder, with one warning, where numba would find no place of its own."""
    package = Path(__file__).parents[1]
    named, user = os.environ.get("NUMBA_CACHE_DIR"), _user_folder()
    if named and _can_write(Path(named)):
        return
    if all(_can_write(package / folder / "__pycache__") for folder in FOLDERS):
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
        os.environ["NUMBA_CACHE_DIR"] = str(folder)  # of processes that are started from here too
        if "numba" in sys.modules:
            sys.modules["numba"].config.CACHE_DIR = str(folder)  # type: ignore[attr-defined]
    warnings.warn(
        f"compiled kernels can be kept neither beside hopstate nor in {named or user}, {told}; "
        "set NUMBA_CACHE_DIR to a folder that can be written",
        HopstateWarning,
        stacklevel=3,
    )


def _user_folder() -> Path | None:
    """Return the user's cache folder as numba finds it; None where that is left to numba."""
    if sys.platform == "win32":
        return None
    given = None if sys.platform == "darwin" else os.environ.get("XDG_CACHE_HOME")
    return Path(given or os.path.expanduser("~/Library/Caches" if sys.platform == "darwin" else "~/.cache")) / "numba"


def _can_write(folder: Path) -> bool:
    """Return whether files can be made in folder, which may have to be made itself."""
    if folder.parts[0] == "~":  # nobody's home
        return False
    while not os.path.lexists(folder) and folder != folder.parent:
        folder = folder.parent
    return folder.is_dir() and os.access(folder, os.W_OK | os.X_OK)


def _temporary_folder() -> Path:
    """Return the user's own temporary folder of kernels, or one for this process alone.

    Raises:
        OSError: none can be made.
    """
    import atexit
    import shutil
    import stat
    import tempfile

    if hasattr(os, "getuid"):
        folder = Path(tempfile.gettempdir()) / f"hopstate-kernels-{os.getuid()}"
        try:
            folder.mkdir(mode=0o700, exist_ok=True)
            found = folder.lstat()
            mine = stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid() and not found.st_mode & 0o077
            if mine and os.access(folder, os.W_OK):
                return folder
        except OSError:
            pass
    made = Path(tempfile.mkdtemp(prefix="hopstate-kernels-"))
    atexit.register(shutil.rmtree, made, ignore_errors=True)
    return made
