"""Facts of columns taken in blocks of rows: numpy's of each column, whatever the blocks."""

import numpy as np
import pytest

from hopstate.data import column_facts as module
from hopstate.data.column_facts import column_facts, row_blocks, scale_ratio
from hopstate.testing.asserts import F64


@pytest.fixture(autouse=True, params=[1, 40, 1 << 22])
def blocks(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "BLOCK", request.param)


def numbers() -> np.ndarray:
    """Normal, far from 0, one value, two, none, tiny, huge, and holes of every kind."""
    rng = np.random.default_rng(0)
    table = rng.normal(size=(60, 7)) * [1, 1e-3, 0, 1, 1, 1e-200, 1e200] + [0, 1e3, 5, 0, 0, 0, 0]
    table[:, 3] = np.where(table[:, 3] > 0, 7, -2)
    for hole in (np.nan, np.inf, -np.inf):
        table[rng.random(table.shape) < 0.1] = hole
    table[:, 4] = np.nan
    return table


@pytest.mark.parametrize("kind", [np.float64, np.float32])
def test_facts_are_numpys(kind: type) -> None:
    with np.errstate(over="ignore"):
        table = numbers().astype(kind)
    facts = column_facts(table)
    for i, column in enumerate(table.T.astype(np.float64)):
        known = column[np.isfinite(column)]
        assert facts.known[i] == len(known)
        if not len(known):
            assert [facts.low[i], facts.high[i], facts.mean[i], facts.deviation[i]] == [0, 0, 0, 0]
            continue
        assert [facts.low[i], facts.high[i]] == [known.min(), known.max()]
        power = np.abs(known).max() or 1.0
        found = [facts.mean[i] / power, facts.deviation[i] / power]
        assert found == pytest.approx([(known / power).mean(), (known / power).std()], abs=F64)
    assert facts.constant.tolist() == [False, False, True, False, True, kind == np.float32, kind == np.float32]
    assert facts.two.tolist() == [False, False, False, True, False, False, False]


def test_scales_far_apart():
    rng = np.random.default_rng(0)
    table = np.stack([rng.normal(size=50), 1998.0 + rng.integers(0, 26, 50), np.full(50, 1e9)], 1)
    ratio, large, small = scale_ratio(table)
    assert ratio > 1000
    assert (large, small) == (1, 0)
    assert scale_ratio(table[:, :1])[0] < 2
    assert scale_ratio(np.zeros((5, 2)))[0] == 1


def test_blocks_are_all_rows_in_order() -> None:
    table = numbers()
    starts, blocks = zip(*row_blocks(table), strict=True)
    assert np.array_equal(np.concatenate(blocks), table, equal_nan=True)
    assert list(starts) == np.cumsum([0, *map(len, blocks[:-1])]).tolist()
