"""The order of classes that a user says, beside those that stand in the file."""

import numpy as np
import pytest

from hopstate.data.readers.class_order import numbered
from hopstate.errors import HopstateWarning


def test_a_class_that_no_row_has_is_told() -> None:
    found, known = np.array(["low", "high", "low"]), np.ones(3, bool)
    with pytest.warns(HopstateWarning, match="mid.*top"):
        y, names, note = numbered(found, known, "column 'y'", str, ("low", "mid", "high", "top"))
    assert y.tolist() == [0, 2, 0]
    assert names == ("low", "mid", "high", "top")
    assert [note.index(name) for name in ("low", "mid", "high", "top")] == sorted(
        map(note.index, ("low", "mid", "high", "top"))
    )
