"""Named tensors and a JSON-able record in one safetensors file, written atomically; no pickle."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from torch import Tensor

from hopstate.data.files import replace_file
from hopstate.errors import CheckpointError, MissingFileError


def write_tensors(path: str | Path, tensors: dict[str, Tensor], record: dict[str, Any], *, format: str) -> None:
    """Write tensors and record as a file of a format.

    Raises:
        StorageError: it could not be written; an earlier file of that name is untouched.
    """
    from safetensors.torch import save_file

    header = {"format": format, "record": json.dumps(record)}
    parts = {name: tensor.detach().cpu().contiguous().clone() for name, tensor in tensors.items()}  # none shares memory
    replace_file(Path(path), lambda part: save_file(parts, part, metadata=header))


def read_tensors(
    path: str | Path, *, format: str, what: str, mend: str = "use an earlier copy"
) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Return tensors, on the CPU, and record of a file that `write_tensors` wrote.

    Args:
        format: the format that the file must have.
        what: what such a file holds, for messages.
        mend: what to do about a damaged one, for messages.

    Raises:
        MissingFileError: there is no such file.
        CheckpointError: the file is damaged or of another format.
    """
    from safetensors import SafetensorError, safe_open

    if not Path(path).is_file():
        raise MissingFileError(f"no {what} at {path}; save a state there first")
    try:
        with safe_open(path, framework="pt", device="cpu") as file:
            header = file.metadata() or {}
            tensors = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118
    except (SafetensorError, OSError) as error:
        raise CheckpointError(f"{path} is damaged or no {what} ({error}); {mend}") from error
    if header.get("format") != format:
        raise CheckpointError(f"{path} holds no {what} of this version: {header.get('format', 'no format')}; {mend}")
    return tensors, json.loads(header["record"])
