"""Models that break one invariant each: the suite must name it."""

import pytest
import torch
from torch import Tensor, nn

from hopstate.testing.conformance import ModelCase, check_model


def rows(inputs: tuple[Tensor], order: Tensor) -> tuple[Tensor]:
    return (inputs[0][order],)


def case(kind: type[nn.Module]) -> ModelCase:
    return ModelCase(make=kind, inputs=(torch.randn(7, 4),), permute=rows, take=rows)


class Sound(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.map = nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.5), nn.Linear(4, 2))

    def forward(self, x: Tensor) -> Tensor:
        return self.map(x)


class Squeezes(Sound):
    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x).squeeze(0)


class MixesRows(Sound):
    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x - x.mean(0))


class SeesPositions(Sound):
    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x) + torch.arange(len(x))[:, None]


class IdleParameter(Sound):
    def __init__(self) -> None:
        super().__init__()
        self.idle = nn.Parameter(torch.ones(3))


class Detached(Sound):
    def forward(self, x: Tensor) -> Tensor:
        return self.map[2](self.map[0](x).detach()) + 0 * self.map[0](x).sum()


class HiddenState(Sound):
    def __init__(self) -> None:
        super().__init__()
        self.scale = torch.randn(1)

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x) * self.scale


class Noisy(Sound):
    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x) + torch.randn(1, generator=torch.Generator().manual_seed(torch.seed() % 1000))


def test_a_sound_model_passes() -> None:
    check_model(case(Sound))


@pytest.mark.parametrize(
    ("kind", "complaint"),
    [
        (Squeezes, "rows alone"),
        (MixesRows, "rows alone"),
        (SeesPositions, "permuted outputs"),
        (IdleParameter, "no gradient reaches idle"),
        (Detached, "no gradient reaches map.0"),
        (HiddenState, "a reloaded model gives other outputs"),
        (Noisy, "same seed|repeatable"),
    ],
)
def test_a_broken_invariant_of_a_model_is_named(kind: type[nn.Module], complaint: str) -> None:
    with pytest.raises(AssertionError, match=complaint):
        check_model(case(kind))


def test_a_case_without_rows_needs_one() -> None:
    with pytest.raises(AssertionError, match="take"):
        check_model(ModelCase(make=Sound, inputs=(torch.randn(7, 4),), permute=rows))
