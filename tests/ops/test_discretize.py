"""Zero-order hold and Euler: values and slopes against mpmath from vanishing to overflowing steps."""

import mpmath
import pytest
import torch

from hopstate.errors import ConfigError
from hopstate.ops.selective_scan.naive import discretize, phi
from hopstate.testing.conformance import assert_close_rmse

STEPS = [1e-200, 1e-18, 1e-9, 1e-4, 0.1, 0.2499, 0.2501, 1.0, 20.0, 300.0]


@pytest.mark.parametrize("step", STEPS)
def test_zero_order_hold_keeps_its_digits(step):
    delta, A = (torch.tensor(v, dtype=torch.float64, requires_grad=True) for v in (step, -2.0))
    decay, gain = discretize(delta, A)
    slopes = torch.autograd.grad(gain, (delta, A))
    with mpmath.workdps(500):
        t, a = mpmath.mpf(step), mpmath.mpf(-2)
        exact = mpmath.exp(t * a), mpmath.expm1(t * a) / a
        in_delta, in_A = mpmath.exp(t * a), (t * mpmath.exp(t * a) - exact[1]) / a
    for actual, value in zip((decay, gain, *slopes), (*exact, in_delta, in_A)):
        assert abs(actual.item() - float(value)) <= 1e-14 * abs(float(value))


def test_gradcheck_with_broadcasting():
    delta = torch.rand(5, 3, 1, dtype=torch.float64, requires_grad=True)
    A = (-torch.rand(3, 4, dtype=torch.float64) * 3).requires_grad_()
    for rule in ("zoh", "euler"):
        assert torch.autograd.gradcheck(lambda d, a, rule=rule: discretize(d, a, rule), (delta, A))


def test_one_step_is_the_exact_solution_of_the_equation():
    """h' = A h + B u with u constant: two half steps equal one whole step, which Euler's do not."""
    A = torch.tensor([-0.5, -2.0, -9.0], dtype=torch.float64)
    h, u = torch.tensor([1.0, -2.0, 3.0], dtype=torch.float64), 1.7
    whole, half = torch.tensor(0.8, dtype=torch.float64), torch.tensor(0.4, dtype=torch.float64)
    ends = {}
    for rule in ("zoh", "euler"):
        (d1, g1), (d2, g2) = discretize(whole, A, rule), discretize(half, A, rule)
        ends[rule] = d1 * h + g1 * u, d2 * (d2 * h + g2 * u) + g2 * u
    assert_close_rmse(*ends["zoh"])
    assert not torch.allclose(*ends["euler"])


def test_phi_is_smooth_at_the_switch_between_its_two_forms():
    x = torch.linspace(-0.6, -0.4, 1001, dtype=torch.float64)
    assert phi(x).diff().min() > 0
    assert phi(torch.zeros((), dtype=torch.float64)).item() == 0.5


def test_unknown_rule_is_named():
    with pytest.raises(ConfigError, match="zho"):
        discretize(torch.ones(1), -torch.ones(1), "zho")  # type: ignore[arg-type]
