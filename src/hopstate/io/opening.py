"""Opening what users name: regular files alone, read no further than a limit, with every failure named.

Data files, run folders and weights come from anywhere. Whatever they hold, reading ends in a record or in a
`HopstateError` that names the file: no device or pipe is waited for, nothing is unpacked without bound, and nothing
that a library did not expect gets out as its own exception.
"""

from __future__ import annotations

import errno
import io
import json
import os
import stat
import sys
import time
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import IO, Any

from hopstate.errors import (
    ConfigError,
    DataError,
    FormatError,
    HopstateError,
    MissingExtraError,
    MissingFileError,
    UnreadableFileError,
)

FLOOR, RATIO = 2 << 30, 100  # what a packed file may unpack to: at least so many bytes, or so many times its size
ZIP = b"PK\x03\x04"
TEXTS = (".csv", ".tsv", ".txt", ".edges", ".edgelist", ".tab", ".dat")  # ends of names of tables as text
JSON_BYTES = 64 << 20
PATIENCE = 5.0  # seconds of reading between two lines that say how far it is
_limit: ContextVar[int | None] = ContextVar("max_bytes", default=None)


@contextmanager
def at_most(max_bytes: int | str | None) -> Iterator[None]:
    """Within it no file is read beyond so many bytes, packed ones unpacked; None leaves the limit as it is.

    Raises:
        ConfigError: the limit is no size, or not above 0.
    """
    if max_bytes is None:
        yield
        return
    from hopstate.io.sizes import parse_bytes

    size = parse_bytes(max_bytes)
    if size < 1:
        raise ConfigError(f"max_bytes must be above 0; got {max_bytes}")
    token = _limit.set(size)
    try:
        yield
    finally:
        _limit.reset(token)


def check_size(path: str | Path, claimed: int, *, stored: int | None = None, what: str = "its content") -> None:
    """Check that claimed bytes may be read from a file.

    Args:
        path: the file.
        claimed: bytes that are to be read or made.
        stored: bytes that stand in the file for them, where they are packed; None takes the size of the file.
        what: what takes them, for the message.

    Raises:
        FormatError: they are more than `max_bytes`, or without that far more than a file of its size would hold.
    """
    given = _limit.get()
    if given is not None:
        limit, why = given, f"over the limit of {given:,} (--read.max_bytes)"
    else:
        size = Path(path).stat().st_size if stored is None else stored
        limit = max(FLOOR, RATIO * size)
        why = f"far more than its {size:,} bytes on disk; if you trust the file, allow it with --read.max_bytes"
    if claimed > limit:
        raise FormatError(f"{path}: {what} would take {claimed:,} bytes, {why}")


def check_regular(path: str | Path) -> Path:
    """Return the path of a regular file.

    Raises:
        MissingFileError: there is none, or there cannot be one of that name.
        UnreadableFileError: a folder, a pipe, a socket or a device, or one that may not be looked at.
    """
    path = Path(path)
    _check_kind(path, _look(path).st_mode)
    return path


def shown(text: object) -> str:
    """Return a name as messages give it: printable, and not without end."""
    plain = str(text).encode("utf-8", "backslashreplace").decode()
    plain = plain if plain.isprintable() else repr(plain)
    return plain if len(plain) <= 200 else f"{plain[:200]}..."


def expanded(text: str | Path) -> Path:
    """Return a path with ~ replaced where there is such a home."""
    try:
        return Path(text).expanduser()
    except RuntimeError:  # ~somebody who is not known here
        return Path(text)


def is_file(path: str | Path) -> bool:
    """Return whether there is a regular file; False for names that no file can have."""
    try:
        return stat.S_ISREG(os.stat(path).st_mode)
    except (OSError, ValueError):
        return False


def exists(path: str | Path) -> bool:
    """Return whether there is anything of that name; False for names that nothing can have."""
    try:
        os.stat(path)
    except (OSError, ValueError):
        return False
    return True


def open_regular(path: str | Path) -> IO[bytes]:
    """Open a regular file for reading; neither a pipe nor a device is waited for.

    Raises:
        MissingFileError, UnreadableFileError: as `check_regular`, or it may not be read.
    """
    path = Path(path)
    _check_kind(path, _look(path).st_mode)
    try:  # it may have become something else since it was looked at
        handle = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))
    except OSError as error:
        raise _cannot(path, error) from None
    file = os.fdopen(handle, "rb")
    try:
        _check_kind(path, os.fstat(handle).st_mode)
    except HopstateError:
        file.close()
        raise
    return file


def _look(path: Path) -> os.stat_result:
    try:
        return os.stat(path)
    except (OSError, ValueError) as error:
        raise _cannot(path, error) from None


def _cannot(path: Path, error: OSError | ValueError) -> HopstateError:
    if isinstance(error, ValueError):  # a NUL, or a character that file names cannot hold
        return MissingFileError(f"no file can be called {shown(path)}: {error}")
    if error.errno in (errno.ENOENT, errno.ENOTDIR):
        return MissingFileError(f"no file at {path}")
    if error.errno in (errno.ENAMETOOLONG, errno.ELOOP, errno.EINVAL):
        return MissingFileError(f"no file can be called {shown(path)}: {error.strerror}")
    return UnreadableFileError(f"{path} cannot be read: {error.strerror or error}; check its permissions")


def _check_kind(path: Path, mode: int) -> None:
    if stat.S_ISREG(mode):
        return
    kinds = ((stat.S_ISDIR, "a folder"), (stat.S_ISFIFO, "a pipe"), (stat.S_ISSOCK, "a socket"))
    kind = next((name for test, name in kinds if test(mode)), "a device")
    raise UnreadableFileError(f"{path} is {kind}, not a file; copy what it holds into a file")


# ---- reading ---------------------------------------------------------------------------------------------------
class Bounded(io.RawIOBase):
    """A binary file that ends with a FormatError beyond the limit, and tells on a terminal how far it is.

    Args:
        file: an open file, unpacking as it is read.
        path: of the file on disk, for messages.
        text: refuse a NUL, which no text holds and which some parsers take for the end of a field.
    """

    def __init__(self, file: IO[bytes], path: Path, *, text: bool = False) -> None:
        self._file, self._path, self._text = file, path, text
        self.size, self.count, self._told = path.stat().st_size, 0, time.monotonic()

    def readable(self) -> bool:
        """Return True."""
        return True

    def readinto(self, buffer: Any) -> int:
        """Read some bytes into a buffer; return how many."""
        block = self._file.read(len(buffer))
        if self._text and b"\0" in block:
            at = self.count + block.index(b"\0")
            raise FormatError(f"{self._path} holds a NUL at byte {at:,}; it is no text, or UTF-16: save it as UTF-8")
        buffer[: len(block)] = block
        self.count += len(block)
        check_size(self._path, self.count, stored=self.size)
        if time.monotonic() - self._told > PATIENCE:
            self._told = time.monotonic()
            print(f"reading {self._path}: {self.count / 1e6:,.0f} MB so far", file=sys.stderr)
        return len(block)

    def close(self) -> None:
        """Close the file too."""
        self._file.close()
        super().close()


class _Member(io.RawIOBase):
    """One file of a zip archive, which ends with it."""

    def __init__(self, file: IO[bytes], name: str) -> None:
        self._archive = file
        self._file = zipfile.ZipFile(file).open(name)  # noqa: SIM115

    def read(self, size: int = -1) -> bytes:
        """Return some bytes."""
        return self._file.read(size)

    def close(self) -> None:
        """Close the archive too."""
        self._file.close()
        self._archive.close()
        super().close()


def names_in(path: str | Path) -> list[str]:
    """Return the files in a zip archive, those beside that systems add left out; none where it is damaged."""
    try:
        with open_regular(path) as file, zipfile.ZipFile(file) as archive:
            names = [info.filename for info in archive.infolist() if not info.is_dir()]
    except (zipfile.BadZipFile, OSError, ValueError, NotImplementedError):
        return []
    return [name for name in names if not name.startswith("__MACOSX/") and not name.endswith(".DS_Store")]


def member_of(path: str | Path) -> str | None:
    """Return the one file of a zip archive where that is a table as text, else None."""
    names = names_in(path)
    return names[0] if len(names) == 1 and names[0].lower().endswith(TEXTS) else None


def bounded(path: str | Path, *, text: bool = False) -> io.BufferedReader:
    """Open a file for reading within the limit, unpacked where it is gzip, or a zip of one table.

    Raises:
        MissingFileError, UnreadableFileError: as `open_regular`.
    """
    import gzip

    path = Path(path)
    file = open_regular(path)
    magic = file.read(4)
    file.seek(0)
    raw: IO[bytes] = gzip.GzipFile(fileobj=file) if magic[:2] == b"\x1f\x8b" else file  # type: ignore[assignment]
    if magic == ZIP and (member := member_of(path)) is not None:
        raw = _Member(file, member)  # type: ignore[assignment]
    return io.BufferedReader(Bounded(raw, path, text=text), 1 << 18)


def read_text(path: str | Path, *, most: int | None = None) -> str:
    """Return the text of a file.

    Args:
        path: the file.
        most: bytes that it may hold; None goes by the limit.

    Raises:
        MissingFileError, UnreadableFileError: as `open_regular`.
        FormatError: too large, or no UTF-8.
    """
    with open_regular(path) as file:
        size = os.fstat(file.fileno()).st_size
        if most is not None and size > most:
            raise FormatError(f"{path} holds {size:,} bytes; such a file has at most {most:,}")
        check_size(path, size)
        data = file.read(size + 1)
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise FormatError(f"{path} is no UTF-8 text ({error.reason} at byte {error.start:,})") from None


def read_json(path: str | Path, *, kind: type | None = dict, most: int = JSON_BYTES) -> Any:
    """Return what a JSON file holds.

    Args:
        path: the file.
        kind: what must stand at its top; None takes anything.
        most: bytes that it may hold.

    Raises:
        MissingFileError, UnreadableFileError: as `open_regular`.
        FormatError: no JSON, or another kind.
    """
    return parse_json(read_text(path, most=most), str(path), kind=kind)


def parse_json(text: str | bytes, where: str, *, kind: type | None = dict) -> Any:
    """Return what a JSON text holds; kind as in `read_json`.

    Raises:
        FormatError: no JSON, or another kind.
    """
    names: dict[type, str] = {dict: "an object {...}", list: "a list [...]"}
    try:
        found = json.loads(text, object_pairs_hook=_once)
    except RecursionError:
        raise FormatError(f"{where} is nested too deep to be read") from None
    except ValueError as error:  # also no UTF-8, and numbers of too many digits
        raise FormatError(f"{where} is no JSON: {error}") from None
    if kind is not None and not isinstance(found, kind):
        raise FormatError(f"{where} holds {type(found).__name__}, not {names.get(kind, kind.__name__)}")
    return found


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return an object of JSON, in which no key may stand twice: readers differ in which of them counts."""
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        raise ValueError(f"the key {shown(next(name for name in names if names.count(name) > 1))!r} stands twice")
    return found


@contextmanager
def reading(path: object, what: str = "", error: type[HopstateError] = FormatError) -> Iterator[None]:
    """Within it everything that goes wrong becomes a HopstateError that names a file.

    Args:
        path: the file or folder.
        what: what it is read as, for messages: "a table".
        error: raised in place of exceptions that nobody named.
    """
    how = f" as {what}" if what else ""
    try:
        yield
    except HopstateError as named:
        if str(path) in str(named) or not named.args:
            raise
        raise type(named)(f"{path}: {named}").with_traceback(named.__traceback__) from named
    except MemoryError as cause:
        raise DataError(f"{path} does not fit into memory{_reason(cause)}") from cause
    except RecursionError as cause:
        raise error(f"{path} is nested too deep to be read{how}") from cause
    except PermissionError as cause:
        raise UnreadableFileError(f"{path} cannot be read{_reason(cause)}; check its permissions") from cause
    except OSError as cause:
        raise error(f"{path} could not be read{how}{_reason(cause)}") from cause
    except ImportError as cause:
        raise MissingExtraError(f"{path} could not be read{how}: {_told(cause)}; {_module_of(cause)}") from cause
    except Exception as cause:
        raise error(f"{path} could not be read{how}: it is damaged or something else ({_told(cause)})") from cause


def _module_of(cause: ImportError) -> str:
    """Return what stands in the way of an import: a file of the user's own by a package's name, or nothing known."""
    name = (cause.name or "").partition(".")[0]
    found = sys.modules.get(name)
    file = None if found is None else found.__file__
    if file and Path.cwd() in (Path(file).parent, Path(file).parent.parent):
        return f"{file} hides a package by the name {name}: rename it, or work in another folder"
    return "a package is missing or does not fit the others: install hopstate again"


def _reason(cause: BaseException) -> str:
    return f": {_told(cause)}" if str(cause).strip() else ""


def _told(cause: BaseException) -> str:
    lines = str(cause).strip().splitlines()
    return f"{type(cause).__name__}: {lines[-1][:300]}" if lines else type(cause).__name__
