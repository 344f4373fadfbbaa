"""A linear map whose rows do not know of each other: the definition, and the same bits in any company."""

import gc

import numpy as np
import pytest
import torch
from torch import nn

from hopstate.errors import ShapeError
from hopstate.layers.alike import alike
from hopstate.ops.row_linear import RowLinear, row_linear, row_linear_naive
from hopstate.testing.asserts import F32_SUM, F32_TIGHT, F64


@pytest.mark.parametrize("kind", [torch.float32, torch.float64])
@pytest.mark.parametrize(("rows", "terms", "width"), [(0, 3, 5), (1, 1, 1), (3, 7, 16), (9, 33, 50), (70, 200, 100)])
def test_the_definition(rows: int, terms: int, width: int, kind: torch.dtype) -> None:
    x, weight, bias = torch.randn(rows, terms), torch.randn(width, terms), torch.randn(width)
    exact = row_linear_naive(x.double(), weight.double(), bias.double())
    found = row_linear(x.to(kind), weight.to(kind), bias.to(kind))
    assert found.dtype == kind
    assert torch.allclose(found.double(), exact, rtol=0, atol=F32_SUM if kind == torch.float32 else F64)
    torch.testing.assert_close(
        row_linear(x.to(kind), weight.to(kind)), row_linear(x.to(kind), weight.to(kind), bias.to(kind) * 0)
    )
    prepared = RowLinear(weight.to(kind), bias.to(kind))
    np.testing.assert_allclose(prepared(x.to(kind).numpy()), found.numpy(), rtol=1e-5, atol=1e-5)
    with pytest.raises(ShapeError, match="weight"):
        prepared(np.zeros((2, terms + 1), found.numpy().dtype))
    cube = x.to(kind).view(rows, 1, terms).expand(rows, 2, terms)
    torch.testing.assert_close(row_linear(cube, weight.to(kind), bias.to(kind))[:, 1], found)


@pytest.mark.parametrize("threads", [1, 2])
def test_a_row_has_the_same_bits_alone_and_anywhere_among_others(threads: int) -> None:
    rng = np.random.default_rng(0)
    x, weight, bias = torch.randn(203, 77), torch.randn(45, 77), torch.randn(45)
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(threads)
        whole = row_linear(x, weight, bias)
        for size in (1, 2, 3, 5, 64, 130):
            rows = torch.from_numpy(rng.choice(203, size, replace=False))
            assert torch.equal(row_linear(x[rows], weight, bias), whole[rows])
    finally:
        torch.set_num_threads(before)


def test_a_network_answers_each_row_alike_in_any_company() -> None:
    parts = [nn.Linear(7, 9), nn.SiLU(), nn.LayerNorm(9), nn.Linear(9, 5), nn.GELU(), nn.Softplus(), nn.Linear(5, 3)]
    net, x = nn.Sequential(*parts).eval(), torch.randn(101, 7)

    def run(rows: torch.Tensor) -> torch.Tensor:
        with torch.no_grad(), alike():
            return torch.cos(net(rows)).double().sigmoid()

    whole = run(x)
    for first, last in ((0, 1), (100, 101), (3, 20), (50, 101)):
        torch.testing.assert_close(run(x[first:last]), whole[first:last], rtol=1e-5, atol=1e-6)
    with torch.no_grad():
        assert torch.allclose(torch.cos(net(x)).double().sigmoid(), whole, atol=F32_TIGHT)


def test_a_weight_that_was_written_to_is_taken_as_it_is() -> None:
    """However it was written: `data` and arrays of numpy count no versions."""
    from hopstate.ops.row_linear.linear import _made

    net, x = nn.Linear(7, 20), torch.randn(3, 7)

    def check() -> None:
        torch.testing.assert_close(
            row_linear(x, net.weight, net.bias),
            row_linear(x, net.weight.detach().clone(), net.bias),
            rtol=1e-5,
            atol=1e-6,
        )

    before = set(_made)  # of weights that others hold
    check()
    assert len(set(_made) - before) == 1
    net.weight.data[3, 5] += 1
    check()
    net.weight.detach().numpy()[0, 0] = 7
    check()
    net.weight.data = torch.randn(20, 7)
    check()
    net, x = net.double(), x.double()
    check()
    del net, check
    gc.collect()
    assert set(_made) <= before  # nothing is kept of models that are gone
