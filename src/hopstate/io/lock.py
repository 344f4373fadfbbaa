"""Locks: one process at a time works in a folder, or on a file, from reading it to renaming what replaces it.

The system drops a lock with the process that held it, however that ended; a `.lock` file that is left means nothing.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import socket
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from hopstate.errors import BusyError
from hopstate.io.files import make_folder, named_errors
from hopstate.io.leftovers import is_part, short_name, sweep

NAME = ".lock"
_SECRETS = re.compile(r"(?<=://)[^/\s]*(?=@)|(?<=password=)[^&\s]*")  # of addresses on a command line
MARKS = ("environment.json", "search.json", "table.json", "live.json")  # what runs, searches, comparisons, states have


@contextlib.contextmanager
def locked(folder: str | Path, what: str = "a run") -> Iterator[None]:
    """Hold a folder, which is made if it is missing.

    Leftovers of killed work are deleted if the folder is one of ours.

    Args:
        folder: what is held, by the file `.lock` in it while that lasts.
        what: what lies there, for messages.

    Raises:
        BusyError: another process, or another thread, holds it.
        StorageError: nothing can be written there.
    """
    folder = Path(folder)
    with _held(folder, folder / NAME, what, wait=False):
        if _is_ours(folder):
            sweep(folder, deep=True)
        yield


def _is_ours(folder: Path) -> bool:
    """Return whether a folder holds a run, a search or a comparison, or nothing but leftovers: no one else's files."""
    if any((folder / name).is_file() for name in MARKS):
        return True
    with contextlib.suppress(OSError, ValueError):  # a start that was killed early
        if "method" in json.loads((folder / "config.json").read_text("utf-8")):
            return True
    return all(entry.name == NAME or is_part(entry) for entry in folder.iterdir())


@contextlib.contextmanager
def file_lock(path: str | Path, *, wait: bool = False) -> Iterator[None]:
    """Hold one file (or folder, by a lock beside it); leftovers of killed work on it are deleted.

    Args:
        path: the file, whose folder is made where it is not there.
        wait: until whoever holds it is done, instead of refusing.

    Raises:
        BusyError: another process, or another thread, holds it.
        StorageError: nothing can be written there.
    """
    path = Path(path)
    with _held(path, path.with_name(f".{short_name(path)}.lock"), "a file", wait=wait):
        sweep(path.parent, short_name(path))
        yield


@contextlib.contextmanager
def _held(path: Path, place: Path, what: str, *, wait: bool) -> Iterator[None]:
    from filelock import FileLock, Timeout

    lock = FileLock(place, timeout=-1 if wait else 0, thread_local=False)
    with named_errors(path, "lock"):
        make_folder(place.parent)
        try:
            lock.acquire(poll_interval=0.02)
        except Timeout:
            raise BusyError(
                f"{path} ({what}) is being written by {_holder(place)}; wait until that has ended, or stop it, or "
                f"choose another place"
            ) from None
    try:
        _sign(place)
        yield
    finally:
        with contextlib.suppress(OSError):  # while it is held, so that nobody waits for a name that is gone
            place.unlink()
        lock.release()


def _sign(place: Path) -> None:
    """Leave in a lock's file who holds it."""
    words = " ".join([Path(sys.argv[0]).name, *sys.argv[1:]] if sys.argv else [])
    words = _SECRETS.sub("...", words)[:200]
    who = {"process": os.getpid(), "host": socket.gethostname(), "command": words, "since": time.time()}
    with contextlib.suppress(OSError):
        place.write_text(json.dumps(who), "utf-8")


def _holder(place: Path) -> str:
    try:
        who = json.loads(place.read_text("utf-8"))
        since = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(who["since"]))
        return f"process {who['process']} on {who['host']} ({who['command']}) since {since}"
    except (OSError, ValueError, KeyError, TypeError, OverflowError):
        return "another process"
