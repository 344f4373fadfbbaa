"""Memory-mapped arrays: block-wise reading that releases pages, and arrays in unnamed temporary files."""

from __future__ import annotations

import hashlib
import mmap
import os
import sys
import tempfile
import weakref
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from hopstate.errors import StorageError

BLOCK = 1 << 22  # entries read together


class Scratch:
    """Allocate temporary arrays in memory, or in unnamed files in a folder."""

    def __init__(self, folder: Path | None = None, read: Iterable[np.ndarray] = ()) -> None:
        self.folder = folder
        self._at: weakref.WeakValueDictionary[int, np.ndarray] = weakref.WeakValueDictionary()
        self._read = tuple(read)
        for array in self._read:
            self._at[array.ctypes.data] = array

    def __reduce__(self) -> tuple[type[Scratch], tuple[Path | None]]:
        return Scratch, (self.folder,)

    def __call__(self, rows: int, columns: int, dtype: torch.dtype) -> Tensor:
        """Return a (rows, columns) tensor of any values."""
        size = rows * columns * dtype.itemsize
        if self.folder is None or not size:
            return torch.empty(rows, columns, dtype=dtype)
        array = _mapped(self.folder, size, "raise the memory budget so that the array stays in memory")
        array = array.view(np.ndarray)
        self._at[array.ctypes.data] = array
        return torch.from_numpy(array).view(dtype).view(rows, columns)

    def release_pages(self, *tensors: Tensor) -> None:
        """Release resident pages of tensors allocated here."""
        if self.folder is not None:
            release_pages(*(self._at.get(tensor.data_ptr()) for tensor in tensors))


def mapped_array(folder: Path, count: int, dtype: Any) -> np.ndarray:
    """Return (count,) numbers of any values in a file without a name."""
    if not count:
        return np.empty(0, dtype)
    return _mapped(folder, count * np.dtype(dtype).itemsize, "put the data where there is room").view(dtype)


def scratch_folder_of(array: np.ndarray) -> Path | None:
    """Return the folder for temporary files of a mapped array, or None if it is in memory."""
    if not isinstance(array, np.memmap) or array.filename is None:
        return None
    folder = Path(array.filename).parent
    return folder if os.access(folder, os.W_OK) else Path(tempfile.gettempdir())


def row_blocks(array: np.ndarray, overlap: int = 0) -> Iterator[tuple[int, np.ndarray]]:
    """Yield (first row, rows) in blocks of about `BLOCK` entries, overlapping by some rows; gives mapped pages back."""
    step = max(1 + overlap, BLOCK // max(1, array[:1].size))
    for start in range(0, len(array), step):
        yield start, array[start : start + step + overlap]
        release_pages(array)


def digest_of(*parts: np.ndarray | str | None) -> str:
    """Return the hexadecimal BLAKE2b digest of arrays, their types and shapes, and of texts."""
    digest = hashlib.blake2b(digest_size=16)
    for part in parts:
        if isinstance(part, str):
            digest.update(part.encode())
        elif part is not None:
            digest.update(f"{part.dtype.str}{part.shape}".encode())
            for _, block in row_blocks(part):
                digest.update(np.ascontiguousarray(block).data)
    return digest.hexdigest()


def release_pages(*arrays: np.ndarray | None) -> None:
    """Release resident pages of mapped arrays; later access reads them from the file again."""
    for array in arrays:
        base = mapping_of(array)
        if base is not None and sys.platform == "linux":  # elsewhere pages may lose what was written
            base.madvise(mmap.MADV_DONTNEED)


def mapping_of(array: np.ndarray | None) -> mmap.mmap | None:
    """Return the mapping of a file that an array is read from; None if changes to it would be in memory alone."""
    base: Any = array
    while isinstance(base, np.ndarray):
        if isinstance(base, np.memmap) and base.mode == "c":
            return None
        base = base.base
    return base if isinstance(base, mmap.mmap) else None


def _mapped(folder: Path, size: int, otherwise: str) -> np.ndarray:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder) as file:
            if hasattr(os, "posix_fallocate"):  # else a full disk would be a fault when a page is written
                os.posix_fallocate(file.fileno(), 0, size)
            return np.memmap(file, np.uint8, "r+" if os.fstat(file.fileno()).st_size else "w+", shape=(size,))
    except OSError as error:
        raise StorageError(
            f"could not put an array of {size / 2**20:,.0f} MiB in {folder}: {error}; free some space there, make it "
            f"writable, or {otherwise}"
        ) from error
