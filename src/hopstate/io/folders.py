"""Replacing a whole folder, so that at every instant what was there or what comes stands there."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import re
import shutil
import sys
from pathlib import Path
from typing import Any

from hopstate.io.files import Write, make_folder, named_errors, sync_folder
from hopstate.io.leftovers import at_work, beside, short_name
from hopstate.io.lock import file_lock


def replace_folder(folder: Path, fill: Write) -> None:
    """Call fill on a new folder, then exchange it with what is at folder, which is deleted.

    Processes that write the same folder wait for each other; what an earlier one left unfinished is deleted.

    Raises:
        StorageError: writing failed; folder is as it was before.
    """
    folder = Path(os.path.realpath(folder))
    with named_errors(folder):
        make_folder(folder.parent)
        with file_lock(folder, wait=True):
            recover_folder(folder)
            for old in _moved(folder) if folder.exists() else ():
                shutil.rmtree(old, ignore_errors=True)
            part = beside(folder, "part")
            try:
                with at_work(part):
                    part.mkdir()
                    fill(part)
                    _sync_tree(part)
                    _swap(part, folder)
            finally:
                shutil.rmtree(part, ignore_errors=True)


def recover_folder(folder: Path) -> None:
    """Put back what a system without exchanges had moved away from folder when the work was killed."""
    if not folder.exists() and (moved := _moved(folder)):
        with contextlib.suppress(OSError):
            max(moved, key=lambda old: old.stat().st_ctime_ns).rename(folder)
            sync_folder(folder.parent)


def _moved(folder: Path) -> list[Path]:
    name = re.compile(rf"\.{re.escape(short_name(folder))}(\.[0-9a-f]{{8}}-\d+)?\.[0-9a-f]{{12}}\.old")
    return [path for path in folder.parent.glob(".*.old") if name.fullmatch(path.name)]


def _sync_tree(folder: Path) -> None:
    for here, _, files in os.walk(folder, topdown=False):
        for name in files:
            with Path(here, name).open("rb+") as file:
                os.fsync(file.fileno())
        sync_folder(Path(here))


def _swap(part: Path, folder: Path) -> None:
    """Put a finished folder at a place; what was there before ends at part, or is deleted."""
    if not folder.exists():
        part.rename(folder)
        sync_folder(folder.parent)
    elif _exchange(part, folder):
        sync_folder(folder.parent)
    else:
        old = beside(folder, "old")  # between the two renames only `recover_folder` finds it
        folder.rename(old)
        try:
            part.rename(folder)
        except OSError:
            old.rename(folder)
            raise
        sync_folder(folder.parent)
        shutil.rmtree(old, ignore_errors=True)


def _exchange(one: Path, other: Path) -> bool:
    """Exchange two folders in one step; return False where the system or the file system cannot."""
    system: Any = ctypes.CDLL(None, use_errno=True) if sys.platform != "win32" else None
    names = os.fsencode(one), os.fsencode(other)
    if hasattr(system, "renameat2"):
        failed = system.renameat2(-100, names[0], -100, names[1], 2)  # AT_FDCWD, RENAME_EXCHANGE
    elif hasattr(system, "renamex_np"):
        failed = system.renamex_np(*names, 2)  # RENAME_SWAP
    else:
        return False
    code = ctypes.get_errno()
    if failed and code not in (errno.ENOSYS, errno.EINVAL, errno.EOPNOTSUPP):
        raise OSError(code, os.strerror(code), str(other))
    return not failed
