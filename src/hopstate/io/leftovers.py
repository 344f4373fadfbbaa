"""Names of unfinished files and folders, who is at work on them, and clearing away what killed work left."""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import secrets
import shutil
import socket
import sys
import time
import zlib
from collections.abc import Iterator
from pathlib import Path

# names of unfinished files and folders; those of 0.1.0 held no random part
_PART = re.compile(
    r"\..*\.[0-9a-f]{12}\.part"
    r"|\.(\w+\.(json|jsonl|csv|png|npz|safetensors)|environment-\d+\.json|hops_[0-9a-f]+\.npy)\.part"
    r"|\.part-\w+\.npz"
)
_WRITER = re.compile(r"\.([0-9a-f]{8})-(\d{1,9})\.[0-9a-f]{12}\.part")  # the end of a name: host and process
_ABANDONED = 86400.0  # seconds without a change after which nobody is taken to be at work on an unfinished file
OWN: set[str] = set()  # names of those that this process is at work on


def sweep(folder: Path, stem: str = "", *, older: float = 0.0, deep: bool = False) -> None:
    """Delete what killed work left unfinished in a folder: temporary files and folders with such a name.

    What a process that lives is at work on stays, whoever holds the folder: `evaluate` may write beside a `fit`.

    Args:
        folder: where; it need not exist.
        stem: only those of the file or folder with this `short_name`.
        older: only those not changed for so many seconds, whoever wrote them.
        deep: also below, but for folders of other runs.
    """
    wanted = re.compile(rf"\.{re.escape(stem)}(\.[0-9a-f]{{8}}-\d+)?\.[0-9a-f]{{12}}\.part") if stem else _PART
    for here, folders, files in os.walk(folder):
        for name in (*folders, *files):
            path = Path(here, name)
            if not wanted.fullmatch(name):
                continue
            with contextlib.suppress(OSError):
                age = time.time() - path.stat().st_mtime
                if age > (older or _ABANDONED) or (not older and _is_left(path)):
                    shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()
        own = [name for name in folders if not _PART.fullmatch(name) and not Path(here, name, "config.json").exists()]
        folders[:] = own if deep else []


def short_name(path: Path) -> str:
    """Return a file's name, made short enough to be part of a longer one."""
    name = os.fsencode(path.name)
    return path.name if len(name) <= 200 else f"{path.name[:20]}{hashlib.blake2b(name, digest_size=8).hexdigest()}"


def beside(path: Path, kind: str) -> Path:
    """Return a new name, beside path, of what was at path or is to come there; it tells who is at work on that."""
    writer = f"{_host()}-{os.getpid()}.{secrets.token_hex(6)}"
    return path.with_name(f".{short_name(path)}.{writer}.{kind}")


@contextlib.contextmanager
def at_work(part: Path) -> Iterator[None]:
    """Tell this process' other threads that part is not abandoned, while that lasts."""
    OWN.add(part.name)
    try:
        yield
    finally:
        OWN.discard(part.name)


def _host() -> str:
    return f"{zlib.crc32(socket.gethostname().encode()):08x}"


def _is_left(part: Path) -> bool:
    """Return whether nobody is at work on an unfinished file or folder, as far as its name tells."""
    writer = _WRITER.search(part.name)
    if writer is None:  # of version 0.1.0
        return True
    number = int(writer[2])
    if number == os.getpid() and writer[1] == _host():
        return part.name not in OWN
    if writer[1] != _host() or sys.platform == "win32":  # there a signal of 0 is none
        return False
    try:
        os.kill(number, 0)
    except ProcessLookupError:
        return True
    except OSError:  # somebody else's
        return False
    return False


def is_part(path: Path) -> bool:
    """Return whether a name is that of an unfinished file or folder."""
    return _PART.fullmatch(path.name) is not None
