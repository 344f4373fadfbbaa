"""Opening files that users name: regular files only, within a size limit, with every failure named.

Whatever a file contains, reading ends in a record or in a `HopstateError` that names the file: no device or pipe is
waited for, and nothing is unpacked without bound.
"""

from __future__ import annotations

import codecs
import errno
import gzip
import io
import json
import os
import re
import stat
import zipfile
import zlib
from collections.abc import Iterable, Iterator
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

# a compressed file may unpack to the larger of this size and this multiple of its own
MIN_UNPACKED_BYTES, MAX_UNPACK_RATIO = 2 << 30, 100
MIN_TABLE_BYTES = 256 << 20  # smaller for tables, which are copied several times
ZIP = b"PK\x03\x04"
_NOT_UNPACKED = {"bzip2": rb"BZh[1-9]1AY&SY", "xz": rb"\xfd7zXZ\0", "zstd": rb"\x28\xb5\x2f\xfd"}
BOM = b"\xef\xbb\xbf"
_OVERLAP = 1024  # bytes of a block that are searched again with the next one
_BACKSLASH_QUOTE = rb'[,;\t\r\n] *"(?:[^"\r\n]|"")*\\"[^"\s,;]'
TEXTS = (".csv", ".tsv", ".txt", ".edges", ".edgelist", ".tab", ".dat")  # ends of names of tables as text
TGB_EVENTS = re.compile(r"(?:.*/)?(?P<name>tgbl-\w+)_edgelist(?:_v\d+)?\.csv")  # the events in an archive of TGB
JSON_BYTES = 64 << 20
_UNITS = {"": 1, "b": 1} | {f"{prefix}b": 1000**n for n, prefix in enumerate("kmgt", 1)}
_UNITS |= {f"{prefix}ib": 1024**n for n, prefix in enumerate("kmgt", 1)}
exists, is_file = os.path.exists, os.path.isfile  # False also for invalid file names
_limit: ContextVar[int | None] = ContextVar("max_bytes", default=None)


def parse_bytes(text: str | int) -> int:
    """Return a size such as "2GiB", "500 MB" or "1048576" in bytes.

    >>> parse_bytes("2GiB"), parse_bytes("500 MB")
    (2147483648, 500000000)
    """
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([a-zA-Z]*)\s*", str(text))
    if not match or match[2].lower() not in _UNITS:
        raise ConfigError(f"{text!r} is not a size in bytes; write for example 2GiB, 500MB or 1048576")
    number = float(match[1]) * _UNITS[match[2].lower()]
    if number >= 2**63:
        raise ConfigError(f"{text!r} is more bytes than any machine has")
    return int(number)


@contextmanager
def byte_limit(max_bytes: int | str | None) -> Iterator[None]:
    """Limit the bytes read of a file, after decompression; None keeps the current limit."""
    if max_bytes is None:
        yield
        return
    size = parse_bytes(max_bytes)
    if size < 1:
        raise ConfigError(f"max_bytes must be above 0; got {max_bytes}")
    token = _limit.set(size)
    try:
        yield
    finally:
        _limit.reset(token)


def check_size(
    path: str | Path,
    claimed: int,
    *,
    stored_bytes: int | None = None,
    what: str = "its content",
    min_bytes: int = MIN_UNPACKED_BYTES,
) -> None:
    """Check that claimed bytes may be read from a file, or made of it.

    Args:
        stored_bytes: their compressed bytes in the file; by default those of the file.
        what: takes them, for the message.
        min_bytes: are allowed whatever is stored.
    """
    given = _limit.get()
    if given is not None:
        limit, why = given, f"over the limit of {given:,} (--read.max_bytes)"
    else:
        size = _stored_bytes(path) if stored_bytes is None else stored_bytes
        limit = max(min_bytes, MAX_UNPACK_RATIO * size)
        why = f"far more than its {size:,} bytes on disk; if you trust the file, allow it with --read.max_bytes"
    if claimed > limit:
        raise FormatError(f"{path}: {what} would take {claimed:,} bytes, {why}")


def _stored_bytes(path: str | Path) -> int:
    """Return how many bytes of a file are on disk: a sparse file stores fewer than its size."""
    status = Path(path).stat()
    return min(status.st_size, 512 * getattr(status, "st_blocks", status.st_size))  # Windows does not tell


def check_regular(path: str | Path) -> Path:
    path = Path(path)
    try:
        mode = os.stat(path).st_mode
    except (OSError, ValueError) as error:
        raise _unopened(path, error) from None
    if not stat.S_ISREG(mode):
        kind = {stat.S_IFDIR: "a folder", stat.S_IFIFO: "a pipe", stat.S_IFSOCK: "a socket"}.get(stat.S_IFMT(mode))
        raise UnreadableFileError(f"{path} is {kind or 'a device'}, not a file; copy its content into a file")
    return path


def shorten(text: object) -> str:
    """Return a name for messages: printable, and at most 200 characters."""
    plain = str(text).encode("utf-8", "backslashreplace").decode()
    plain = plain if plain.isprintable() else repr(plain)
    return plain if len(plain) <= 200 else f"{plain[:200]}..."


def names_host(text: str) -> bool:
    """Return whether a text is an address rather than a path: a scheme such as https: or pyg:, or a network share.

    >>> names_host("pyg:Planetoid:Cora"), names_host("//host/share"), names_host("C:/data"), names_host("a/b.csv")
    (True, True, False, False)
    """
    return re.match(r"[A-Za-z][\w+.-]+:|[/\\]{2}", text) is not None


def is_inside(path: str | Path, folder: str | Path) -> bool:
    """Return whether a path leads into a folder, links followed."""
    if "\0" in str(path):
        return False
    return Path(os.path.realpath(expand_home(path))).is_relative_to(os.path.realpath(folder))


def expand_home(text: str | Path) -> Path:
    """Return a path with ~ replaced if there is such a home."""
    return Path(os.path.expanduser(text))


def open_regular(path: str | Path) -> IO[bytes]:
    """Open a regular file for reading; neither a pipe nor a device is waited for."""
    path = check_regular(path)
    try:  # O_NONBLOCK: it may have become a pipe since
        handle = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))
    except OSError as error:
        raise _unopened(path, error) from None
    return os.fdopen(handle, "rb")


def first_bytes(path: str | Path, count: int = 8) -> bytes:
    """Return the first bytes of a regular file, which identify its format."""
    with open_regular(path) as file:
        return file.read(count)


def _unopened(path: Path, error: OSError | ValueError) -> HopstateError:
    if isinstance(error, ValueError):  # a NUL, or a character that file names cannot have
        return MissingFileError(f"no file can be called {shorten(path)}: {error}")
    if error.errno in (errno.ENOENT, errno.ENOTDIR):
        return MissingFileError(f"no file at {path}")
    if error.errno in (errno.ENAMETOOLONG, errno.ELOOP, errno.EINVAL):
        return MissingFileError(f"no file can be called {shorten(path)}: {error.strerror}")
    return UnreadableFileError(f"{path} cannot be read: {error.strerror or error}; check its permissions")


# ---- reading ---------------------------------------------------------------------------------------------------
class BoundedFile(io.RawIOBase):
    """A binary file that ends with a FormatError beyond the limit."""

    def __init__(self, file: IO[bytes], path: Path, *, text: bool = False) -> None:
        self._file, self._path, self._text = file, path, text
        self._packed = "gzip" if isinstance(file, gzip.GzipFile) else "zip"
        self.size, self.count = path.stat().st_size, 0
        self._lines, self._tail = 1, b""
        self._decoder = codecs.getincrementaldecoder("utf-8")()

    @property
    def num_lines(self) -> int:
        """Lines of text read so far."""
        return self._lines - self._tail.endswith(b"\n")

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        try:
            block = self._file.read(len(buffer))
        except (EOFError, zlib.error, gzip.BadGzipFile, zipfile.BadZipFile) as error:
            raise FormatError(
                f"{self._path} is a damaged {self._packed} file: {error}. Fetch it again, or compress it again"
            ) from None
        if self._text:
            self._check_text(block)
        buffer[: len(block)] = block
        self.count += len(block)
        check_size(self._path, self.count, stored_bytes=self.size, min_bytes=MIN_TABLE_BYTES)
        return len(block)

    def _check_text(self, block: bytes) -> None:
        """Raise FormatError for bytes that parsers misread."""
        if b"\0" in block:  # some parsers take it for the end of a field
            at = self.count + block.index(b"\0")
            raise FormatError(
                f"{self._path} has a NUL at byte {at:,}; it is not text, or it is UTF-16; save it as UTF-8"
            )
        try:
            self._decoder.decode(block, final=not block)
        except UnicodeDecodeError:
            raise FormatError(f"{self._path} is not text in UTF-8; save it as UTF-8") from None
        whole = self._tail + block
        at = whole.find(BOM, max(len(self._tail) - 2, 0) if self.count else 1)
        if at >= 0:
            raise FormatError(
                f"{self._line(whole, at)} has a byte-order mark in the middle of the file, as joined files have; "
                "remove it"
            )
        if b'\\"' in whole and (quote := re.search(_BACKSLASH_QUOTE, whole)):
            raise FormatError(
                f'{self._line(whole, quote.end())} has a quotation mark in a quoted cell written as \\"; '
                'write it as "", as CSV does'
            )
        self._lines += block.count(b"\n")
        self._tail = whole[-_OVERLAP:]

    def _line(self, searched: bytes, at: int) -> str:
        """Return the file and line of a place in the bytes before and of this block."""
        line = self._lines - self._tail.count(b"\n") + searched.count(b"\n", 0, at)
        return f"{self._path}, line {line:,},"

    def close(self) -> None:
        """Close the file too."""
        self._file.close()
        super().close()


def zip_members(path: str | Path) -> list[str]:
    """Return the files in a zip archive, without those that systems add; none if it is damaged."""
    try:
        with open_regular(path) as file, zipfile.ZipFile(file) as archive:
            names = [info.filename for info in archive.infolist() if not info.is_dir()]
    except (zipfile.BadZipFile, OSError, ValueError, NotImplementedError) as error:
        if isinstance(error, UnreadableFileError) and Path(path).is_file():  # else a folder
            raise
        return []
    return [name for name in names if not name.startswith("__MACOSX/") and not name.endswith(".DS_Store")]


def table_member(path: str | Path) -> str | None:
    """Return the only text table or TGB event file of a zip archive, or None."""
    names = zip_members(path)
    names = [name for name in names if TGB_EVENTS.fullmatch(name)] or names
    return names[0] if len(names) == 1 and names[0].lower().endswith(TEXTS) else None


def open_bounded(path: str | Path, *, text: bool = False) -> io.BufferedReader:
    """Open a file for reading within the limit, decompressed if it is gzip, or a zip of one table."""
    path = Path(path)
    file = open_regular(path)
    magic = file.read(10)
    file.seek(0)
    if other := next((name for name, pattern in _NOT_UNPACKED.items() if re.match(pattern, magic)), ""):
        file.close()
        raise FormatError(
            f"{path} is compressed with {other}, which is not read. Decompress it, or compress it with gzip"
        )
    raw: Any = gzip.GzipFile(fileobj=file) if magic[:2] == b"\x1f\x8b" else file
    if magic[:4] == ZIP and (member := table_member(path)) is not None:
        raw = zipfile.ZipFile(file).open(member)  # noqa: SIM115
    return io.BufferedReader(BoundedFile(raw, path, text=text), 1 << 18)


def read_text(path: str | Path, *, max_bytes: int | None = None) -> str:
    with open_regular(path) as file:
        size = os.fstat(file.fileno()).st_size
        if max_bytes is not None and size > max_bytes:
            raise FormatError(f"{path} holds {size:,} bytes; such a file has at most {max_bytes:,}")
        check_size(path, size)
        data = file.read(size + 1)
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise FormatError(f"{path} is not UTF-8 text ({error.reason} at byte {error.start:,})") from None


def read_json(path: str | Path, *, kind: type | None = dict, max_bytes: int = JSON_BYTES) -> Any:
    return parse_json(read_text(path, max_bytes=max_bytes), str(path), kind=kind)


def parse_json(text: str | bytes, where: str, *, kind: type | None = dict) -> Any:
    """Return what a JSON text holds; kind as in `read_json`."""
    names: dict[type, str] = {dict: "an object {...}", list: "a list [...]"}
    try:
        found = json.loads(text, object_pairs_hook=_once)
    except RecursionError:
        raise FormatError(f"{where} is nested too deep to be read") from None
    except ValueError as error:  # also no UTF-8, and numbers of too many digits
        raise FormatError(f"{where} is not JSON: {error}") from None
    if kind is not None and not isinstance(found, kind):
        raise FormatError(f"{where} holds {type(found).__name__}, not {names.get(kind, kind.__name__)}")
    return found


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return a JSON object; raise ValueError for duplicate keys, which parsers treat differently."""
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        raise ValueError(f"the key {shorten(next(name for name in names if names.count(name) > 1))!r} is duplicated")
    return found


@contextmanager
def reading(
    path: object, what: str = "", error: type[HopstateError] = FormatError, others: Iterable[object] = ()
) -> Iterator[None]:
    """Turn every exception into a HopstateError that names a file, unless it names one of others already."""
    how = f" as {what}" if what else ""
    try:
        yield
    except HopstateError as named:
        if not named.args or any(str(file) in str(named) for file in (path, *others)):
            raise
        raise type(named)(f"{path}: {named}").with_traceback(named.__traceback__) from named
    except MemoryError as cause:
        raise DataError(f"{path} does not fit into memory ({_summary(cause)})") from cause
    except RecursionError as cause:
        raise error(f"{path} is nested too deep to be read{how}") from cause
    except PermissionError as cause:
        raise UnreadableFileError(f"{path} cannot be read: {_summary(cause)}; check its permissions") from cause
    except OSError as cause:
        raise error(f"{path} could not be read{how}: {_summary(cause)}") from cause
    except ImportError as cause:
        raise MissingExtraError(f"{path} could not be read{how}: {_summary(cause)}; install hopstate again") from cause
    except UnicodeDecodeError as cause:
        raise error(f"{path} is not text in UTF-8 ({cause.reason} at byte {cause.start}); save it as UTF-8") from cause
    except Exception as cause:
        raise error(
            f"{path} could not be read{how}: it is corrupt or has another format ({_summary(cause)})"
        ) from cause


def _summary(cause: BaseException) -> str:
    lines = str(cause).strip().splitlines()
    return f"{type(cause).__name__}: {lines[-1][:300]}" if lines else type(cause).__name__
