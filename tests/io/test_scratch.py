"""Arrays in unnamed files: written values are read again, also after their pages were released."""

from pathlib import Path

import numpy as np
import pytest
import torch

from hopstate.io import scratch
from hopstate.io.scratch import Scratch


@pytest.mark.parametrize("mapped", [False, True])
def test_released_pages_are_read_again(mapped: bool, tmp_path: Path) -> None:
    store = Scratch(tmp_path if mapped else None)
    made = store(3000, 5, torch.float32)
    expected = torch.arange(15_000, dtype=torch.float32).view(3000, 5)
    made.copy_(expected)
    store.release_pages(made, torch.zeros(3))  # memory of another owner is kept
    assert torch.equal(made, expected)
    assert not list(tmp_path.iterdir())


def test_registered_arrays_of_other_owners_are_released(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[np.ndarray | None] = []
    monkeypatch.setattr(scratch, "release_pages", lambda *arrays: given.extend(arrays))
    x = np.arange(6.0).reshape(2, 3)
    Scratch(tmp_path, read=[x]).release_pages(torch.from_numpy(x))
    Scratch(tmp_path).release_pages(torch.from_numpy(x))
    Scratch(None, read=[x]).release_pages(torch.from_numpy(x))
    assert given[0] is x
    assert given[1:] == [None]  # the second has no entry, the third keeps all in memory
