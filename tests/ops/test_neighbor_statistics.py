"""Statistics of neighbours equal their definition and torch-geometric's aggregations, outputs and every gradient."""

import pytest
import torch

from hopstate.errors import ShapeError
from hopstate.ops.neighbor_statistics import neighbor_statistics, neighbor_statistics_naive
from hopstate.testing.conformance import assert_close_rmse
from torch_threads import with_threads


def problem(n: int, d: int, dtype: torch.dtype = torch.float64):
    degree = torch.randint(0, 6, (n,))
    indptr = torch.cat([torch.zeros(1, dtype=torch.int64), degree.cumsum(0)])
    indices = torch.randint(0, max(n, 1), (int(indptr[-1]),))
    return indptr, indices, torch.randn(n, d, dtype=dtype).round(decimals=1).requires_grad_()  # some are equal


@pytest.mark.parametrize(("n", "d"), [(30, 7), (1, 16), (12, 33), (0, 4)])
def test_equals_the_definition(n, d):
    indptr, indices, x = problem(n, d)
    fast, slow = neighbor_statistics(indptr, indices, x), neighbor_statistics_naive(indptr, indices, x)
    for got, expected in zip(fast, slow):
        assert_close_rmse(got, expected)
        weight = torch.randn_like(expected)
        mine, theirs = (torch.autograd.grad((y * weight).sum(), x, retain_graph=True)[0] for y in (got, expected))
        assert_close_rmse(mine, theirs)
    for got, expected in zip(neighbor_statistics(indptr, indices, x.float()), slow):
        assert_close_rmse(got, expected)


def test_equals_torch_geometrics_aggregations():
    from torch_geometric.nn.aggr import MultiAggregation

    indptr, indices, x = problem(40, 9)
    x = (x + 0.05).detach().requires_grad_()  # torch's initial 0 receives a part of the gradient of an extreme value 0
    rows = torch.repeat_interleave(indptr.diff())
    expected = MultiAggregation(["mean", "min", "max", "std"])(x[indices], rows, dim_size=40)
    got = torch.cat(neighbor_statistics(indptr, indices, x), 1)
    assert_close_rmse(got, expected)
    weight = torch.randn_like(expected)
    mine, theirs = (torch.autograd.grad((y * weight).sum(), x)[0] for y in (got, expected))
    assert_close_rmse(mine, theirs)


def test_a_deviation_far_from_zero_keeps_its_digits():
    x = torch.tensor([[1e4], [1e4 + 0.25]], dtype=torch.float32)
    spread = neighbor_statistics(torch.tensor([0, 2]), torch.tensor([0, 1]), x)[3]
    assert_close_rmse(spread, torch.tensor([[0.125]]))


def test_threads_do_not_change_statistics():
    indptr, indices, x = problem(60, 70, torch.float32)

    def run() -> list[torch.Tensor]:
        out = torch.cat(neighbor_statistics(indptr, indices, x), 1)
        return [out, *torch.autograd.grad(out.square().sum(), x)]

    for one, three in zip(*with_threads(run)):
        assert torch.equal(one, three)


def test_shapes_are_checked():
    with pytest.raises(ShapeError):
        neighbor_statistics(torch.tensor([0]), torch.tensor([], dtype=torch.int64), torch.zeros(3))
