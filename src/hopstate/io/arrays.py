"""Arrays from .npy and .npz files: no pickle, and nothing allocated that the file does not hold.

A header is compared with the bytes that stand behind it before an array is made; the members of an archive with
what is packed for them.
"""

from __future__ import annotations

import os
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO, Any

import numpy as np

from hopstate.errors import FormatError, HopstateError
from hopstate.io.opening import check_regular, check_size, open_regular

DEFLATE = 1032  # zlib packs no further
PICKLED = "is stored as a pickle, which can run any code and is not loaded; save it as plain numbers or strings"


def load_npy(path: str | Path, *, mmap: bool = False) -> np.ndarray:
    """Return the array of a .npy file.

    Args:
        path: the file.
        mmap: leave the array on disk until it is touched.

    Raises:
        MissingFileError, UnreadableFileError: as `hopstate.io.opening.open_regular`.
        FormatError: no array, a pickled one, or a shorter one than its header says.
    """
    path = Path(path)
    with open_regular(path) as file:
        size = os.fstat(file.fileno()).st_size
        shape, fortran, dtype, start = _header(file, str(path))
        wanted = _nbytes(shape, dtype)
        if wanted > size - start:
            raise FormatError(
                f"{path} is truncated: an array of shape {shape} takes {wanted:,} bytes, {size - start:,} are there"
            )
        if not mmap or not wanted:  # an array without elements cannot be mapped
            check_size(path, wanted, stored=size)
            return _read(file, shape, fortran, dtype, str(path))
    order = "F" if fortran else "C"
    return np.memmap(path, dtype=dtype, mode="r", offset=start, shape=shape, order=order)  # type: ignore[call-overload]


def _header(file: IO[bytes], where: str) -> tuple[tuple[int, ...], bool, np.dtype[Any], int]:
    """Return (shape, whether columns come first, dtype, where the elements begin) of a .npy file."""
    from numpy.lib import format as npy

    try:
        version = npy.read_magic(file)
        if version not in ((1, 0), (2, 0), (3, 0)):
            raise FormatError(f"{where} is of version {version} of the .npy format, which is not known here")
        read: Any = npy.read_array_header_1_0 if version == (1, 0) else npy.read_array_header_2_0
        shape, fortran, dtype = read(file)
    except HopstateError:
        raise
    except Exception as error:
        reason = str(error).splitlines()[0][:200] if str(error) else type(error).__name__
        raise FormatError(f"{where} is no array, or a damaged or truncated one ({reason})") from None
    if dtype.hasobject:
        raise FormatError(f"{where} {PICKLED}")
    if dtype.kind not in "biufcUSM" or dtype.itemsize == 0 or any(n < 0 for n in shape):
        raise FormatError(f"{where} holds {dtype} of shape {shape}; numbers, strings or dates are read")
    if len(shape) > 8:
        raise FormatError(f"{where} has {len(shape)} axes; arrays of one or two are read")
    if 0 in shape and (max(shape) > 2**40 or _nbytes(tuple(max(n, 1) for n in shape), dtype) > 2**48):
        raise FormatError(f"{where} claims the shape {shape} without holding a single number")
    return shape, fortran, dtype, file.tell()


def _nbytes(shape: tuple[int, ...], dtype: np.dtype[Any]) -> int:
    count = 1
    for n in shape:
        count *= n
    return count * dtype.itemsize


def _read(file: IO[bytes], shape: tuple[int, ...], fortran: bool, dtype: np.dtype[Any], where: str) -> np.ndarray:
    """Return the elements that stand at the position of file as an array of its own."""
    flat = np.empty(_nbytes(shape, dtype) // dtype.itemsize, dtype)
    left = flat.view(np.uint8).data
    while len(left):
        count = file.readinto(left[: 1 << 24])  # type: ignore[attr-defined]
        if not count:
            raise FormatError(f"{where} is truncated; fetch it again")
        left = left[count:]
    return flat.reshape(shape[::-1]).T if fortran else flat.reshape(shape)


class Archive(Mapping[str, np.ndarray]):
    """Arrays of an .npz file, each read when asked for; never unpickled.

    Raises:
        MissingFileError, UnreadableFileError: as `hopstate.io.opening.open_regular`.
        FormatError: no archive, truncated, encrypted, packed in a way or to a size that is not read, or an array that
            is a pickle.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        with open_regular(self.path) as file:
            if file.read(6) == b"\x93NUMPY":
                raise FormatError(f"{path} holds one array, not an .npz archive of several")
        self._zip = checked_zip(self.path)
        self._members = {
            info.filename.removesuffix(".npy"): info for info in self._zip.infolist() if info.filename.endswith(".npy")
        }

    def __getitem__(self, key: str) -> np.ndarray:
        info, where = self._members[key], f"{self.path}: {key!r}"
        try:
            with self._zip.open(info) as file:
                shape, fortran, dtype, start = _header(file, where)
                wanted = _nbytes(shape, dtype)
                if wanted > info.file_size - start:
                    raise FormatError(
                        f"{where} is truncated: an array of shape {shape} takes {wanted:,} bytes, "
                        f"{max(0, info.file_size - start):,} are there"
                    )
                array = _read(file, shape, fortran, dtype, where)
                file.read(1)  # the check sum is compared at the end
            return array
        except (
            ValueError,
            OSError,
            EOFError,
            RuntimeError,
            NotImplementedError,
            zipfile.BadZipFile,
            zlib.error,
        ) as error:
            if isinstance(error, HopstateError):
                raise
            raise FormatError(f"{where} is damaged or truncated ({error}); fetch it again") from None

    def __contains__(self, key: object) -> bool:
        return key in self._members  # without reading the array, as Mapping's own would

    def __iter__(self) -> Iterator[str]:
        return iter(self._members)

    def __len__(self) -> int:
        return len(self._members)

    def __enter__(self) -> Archive:
        return self

    def __exit__(self, *error: object) -> None:
        self._zip.close()


def checked_zip(path: Path) -> zipfile.ZipFile:
    """Open a zip archive whose members may be read.

    Raises:
        FormatError: no archive, a truncated one, members that are encrypted, packed in a way that is not read, of one
            name, or larger unpacked than can be true or than is allowed.
    """
    check_regular(path)
    size = path.stat().st_size
    try:
        archive = zipfile.ZipFile(path)
    except Exception as error:
        if isinstance(error, MemoryError):
            raise
        raise FormatError(f"{path} is no .npz archive, or a truncated one ({error}); fetch it again") from None
    try:
        _check_members(archive, path, size)
    except HopstateError:
        archive.close()
        raise
    return archive


def _check_members(archive: zipfile.ZipFile, path: Path, size: int) -> None:
    names, total = set(), 0
    for info in archive.infolist():
        where = f"{path}: {info.filename[:200]!r}"
        if info.filename in names:
            raise FormatError(f"{where} stands there twice; which one counts cannot be told")
        names.add(info.filename)
        if info.flag_bits & 1:
            raise FormatError(f"{where} is encrypted; save it without a password")
        if info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
            raise FormatError(f"{where} is packed by method {info.compress_type}; numpy writes plain or deflated ones")
        most = info.compress_size if info.compress_type == zipfile.ZIP_STORED else DEFLATE * info.compress_size + 64
        if info.compress_size > size or info.file_size > most:
            raise FormatError(
                f"{where} claims {info.file_size:,} bytes, but the {min(info.compress_size, size):,} in the file "
                "cannot hold them; it is damaged"
            )
        total += info.file_size
    check_size(path, total, stored=size, what="what it unpacks to")
