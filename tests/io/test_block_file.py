"""What waits in a file comes back to the bit, wherever it stands there, past the page cache or through it."""

from __future__ import annotations

import errno
import os
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hopstate.errors import StorageError
from hopstate.io import block_file
from hopstate.io.block_file import PAGE, BlockFile, aligned, past_cache, whole_pages

SHAPES = [(1, 1), (3, 5), (1024, 1), (1025, 3), (0, 4), (2048, 16)]


@pytest.mark.parametrize("direct", [False, True])
def test_arrays_come_back_whole_and_in_parts(direct: bool, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    arrays = [rng.standard_normal(shape, np.float32) for shape in SHAPES]
    with tempfile.TemporaryFile(dir=tmp_path, buffering=0) as file:
        file.truncate(sum(whole_pages(array.nbytes) for array in arrays))
        waiting, places, at = BlockFile(file, direct=direct and past_cache(file)), [], 0
        for array in arrays:
            waiting.put(array, at)
            places.append(at)
            at += whole_pages(array.nbytes)
        for array, place in zip(arrays, places, strict=True):
            np.testing.assert_array_equal(waiting.taken(array.shape, place), array)
            for first in range(0, len(array), max(1, len(array) // 3)):
                part = waiting.taken(array[first:].shape, place + 4 * first * array.shape[1])
                np.testing.assert_array_equal(part, array[first:])


def test_columns_of_an_array_are_written_as_they_stand(tmp_path: Path) -> None:
    wide = np.arange(60, dtype=np.float32).reshape(12, 5)
    with tempfile.TemporaryFile(dir=tmp_path, buffering=0) as file:
        file.truncate(PAGE)
        waiting = BlockFile(file, direct=past_cache(file))
        waiting.put(wide[:, 1:4], 0)
        np.testing.assert_array_equal(waiting.taken((12, 3), 0), wide[:, 1:4])


def test_what_is_written_through_the_cache_moves_nothing_beside_it(tmp_path: Path) -> None:
    with tempfile.TemporaryFile(dir=tmp_path, buffering=0) as file:
        file.write(b"\1" * 64)
        BlockFile(file, direct=False).put(np.zeros(2, np.float32), 8)
        file.seek(0)
        assert file.read() == b"\1" * 8 + bytes(8) + b"\1" * 48


@pytest.mark.parametrize("direct", [False, True])
def test_a_file_that_ends_too_early_is_named(direct: bool, tmp_path: Path) -> None:
    with tempfile.TemporaryFile(dir=tmp_path, buffering=0) as file:
        file.truncate(PAGE)
        with pytest.raises(StorageError):
            BlockFile(file, direct=direct and past_cache(file)).taken((PAGE,), 0)


def test_a_file_system_that_knows_no_way_past_its_cache_is_written_through_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: Any) -> int:
        raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))

    fcntl = pytest.importorskip("fcntl")
    monkeypatch.setattr(fcntl, "fcntl", refuse)
    with tempfile.TemporaryFile(dir=tmp_path, buffering=0) as file:
        assert not past_cache(file)


@pytest.mark.parametrize("size", [1, 4 * 7, PAGE])
def test_rooms_begin_at_a_page(size: int) -> None:
    room = aligned(size)
    assert room.shape == (size,)
    assert room.dtype == np.uint8
    assert room.ctypes.data % PAGE == 0


def test_pages_are_what_disks_ask_for() -> None:
    assert [whole_pages(size) for size in (0, 1, 4096, 4097)] == [0, 4096, 4096, 8192]
    assert block_file.PAGE == 4096
