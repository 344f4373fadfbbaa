"""Named tensors and a JSON-able record in one safetensors file, written atomically; no pickle.

The header holds a CRC-32 of all the rest, which is compared wherever such a file is read: weights, checkpoints, live
states, TOP's compensation. Files of version 0.1.0 have none and are read without.
"""

from __future__ import annotations

import json
import math
import zlib
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from hopstate.errors import CheckpointError, FormatError, MissingFileError
from hopstate.io.files import replace_file
from hopstate.io.opening import exists, open_regular, parse_json, shown

SUM = "crc32"  # the header's key


def write_tensors(path: str | Path, tensors: dict[str, Tensor], record: dict[str, Any], *, format: str) -> None:
    """Write tensors and record as a file of a format.

    Raises:
        StorageError: it could not be written; an earlier file of that name is untouched.
    """
    replace_file(Path(path), lambda part: fill_tensor_file(part, tensors, record, format=format))


def fill_tensor_file(path: Path, tensors: dict[str, Tensor], record: dict[str, Any], *, format: str) -> None:
    """Write tensors, record and their checksum straight to path, for `replace_file` and the like."""
    from safetensors.torch import save_file

    parts = {name: tensor.detach().cpu().contiguous().clone() for name, tensor in tensors.items()}  # none shares memory
    header = {"format": format, "record": json.dumps(record)}
    save_file(parts, path, metadata=header | {SUM: _checksum(parts, header)})


def read_tensors(
    path: str | Path, *, format: str, what: str, mend: str = "use an earlier copy", summed: float = math.inf
) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Return tensors, on the CPU, and record of a file that `write_tensors` wrote.

    Args:
        format: the format that the file must have.
        what: what such a file holds, for messages.
        mend: what to do about a damaged one, for messages.
        summed: bytes of a file at most that is read through to compare it with its checksum; of a larger one tensors
            are mapped from disk, and the header alone is checked.

    Raises:
        MissingFileError: there is no such file.
        CheckpointError: the file is damaged or of another format.
    """
    if not exists(path):
        raise MissingFileError(f"no {what} at {path}; save a state there first")
    tensors, header = safe_tensors(path, what=what, mend=mend, summed=summed)
    if header.get("format") != format:
        raise CheckpointError(
            f"{path} holds no {what} of this version: {shown(header.get('format', 'no format'))}; {mend}"
        )
    return tensors, header_record(header, path, mend)


def safe_tensors(
    path: str | Path, *, what: str, mend: str, summed: float = math.inf
) -> tuple[dict[str, Tensor], dict[str, str]]:
    """Return tensors, on the CPU, and header of a safetensors file; what, mend and summed as in `read_tensors`.

    Raises:
        MissingFileError, UnreadableFileError: as `hopstate.io.opening.check_regular`.
        CheckpointError: the file is damaged, or not what was written.
    """
    from safetensors import SafetensorError, safe_open

    open_regular(path).close()
    try:
        with safe_open(path, framework="pt", device="cpu") as file:
            tensors, header = {key: file.get_tensor(key) for key in file.keys()}, file.metadata() or {}  # noqa: SIM118
        unknown = sorted(header.keys() - {"format", "record", SUM})
        alone = SUM not in header or Path(path).stat().st_size > summed
        if not unknown and (alone or header[SUM] == _checksum(tensors, header)):
            return tensors, header
    except (SafetensorError, OSError, ValueError, RuntimeError, TypeError, KeyError, AttributeError) as error:
        raise CheckpointError(f"{path} is damaged or no {what} ({error}); {mend}") from error
    why = f"its header holds {shown(unknown[0])}" if unknown else "its contents are not those that were written"
    raise CheckpointError(f"{path} is damaged: {why}; {mend}")


def _checksum(tensors: dict[str, Tensor], header: dict[str, str]) -> str:
    """Return the sum over the header's other texts and each contiguous tensor's name, kind, shape and bytes."""
    found = zlib.crc32(json.dumps([header.get("format"), header.get("record")]).encode())
    for name, tensor in sorted(tensors.items()):
        found = zlib.crc32(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode(), found)
        flat = tensor.as_strided((tensor.numel(),), (1,)).view(torch.uint8)
        found = zlib.crc32(flat.numpy().data, found)
    return f"{found:08x}"


def header_record(header: dict[str, str], path: str | Path, mend: str) -> dict[str, Any]:
    """Return the record in the header of a safetensors file.

    Raises:
        CheckpointError: there is none, or a damaged one.
    """
    if "record" not in header:
        raise CheckpointError(f"{path} was not written by hopstate: its header holds no record")
    try:
        return parse_json(header["record"], f"the record of {path}")
    except FormatError as error:
        raise CheckpointError(f"{error}; {mend}") from None
