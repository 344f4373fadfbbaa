"""An array has the announced number of rows; any other number from the engine is an error."""

import numpy as np
import pytest

from hopstate.data.prepare.writer import Npy
from hopstate.errors import StorageError


@pytest.mark.parametrize("count", [3, 7])
def test_a_number_of_rows_other_than_announced_is_rejected(tmp_path, count):
    array = Npy(tmp_path / "t.npy", (5, 2), np.int64)
    array.add(np.ones((count, 2)))
    with pytest.raises(StorageError, match=r"t\.npy"):
        array.close()


def test_rows_as_announced_are_read_back(tmp_path):
    array = Npy(tmp_path / "t.npy", (5, 2), np.int64)
    for start in (0, 4):
        array.add(np.arange(10).reshape(5, 2)[start : start + 4])
    array.close()
    np.testing.assert_array_equal(np.load(tmp_path / "t.npy"), np.arange(10).reshape(5, 2))
