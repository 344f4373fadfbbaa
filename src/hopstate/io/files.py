"""Durable files and folders: written under a temporary name, synced, renamed, and their folder synced.

So a path has its earlier content or its new one, whole, also after a kill or a power failure. Whatever fails is a
`StorageError` that names the path.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import re
import secrets
import shutil
import socket
import sys
import tempfile
import time
import zlib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import numpy as np
from numpy.typing import DTypeLike

from hopstate.errors import BusyError, ConfigError, HopstateError, StorageError

Write = Callable[[Path], object]
NAME = ".lock"
# .NAME.HOST-PROCESS.RANDOM.part; the host is a checksum of its name
_SAFETENSORS_PART = ".tmp" + 6 * "[A-Za-z0-9]"  # what a killed process leaves that was writing with safetensors
_TEMPORARY = re.compile(r"\.(?P<name>.*)\.(?P<host>[0-9a-f]{8})-(?P<process>\d{1,9})\.[0-9a-f]{12}\.part")
_ABANDONED = 86400.0  # seconds without a change after which a temporary file of another machine is deleted
_HOST = f"{zlib.crc32(socket.gethostname().encode()):08x}"


# ---- files -----------------------------------------------------------------------------------------------------
def replace_file(path: Path, write: Write) -> None:
    """Call write on a temporary file in the same folder, then rename it to path."""
    replace_files({path: write})


def replace_files(writes: Mapping[Path, Write], *, marker: Path | None = None) -> None:
    """Write several files, all of them before any is renamed, which happens in the order given.

    Args:
        writes: path → what writes a file there.
        marker: the last path, if it says that the others are complete: it is removed before they change.

    Raises:
        StorageError: writing failed; every path is as it was before.
    """
    parts: dict[Path, Path] = {}
    try:
        for path, write in writes.items():
            make_folder(path.parent)
            parts[path] = temporary_name(path)
            with named_errors(path):
                parts[path].touch()
                mode = parts[path].stat().st_mode
                write(parts[path])
                _sync(parts[path])
                parts[path].chmod(mode)  # some writers make files that only their owner may read
        if marker is not None and marker.exists():
            remove_file(marker)
        for path, part in parts.items():
            with named_errors(path):
                part.replace(path)
                sync_folder(path.parent)
    finally:
        for part in parts.values():
            with contextlib.suppress(OSError):
                part.unlink()


def write_text(path: Path, text: str) -> None:
    """Write a text file as UTF-8; an earlier one is replaced once the new one is complete."""
    replace_file(path, lambda part: part.write_bytes(text.encode()))


def make_folder(folder: Path) -> Path:
    """Make a folder and its parents durably; return it."""
    with named_errors(folder, "make"):
        missing = [part for part in (folder, *folder.parents) if not part.is_dir()]
        for part in reversed(missing):
            part.mkdir(exist_ok=True)
            sync_folder(part.parent)
    return folder


def remove_file(path: Path) -> None:
    """Delete a file durably, if there is one."""
    with named_errors(path):
        path.unlink(missing_ok=True)
        sync_folder(path.parent)


def append_file(path: Path, content: str | bytes) -> None:
    """Append to a file; the content is durable only after `sync_file`."""
    with named_errors(path, "append to"), path.open("ab") as file:
        file.write(content.encode() if isinstance(content, str) else content)


def sync_file(path: Path) -> None:
    """Make what was appended to a file durable, if there is one."""
    if path.is_file():
        with named_errors(path):
            _sync(path)
            sync_folder(path.parent)


def save_array(path: Path, array: np.ndarray) -> None:
    """Write an array as .npy, without pickle."""
    with path.open("wb") as file:
        np.save(file, array, allow_pickle=False)


def reserve_array(path: Path, shape: tuple[int, ...], dtype: DTypeLike = np.float32) -> int:
    """Make an .npy file of zeros with its disk space allocated; return where the numbers begin."""
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
        file.truncate(start + nbytes)
        if hasattr(os, "posix_fallocate"):  # else a full disk is a fault when a mapped page is written
            os.posix_fallocate(file.fileno(), 0, start + nbytes)
    return start


def check_output(path: Path, *read: object) -> None:
    """Check that a file can be written at path, and that it is none of the files that are read.

    Args:
        path: the file to be written.
        read: files, or folders of them; other objects are ignored.

    Raises:
        StorageError: it cannot be written.
        ConfigError: it is read.
    """
    check_writable(path)
    inputs = {os.path.realpath(os.path.expanduser(one)) for one in map(str, read) if "\0" not in one}
    own = os.path.realpath(path)
    if os.path.exists(own) and (own in inputs or os.path.dirname(own) in inputs):
        raise ConfigError(f"{path} is read here, so it would be lost: choose another file to write")


def check_writable(path: Path) -> None:
    """Check that a file can be written at path; its folder may be missing."""
    with named_errors(path):
        if path.is_dir():
            raise IsADirectoryError("it is a folder")
        with tempfile.TemporaryFile(dir=next(parent for parent in path.absolute().parents if parent.exists())):
            pass


@contextlib.contextmanager
def named_errors(path: Path, verb: str = "write") -> Iterator[None]:
    """Turn an error of the system or of safetensors into a StorageError that names the file."""
    try:
        yield
    except HopstateError:
        raise
    except Exception as error:
        if not isinstance(error, OSError) and type(error).__name__ != "SafetensorError":
            raise
        kept = "; the previous one is untouched" if verb == "write" and path.exists() else ""
        raise StorageError(
            f"could not {verb} {path}: {error}{kept}; check free space and permissions, or choose another folder"
        ) from error


def _sync(path: Path) -> None:
    with path.open("rb+") as file:
        os.fsync(file.fileno())


def sync_folder(folder: Path) -> None:
    """Make renames and deletions in a folder durable, if the system has such a call."""
    if sys.platform == "win32" or not os.access(folder, os.R_OK):
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    except OSError as error:  # some network file systems sync no folders
        if error.errno not in (errno.EINVAL, errno.EOPNOTSUPP):
            raise
    finally:
        os.close(handle)


# ---- folders ---------------------------------------------------------------------------------------------------
def replace_folder(folder: Path, fill: Write) -> None:
    """Call fill on a new folder, then rename it to folder; an earlier folder is moved away and deleted.

    Processes that write the same folder wait for each other.

    Raises:
        StorageError: writing failed; folder is as it was before.
    """
    folder = Path(os.path.realpath(folder))
    with named_errors(folder):
        make_folder(folder.parent)
        part, old = temporary_name(folder), folder.with_name(f".{short_name(folder)}.old")
        with file_lock(folder, wait=True):
            _restore(folder, old)
            shutil.rmtree(old, ignore_errors=True)
            try:
                part.mkdir()
                fill(part)
                for here, _, files in os.walk(part, topdown=False):
                    for name in files:
                        _sync(Path(here, name))
                    sync_folder(Path(here))
                if folder.exists():
                    folder.rename(old)
                part.rename(folder)
                sync_folder(folder.parent)
            except BaseException:
                shutil.rmtree(part, ignore_errors=True)
                _restore(folder, old)
                raise
            if old.exists():  # under a name that is not put back if only a part of it is deleted
                shutil.rmtree(old.rename(part), ignore_errors=True)


def refuse_links(folder: Path) -> None:
    """Check that a folder holds no symbolic links: what is written or deleted in it would lie elsewhere.

    Raises:
        StorageError: it holds one.
    """
    for here, folders, files in os.walk(folder):
        for name in (*folders, *files):
            path = os.path.join(here, name)
            if os.path.islink(path):
                raise StorageError(
                    f"{path} is a symbolic link: what belongs to {folder} would be written elsewhere; replace it by "
                    f"what it leads to"
                )


@contextlib.contextmanager
def removed_if_empty(folder: Path) -> Iterator[None]:
    """Remove a folder that is missing now, and its parents, if what follows fails and leaves nothing in them."""
    missing = [path for path in (folder, *folder.parents) if not path.exists()]
    try:
        yield
    except BaseException:
        for path in missing:
            with contextlib.suppress(OSError):  # it holds something
                path.rmdir()
        raise


def recover_folder(folder: Path) -> None:
    """Put back what was moved away from folder if the process that replaced it was killed."""
    old = folder.with_name(f".{short_name(folder)}.old")
    if not folder.exists() and old.exists():
        with contextlib.suppress(OSError, StorageError), file_lock(folder, wait=True):
            _restore(folder, old)


def _restore(folder: Path, old: Path) -> None:
    if old.exists() and not folder.exists():
        old.rename(folder)
        sync_folder(folder.parent)


# ---- temporary names -------------------------------------------------------------------------------------------
def temporary_name(path: Path) -> Path:
    """Return a new name in the same folder for what will replace path; it names this process."""
    return path.with_name(f".{short_name(path)}.{_HOST}-{os.getpid()}.{secrets.token_hex(6)}.part")


def short_name(path: Path) -> str:
    """Return a file's name, short enough to be part of a longer one."""
    name = os.fsencode(path.name)
    return path.name if len(name) <= 200 else f"{path.name[:20]}{hashlib.blake2b(name, digest_size=8).hexdigest()}"


def is_temporary(path: Path) -> bool:
    """Return whether a name is that of an unfinished file or folder."""
    return _TEMPORARY.fullmatch(path.name) is not None


def remove_stale(folder: Path, path: Path | None = None) -> None:
    """Delete temporary files and folders of processes that have ended, in a folder and in its own folders."""
    for pattern in (".*.part",) if path is not None else (".*.part", "*/.*.part"):
        for part in folder.glob(pattern):
            found = _TEMPORARY.fullmatch(part.name)
            if found is None or (path is not None and found["name"] != short_name(path)):
                continue
            with contextlib.suppress(OSError):
                if _is_stale(part, found["host"], int(found["process"])):
                    shutil.rmtree(part) if part.is_dir() and not part.is_symlink() else part.unlink()


def _is_stale(part: Path, host: str, process: int) -> bool:
    if time.time() - part.stat().st_mtime > _ABANDONED:
        return True
    if host != _HOST or sys.platform == "win32":  # a signal of 0 would end a process there
        return False
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return True
    except OSError:  # the process of another user
        return False
    return False


# ---- locks -----------------------------------------------------------------------------------------------------
@contextlib.contextmanager
def locked(folder: str | Path, what: str = "a run") -> Iterator[None]:
    """Lock a folder, which is made if it is missing; temporary files of killed processes are deleted.

    Args:
        folder: it is locked by the file `.lock` in it.
        what: what the folder contains, for messages.

    Raises:
        BusyError: another process, or another thread, has locked it.
        StorageError: nothing can be written there, or it holds symbolic links.
    """
    folder = Path(folder)
    refuse_links(folder)
    with removed_if_empty(folder), _acquired(folder, folder / NAME, what, wait=False):
        remove_stale(folder)
        for part in folder.glob(_SAFETENSORS_PART):  # nobody else writes here
            if part.is_file() and not part.is_symlink():
                remove_file(part)
        yield


@contextlib.contextmanager
def file_lock(path: str | Path, *, wait: bool = False) -> Iterator[None]:
    """Lock one file (or folder) by a hidden lock file next to it.

    Args:
        path: the file; its folder is created if it is missing.
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
        if place.is_symlink():
            raise StorageError(f"{place} is a symbolic link; remove it")
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


# ---- the cache -------------------------------------------------------------------------------------------------
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
