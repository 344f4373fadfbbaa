"""The gated mean equals its definition, outputs and every gradient."""

import pytest
import torch

from hopstate.errors import ShapeError
from hopstate.ops.gated import gated_mean, gated_mean_naive
from hopstate.testing.conformance import assert_close_rmse
from torch_threads import with_threads


def problem(n: int, d: int, edges: bool, dtype: torch.dtype):
    degree = torch.randint(0, 5, (n,))
    indptr = torch.cat([torch.zeros(1, dtype=torch.int64), degree.cumsum(0)])
    indices = torch.randint(0, max(n, 1), (int(indptr[-1]),))
    inputs = [3 * torch.randn(n, d, dtype=dtype) for _ in range(3)]
    inputs.append(torch.randn(len(indices), d, dtype=dtype)) if edges else None
    return indptr, indices, [x.requires_grad_() for x in inputs]


@pytest.mark.parametrize("edges", [False, True])
@pytest.mark.parametrize(("n", "d"), [(30, 7), (1, 16), (12, 33), (0, 4)])
def test_equals_the_definition(n, d, edges):
    indptr, indices, inputs = problem(n, d, edges, torch.float64)
    fast, slow = gated_mean(indptr, indices, *inputs), gated_mean_naive(indptr, indices, *inputs)
    assert_close_rmse(fast, slow)
    weight = torch.randn_like(slow)
    for got, expected in zip(
        torch.autograd.grad((fast * weight).sum(), inputs), torch.autograd.grad((slow * weight).sum(), inputs)
    ):
        assert_close_rmse(got, expected)
    single = gated_mean(indptr, indices, *(x.float() for x in inputs))
    assert_close_rmse(single, slow)


@pytest.mark.parametrize("edges", [False, True])
def test_row_indices_select_rows_of_the_inputs(edges):
    indptr, indices, inputs = problem(25, 20, edges, torch.float64)
    rows = torch.randint(0, 6, (25,))
    inputs = [x[:6].detach().requires_grad_() if i < 3 else x for i, x in enumerate(inputs)]
    fast = gated_mean(indptr, indices, *inputs, rows=rows)
    slow = gated_mean_naive(indptr, indices, *inputs, rows=rows)
    assert_close_rmse(fast, slow)
    for got, expected in zip(
        torch.autograd.grad(fast.square().sum(), inputs), torch.autograd.grad(slow.square().sum(), inputs)
    ):
        assert_close_rmse(got, expected)


@pytest.mark.parametrize("edges", [False, True])
def test_gradients_of_strided_and_expanded_inputs(edges):
    indptr, indices, inputs = problem(30, 16, edges, torch.float64)
    spread = [torch.stack([x, x], -1)[..., 0].detach().requires_grad_() for x in inputs]
    assert not any(x.is_contiguous() for x in spread)
    for given in (inputs, spread):
        fast, slow = gated_mean(indptr, indices, *given), gated_mean_naive(indptr, indices, *given)
        for got, expected in zip(torch.autograd.grad(fast.sum(), given), torch.autograd.grad(slow.sum(), given)):
            assert_close_rmse(got, expected)  # the gradient of a sum is one number, expanded


def test_threads_do_not_change_gated_sums():
    indptr, indices, inputs = problem(40, 40, True, torch.float32)

    def run() -> list[torch.Tensor]:
        out = gated_mean(indptr, indices, *inputs)
        return [out, *torch.autograd.grad(out.square().sum(), inputs)]

    for a, b in zip(*with_threads(run)):
        torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-6)


def test_extreme_gates_stay_finite():
    indptr, indices = torch.tensor([0, 2, 2]), torch.tensor([0, 1])
    a = torch.tensor([[300.0], [-300.0]], requires_grad=True)
    b = torch.tensor([[0.0], [-900.0]], requires_grad=True)
    v = torch.tensor([[2.0], [5.0]], requires_grad=True)
    out = gated_mean(indptr, indices, a, b, v)
    assert_close_rmse(out, torch.tensor([[2.0], [0.0]]))
    assert all(g.isfinite().all() for g in torch.autograd.grad(out.sum(), (a, b, v)))


def test_shapes_are_checked():
    indptr, indices, (a, b, v) = problem(4, 3, False, torch.float32)
    with pytest.raises(ShapeError):
        gated_mean(indptr, indices, a, b[:2], v)
    with pytest.raises(ShapeError):
        gated_mean(indptr, indices, a, b, v, torch.zeros(1, 3))
