"""The selective branch equals Algorithm 2 written line by line; the block's directions, and packing."""

import pytest
import torch
import torch.nn.functional as F

from hopstate.errors import ConfigError
from hopstate.layers.ssm import BidirectionalMamba, SelectiveSSM
from hopstate.testing.conformance import F32_TIGHT, assert_close_rmse


def branch_naive(m: SelectiveSSM, z: torch.Tensor) -> torch.Tensor:
    """One sequence through Algorithm 2, lines 2-9, token by token."""
    z = z.flip(0) if m.reverse else z
    u, gate = m.input(z).chunk(2, -1)
    if m.conv is not None:
        width = m.conv.weight.shape[-1]
        u = m.conv(F.pad(u.T[None], (width - 1, 0)))[0].T
    u = F.silu(u)
    step = m.step(u)
    a, h, rows = -m.A_log.exp(), torch.zeros_like(m.A_log), []
    for k in range(len(u)):
        abar = torch.exp(step[k][:, None] * a)
        h = abar * h + (abar - 1) / a * m.to_B(u)[k] * u[k][:, None]
        rows.append(h @ m.to_C(u)[k] + m.D * u[k])
    y = m.output(torch.stack(rows) * F.silu(gate))
    return y.flip(0) if m.reverse else y


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("options", [{}, {"conv_width": 0}])
def test_branch_equals_algorithm_2(reverse, options):
    m = SelectiveSSM(6, inner_dim=9, state_dim=4, reverse=reverse, **options).double()
    z = torch.randn(7, 6, dtype=torch.float64, requires_grad=True)
    offsets = torch.tensor([0, 5, 5, 7])
    got = m(z, offsets)
    expected = torch.cat([branch_naive(m, z[:5]), branch_naive(m, z[5:])])
    assert_close_rmse(got, expected)
    parameters = [z, *m.parameters()]
    weight = torch.randn_like(expected)
    for a, b in zip(
        torch.autograd.grad((got * weight).sum(), parameters),
        torch.autograd.grad((expected * weight).sum(), parameters),
    ):
        assert_close_rmse(a, b)


def test_block_adds_both_directions_and_the_input():
    block = BidirectionalMamba(6, expand=1.5, state_dim=4).double()
    x, offsets = torch.randn(9, 6, dtype=torch.float64), torch.tensor([0, 4, 9])
    z = block.norm(x)
    forward, backward = block.branches
    assert not forward.reverse
    assert backward.reverse
    assert not torch.equal(forward.input.weight, backward.input.weight)
    parts = [branch_naive(forward, z[a:b]) + branch_naive(backward, z[a:b]) for a, b in ((0, 4), (4, 9))]
    assert_close_rmse(block(x, offsets), x + block.out(torch.cat(parts)))


def test_one_direction_never_looks_ahead_and_two_do():
    x, offsets = torch.randn(6, 5), torch.tensor([0, 6])
    later = x.clone()
    later[4:] = torch.randn(2, 5)
    one, two = BidirectionalMamba(5, bidirectional=False), BidirectionalMamba(5)
    torch.testing.assert_close(one(x, offsets)[:4], one(later, offsets)[:4])
    assert not torch.allclose(two(x, offsets)[:4], two(later, offsets)[:4], atol=F32_TIGHT)
    assert len(one.branches) == 1


def test_initial_steps_are_in_mambas_range():
    m = SelectiveSSM(64, inner_dim=512)
    start = F.softplus(m.step.up.bias)
    assert start.min() >= 1e-3
    assert start.max() <= 0.1 + 1e-6
    assert m.step.down.weight.shape[0] == 4


def test_sizes_are_checked():
    with pytest.raises(ConfigError):
        SelectiveSSM(4, inner_dim=0)
