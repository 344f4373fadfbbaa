import numpy as np
import pytest
import torch

from hopstate.testing.conformance import TOLERANCE, assert_close_rmse, relative_rmse


def test_relative_rmse_is_relative() -> None:
    expected = torch.full((4, 5), 100.0)
    assert relative_rmse(expected + 1, expected) == pytest.approx(0.01)
    assert relative_rmse(np.zeros(3), np.zeros(3)) == 0
    assert relative_rmse(torch.full((4,), 3.0), torch.zeros(4)) == pytest.approx(6.0)
    assert relative_rmse(torch.zeros(0, 3), torch.zeros(0, 3)) == 0


@pytest.mark.parametrize("dtype", list(TOLERANCE))
def test_tolerance_holds_and_fails(dtype: torch.dtype) -> None:
    expected = torch.linspace(1, 2, 50, dtype=torch.float64)
    limit = TOLERANCE[dtype]
    assert_close_rmse(expected * (1 + 0.9 * limit), expected, dtype=dtype)
    with pytest.raises(AssertionError):
        assert_close_rmse(expected * (1 + 1.1 * limit), expected, dtype=dtype)


def test_shapes_and_nan_are_caught() -> None:
    with pytest.raises(AssertionError):
        assert_close_rmse(torch.zeros(3, 1), torch.zeros(3))
    with pytest.raises(AssertionError):
        assert_close_rmse(torch.tensor([1.0, float("nan")]), torch.ones(2))
    with pytest.raises(AssertionError):
        assert_close_rmse(torch.tensor([1.0, 2.0]), torch.tensor([1.0, float("inf")]))
    assert_close_rmse(torch.tensor([1.0, float("inf")]), torch.tensor([1.0, float("inf")]))
