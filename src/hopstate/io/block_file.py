"""Arrays that wait in a file until they are read again, past the system's page cache where that can be.

What is written once and read once gains nothing from the page cache, which takes memory from what does and, on a
virtual machine, has the host find every page of it: two seconds of the processor a GB where this was measured.
"""

from __future__ import annotations

import os
from typing import IO

import numpy as np

from hopstate.errors import StorageError

PAGE = 4096  # bytes that offsets, lengths and addresses are whole numbers of, for any disk


def whole_pages(size: int) -> int:
    """Return the bytes of the pages that hold `size` bytes."""
    return -(-size // PAGE) * PAGE


def aligned(size: int) -> np.ndarray:
    """Return (size,) bytes of any values that begin at a page."""
    room = np.empty(size + PAGE, np.uint8)
    first = -room.ctypes.data % PAGE
    return room[first : first + size]


def past_cache(file: IO[bytes]) -> bool:
    """Let an unbuffered file be read and written past the page cache; return False where nothing has changed."""
    try:
        import fcntl

        flags = fcntl.fcntl(file, fcntl.F_GETFL)
        fcntl.fcntl(file, fcntl.F_SETFL, flags | os.O_DIRECT)
    except (ImportError, AttributeError, OSError):  # another system, or a file system in memory
        return False
    return True


class BlockFile:
    """Writes and reads arrays at places of a file.

    Args:
        file: open and unbuffered; its length is of whole pages where it is direct.
        direct: `past_cache` it is. Arrays must then be written at whole pages, and the bytes up to the next one after
            an array are no other's.
    """

    def __init__(self, file: IO[bytes], *, direct: bool) -> None:
        self.file, self.direct = file, direct
        self._room = aligned(0)

    def put(self, array: np.ndarray, at: int) -> None:
        """Write an array from byte `at` on."""
        array = np.ascontiguousarray(array)
        left = array.reshape(-1).view(np.uint8)
        if self.direct and (left.nbytes % PAGE or left.ctypes.data % PAGE):
            room = self._bytes(whole_pages(left.nbytes))
            room[: left.nbytes] = left
            left = room
        self.file.seek(at)
        view = left.data
        while len(view):
            view = view[self.file.write(view) :]

    def taken(self, shape: tuple[int, ...], at: int) -> np.ndarray:
        """Return a float32 array that was written from byte `at` on, or a part of one; the next call overwrites it.

        Raises:
            StorageError: the file is shorter.
        """
        size = 4 * int(np.prod(shape))
        begin = at // PAGE * PAGE if self.direct else at
        room = self._bytes(whole_pages(at + size - begin) if self.direct else size)
        self.file.seek(begin)
        view, count = room.data, 0
        while count < at + size - begin:
            got = self.file.readinto(view[count:])  # type: ignore[attr-defined]
            if not got:
                raise StorageError("a file of hops has lost its end while it was read; look at the disk, start again")
            count += got
        return room[at - begin : at - begin + size].view(np.float32).reshape(shape)

    def _bytes(self, size: int) -> np.ndarray:
        if len(self._room) < size:
            self._room = aligned(size)
        return self._room[:size]


__all__ = ["PAGE", "BlockFile", "aligned", "past_cache", "whole_pages"]
