"""TOP's preparation in files: the basis of each layer, and what stands for missing neighbours in each batch.

A folder belongs to one graph, model, setting and seed, whose hashes are in every file's header. A file is written
beside its place and renamed when it is complete and on disk: work that was stopped, by a full disk say, continues with
the files that are there.
"""

from __future__ import annotations

import enum
import functools
import hashlib
from collections.abc import Callable, Iterator
from dataclasses import asdict, is_dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from hopstate.compensation.top.config import TopConfig
from hopstate.compensation.top.ridge import LowRankCompensation
from hopstate.data.graph import Graph
from hopstate.errors import CheckpointError
from hopstate.io.files import remove_stale
from hopstate.io.tensors import read_tensors, write_tensors

FORMAT = "hopstate-compensation-1"
OTHER = {"graph": "another graph", "model": "another model", "settings": "other settings", "nodes": "other nodes"}
PLAIN = (bool, int, float, complex, str, bytes, np.generic, torch.dtype, enum.Enum)
Key = dict[str, str]


def fingerprint(graph: Graph, model: nn.Module, config: TopConfig, seed: int, rows: np.ndarray | None) -> Key:
    """Return hex digests of all that a preparation from random weights depends on, by name."""
    shapes = [(name, tuple(p.shape), str(p.dtype)) for name, p in model.state_dict().items()]
    settings = {k: v for k, v in asdict(config).items() if k != "folder"}
    if not graph.is_undirected:
        settings["messages"] = "from sources to targets"  # folders of version 0.1.0 had them the other way
    return {
        "graph": graph.content_hash,
        "model": _digest(repr(model), repr(shapes), *_kept(model)),
        "settings": _digest(repr(sorted(settings.items())), repr(seed)),
        "nodes": "all" if rows is None else _digest(rows.tobytes()),
    }


class CompensationStore:
    """Keeps and gives back what was prepared.

    Args:
        folder: where the files are; it is made when the first one is written.
        key: of `fingerprint`.

    Raises:
        CheckpointError: the folder holds what was prepared for something else.
    """

    def __init__(self, folder: str | Path, key: Key) -> None:
        self.folder, self.key = Path(folder), key
        remove_stale(self.folder)
        for path in sorted(self.folder.glob("*.safetensors"))[:1]:
            self._read(path)

    def bases(self) -> list[dict[str, Tensor]] | None:
        return self._groups(self.folder / "basis.safetensors")

    def keep_bases(self, bases: list[dict[str, Tensor]]) -> None:
        """Write the tensors of each basis.

        Raises:
            StorageError: they could not be written.
        """
        self._write(self.folder / "basis.safetensors", bases)

    def batch(self, nodes: np.ndarray) -> list[LowRankCompensation] | None:
        """Return what stands for missing neighbours of a batch in each layer, or None where it is not kept yet."""
        kept = self._groups(self._path(nodes))
        return None if kept is None else [LowRankCompensation(t["left"], t["right"], t.get("rows")) for t in kept]

    def keep_batch(self, nodes: np.ndarray, made: list[LowRankCompensation]) -> None:
        """Write it.

        Raises:
            StorageError: it could not be written.
        """
        groups = []
        for each in made:
            tensors = {"left": each.left, "right": each.right}
            groups.append(tensors if each.rows is None else tensors | {"rows": each.rows})
        self._write(self._path(nodes), groups)

    def _path(self, nodes: np.ndarray) -> Path:
        return self.folder / f"batch-{_digest(np.asarray(nodes, np.int64).tobytes())}.safetensors"

    def _groups(self, path: Path) -> list[dict[str, Tensor]] | None:
        if not path.is_file():
            return None
        groups: dict[int, dict[str, Tensor]] = {}
        for name, tensor in self._read(path).items():
            number, key = name.split(".", 1)
            groups.setdefault(int(number), {})[key] = tensor
        return [groups[number] for number in sorted(groups)]

    def _read(self, path: Path) -> dict[str, Tensor]:
        mend = "delete it, it is made anew"
        tensors, key = read_tensors(path, format=FORMAT, what="compensation", mend=mend)
        other = [name for name, value in self.key.items() if key.get(name) != value]
        if other:
            raise CheckpointError(
                f"the compensation in {self.folder} was made for {' and '.join(OTHER[name] for name in other)}; "
                f"give another folder (top.folder), or delete that one"
            )
        return tensors

    def _write(self, path: Path, groups: list[dict[str, Any]]) -> None:
        flat = {f"{number}.{key}": t for number, group in enumerate(groups) for key, t in group.items()}
        write_tensors(path, flat, self.key, format=FORMAT)


def _kept(model: nn.Module) -> Iterator[str | bytes]:
    """Yield what random initialisations leave as it is in each module: its plain attributes, and fixed tensors."""
    common = vars(nn.Module())
    for path, module in model.named_modules():
        yield f"{path} {_name(type(module))}"
        for key, value in sorted(vars(module).items()):
            compiled = getattr(value, "__self__", None) is module  # by torch-geometric, under a name that it draws
            if key not in common and not compiled and not _may_be_cache(value):
                yield f"{key}={_plain(value)}"
        if hasattr(module, "reset_parameters"):
            continue
        fixed = (p for p in module.named_parameters(recurse=False) if not p[1].requires_grad)
        for key, tensor in [*fixed, *module.named_buffers(recurse=False)]:
            yield key
            yield tensor.detach().cpu().contiguous().view(torch.uint8).numpy().tobytes() if tensor.ndim else str(tensor)


def _may_be_cache(value: Any) -> bool:
    parts = value if isinstance(value, (list, tuple)) else [value]
    return value is None or any(isinstance(part, Tensor) for part in parts)


def _plain(value: Any) -> str:
    """Return a description that is the same in every process: values of plain data, names of anything else."""
    if value is None or isinstance(value, PLAIN):
        return repr(value)
    if isinstance(value, functools.partial):
        return f"partial{_plain((value.func, value.args, value.keywords))}"
    if isinstance(value, type) or (callable(value) and hasattr(value, "__qualname__")):
        return _name(value)
    if is_dataclass(value):
        return _name(type(value)) + _plain({key: getattr(value, key) for key in value.__dataclass_fields__})
    if type(value) is dict:  # others hold hooks
        return f"{{{','.join(sorted(f'{_plain(k)}:{_plain(v)}' for k, v in value.items()))}}}"
    if isinstance(value, (list, tuple)):
        return f"({','.join(map(_plain, value))})"
    if isinstance(value, (set, frozenset)):
        return f"{{{','.join(sorted(map(_plain, value)))}}}"
    return _name(type(value))


def _name(value: type | Callable[..., Any]) -> str:
    return f"{getattr(value, '__module__', '')}.{value.__qualname__}"


def _digest(*parts: str | bytes) -> str:
    digest = hashlib.blake2b(digest_size=16)
    for part in parts:
        digest.update(part.encode() if isinstance(part, str) else part)
    return digest.hexdigest()
