"""Scaling and imputation of features: fitted to training rows only, applied entry by entry, free of units."""

import json

import numpy as np
import pytest

from hopstate.data.preprocessing import CLIP_LIMIT, FeatureScaler, FeatureTable, scale_ratio
from hopstate.errors import ConfigError, DataError
from hopstate.io import scratch
from hopstate.io.scratch import row_blocks
from hopstate.testing.conformance import F32, F32_TIGHT

TRAIN = np.arange(0, 60, 2)


def values(seed: int = 0) -> np.ndarray:
    """60 rows: normal, a year, skewed values, two values, one value, and a column with missing values."""
    rng = np.random.default_rng(seed)
    columns = [rng.normal(size=60), 1998.0 + rng.integers(0, 26, 60), np.exp(3 * rng.normal(size=60))]
    columns += [rng.integers(0, 2, 60).astype(float), np.full(60, 7.25), rng.normal(size=60)]
    table = np.stack(columns, 1)
    table[[2, 5, 20], 5] = np.nan
    return table


def fitted(table: np.ndarray, kind: str = "standard", missing: str = "mean", rows: np.ndarray = TRAIN) -> FeatureScaler:
    return FeatureScaler.fit(table, rows, kind=kind, missing=missing, columns=None)


def test_values_equal_a_manual_computation():
    table = values()
    found = fitted(table).apply(table)
    train = table[TRAIN]
    for i in (0, 1, 2):
        np.testing.assert_allclose(found[:, i], (table[:, i] - train[:, i].mean()) / train[:, i].std(), rtol=F32)
    np.testing.assert_array_equal(found[:, 3], table[:, 3])  # two values become 0 and 1
    assert not found[:, 4].any()  # a constant column of training rows becomes 0
    mean, deviation = np.nanmean(train[:, 5]), np.nanstd(train[:, 5])
    np.testing.assert_allclose(found[[2, 5, 20], 5], 0, atol=F32_TIGHT)  # filled with the mean
    np.testing.assert_allclose(found[7, 5], (table[7, 5] - mean) / deviation, rtol=F32)
    np.testing.assert_array_equal(np.flatnonzero(found[:, 6]), [2, 5, 20])  # and marked
    robust = fitted(table, "robust", "median").apply(table)
    low, middle, high = np.percentile(train[:, 2], [25, 50, 75])
    np.testing.assert_allclose(robust[:, 2], (table[:, 2] - middle) / (high - low), rtol=F32)
    assert fitted(table, "none", "median").apply(table)[2, 5] == np.float32(np.nanmedian(train[:, 5]))


def test_a_constant_column_is_scaled_to_one_if_sums_use_it():
    table = np.stack([np.full(30, 7.0), np.zeros(30), np.arange(30.0)], 1)
    scaler = fitted(table, rows=np.arange(20))
    found = scaler.sums().apply(table)
    assert (found[:, 0] == 1).all()
    assert not found[:, 1].any()
    np.testing.assert_allclose(found[:, 2], scaler.apply(table)[:, 2], rtol=F32)


@pytest.mark.parametrize(
    ("kind", "missing", "unit"),
    [
        ("standard", "mean", (1000, 0)),
        ("robust", "mean", (1e-3, 0)),
        ("standard", "median", (2.0**-40, 0)),
        ("robust", "median", (9 / 5, 32)),
        ("standard", "mean", (1e300, 0)),
        ("robust", "mean", (1e-200, 0)),
    ],
)
def test_units_do_not_matter(kind, missing, unit):
    factor, offset = unit
    table = values()
    other = table * factor + offset
    a, b = fitted(table, kind, missing).apply(table), fitted(other, kind, missing).apply(other)
    np.testing.assert_allclose(a, b, rtol=F32, atol=F32)
    assert np.isfinite(b).all()


@pytest.mark.parametrize("kind", ["standard", "robust", "none"])
def test_only_training_rows_matter_and_rows_are_independent(kind):
    table = values()
    held_out = np.setdiff1d(np.arange(60), TRAIN)
    changed = table.copy()
    changed[held_out] = np.random.default_rng(1).normal(size=(30, 6)) * 1e6
    changed[held_out[:5]] = np.nan
    changed[held_out[5], 0] = np.inf
    one, two = fitted(table, kind), fitted(changed, kind)
    assert json.dumps(one.as_json()) == json.dumps(two.as_json())
    whole = one.apply(table)
    for row in (0, 2, 5, 59):
        np.testing.assert_allclose(one.apply(table[row : row + 1])[0], whole[row], rtol=1e-5, atol=1e-6)
    order = np.random.default_rng(2).permutation(60)
    np.testing.assert_allclose(one.apply(table[order]), whole[order], rtol=1e-5, atol=1e-6)


def test_json_round_trip_is_exact_and_damage_is_named():
    scaler = fitted(values())
    state = json.loads(json.dumps(scaler.as_json()))
    np.testing.assert_array_equal(FeatureScaler.from_json(state).apply(values()), scaler.apply(values()))
    for wrong in ({"fill": [1.0]}, {"marked": [6]}, {"scale": None}, {"shift": [None] * 6}, {"columns": ["a"]}):
        with pytest.raises(DataError):
            FeatureScaler.from_json(state | wrong)


def test_awkward_columns_stay_finite():
    rows = np.arange(8)
    table = np.zeros((8, 7))
    table[:, 0] = np.nan  # nothing at all
    table[:, 1] = 1e308 * np.where(rows % 2, 1, -1) + rows
    table[:, 2] = 0.1 + 0.2
    table[3, 2] = 0.3  # equal but for rounding
    table[:, 3] = [1, 1, 1, 1, 1, 1, 1, 2.5]
    table[:, 4] = 1.7e9 + rows  # seconds since 1970: float32 cannot represent the differences
    table[:, 5] = 5e-324 * (rows + 1)
    table[:, 6] = rows
    for kind in ("standard", "robust"):
        scaler = FeatureScaler.fit(table, rows, kind=kind, missing="mean", columns=None)
        found = scaler.apply(table)
        assert np.isfinite(found).all()
        assert not found[:, 0].any()
        assert not found[:, 2].any()
        assert len(np.unique(found[:, 4])) == 8
    far = table.copy()
    far[0, 6] = 1e300
    assert scaler.apply(far)[0, 6] == CLIP_LIMIT
    empty = FeatureScaler.fit(table, rows[:0], kind="standard", missing="mean", columns=None)
    assert np.isfinite(empty.apply(table)).all()


def test_columns_are_matched_by_name_in_any_order():
    table = FeatureTable.of(("b", "a"), np.array([[1.0, 2.0]]))
    assert table.align_to(("a", "b"), "others").tolist() == [[2, 1]]
    with pytest.raises(DataError, match="aa"):
        table.align_to(("aa", "b"), "others")


def test_digits_beyond_float32_are_kept():
    assert FeatureTable.of(("t",), np.array([[1.7e9 + 1]])).values.dtype == np.float64
    small = FeatureTable.of(("t", "u"), np.array([[3.0, np.nan]]))
    assert small.values.dtype == np.float32
    assert small.plain().tolist() == [[3, 0]]
    assert FeatureTable.of(("t",), np.array([[1e300]])).plain()[0, 0] == np.finfo(np.float32).max


def test_unknown_preprocessing_choices_are_rejected():
    with pytest.raises(ConfigError, match=r"read\.scale"):
        fitted(values(), "minmax")
    with pytest.raises(ConfigError, match=r"read\.missing"):
        fitted(values(), missing="mode")


def test_scales_far_apart():
    rng = np.random.default_rng(0)
    table = np.stack([rng.normal(size=50), 1998.0 + rng.integers(0, 26, 50), np.full(50, 1e9)], 1)
    ratio, large, small = scale_ratio(table)
    assert ratio > 1000
    assert (large, small) == (1, 0)
    assert scale_ratio(table[:, :1])[0] < 2
    assert scale_ratio(np.zeros((5, 2)))[0] == 1


@pytest.mark.parametrize("size", [1, 40, 1 << 22])
def test_blocks_are_all_rows_in_order(size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scratch, "BLOCK", size)
    table = values()
    starts, blocks = zip(*row_blocks(table), strict=True)
    assert np.array_equal(np.concatenate(blocks), table, equal_nan=True)
    assert list(starts) == np.cumsum([0, *map(len, blocks[:-1])]).tolist()
