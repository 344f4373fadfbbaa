"""Rows of ids: the same for a few, which are looked up one by one, as for many."""

import numpy as np
import pytest

from hopstate.data.vocabulary import FEW, Vocabulary

TEXTS = np.array([f"u{i}" for i in range(100)])


@pytest.mark.parametrize(
    ("ids", "keys"),
    [
        (TEXTS, np.array(["u3", "nobody", "u99", "3", ""])),
        (TEXTS, np.array([3, 4])),
        (np.arange(100) * 7, np.array([14, 15, -1, 2**62, 693])),
        (np.arange(100) * 7, np.array(["14", "x"])),
        (np.arange(100) * 7, np.array([14.0, 14.5])),
        (np.arange(100) * 7, np.array([True, False])),
        (np.arange(100) * 7, np.empty(0, np.int64)),
    ],
)
def test_few_are_found_as_many_are(ids: np.ndarray, keys: np.ndarray) -> None:
    known = Vocabulary(ids)
    many = np.concatenate([keys] * (FEW + 1))
    found = known.rows(keys)
    assert found.dtype == np.int64
    assert found.tolist() == known.rows(many)[: len(keys)].tolist()
