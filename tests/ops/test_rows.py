"""Runs of consecutive rows: positions, bounds, and half-precision sums that do not saturate."""

from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from hopstate.ops.rows import bounds_of, ranges, segment_sum

RUNS = st.lists(st.tuples(st.integers(0, 50), st.integers(0, 6)), max_size=8)


@given(RUNS)
def test_ranges_and_bounds_are_consecutive_runs(runs):
    starts, counts = (np.array([run[i] for run in runs], np.int64) for i in (0, 1))
    assert ranges(starts, counts).tolist() == [n for start, count in runs for n in range(start, start + count)]
    assert bounds_of(counts).tolist() == [sum(counts[:i]) for i in range(len(runs) + 1)]


def test_segment_sum():
    x, offsets = torch.randn(9, 3, dtype=torch.float64, requires_grad=True), torch.tensor([0, 2, 2, 7, 9])
    expected = torch.stack([x[a:b].sum(0) for a, b in pairwise(offsets)])
    torch.testing.assert_close(segment_sum(x, offsets), expected)
    torch.testing.assert_close(segment_sum(x.T.contiguous().T, offsets), expected)
    assert torch.autograd.gradcheck(lambda x: segment_sum(x, offsets), x)


@pytest.mark.parametrize("kind", [torch.float16, torch.bfloat16])
def test_half_precision_sums_do_not_stop_growing(kind):
    total = segment_sum(torch.ones(3000, 1, dtype=kind), torch.tensor([0, 3000]))
    assert total.dtype == kind
    assert float(total) == pytest.approx(3000, rel=0.01)
