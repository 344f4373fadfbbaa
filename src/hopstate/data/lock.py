"""One writer a folder: a lock that the system drops with the process that held it, however that ended."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from hopstate.errors import BusyError, StorageError

NAME = ".lock"


@contextmanager
def locked(folder: str | Path, what: str = "a run") -> Iterator[None]:
    """Hold a folder for writing; it is made where there is none.

    Args:
        folder: what is held, by the file `.lock` in it, which stays there; a lock is the system's and not the file's.
        what: what lies there, for messages.

    Raises:
        BusyError: somebody else holds it, in this process or another; there is no waiting.
        StorageError: the folder or its lock cannot be made.
    """
    from filelock import FileLock, Timeout

    folder = Path(folder)
    lock = FileLock(folder / NAME, timeout=0)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock.acquire()
    except Timeout:
        raise BusyError(
            f"{folder} is being written by somebody else ({what}); wait until that has ended, or choose another folder"
        ) from None
    except OSError as error:
        raise StorageError(f"could not lock {folder}: {error}; choose another folder") from error
    try:
        yield
    finally:
        lock.release()
