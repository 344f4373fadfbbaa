"""Where downloads and what is expensive to compute are kept between runs."""

from __future__ import annotations

import contextlib
import os
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
