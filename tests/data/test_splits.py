"""Random splits: disjoint, of the requested sizes, of labelled rows only, the same for the same seed."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hopstate.data.splits import masks_from_rows, per_class_split, random_split
from hopstate.errors import ConfigError, DataError


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(-1, 3), min_size=1, max_size=60), st.integers(0, 9), st.booleans())
def test_parts_are_disjoint_labelled_and_sized(labels: list[int], seed: int, stratified: bool) -> None:
    y = np.array(labels)
    known = np.flatnonzero(y >= 0)
    if not len(known):
        with pytest.raises(DataError):
            random_split(y, seed=seed)
        return
    parts = random_split(y, (0.5, 0.25, 0.25), seed=seed, stratified=stratified)
    np.testing.assert_array_equal(np.sort(np.concatenate(list(parts.values()))), known)
    assert len(parts["train"]) == np.rint(0.5 * len(known))
    if stratified:
        for c in np.unique(y[known]):
            for name, share in (("train", 0.5), ("val", 0.25), ("test", 0.25)):
                assert abs((y[parts[name]] == c).sum() - share * (y == c).sum()) <= 2
    again = random_split(y, (0.5, 0.25, 0.25), seed=seed, stratified=stratified)
    assert all(np.array_equal(parts[k], again[k]) for k in parts)


def test_sizes_seeds_and_leftovers() -> None:
    y = np.zeros(10_000, int)
    assert {k: len(v) for k, v in random_split(y).items()} == {"train": 6000, "val": 2000, "test": 2000}
    assert {k: len(v) for k, v in random_split(y, (0.1, 0.1, 0.2)).items()} == {
        "train": 1000,
        "val": 1000,
        "test": 2000,
    }
    assert not np.array_equal(random_split(y, seed=0)["train"], random_split(y, seed=1)["train"])
    targets = np.array([[0.5, np.nan], [np.nan, np.nan], [1.0, 2.0]])
    assert sum(map(len, random_split(targets).values())) == 2


def test_a_graph_of_one_node() -> None:
    assert {k: len(v) for k, v in random_split(np.zeros(1, int)).items()} == {"train": 1, "val": 0, "test": 0}


def test_bad_fractions_are_named() -> None:
    y = np.zeros(9, int)
    for bad in ((0.6, 0.3, 0.2), (0.5, 0.5), (-0.1, 0.5, 0.5)):
        with pytest.raises(ConfigError):
            random_split(y, bad)
    with pytest.raises(ConfigError, match="stratified"):
        random_split(y / 2, stratified=True)


def test_splits_as_masks() -> None:
    split = {"train": np.array([0, 2]), "test": np.array([1])}
    assert masks_from_rows([split], 4)["train"].tolist() == [True, False, True, False]
    assert masks_from_rows([split, split], 4)["test"].shape == (2, 4)


def test_a_fixed_number_of_nodes_per_class() -> None:
    y = np.random.default_rng(0).permutation(np.repeat([-1, 0, 1, 2], [5, 60, 51, 80]))
    rows = per_class_split(y, (20, 30), seed=1)
    assert [np.bincount(y[rows[name]], minlength=3).tolist() for name in ("train", "val", "test")] == [
        [20, 20, 20], [30, 30, 30], [10, 1, 30],
    ]  # fmt: skip
    assert sorted(np.concatenate(list(rows.values()))) == np.flatnonzero(y >= 0).tolist()
    assert not np.array_equal(rows["train"], per_class_split(y, (20, 30), seed=2)["train"])
    with pytest.raises(DataError, match="51"):
        per_class_split(y, (20, 31))
    with pytest.raises(ConfigError):
        per_class_split(y.astype(float), (1, 1))
