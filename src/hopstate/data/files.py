"""Writing files so that nothing is ever half written."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Callable
from pathlib import Path

from hopstate.errors import StorageError


def replace_file(path: Path, write: Callable[[Path], None]) -> None:
    """Call write on a temporary file beside path, then rename it to path.

    Raises:
        StorageError: writing failed; path is as it was before.
    """
    from safetensors import SafetensorError

    part = path.with_name(f".{path.name}.part")
    try:
        write(part)
        with part.open("rb+") as file:
            os.fsync(file.fileno())
        part.chmod(0o666 & ~_umask())  # some writers make files that only their owner may read
        part.replace(path)
    except StorageError:  # of another file that write writes: it has said so
        with contextlib.suppress(OSError):
            part.unlink()
        raise
    except (OSError, SafetensorError) as error:
        with contextlib.suppress(OSError):
            part.unlink()
        kept = "; the previous one is untouched" if path.exists() else ""
        raise StorageError(
            f"could not write {path}: {error}{kept}; free some space or choose another folder"
        ) from error


def check_writable(path: Path) -> None:
    """Check that a file can be written at path, as far as can be told before the work; its folder is made.

    Raises:
        StorageError: it cannot.
    """
    try:
        if path.is_dir():
            raise IsADirectoryError("it is a folder")
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=path.parent):
            pass
    except OSError as error:
        raise StorageError(f"could not write {path}: {error}; choose another place") from error


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
