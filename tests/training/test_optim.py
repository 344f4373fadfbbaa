"""Schedules hit their stated ends; impossible settings are named."""

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from hopstate.errors import ConfigError
from hopstate.layers.modes import state_parameters
from hopstate.layers.ssm import BidirectionalMamba
from hopstate.testing.conformance import F64_SOLVED
from hopstate.training.config import OptimConfig, lr_at, make_optimizer, set_rates


def test_warmup_rises_then_the_schedule_falls_to_its_end() -> None:
    for schedule in ("linear", "cosine"):
        c = OptimConfig(lr=1.0, schedule=schedule, warmup=0.25, final_lr=0.1)
        rates = [lr_at(c, step, 100) for step in range(100)]
        assert rates[24] == 1.0
        assert rates[0] == pytest.approx(1 / 25)
        assert rates[25:] == sorted(rates[25:], reverse=True)
        assert rates[-1] == pytest.approx(0.1)


def test_constant_stays() -> None:
    c = OptimConfig(lr=0.3)
    assert {lr_at(c, step, 10) for step in range(12)} == {0.3}


def test_one_step_in_all() -> None:
    assert lr_at(OptimConfig(lr=0.3, schedule="cosine"), 0, 1) == pytest.approx(0.3)


def test_hold_keeps_the_peak_until_the_fall_begins() -> None:
    c = OptimConfig(lr=2.0, schedule="linear", warmup=0.1, hold=0.7)
    rates = [lr_at(c, step, 100) for step in range(100)]
    assert rates[:10] == pytest.approx(np.linspace(0.2, 2.0, 10))
    assert set(rates[10:80]) == {2.0}
    assert rates[80:] == pytest.approx(np.linspace(2.0, 0.0, 20))
    longer = OptimConfig(lr=1.0, schedule="cosine", hold=10 / 12)
    assert lr_at(longer, 10 * 172 - 1, 12 * 172) == 1.0  # as a run of 10 epochs at a constant rate
    assert lr_at(longer, 10 * 172 + 1, 12 * 172) < 1.0


def test_a_schedule_of_state_spaces_is_theirs_alone_and_shares_warm_up_hold_and_the_end() -> None:
    c = OptimConfig(lr=2.0, state_lr=0.5, state_schedule="linear", warmup=0.1, hold=0.2, final_lr=0.4)
    assert {lr_at(c, step, 100) for step in range(10, 100)} == {2.0}
    own = [lr_at(c, step, 100, states=True) for step in range(100)]
    alone = OptimConfig(lr=0.5, schedule="linear", warmup=0.1, hold=0.2, final_lr=0.1)
    assert own == pytest.approx([lr_at(alone, step, 100) for step in range(100)])
    alike = OptimConfig(lr=2.0, schedule="cosine", warmup=0.1)
    assert all(lr_at(alike, step, 50, states=True) == lr_at(alike, step, 50) for step in range(50))


@pytest.mark.parametrize(
    "bad",
    [
        {"lr": 0.0},
        {"weight_decay": -1.0},
        {"warmup": 1.0},
        {"final_lr": 2.0},
        {"hold": 0.5},
        {"hold": 0.5, "state_schedule": "constant"},
        {"hold": 0.6, "warmup": 0.5, "schedule": "linear"},
    ],
)
def test_bad_settings(bad: dict) -> None:
    with pytest.raises(ConfigError, match=next(iter(bad))):
        OptimConfig(**bad)


class Small(nn.Module):
    """A state space between two linear maps."""

    def __init__(self) -> None:
        super().__init__()
        self.before, self.block = nn.Linear(3, 4), BidirectionalMamba(4, expand=1.0, state_dim=2)

    def loss(self, x: Tensor) -> Tensor:
        return self.block(self.before(x), torch.tensor([0, len(x)])).square().sum()


OWN = ("A_log", "step.down.weight", "step.up.weight", "step.up.bias")
STATES = {f"block.branches.{i}.{name}" for i in (0, 1) for name in OWN}


def test_state_spaces_name_their_own_parameters() -> None:
    model = Small()
    own = {id(p) for p in state_parameters(model)}
    assert {name for name, p in model.named_parameters() if id(p) in own} == STATES
    assert state_parameters(nn.Linear(2, 2)) == []


def test_a_rate_of_their_own_moves_state_spaces_by_it_and_the_rest_as_before() -> None:
    def moved(**rates: Any) -> dict[str, Tensor]:
        torch.manual_seed(0)
        model, config = Small().double(), OptimConfig(lr=1e-3, weight_decay=0.0, schedule="linear", **rates)
        optimizer = make_optimizer(config, model.parameters(), state_parameters(model))
        before = {name: p.detach().clone() for name, p in model.named_parameters()}
        set_rates(optimizer, config, 50, 101)
        model.loss(torch.randn(6, 3, generator=torch.Generator().manual_seed(1)).double()).backward()
        optimizer.step()
        return {name: p.detach() - before[name] for name, p in model.named_parameters()}

    plain, same, slow = moved(), moved(state_lr=1e-3), moved(state_lr=1e-5)
    still = moved(state_schedule="constant")
    for name, by in plain.items():
        torch.testing.assert_close(same[name], by, rtol=0, atol=0)
        if name in STATES:
            torch.testing.assert_close(slow[name], by / 100, rtol=F64_SOLVED, atol=0)
            torch.testing.assert_close(still[name], by * 2, rtol=F64_SOLVED, atol=0)  # all else is halfway down
            assert by.any()
        else:
            torch.testing.assert_close(slow[name], by, rtol=0, atol=0)
            torch.testing.assert_close(still[name], by, rtol=0, atol=0)


def test_a_rate_for_state_spaces_that_are_not_there_is_refused() -> None:
    with pytest.raises(ConfigError, match="state_lr"):
        make_optimizer(OptimConfig(state_lr=0.1), nn.Linear(2, 2).parameters())
    with pytest.raises(ConfigError, match="state_schedule"):
        make_optimizer(OptimConfig(state_schedule="cosine"), nn.Linear(2, 2).parameters())
    with pytest.raises(ConfigError, match="state_lr"):
        OptimConfig(state_lr=0.0)
