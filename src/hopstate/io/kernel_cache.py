"""A folder for compiled kernels if numba can write to none of its usual ones: a temporary one, with a warning.

numba keeps kernels in NUMBA_CACHE_DIR, next to their sources, or in the user's cache folder, and refuses to compile if
it can write to none of them: a read-only installation, no home. `import hopstate` runs this, so nothing is imported
here that Python has not loaded at its start.
"""

from __future__ import annotations

import os
import sys
import warnings


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
    if folder.startswith("~"):  # a user without a home
        return False
    while not os.path.lexists(folder) and folder != os.path.dirname(folder):
        folder = os.path.dirname(folder) or os.curdir
    return os.path.isdir(folder) and os.access(folder, os.W_OK | os.X_OK)


def _temporary_folder() -> str:
    """Return a new folder that only this user may enter, since numba runs the files in it; deleted at the end."""
    import atexit
    import shutil
    import tempfile

    made = tempfile.mkdtemp(prefix="hopstate-kernels-")
    atexit.register(shutil.rmtree, made, ignore_errors=True)
    return made
