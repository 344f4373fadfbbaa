"""The one table of tolerances, and the comparisons that use it.

Tolerances are relative root mean square errors, |actual - expected| / |expected|: unlike an element-wise bound they
do not fail on one small entry of a large tensor, and unlike a maximum they do not forgive an error spread over all.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

# What one differently ordered sum of a few thousand terms costs, with a margin of about 10. The figures are the same
# on every machine; loosening one needs a written reason here.
TOLERANCE: dict[torch.dtype, float] = {
    torch.float64: 1e-10,
    torch.float32: 1e-5,
    torch.float16: 2e-3,
    torch.bfloat16: 1.5e-2,
}

# Bounds for what is compared entry by entry (`atol`, `rtol`, `pytest.approx`), tightest first. Take the tightest that
# holds on every processor with a margin of about 10.
F64_LAST = 1e-15  # the last digit
F64_TIGHT = 1e-13  # a few roundings
F64 = 1e-12  # sums of tens of terms
F64_SUM = 1e-10  # sums of thousands of terms
F64_SOLVED = 1e-9  # systems, eigenpairs and integrals
F64_DEEP = 1e-8  # a whole network, or its gradients
F32_LAST = 1e-7  # the last digit
F32_TIGHT = 1e-6  # a few roundings
F32 = 1e-5  # sums of tens of terms
F32_SUM = 1e-4  # sums of thousands of terms, or a whole network
PROGRAM = 1e-5  # an exported program's logit z from the model's, as a part of 1 + |z|: runtimes sum in other orders
COARSE = 1e-3  # what is cut off by design, or rounded in files
HALF = 2e-3  # a rounding of float16


def relative_rmse(actual: Any, expected: Any) -> float:
    """Return |actual - expected| / |expected| in float64; |actual| where expected is all zeros, 0 where both are empty.

    Args:
        actual, expected: tensors or arrays of one shape.

    Raises:
        AssertionError: shapes differ.
    """
    a, e = _wide(actual), _wide(expected)
    assert a.shape == e.shape, f"shapes differ: {tuple(a.shape)}, expected {tuple(e.shape)}"
    size = float(e.norm()) if e.numel() else 0.0
    error = float((a - e).norm()) if e.numel() else 0.0
    return error / size if size else error


def assert_close_rmse(
    actual: Any, expected: Any, *, dtype: torch.dtype | None = None, name: str = "result", factor: float = 1.0
) -> None:
    """Assert that the relative RMSE is within the tolerance of dtype.

    Args:
        actual: tensor or array under test.
        expected: what it should be, usually in float64.
        dtype: whose tolerance holds; by default that of actual.
        name: what is compared, for the message.
        factor: multiplies the tolerance; anything but 1 needs a reason where it is written.

    Raises:
        AssertionError: shapes differ, a value is not finite on one side only, or the error is too large.
    """
    dtype = dtype or torch.as_tensor(actual).dtype
    a, e = _wide(actual), _wide(expected)
    assert a.shape == e.shape, f"{name}: shapes differ: {tuple(a.shape)}, expected {tuple(e.shape)}"
    finite = torch.isfinite(e)
    same = torch.allclose(a[~finite], e[~finite], equal_nan=True)
    assert same, f"{name}: NaN or infinities differ"
    assert torch.isfinite(a[finite]).all(), f"{name}: NaN or infinity where a number was expected"
    error, limit = relative_rmse(a[finite], e[finite]), factor * TOLERANCE[dtype]
    assert error <= limit, f"{name}: relative RMSE {error:.3g} exceeds {limit:.3g} ({dtype})"


def _wide(value: Any) -> Tensor:
    tensor = torch.from_numpy(value) if isinstance(value, np.ndarray) else torch.as_tensor(value)
    return tensor.detach().to("cpu", torch.float64)
