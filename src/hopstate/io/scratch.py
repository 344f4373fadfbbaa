"""Arrays that live as long as they are used: in memory, or in a file without a name that nothing leaves behind."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from hopstate.errors import StorageError


class Scratch:
    """Makes arrays to be written and read.

    Args:
        folder: where their files lie; None keeps them in memory.
    """

    def __init__(self, folder: Path | None = None) -> None:
        self.folder = folder

    def __call__(self, rows: int, columns: int, dtype: torch.dtype) -> Tensor:
        """Return a (rows, columns) tensor of any values.

        Raises:
            StorageError: the disk has no room for it, or the folder cannot be written to.
        """
        size = rows * columns * dtype.itemsize
        if self.folder is None or not size:
            return torch.empty(rows, columns, dtype=dtype)
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryFile(dir=self.folder) as file:
                if hasattr(os, "posix_fallocate"):  # a full disk is told here, not by a fault when a page is written
                    os.posix_fallocate(file.fileno(), 0, size)
                mapped = np.memmap(file, np.uint8, "r+" if os.fstat(file.fileno()).st_size else "w+", shape=(size,))
        except OSError as error:
            raise StorageError(
                f"could not put an array of {size / 2**20:,.0f} MiB in {self.folder}: {error}; free some space there, "
                f"let it be written to, or raise the memory budget so that the array stays in memory"
            ) from error
        return torch.from_numpy(mapped).view(dtype).view(rows, columns)


__all__ = ["Scratch"]
