"""Linear maps of a model in training, restored afterwards."""

import copy

import pytest
import torch
from torch import nn
from torch.nn.utils import parametrizations

from hopstate.layers import modes
from hopstate.layers.modes import training_products


@pytest.fixture
def rows(monkeypatch):
    """Record the number of rows of each linear map."""
    counts = []
    monkeypatch.setattr(modes, "onednn_is_faster", lambda: True)
    plain = modes.linear
    monkeypatch.setattr(modes, "linear", lambda x, w, b: (counts.append(len(x)), plain(x, w, b))[1])
    return counts


def test_the_fast_product_is_used_only_in_training_within_the_block(rows: list) -> None:
    model = nn.Sequential(nn.Linear(3, 4), parametrizations.spectral_norm(nn.Linear(4, 2)), nn.LayerNorm(2))
    x = torch.randn(600, 3)
    with training_products(model):
        model(x)
        assert rows == [600, 600]
        copied = copy.deepcopy(model)
        with torch.no_grad():
            copied[0].weight.zero_()
        assert not torch.equal(copied[0](x), model[0](x))  # a copy multiplies by its own weights
        model.eval()
        model(x)
        assert rows == [600] * 4
    model.train()
    model(x)
    assert rows == [600] * 4
    assert all("forward" not in vars(m) for m in model.modules())


def test_an_overridden_forward_is_unchanged(rows: list) -> None:
    class Doubled(nn.Linear):
        def forward(self, input: torch.Tensor) -> torch.Tensor:
            return 2 * super().forward(input)

    model = nn.Sequential(Doubled(3, 3))
    with training_products(model):
        model(torch.randn(600, 3))
    assert not rows


def test_an_error_restores_the_model(rows: list) -> None:
    model = nn.Sequential(nn.Linear(3, 3))
    with pytest.raises(ZeroDivisionError), training_products(model):
        raise ZeroDivisionError
    assert "forward" not in vars(model[0])
