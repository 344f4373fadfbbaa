"""A disk with injected faults, under the log of a live run and its snapshots.

SQLite's calls go through a VFS of apsw, syncs of snapshots through `os.fsync`, and the acknowledged position through
`os.write` too. Writes since a file's last sync are recorded with the old content: after a power failure, any part of
them may be on the disk.

| fault | effect at a random call |
|---|---|
| kill | the process ends |
| drop | power fails; any unsynced writes and renames are lost |
| tear | power fails; unsynced writes are kept up to some byte |
| eio, enospc | this call and possibly a few more fail, writes partially; the process continues |
"""

from __future__ import annotations

import errno
import os
import shutil
import signal
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NoReturn

import numpy as np
import pytest

from hopstate.random import named_rng

apsw = pytest.importorskip("apsw", reason="needs apsw: pip install 'hopstate[serve]'")

Kind = Literal["kill", "drop", "tear", "eio", "enospc"]
VFS = "hopstate-faulty"
_NUMBERS = {"eio": errno.EIO, "enospc": errno.ENOSPC}


@dataclass(frozen=True)
class Fault:
    """The kind and time of a fault.

    Args:
        kind: see above.
        call: the first call that fails, from 1: writes, cuts and syncs count.
        seed: draws the state of the disk, and the number of failing calls.
        syncs: False if nothing is ever synced.
    """

    kind: Kind
    call: int
    seed: int
    syncs: bool = True


@dataclass(frozen=True)
class _Change:
    """A write since the last sync: the old content, the old file size, and the new data; None for a truncation."""

    offset: int
    before: bytes
    size: int
    data: bytes | None


class FaultyDisk:
    """The disk of this process until it ends.

    Args:
        state: the folder of snapshots.
        scratch: a folder on the same file system for links to synced files.
        fault: the fault.
        on_fault: called when it fails.
    """

    def __init__(self, state: Path, scratch: Path, fault: Fault, on_fault: Callable[[], None]) -> None:
        self.state, self.fault, self._on_fault = state, fault, on_fault
        self.calls, self.rng = 0, named_rng(fault.seed, "fault")
        self._last = fault.call + (int(self.rng.integers(3)) if fault.kind in _NUMBERS else 0)
        self.changes: dict[str, list[_Change]] = {}
        self._names = _Names(state, scratch)
        self._vfs = _Vfs(self)
        self._turn, self._write = threading.RLock(), os.write
        os.fsync, os.write = self._python_fsync, self._python_write  # type: ignore[assignment]

    def failing(self) -> bool:
        """Count a call; return whether it fails. If the process ends with it, no thread's call returns."""
        with self._turn:
            self.calls += 1
            if self.calls == self.fault.call:
                self._on_fault()
                if self.fault.kind == "kill":
                    _end()
                if self.fault.kind in ("drop", "tear"):
                    self.lose_power()
            return self.fault.kind in _NUMBERS and self.fault.call <= self.calls <= self._last

    def lose_power(self) -> NoReturn:
        """Leave a possible state of the disk after a power failure, and end."""
        for path, changes in self.changes.items():
            if os.path.exists(path):
                _lose(path, changes, self.rng, whole=self.fault.kind == "drop")
        self._names.lose(self.rng)
        _end()

    def error(self) -> OSError:
        """Return the error of a call that fails."""
        number = _NUMBERS[self.fault.kind]
        return OSError(number, os.strerror(number))

    def _python_fsync(self, handle: Any) -> None:
        if self.failing():
            raise self.error()
        if self.fault.syncs:
            number = handle if isinstance(handle, int) else handle.fileno()
            self._names.sync(number)
            self.changes.get(os.readlink(f"/proc/self/fd/{number}"), []).clear()

    def _python_write(self, handle: int, data: bytes) -> int:
        path = Path(os.readlink(f"/proc/self/fd/{handle}"))
        if path.is_relative_to(self.state):  # not a pipe of multiprocessing
            if self.failing():
                raise self.error()
            offset = os.lseek(handle, 0, os.SEEK_CUR)
            change = _Change(offset, os.pread(handle, len(data), offset), os.fstat(handle).st_size, data)
            self.changes.setdefault(str(path), []).append(change)
        return self._write(handle, data)


class _Names:
    """Names in a folder, as they are and as they were synced; and which files were synced."""

    def __init__(self, folder: Path, scratch: Path) -> None:
        self.folder, self.scratch = folder, scratch
        shutil.rmtree(scratch, ignore_errors=True)
        scratch.mkdir(parents=True)
        self.files = {_stamp(path) for path in self._now().values()}
        self.keep()

    def _now(self) -> dict[str, Path]:
        return {path.name: path for path in self.folder.glob("*")} if self.folder.is_dir() else {}

    def keep(self) -> None:
        """What the folder holds now is on the disk; links keep it."""
        for path in self.scratch.iterdir():
            path.unlink()
        for name, path in self._now().items():
            os.link(path, self.scratch / name)

    def sync(self, handle: int) -> None:
        facts = os.fstat(handle)
        if self.folder.is_dir() and os.path.samestat(facts, self.folder.stat()):
            self.keep()
        self.files.add(_key(facts))

    def lose(self, rng: np.random.Generator) -> None:
        now, kept = self._now(), {path.name: path for path in self.scratch.iterdir()}
        for name in sorted({*now, *kept}):
            here, there = now.get(name), kept.get(name)
            same = here is not None and there is not None and here.samefile(there)
            if same or rng.random() < 0.5:  # this change of a name is on the disk
                continue
            (self.folder / name).unlink(missing_ok=True)
            if there is not None:
                os.link(there, self.folder / name)
        for path in self._now().values():
            if _stamp(path) not in self.files:
                os.truncate(path, int(rng.integers(path.stat().st_size + 1)))


class _Vfs(apsw.VFS):
    """SQLite's own, but for files that are written."""

    def __init__(self, disk: FaultyDisk) -> None:
        super().__init__(VFS, "")
        self.disk = disk

    def xOpen(self, name: Any, flags: Any) -> Any:
        return _File(self.disk, name, flags)


class _File(apsw.VFSFile):
    """A file whose changes since its last sync are noted."""

    def __init__(self, disk: FaultyDisk, name: Any, flags: Any) -> None:
        super().__init__("", name, flags)
        self.disk, self.path = disk, name.filename() if isinstance(name, apsw.URIFilename) else str(name)
        self.changes = disk.changes.setdefault(self.path, [])

    def _note(self, offset: int, data: bytes | None) -> None:
        size = self.xFileSize()
        length = size - offset if data is None else min(size - offset, len(data))
        before = super().xRead(length, offset) if length > 0 else b""
        self.changes.append(_Change(offset, bytes(before), size, data))

    def xWrite(self, data: Any, offset: int) -> None:
        content = bytes(data)
        self._note(offset, content)
        super().xWrite(content, offset)
        if self.disk.failing():
            super().xTruncate(max(self.changes[-1].size, offset + len(content) // 2))
            raise _named(self.disk)

    def xTruncate(self, size: int) -> None:
        if self.disk.failing():
            raise _named(self.disk)
        self._note(size, None)
        super().xTruncate(size)

    def xSync(self, flags: int) -> None:
        if self.disk.failing():
            raise _named(self.disk)
        self.changes.clear()


def _named(disk: FaultyDisk) -> Exception:
    return apsw.FullError("database or disk is full") if disk.fault.kind == "enospc" else apsw.IOError("disk I/O error")


def _lose(path: str, changes: list[_Change], rng: np.random.Generator, *, whole: bool) -> None:
    """Undo what was not synced, then do a part of it again: any of the changes, or all up to some byte of one."""
    with open(path, "rb+") as file:
        for change in reversed(changes):
            file.seek(change.offset)
            file.write(change.before)
            file.truncate(change.size)
        count = int(rng.integers(len(changes) + 1))
        rate = rng.choice([0.0, 0.5, 1.0], p=[0.4, 0.4, 0.2])
        for i, change in enumerate(changes):
            if (rng.random() >= rate) if whole else i > count:
                continue
            if change.data is None:
                file.truncate(change.offset)
                continue
            torn = not whole and i == count
            file.seek(change.offset)
            file.write(change.data[: int(rng.integers(len(change.data) + 1))] if torn else change.data)
        file.flush()


def _stamp(path: Path) -> tuple[int, int, int]:
    return _key(path.stat())


def _key(facts: os.stat_result) -> tuple[int, int, int]:
    return facts.st_ino, facts.st_mtime_ns, facts.st_size


def _end() -> NoReturn:
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError  # nothing comes after it
