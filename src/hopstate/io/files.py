"""The one writer: a file is written under another name, synced to disk, renamed, and its folder synced.

So at every instant, after a kill or a power failure too, what stood at a place or what replaces it stands there whole.
`folders.py` does the same for whole folders, `lock.py` keeps other processes out.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import shutil
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import IO

import numpy as np
from numpy.typing import DTypeLike

from hopstate.errors import ConfigError, HopstateError, StorageError
from hopstate.io.leftovers import OWN, beside

Write = Callable[[Path], object]

_MEND = {
    errno.ENOSPC: "free some space there, or choose another folder",
    errno.EDQUOT: "your quota there is used up: delete files of yours there, or choose another folder",
    errno.EROFS: "its file system is mounted read-only: mount it for writing, or choose another folder",
    errno.EIO: "its disk failed: look at the system's log, free what is damaged, or choose another folder",
    errno.EFBIG: "the file exceeds a limit on the size of files (ulimit -f): raise it, or choose another folder",
    errno.EACCES: "allow writing there, or choose another folder",
    errno.EPERM: "allow writing there, or choose another folder",
    errno.EEXIST: "something else stands there by that name: choose another name, or move it away",
    errno.ENOTDIR: "a file stands where a folder is needed: choose another name, or move it away",
    errno.EISDIR: "a folder stands there by that name: choose another name",
}


def replace_file(path: Path, write: Write) -> None:
    """Call write on a temporary file beside path, then rename it to path.

    Raises:
        StorageError: writing failed; path is as it was before.
    """
    replace_files({path: write})


def write_text(path: Path, text: str) -> None:
    """Write a text file as UTF-8, with line ends as they are; an earlier one is replaced once the new one is whole.

    Raises:
        StorageError: writing failed; path is as it was before.
    """
    replace_file(path, lambda part: part.write_bytes(text.encode()))


def is_broken(text: str) -> bool:
    """Return whether a text holds half of a character (a lone surrogate), which no file can."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return True
    return False


def replace_files(writes: Mapping[Path, Write], *, marker: Path | None = None) -> None:
    """Write several files, all of them before any is renamed, which happens in the order given.

    Args:
        writes: path → what writes a file there.
        marker: the last path, where it says that the others are whole: an earlier one is removed before they change.

    Raises:
        StorageError: writing failed; every path is as it was before.
    """
    parts: dict[Path, Path] = {}
    try:
        for path, write in writes.items():
            make_folder(path.parent)
            with named_errors(path):
                parts[path], mode = _new_part(path)
                write(parts[path])
                with parts[path].open("rb+") as file:
                    _sync(file.fileno())
                parts[path].chmod(mode)  # some writers make files that only their owner may read
        if marker is not None and marker.exists():
            remove_file(marker)
        for path, part in parts.items():
            with named_errors(path):
                part.replace(path)
            with named_errors(path, "bring to disk"):
                sync_folder(path.parent)
    finally:
        for part in parts.values():
            with contextlib.suppress(OSError):
                part.unlink()
            OWN.discard(part.name)


def make_folder(folder: Path) -> Path:
    """Make a folder, and those that it lies in, so that they stay; return it.

    Raises:
        StorageError: it cannot be made.
    """
    with named_errors(folder, "make"):
        missing = [part for part in (folder, *folder.parents) if not part.is_dir()]
        for part in reversed(missing):
            part.mkdir(exist_ok=True)
            sync_folder(part.parent)
    return folder


def remove_file(path: Path) -> None:
    """Delete a file so that it does not come back; nothing where there is none.

    Raises:
        StorageError: it cannot be deleted.
    """
    with named_errors(path):
        path.unlink(missing_ok=True)
        sync_folder(path.parent)


def append_file(path: Path, content: str | bytes) -> None:
    """Add to the end of a file, which is on disk for certain only after `sync_file`.

    Raises:
        StorageError: it failed; what stood there is there, perhaps with a part of content.
    """
    with named_errors(path, "add to"), path.open("ab") as file:
        file.write(content.encode() if isinstance(content, str) else content)


def sync_file(path: Path) -> None:
    """Bring to disk what was added to a file; nothing where there is none.

    Raises:
        StorageError: it failed.
    """
    if path.is_file():
        with named_errors(path):
            with path.open("rb+") as file:
                _sync(file.fileno())
            sync_folder(path.parent)


def save_array(path: Path, array: np.ndarray) -> None:
    """Write an array as .npy, without pickle; unlike numpy's own, an error tells the reason."""

    class Plain:  # whatever is no file of Python's is written by write()
        def __init__(self, write: Callable[[bytes], int]) -> None:
            self.write = write

    with path.open("wb") as file:
        np.lib.format.write_array(Plain(file.write), np.asanyarray(array), allow_pickle=False)  # type: ignore[arg-type]


def reserve_array(path: Path, shape: tuple[int, ...], dtype: DTypeLike = np.float32) -> int:
    """Make an .npy file of zeros with its room on disk reserved; return where the numbers begin.

    Raises:
        StorageError: there is not enough room.
    """
    nbytes = np.dtype(dtype).itemsize * int(np.prod(shape, dtype=np.int64))
    free = shutil.disk_usage(path.parent).free
    if free < nbytes:
        raise StorageError(
            f"an array of shape {shape} needs {nbytes:,} bytes, {path.parent} has {free:,} free; free some space "
            f"there, or choose another folder"
        )
    with path.open("wb") as file:
        header = {"descr": np.lib.format.dtype_to_descr(np.dtype(dtype)), "fortran_order": False, "shape": shape}
        np.lib.format.write_array_header_2_0(file, header)
        start = file.tell()
        reserve_room(file, start + nbytes)
    return start


def reserve_room(file: IO[bytes], size: int) -> None:
    """Make an open file of so many bytes, zeros from where it ended; OSError where the disk has no room for them."""
    file.truncate(size)
    if hasattr(os, "posix_fallocate") and size:
        os.posix_fallocate(file.fileno(), 0, size)


def sync_folder(folder: Path) -> None:
    """Bring renames and deletions in a folder to disk, where the system has such a call."""
    try:
        handle = os.open(folder, os.O_RDONLY)
    except (PermissionError, IsADirectoryError):  # a folder that may not be listed; Windows
        return
    try:
        _sync(handle)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.EBADF, errno.EOPNOTSUPP, errno.EACCES):
            raise
    finally:
        os.close(handle)


def check_output(path: Path, *read: object) -> None:
    """Check that a file can be written at path, and that it is none of the files that the work reads.

    Args:
        path: the file to be written.
        read: files, or folders that hold them; what is neither does not count.

    Raises:
        StorageError: it cannot be written.
        ConfigError: it is read.
    """
    check_writable(path)
    texts = [str(one) for one in read if isinstance(one, (str, Path))]
    given = {os.path.realpath(os.path.expanduser(one)) for one in texts if "\0" not in one}  # no file has such a name
    own = os.path.realpath(path)
    if os.path.exists(own) and (own in given or os.path.dirname(own) in given):
        raise ConfigError(f"{path} is read here, so it would be lost: choose another file to write")


def check_writable(path: Path) -> None:
    """Check that a file can be written at path, as far as can be told before the work; its folder is made.

    Raises:
        StorageError: it cannot.
    """
    with named_errors(path):
        if path.is_dir():
            raise IsADirectoryError("it is a folder")
        make_folder(path.parent)
        with tempfile.TemporaryFile(dir=path.parent):
            pass


class named_errors:  # noqa: N801 - a context manager
    """Turn an error of the system or of a writer into a StorageError that names the file and what to do.

    Args:
        path: the file or folder that is written.
        verb: what is done to it.
    """

    def __init__(self, path: Path, verb: str = "write") -> None:
        self.path, self.verb = path, verb

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if error is None or isinstance(error, HopstateError):
            return
        from safetensors import SafetensorError

        if not isinstance(error, (OSError, SafetensorError)):
            return
        kept = "; the previous one is untouched" if self.verb == "write" and self.path.exists() else ""
        raise StorageError(f"could not {self.verb} {self.path}: {error}{kept}; {_mend(self.path, error)}") from error


def _mend(path: Path, error: BaseException) -> str:
    found = re.search(r"os error (\d+)", str(error))  # safetensors holds the number in its text
    number = int(found[1]) if found else (error.errno if isinstance(error, OSError) else None)
    where = next((folder for folder in path.absolute().parents if folder.is_dir()), Path("/"))
    if number == errno.ENOSPC:
        return f"{where} has {shutil.disk_usage(where).free:,} bytes free: {_MEND[number]}"
    return f"{where}: {_MEND[number]}" if number in _MEND else "mend that, or choose another folder"


def _new_part(path: Path) -> tuple[Path, int]:
    """Make an empty temporary file for path; return it and the mode that files get here."""
    part = beside(path, "part")
    OWN.add(part.name)
    handle = os.open(part, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o666)
    try:
        return part, os.fstat(handle).st_mode & 0o777
    finally:
        os.close(handle)


def _sync(handle: int) -> None:
    os.fsync(handle)
