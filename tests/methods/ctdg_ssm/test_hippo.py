"""The cell and its filter: coefficients stay valid, the bound on the memory holds, gradients reach every parameter."""

import pytest
import torch

from hopstate.errors import ConfigError
from hopstate.methods.ctdg_ssm.hippo import HippoCell, PolynomialFilter
from hopstate.ops.filters.laplacian import critical_alpha, dense_laplacian, filter_minimum
from hopstate.ops.filters.transition import DenseTransition
from hopstate.testing.conformance import F32, F32_SUM, F64_TIGHT

PAIRS = torch.tensor([[0, 1, 2], [1, 2, 3]])


def transition(c: torch.Tensor, n: int = 4) -> DenseTransition:
    laplacians = [dense_laplacian(PAIRS[:, :e], torch.ones(e, dtype=c.dtype), n) for e in (3, 2)]
    return DenseTransition(c, *laplacians)


@pytest.mark.parametrize("order", [0, 1, 2, 3, 5])
def test_filter_starts_critical_and_stays_above_one_during_training(order: int) -> None:
    module = PolynomialFilter(order).double()
    expected = [1.0] + [critical_alpha(order)] * order if order else [1.0]
    assert module().tolist() == pytest.approx(expected, rel=F32)
    for seed in range(20):
        generator = torch.Generator().manual_seed(seed)
        with torch.no_grad():
            module.raw.copy_(10 * torch.randn(order, generator=generator))
        assert filter_minimum(module().tolist())[0] >= 1 - 1e-12


def test_filter_starts_at_the_given_coefficients() -> None:
    assert PolynomialFilter(2, 0.5)().tolist() == pytest.approx([1, 0.5, 0.5])
    assert PolynomialFilter(2, (0.5, 3.0))().tolist() == pytest.approx([1, 0.5, 3])
    fixed = PolynomialFilter(2, (-0.5, 0.25), learn=False)
    assert fixed().tolist() == pytest.approx([1, -0.5, 0.25])
    assert not list(fixed.parameters())


@pytest.mark.parametrize(
    ("order", "start", "name"),
    [
        (1, -0.5, "y = 2"),  # where it decreases to 0
        (2, (1.0,), "2"),
        (1, "great", "critical"),
        (-1, "critical", None),
        (2, (-0.5, 0.25), "learn_filter"),
    ],
)
def test_bad_filters_are_rejected(order: int, start: object, name: str | None) -> None:
    with pytest.raises(ConfigError, match=name):
        PolynomialFilter(order, start)  # type: ignore[arg-type]


def test_gradcheck_of_the_cell_through_filter_state_and_input() -> None:
    cell, poly = HippoCell(2, step_bias=-1.0).double(), PolynomialFilter(2).double()
    H, x = (torch.randn(1, 4, 2, dtype=torch.float64, requires_grad=True) for _ in range(2))
    parameters = [poly.raw, cell.log_decay, *cell.step.parameters()]

    def run(H: torch.Tensor, x: torch.Tensor, *_: torch.Tensor) -> torch.Tensor:
        return cell.update(H, x, transition(poly()))

    assert torch.autograd.gradcheck(run, (H, x, *parameters))


def test_bound_on_the_memory_holds_and_does_not_change_small_rows() -> None:
    free, bounded = HippoCell(3, step_bias=0.0), HippoCell(3, step_bias=0.0, max_norm=2.0)
    bounded.load_state_dict(free.state_dict())
    H = torch.cat([100 * torch.randn(1, 2, 3), 1e-3 * torch.randn(1, 2, 3)], 1)
    x = torch.randn(1, 4, 3)
    step = transition(torch.ones(1))
    loose, tight = free.update(H, x, step), bounded.update(H, x, step)
    assert tight.norm(dim=-1).max() <= 2 + 1e-5
    small = loose.norm(dim=-1) < 2
    assert small.any()
    assert not small.all()
    torch.testing.assert_close(tight[small], loose[small], rtol=F32, atol=F32_SUM)


def test_one_change_for_all_blocks_equals_a_change_per_block() -> None:
    cell, c = HippoCell(3, step_bias=-1.0).double(), torch.tensor([1.0, 2.0], dtype=torch.float64)
    H, x = torch.randn(5, 4, 3, dtype=torch.float64), torch.randn(5, 4, 3, dtype=torch.float64)
    one = transition(c)
    laplacians = [dense_laplacian(PAIRS[:, :e], torch.ones(e, dtype=c.dtype), 4).repeat(5, 1, 1) for e in (3, 2)]
    assert torch.allclose(cell.update(H, x, one), cell.update(H, x, DenseTransition(c, *laplacians)), atol=F64_TIGHT)
