"""Attention with one score per edge equals its definition and torch-geometric's layer, outputs and every gradient."""

import pytest
import torch

from hopstate.errors import ShapeError
from hopstate.ops.edge_attention import edge_attention, edge_attention_naive
from hopstate.testing.conformance import assert_close_rmse
from torch_threads import with_threads


def problem(n: int, heads: int, width: int, dtype: torch.dtype = torch.float64):
    degree = torch.randint(0, 6, (n,))
    indptr = torch.cat([torch.zeros(1, dtype=torch.int64), degree.cumsum(0)])
    indices = torch.randint(0, max(n, 1), (int(indptr[-1]),))  # with self-loops and duplicate edges
    inputs = [2 * torch.randn(n, heads, dtype=dtype) for _ in range(2)] + [torch.randn(n, heads, width, dtype=dtype)]
    return indptr, indices, torch.arange(n), [x.requires_grad_() for x in inputs]


@pytest.mark.parametrize(("n", "heads", "width"), [(30, 8, 8), (1, 1, 1), (12, 3, 5), (20, 2, 33), (0, 2, 4)])
def test_equals_the_definition(n, heads, width):
    *graph, inputs = problem(n, heads, width)
    fast, slow = edge_attention(*graph, *inputs), edge_attention_naive(*graph, *inputs)
    assert_close_rmse(fast, slow)
    weight = torch.randn_like(slow)
    for got, expected in zip(
        torch.autograd.grad((fast * weight).sum(), inputs), torch.autograd.grad((slow * weight).sum(), inputs)
    ):
        assert_close_rmse(got, expected)
    assert_close_rmse(edge_attention(*graph, *(x.float() for x in inputs)), slow)


def test_gradients_are_those_of_finite_differences():
    *graph, inputs = problem(7, 2, 3)
    assert torch.autograd.gradcheck(lambda *x: edge_attention(*graph, *x), inputs)


def test_rows_of_selected_nodes_equal_those_of_all():
    indptr, indices, nodes, inputs = problem(25, 4, 6)
    some = torch.tensor([3, 20, 7])
    spans = [indices[indptr[i] : indptr[i + 1]] for i in some]
    starts = torch.cat([torch.zeros(1, dtype=torch.int64), torch.tensor([len(s) for s in spans]).cumsum(0)])
    part = edge_attention(starts, torch.cat(spans), some, *inputs)
    torch.testing.assert_close(part, edge_attention(indptr, indices, nodes, *inputs)[some], rtol=1e-5, atol=1e-6)


def test_weights_sum_to_one_and_large_scores_stay_finite():
    indptr, indices, nodes, (a, b, v) = problem(20, 2, 3)
    ones = torch.ones_like(v).requires_grad_()
    out = edge_attention(indptr, indices, nodes, 400 * a, -300 * b, ones)
    assert_close_rmse(out, torch.ones_like(out))
    assert all(g.isfinite().all() for g in torch.autograd.grad(out.square().sum(), (a, b, ones)))


def test_threads_do_not_change_attention():
    *graph, inputs = problem(700, 4, 20, torch.float32)

    def run() -> list[torch.Tensor]:
        out = edge_attention(*graph, *inputs)
        return [out, *torch.autograd.grad(out.square().sum(), inputs)]

    for one, three in zip(*with_threads(run)):
        assert torch.equal(one, three)


def test_shapes_are_checked():
    indptr, indices, nodes, (a, b, v) = problem(4, 2, 3)
    with pytest.raises(ShapeError):
        edge_attention(indptr, indices, nodes[:2], a, b, v)
    with pytest.raises(ShapeError):
        edge_attention(indptr, indices, nodes, a, b[:, :1], v)
