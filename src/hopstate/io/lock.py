"""Locks: one process at a time works in a folder, or on a file.

The system releases a lock with its process, however that ended; a `.lock` file that is left has no effect.
"""

from __future__ import annotations

import contextlib
import os
import socket
import time
from collections.abc import Iterator
from pathlib import Path

from hopstate.errors import BusyError
from hopstate.io.files import make_folder, named_errors, remove_stale, short_name

NAME = ".lock"


@contextlib.contextmanager
def locked(folder: str | Path, what: str = "a run") -> Iterator[None]:
    """Lock a folder, which is made if it is missing; temporary files of killed processes are deleted.

    Args:
        folder: it is locked by the file `.lock` in it.
        what: what the folder contains, for messages.

    Raises:
        BusyError: another process, or another thread, has locked it.
        StorageError: nothing can be written there.
    """
    folder = Path(folder)
    with _acquired(folder, folder / NAME, what, wait=False):
        remove_stale(folder)
        yield


@contextlib.contextmanager
def file_lock(path: str | Path, *, wait: bool = False) -> Iterator[None]:
    """Lock one file (or folder) by a hidden lock file next to it.

    Args:
        path: the file, whose folder is made if it is missing.
        wait: until it is released, instead of raising.

    Raises:
        BusyError: another process, or another thread, has locked it.
        StorageError: nothing can be written there.
    """
    path = Path(path)
    with _acquired(path, path.with_name(f".{short_name(path)}.lock"), "a file", wait=wait):
        remove_stale(path.parent, path)
        yield


@contextlib.contextmanager
def _acquired(path: Path, place: Path, what: str, *, wait: bool) -> Iterator[None]:
    from filelock import FileLock, Timeout

    lock = FileLock(place, timeout=-1 if wait else 0, thread_local=False)
    with named_errors(path, "lock"):
        make_folder(place.parent)
        try:
            lock.acquire(poll_interval=0.02)
        except Timeout:
            raise BusyError(
                f"{path} ({what}) is being written by {_owner(place)}; wait until that has ended, or stop it, or "
                f"choose another place"
            ) from None
    try:
        with contextlib.suppress(OSError):
            since = time.strftime("%Y-%m-%d %H:%M:%S")
            place.write_text(f"process {os.getpid()} on {socket.gethostname()} since {since}", "utf-8")
        yield
    finally:
        with contextlib.suppress(OSError):  # while it is locked, so that nobody waits for a name that is gone
            place.unlink()
        lock.release()


def _owner(place: Path) -> str:
    try:
        return place.read_text("utf-8")[:200] or "another process"
    except (OSError, ValueError):
        return "another process"
