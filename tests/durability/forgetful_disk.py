"""A simulated disk: it records every sync, rename and deletion below a folder, and loses unsynced changes.

Power may fail at every such call. A file then has its last synced content, its current content or a mixture. A folder
then has its last synced names, its current names, those of any time between, or all changes but one, because a disk may
keep unsynced changes in any order. A rename is one change, as on every journalling file system.
"""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from hopstate.io.files import is_temporary

Names = dict[int, dict[str, int]]  # folder → name → file or folder, all as inode numbers
Change = dict[str, int | None]  # name → inode after a call, None if deleted
Found = dict[str, bytes | None]  # path → content, None of a folder

ONE_PATH, TWO_PATHS = ("fsync", "unlink", "remove", "mkdir", "rmdir"), ("replace", "rename")


@dataclass
class Point:
    """Names and contents on disk before a call, current and as last synced."""

    call: str
    names: Names
    synced_names: Names
    changes: dict[int, tuple[Change, ...]]  # folder → what changed since it was synced
    contents: dict[int, bytes]
    synced: dict[int, bytes]  # of all files so far, empty if never synced


class Disk:
    """A context manager that records changes below root; `states` yields what a power failure leaves.

    Args:
        root: the folder; its content at the start counts as synced.
        syncs: of what syncs have an effect; with less than both, tests must fail.
    """

    def __init__(self, root: Path, *, syncs: tuple[str, ...] = ("files", "folders")) -> None:
        self.root, self.syncs = root, syncs
        self.top = os.stat(root).st_ino
        self.points: list[Point] = []
        self._synced: dict[int, bytes] = {}
        self._open_files: dict[int, int] = {}  # open files, so that no inode number is reused

    def __enter__(self) -> Disk:
        self._names, contents = self._scan()
        self._synced_names, self._synced = dict(self._names), dict(contents)
        self._changes: dict[int, tuple[Change, ...]] = {}
        self._patch = pytest.MonkeyPatch()
        for name in (*ONE_PATH, *TWO_PATHS):
            self._patch.setattr(os, name, self._noted(name, getattr(os, name)))
        return self

    def __exit__(self, *error: object) -> None:
        self._patch.undo()
        self._note("end")
        for handle in self._open_files.values():
            os.close(handle)

    def _noted(self, name: str, call: Any) -> Any:
        def noted(*arguments: Any, **options: Any) -> Any:
            self._note(f"{name} {arguments[0]}")
            if name == "fsync":
                return self._on_sync(arguments[0])
            return call(*arguments, **options)

        return noted

    def _on_sync(self, handle: int) -> None:
        number = os.fstat(handle).st_ino
        names, contents = self._scan()
        if "folders" in self.syncs and number in names:
            self._synced_names = {**self._synced_names, number: names[number]}
            self._changes = {**self._changes, number: ()}
        elif "files" in self.syncs and number in contents:
            self._synced = {**self._synced, number: contents[number]}

    def _note(self, call: str) -> None:
        names, contents = self._scan()
        for folder, now in names.items():
            then = self._names.get(folder, {})
            change = {name: now.get(name) for name in now.keys() | then.keys() if now.get(name) != then.get(name)}
            if change:
                self._changes = {**self._changes, folder: (*self._changes.get(folder, ()), change)}
        self._names = names
        self.points.append(Point(call, names, self._synced_names, self._changes, contents, dict(self._synced)))

    def _scan(self) -> tuple[Names, dict[int, bytes]]:
        names: Names = {}
        contents: dict[int, bytes] = {}
        for here, _, _ in os.walk(self.root):
            entries = {entry.name: entry for entry in os.scandir(here)}
            names[os.stat(here).st_ino] = {name: entry.inode() for name, entry in entries.items()}
            for entry in entries.values():
                number = entry.inode()
                if number not in self._open_files:
                    self._open_files[number] = os.open(entry.path, os.O_RDONLY)
                if entry.is_file():
                    contents[number] = Path(entry.path).read_bytes()
                    self._synced.setdefault(number, b"")
        return names, contents

    def at_end(self) -> Iterator[tuple[str, Found]]:
        """Yield the possible states after a power failure at the end."""
        return self._states(self.points[-1:])

    def states(self) -> Iterator[tuple[str, Found]]:
        """Yield (the call before which the power failed, the state after it), each distinct state once."""
        return self._states(self.points)

    def _states(self, points: list[Point]) -> Iterator[tuple[str, Found]]:
        yielded = set()
        for point in points:
            for names in _names(point):
                for contents in _contents(point):
                    found = dict(_tree(self.top, "", names, contents))
                    digest = hashlib.blake2b(repr(sorted(found.items())).encode()).digest()
                    if digest not in yielded:
                        yielded.add(digest)
                        yield point.call, found

    def put(self, found: Found) -> None:
        """Write a state to root, as left by a process that has ended."""
        shutil.rmtree(self.root)
        self.root.mkdir()
        for name, content in sorted(found.items()):
            path = self.root / name
            if content is None:
                path.mkdir()
            else:
                path.write_bytes(content)
        for path in filter(is_temporary, self.root.rglob("*")):  # they name this process, which still runs
            os.utime(path, (0, 0))


def _names(point: Point) -> Iterator[Names]:
    now, then = point.names, {**point.synced_names, **{each: point.synced_names.get(each, {}) for each in point.names}}
    yield now
    yield then
    for folder, changes in point.changes.items():
        for kept in (
            *(changes[:i] for i in range(1, len(changes))),
            *_but_one(changes),
            *((each,) for each in changes),
        ):
            names = dict(then[folder])
            for change in kept:
                names |= change  # type: ignore[arg-type]
            names = {name: number for name, number in names.items() if number is not None}
            yield {**now, folder: names}
            yield {**then, folder: names}


def _but_one(changes: tuple[Change, ...]) -> Iterator[tuple[Change, ...]]:
    for i in range(len(changes)):
        yield changes[:i] + changes[i + 1 :]


def _contents(point: Point) -> Iterator[dict[int, bytes]]:
    now = point.contents
    then = {number: point.synced.get(number, b"") for number in now}
    yield {**point.synced, **now}
    yield {**point.synced, **then}
    yield {**point.synced, **{number: _half(then[number], now[number]) for number in now}}
    for number in now:
        if now[number] != then[number]:
            yield {**point.synced, **now, number: then[number]}
            yield {**point.synced, **then, number: now[number]}


def _half(then: bytes, now: bytes) -> bytes:
    if now.startswith(then):
        return now[: (len(then) + len(now)) // 2]
    return now[: len(now) // 2] + then[len(now) // 2 :]


def _tree(folder: int, path: str, names: Names, contents: dict[int, bytes]) -> Iterator[tuple[str, bytes | None]]:
    for name, number in names.get(folder, {}).items():
        if number in contents:
            yield path + name, contents[number]
        else:
            yield path + name, None
            yield from _tree(number, f"{path}{name}/", names, contents)
