"""Schedules reach their documented end values; impossible settings are named."""

import numpy as np
import pytest

from hopstate.errors import ConfigError
from hopstate.training.config import OptimConfig, lr_at


def test_warmup_rises_and_the_schedule_decays_to_its_end() -> None:
    for schedule in ("linear", "cosine"):
        c = OptimConfig(lr=1.0, schedule=schedule, warmup=0.25)
        rates = [lr_at(c, step, 100) for step in range(100)]
        assert rates[24] == 1.0
        assert rates[0] == pytest.approx(1 / 25)
        assert rates[25:] == sorted(rates[25:], reverse=True)
        assert rates[-1] == pytest.approx(0.0)


def test_the_constant_schedule_is_constant() -> None:
    c = OptimConfig(lr=0.3)
    assert {lr_at(c, step, 10) for step in range(12)} == {0.3}


def test_schedules_of_a_single_step() -> None:
    assert lr_at(OptimConfig(lr=0.3, schedule="cosine"), 0, 1) == pytest.approx(0.3)


def test_the_hold_phase_keeps_the_peak() -> None:
    c = OptimConfig(lr=2.0, schedule="linear", warmup=0.1, hold=0.7)
    rates = [lr_at(c, step, 100) for step in range(100)]
    assert rates[:10] == pytest.approx(np.linspace(0.2, 2.0, 10))
    assert set(rates[10:80]) == {2.0}
    assert rates[80:] == pytest.approx(np.linspace(2.0, 0.0, 20))
    longer = OptimConfig(lr=1.0, schedule="cosine", hold=10 / 12)
    assert lr_at(longer, 10 * 172 - 1, 12 * 172) == 1.0  # like a run of 10 epochs at a constant rate
    assert lr_at(longer, 10 * 172 + 1, 12 * 172) < 1.0


@pytest.mark.parametrize(
    "bad",
    [
        {"lr": 0.0},
        {"weight_decay": -1.0},
        {"warmup": 1.0},
        {"hold": 0.5},
        {"hold": 0.6, "warmup": 0.5, "schedule": "linear"},
    ],
)
def test_bad_optimizer_settings_are_rejected(bad: dict) -> None:
    with pytest.raises(ConfigError, match=next(iter(bad))):
        OptimConfig(**bad)
