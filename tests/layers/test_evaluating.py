import contextlib

import torch
from torch import nn

from hopstate.layers.modes import evaluating


def test_each_module_returns_to_its_own_mode() -> None:
    model = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2), nn.Sequential(nn.Dropout(0.5))).train()
    model[1].eval()  # frozen, as in fine-tuning
    before = [module.training for module in model.modules()]
    with evaluating(model):
        assert not any(module.training for module in model.modules())
        assert not torch.is_grad_enabled()
    assert [module.training for module in model.modules()] == before
    with contextlib.suppress(ZeroDivisionError), evaluating(model):
        raise ZeroDivisionError
    assert [module.training for module in model.modules()] == before
    assert torch.is_grad_enabled()
