"""Arrays and tensors from .npy, .npz and safetensors files: no pickle, and nothing allocated that the file lacks."""

from __future__ import annotations

import json
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from hopstate.errors import CheckpointError, FormatError, HopstateError
from hopstate.io.files import replace_file
from hopstate.io.opening import check_regular, check_size, first_bytes, open_regular, parse_json, shorten

_PACKED = 1032  # bytes that one byte of deflate decompresses to at most


# ---- .npy and .npz ---------------------------------------------------------------------------------------------
def load_npy(path: str | Path, *, mmap: bool = False) -> np.ndarray:
    path = check_regular(path)
    if not first_bytes(path).startswith(np.lib.format.MAGIC_PREFIX):
        raise FormatError(f"{path} is not an array in the .npy format")
    try:  # mapping compares the header with the size of the file, and allocates nothing
        with np.errstate(over="ignore"):  # of a shape that is too large for any file
            array = np.load(path, mmap_mode="r", allow_pickle=False)
    except Exception as error:
        raise FormatError(
            f"{path} is not an array, or a damaged, truncated or pickled one ({_reason(error)})"
        ) from None
    _check_kind(array, str(path))
    if isinstance(array, np.memmap) and path.stat().st_size != (expected := array.offset + array.nbytes):
        raise FormatError(f"{path} has {path.stat().st_size:,} bytes, and its array ends at {expected:,}")
    if mmap:
        return array
    check_size(path, array.nbytes)
    return np.array(array)


def _check_kind(array: np.ndarray, where: str) -> None:
    if array.dtype.kind not in "biufcUSM" or array.dtype.itemsize == 0:
        raise FormatError(f"{where} holds {array.dtype}; numbers, strings or dates are read")
    if not array.size and max(array.shape, default=0) > 2**31:
        raise FormatError(f"{where} claims the shape {array.shape} without holding a single number")


def _reason(error: BaseException) -> str:
    return str(error).splitlines()[0][:200] if str(error) else type(error).__name__


class Archive(Mapping[str, np.ndarray]):
    """Arrays of an .npz file, each read on access; never unpickled."""

    def __init__(self, path: str | Path) -> None:
        self.path = check_regular(path)
        check_zip(self.path)
        self._file = np.load(self.path, allow_pickle=False)

    def __getitem__(self, key: str) -> np.ndarray:
        if key not in self:
            raise KeyError(key)
        where = f"{self.path}: {key!r}"
        try:
            array = self._file[key]
        except Exception as error:
            raise FormatError(f"{where} is damaged, truncated or pickled ({_reason(error)})") from None
        if not isinstance(array, np.ndarray):
            raise FormatError(f"{where} is not an array")
        _check_kind(array, where)
        return array

    def __contains__(self, key: object) -> bool:
        return key in self._file.files  # without reading the array, as Mapping's own would

    def __iter__(self) -> Iterator[str]:
        return iter(self._file.files)

    def __len__(self) -> int:
        return len(self._file.files)

    def __enter__(self) -> Archive:
        return self

    def __exit__(self, *error: object) -> None:
        self._file.close()


def check_zip(path: Path) -> None:
    """Check what the members of a zip archive decompress to."""
    size = check_regular(path).stat().st_size
    try:
        with zipfile.ZipFile(path) as archive:
            members = archive.infolist()
    except Exception as error:
        raise FormatError(f"{path} is not an archive of arrays, or a truncated one ({_reason(error)})") from None
    if len({info.filename for info in members}) < len(members):
        raise FormatError(f"{path} has several members of one name")
    for info in members:
        if info.compress_size > size or info.file_size > _PACKED * info.compress_size + 64:
            raise FormatError(f"{path}: {shorten(info.filename)} claims {info.file_size:,} bytes; it is damaged")
    check_size(path, sum(info.file_size for info in members), stored_bytes=size, what="what it unpacks to")


# ---- safetensors -----------------------------------------------------------------------------------------------
def write_tensors(path: str | Path, tensors: dict[str, Tensor], record: dict[str, Any], *, format: str) -> None:
    replace_file(Path(path), lambda part: fill_tensor_file(part, tensors, record, format=format))


def fill_tensor_file(path: Path, tensors: dict[str, Tensor], record: dict[str, Any], *, format: str) -> None:
    """Write tensors, a JSON record and a checksum straight to path, for `replace_file` and the like."""
    from safetensors.torch import save_file

    parts = {name: tensor.detach().cpu().contiguous().clone() for name, tensor in tensors.items()}  # none shares memory
    header = {"format": format, "record": json.dumps(record)}
    save_file(parts, path, metadata=header | {"crc32": _checksum(parts, header)})


def read_tensors(
    path: str | Path, *, format: str, what: str, mend: str = "use an earlier copy"
) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Return tensors, on the CPU, and record of a file that `write_tensors` wrote in a format.

    Messages name what such a file contains, and how to mend it. The file is read whole, because of its checksum.
    """
    from safetensors import SafetensorError, safe_open

    open_regular(path).close()  # safetensors reports a file that may not be read as a missing one
    try:
        with safe_open(path, framework="pt", device="cpu") as file:
            tensors, header = {key: file.get_tensor(key) for key in file.keys()}, file.metadata() or {}  # noqa: SIM118
    except (SafetensorError, OSError, ValueError, RuntimeError, TypeError, KeyError, AttributeError) as error:
        raise CheckpointError(f"{path} is damaged or no {what} ({error}); {mend}") from error
    if header.get("crc32") != _checksum(tensors, header):
        raise CheckpointError(f"{path} is damaged or no {what}: its contents are not those that were written; {mend}")
    if header.get("format") != format:
        found = shorten(header.get("format", "none"))
        raise CheckpointError(f"{path} holds no {what} of this version: its format is {found}, not {format}; {mend}")
    try:
        return tensors, parse_json(header.get("record", ""), f"the record of {path}")
    except HopstateError as error:
        raise CheckpointError(f"{error}; {mend}") from None


def _checksum(tensors: dict[str, Tensor], header: dict[str, str]) -> str:
    """Return the CRC-32 of tensors, their names, types and shapes, and of the header."""
    found = zlib.crc32(json.dumps([header.get("format"), header.get("record")]).encode())
    for name, tensor in sorted(tensors.items()):
        found = zlib.crc32(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode(), found)
        flat = tensor.as_strided((tensor.numel(),), (1,)).view(torch.uint8)
        found = zlib.crc32(flat.numpy().data, found)
    return f"{found:08x}"
