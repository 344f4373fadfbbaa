"""The time-span block: theorems 4.1 to 4.3 on the layer, the spectral bound, the step functions."""

import math
from functools import partial

import pytest
import torch
import torch.nn.functional as F
from dyg_mamba_naive import block_naive

from hopstate.methods.dyg_mamba.model import SpanStep, TimeSpanBlock, TimeSpanConfig, spectral_bound
from hopstate.ops.selective_scan import selective_influence, selective_scan
from hopstate.testing.conformance import F64, F64_SOLVED

FUNCTIONS = ["forgetting", "linear", "log", "sigmoid", "exponential", "unnormalized"]
BARE = {"conv_width": 0, "gate": False, "residual": False, "bidirectional": False, "dropout": 0.0}


def _block(dim: int = 5, **options: object) -> TimeSpanBlock:
    return TimeSpanBlock(dim, TimeSpanConfig(**{"state_dim": 3, "expand": 1.0, "dropout": 0.0, **options})).double()


def _direction_outputs(block: TimeSpanBlock, u: torch.Tensor, r: torch.Tensor) -> torch.Tensor:
    """The forward direction's y (token, inner) for inputs u, before SiLU's inverse: u serves as m of equation 7."""
    d = block.directions[0]
    B, C = d._maps(u, r)
    return selective_scan(u, d._steps(u, r), -d.A_log.exp(), B, C, offsets=torch.tensor([0, len(u)]))


def test_theorem_4_1_one_step_solves_the_differential_equation():
    """h' = A h + B m over a time Delta, by the exponential of the augmented matrix."""
    block = _block(**BARE)
    d = block.directions[0]
    u, r = torch.randn(1, 5, dtype=torch.float64), torch.tensor([0.7], dtype=torch.float64)
    delta, (B, C) = d._steps(u, r)[0], d._maps(u, r)
    A = -d.A_log.exp()
    for c in range(5):
        augmented = torch.zeros(4, 4, dtype=torch.float64)
        augmented[:3, :3] = A[c].diag()
        augmented[:3, 3] = B[0] * u[0, c]
        h = torch.matrix_exp(delta[c] * augmented)[:3, 3]
        torch.testing.assert_close(_direction_outputs(block, u, r)[0, c], C[0] @ h)


def test_theorem_4_1_short_spans_keep_the_state_and_long_ones_forget_it():
    d = _block(**BARE).directions[0]
    A, steps = -d.A_log.exp(), {}
    for name, r in (("none", 0.0), ("short", 1e-9), ("long", 1e9)):
        steps[name] = d.span_step(torch.tensor([r], dtype=torch.float64))[0]
    kept = torch.exp(steps["short"][:, None] * A)
    assert (kept > 1 - 1e-6).all()
    assert (steps["none"] == 0).all()
    with torch.no_grad():
        d.span_step.size.fill_(20.0)
    forgotten = torch.exp(d.span_step(torch.tensor([1e9], dtype=torch.float64))[0][:, None] * A)
    assert (forgotten < 1e-8).all()


def test_theorem_4_2_the_output_is_the_sum_over_past_events():
    block = _block(**BARE)
    d, L = block.directions[0], 7
    u, r = torch.randn(L, 5, dtype=torch.float64), torch.rand(L, dtype=torch.float64)
    delta, (B, C), A = d._steps(u, r), d._maps(u, r), -d.A_log.exp()
    terms = torch.zeros(L, L, 5, dtype=torch.float64)  # of event j in the output at k
    for k in range(L):
        for j in range(k + 1):
            decay = torch.exp(delta[j + 1 : k + 1].sum(0)[:, None] * A)
            terms[k, j] = (decay * torch.expm1(delta[j][:, None] * A) / A * B[j]) @ C[k] * u[j]
    torch.testing.assert_close(_direction_outputs(block, u, r), terms.sum(1), rtol=F64_SOLVED, atol=F64)
    torch.testing.assert_close(selective_influence(delta, A, B, C) * u, terms[-1], rtol=F64_SOLVED, atol=F64)


@pytest.mark.parametrize("seed", range(3))
def test_theorem_4_3_the_perturbation_bound(seed):
    """|Delta y_k| <= (1 - exp(gamma T)) / |gamma| max_j |Delta m_j|, for |B|, |C| <= 1 and T the sum of the steps."""
    torch.manual_seed(seed)
    block = _block(step="span", bc_source="fixed", **BARE)
    d, L = block.directions[0], 12
    with torch.no_grad():
        maps = d.fixed_maps.view(2, 3)
        maps /= maps.norm(dim=1, keepdim=True)
    u, r = torch.randn(L, 5, dtype=torch.float64), torch.rand(L, dtype=torch.float64)
    noise = torch.randn(L, 5, dtype=torch.float64) * 10
    moved = (_direction_outputs(block, u + noise, r) - _direction_outputs(block, u, r)).abs()
    gamma, time = (-d.A_log.exp()).amax(), d._steps(u, r).cumsum(0)
    bound = (1 - torch.exp(gamma * time)) / gamma.abs() * noise.abs().cummax(0).values
    assert (moved <= bound + 1e-12).all()
    assert (moved > 0.02 * bound).any()  # the bound is active
    # without the bound on B and C it does not hold
    with torch.no_grad():
        d.fixed_maps.mul_(10)
    moved = (_direction_outputs(block, u + noise, r) - _direction_outputs(block, u, r)).abs()
    assert (moved > bound).any()


def test_the_spectral_bound_holds_after_every_optimiser_step():
    block = TimeSpanBlock(6, TimeSpanConfig(state_dim=4))
    optimizer = torch.optim.Adam(block.parameters(), lr=0.5)
    z, offsets, r = torch.randn(9, 6), torch.tensor([0, 4, 9]), torch.rand(9)
    raw = block.directions[0].to_maps.weight
    reached = 0.0
    for _ in range(15):
        optimizer.zero_grad()
        block(z, offsets, r).square().sum().neg().backward()
        optimizer.step()
        reached = max(reached, max(float(torch.linalg.matrix_norm(W, 2)) for W in raw.detach().chunk(2)))
        for direction in block.directions:
            for W in direction.to_maps.bounded().chunk(2):
                assert torch.linalg.matrix_norm(W, 2) <= 1 + 1e-5
    assert reached > 1.5, "the parameters themselves never reached the bound"


def test_bounded_maps_move_no_more_than_their_input():
    """|Delta B|, |Delta C| <= |Delta m|, the first step of theorem 4.3's proof; without the bound they change more."""
    for bound in (True, False):
        d = _block(spectral_bound=bound, **BARE).directions[0]
        with torch.no_grad():
            d.to_maps.weight.mul_(50)
        m, noise = torch.randn(40, 5, dtype=torch.float64), torch.randn(40, 5, dtype=torch.float64)
        moved = [b - a for a, b in zip(d._maps(m, m[:, 0]), d._maps(m + noise, m[:, 0]), strict=True)]
        within = all((change.norm(dim=1) <= noise.norm(dim=1) * (1 + 1e-9)).all() for change in moved)
        assert within == bound


def test_the_bound_of_a_zero_matrix_has_a_gradient():
    weight = torch.zeros(6, 8, requires_grad=True)
    spectral_bound(weight, 2).sum().backward()
    assert torch.equal(weight.grad, torch.ones(6, 8))


def test_the_bound_is_not_an_equality():
    bound = partial(spectral_bound, count=2)
    small = torch.randn(6, 8, dtype=torch.float64) * 0.01
    torch.testing.assert_close(bound(small), small)
    mixed = torch.cat([small[:3], 100 * small[3:] + torch.eye(3, 8, dtype=torch.float64)])
    torch.testing.assert_close(bound(mixed)[:3], small[:3])
    assert math.isclose(torch.linalg.matrix_norm(bound(mixed)[3:], 2), 1.0, rel_tol=1e-9)
    assert torch.autograd.gradcheck(bound, mixed.clone().requires_grad_())


@pytest.mark.parametrize("function", FUNCTIONS)
def test_steps_grow_with_the_span(function):
    step = SpanStep(4, function).double()
    r = torch.linspace(0, 1, 20, dtype=torch.float64)
    delta = step(r)
    assert (delta.diff(dim=0) > 0).all()
    start = 0.5 * F.softplus(step.size) if function == "sigmoid" else torch.zeros(4, dtype=torch.float64)
    torch.testing.assert_close(delta[0], start)
    if function == "forgetting":
        assert (delta < F.softplus(step.size)).all()


def test_two_directions_share_input_gate_and_output():
    """Algorithm 1: both directions share one projection, and their sum is gated once."""
    block = _block(dim=4)
    z, r, offsets = torch.randn(6, 4, dtype=torch.float64), torch.rand(6, dtype=torch.float64), torch.tensor([0, 2, 6])
    expected = torch.cat([block_naive(block, z[:2], r[:2]), block_naive(block, z[2:], r[2:])])
    torch.testing.assert_close(block(z, offsets, r), expected, rtol=F64_SOLVED, atol=F64)
    assert not torch.allclose(block(z, offsets, r)[0], block(z, torch.tensor([0, 1, 6]), r)[0])  # it looks ahead
