"""Any changed byte of weights, a checkpoint or a live state is detected, as is any byte after an array."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from hopstate.data.events import EventStream
from hopstate.data.stream_checkpoint import load_stream_state, save_stream_state
from hopstate.data.stream_state import StreamState
from hopstate.errors import CheckpointError, FormatError
from hopstate.io.tensors import load_npy, read_tensors, write_tensors
from hopstate.training.checkpoint import Checkpoint, load_checkpoint, save_checkpoint

TENSORS = {
    "a": torch.arange(6, dtype=torch.float32).reshape(2, 3),
    "half": torch.ones(3, dtype=torch.bfloat16),
    "flags": torch.tensor([True, False, True]),
    "empty": torch.zeros(0, 4),
    "number": torch.tensor(7),
}


def every_byte_changed(path: Path, step: int = 1) -> Iterator[int]:
    """Yield positions of a file, each after replacing its byte."""
    data, rng = path.read_bytes(), np.random.default_rng(0)
    places = list(range(0, len(data), step))
    for at in places:
        wrong = bytearray(data)
        wrong[at] ^= int(rng.integers(1, 256)) if at % 2 else 1 << int(rng.integers(8))
        if data[at : at + 1].isspace() and bytes(wrong[at : at + 1]).isspace():
            continue  # the same text
        path.write_bytes(wrong)
        yield at
    path.write_bytes(data)


def read_at(read: Callable[[Path], object], path: Path, at: int) -> None:
    read(path)
    pytest.fail(f"byte {at} is not guarded")


def test_any_changed_byte_of_weights_and_checkpoints_is_detected(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    save_checkpoint(path, Checkpoint(tensors={"model": TENSORS}, record={"epoch": 3, "best": 0.5}))
    for at in every_byte_changed(path, step=3):
        with pytest.raises(CheckpointError, match=r"model\.safetensors"):
            read_at(load_checkpoint, path, at)
    checkpoint = load_checkpoint(path)
    assert checkpoint.record == {"epoch": 3, "best": 0.5}
    for name, value in TENSORS.items():
        assert torch.equal(checkpoint.tensors["model"][name], value)
        assert checkpoint.tensors["model"][name].dtype == value.dtype


def test_the_checksum_covers_names_dtypes_and_shapes(tmp_path: Path) -> None:
    """Damage that keeps the bytes: swapped names, another shape, another dtype."""
    from safetensors import safe_open
    from safetensors.torch import save_file

    path, x = tmp_path / "x.safetensors", torch.arange(6, dtype=torch.int32)
    write_tensors(path, {"a": x, "b": x + 1}, {"n": 1}, format="f")
    with safe_open(path, "pt") as file:
        header = file.metadata()
    assert header.keys() == {"format", "record", "crc32"}
    others = [
        {"a": x + 1, "b": x},
        {"a": x.reshape(2, 3), "b": x + 1},
        {"a": x.view(torch.float32), "b": x + 1},
        {"a": x},
    ]
    changed = [(other, header) for other in others]
    changed += [({"a": x, "b": x + 1}, header | {"record": '{"n": 2}'})]
    for tensors, head in changed:
        save_file(tensors, path, metadata=head)
        with pytest.raises(CheckpointError, match=r"x\.safetensors"):
            read_tensors(path, format="f", what="x")
    header.pop("crc32")
    save_file({"a": x, "b": x + 1}, path, metadata=header)
    with pytest.raises(CheckpointError, match=r"x\.safetensors"):
        read_tensors(path, format="f", what="x")


def live(folder: Path) -> None:
    src, features = np.arange(8) % 3, np.ones((8, 2), np.float32)
    events = EventStream(src=src, dst=src + 2, t=np.arange(8), num_nodes=5, edge_attr=features)
    save_stream_state(replace(StreamState(), model="abc").joined(events)[1], folder)


def test_any_changed_byte_of_a_live_state_is_detected(tmp_path: Path) -> None:
    live(tmp_path / "state")
    path = next((tmp_path / "state").glob("events-*.safetensors"))
    for at in every_byte_changed(path, step=37):
        with pytest.raises(CheckpointError, match=r"state"):
            read_at(load_stream_state, tmp_path / "state", at)
    assert len(load_stream_state(tmp_path / "state").events()) == 8


@pytest.mark.parametrize("mmap", [False, True])
def test_an_array_with_bytes_after_its_end_is_refused(mmap: bool, tmp_path: Path) -> None:
    path = tmp_path / "x.npy"
    for array in (np.arange(6.0).reshape(2, 3), np.zeros((0, 4)), np.array(7)):
        np.save(path, array)
        np.testing.assert_array_equal(load_npy(path, mmap=mmap), array)
        path.write_bytes(path.read_bytes() + b"\0")
        with pytest.raises(FormatError, match=r"x\.npy"):
            load_npy(path, mmap=mmap)
