"""What is made of a model's values is made anew once they change, however they do, and goes with the model."""

import gc
import weakref

import torch
from torch import nn

from hopstate.layers.kept import Kept


def test_it_is_made_anew_for_other_values_alone() -> None:
    model, kept, made = nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3)), Kept[list[int]](), []

    def found() -> list[int]:
        return kept.of(model, lambda: made.append(len(made)) or made[-1:])

    def is_new() -> bool:
        before = len(made)
        found()
        assert found() is found()
        return len(made) > before

    assert is_new()
    assert not is_new()
    model.load_state_dict({name: value.clone() for name, value in model.state_dict().items()})
    assert not is_new()  # the same numbers
    model[0].weight.data.mul_(2)  # which raises no version
    assert is_new()
    model[1].running_mean.add_(1)
    assert is_new()
    model.requires_grad_(False)
    assert not is_new()
    model[0].weight = nn.Parameter(model[0].weight.clone(), requires_grad=False)
    assert not is_new()
    model[0].bias.add_(1)
    assert is_new()
    model.double()
    assert is_new()
    model.append(nn.Linear(3, 1, dtype=torch.float64))
    assert is_new()


def test_it_goes_with_its_model() -> None:
    model, kept = nn.Linear(2, 2), Kept[object]()
    made = weakref.ref(kept.of(model, lambda: nn.Linear(1, 1)))
    assert made() is not None
    del model
    gc.collect()
    assert made() is None
