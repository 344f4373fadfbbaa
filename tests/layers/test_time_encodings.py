"""Cosine time encodings."""

import math

import pytest
import torch

from hopstate.errors import ConfigError
from hopstate.layers.encodings import TimeEncoding


def test_fixed_frequencies_equal_the_papers():
    encoding = TimeEncoding.geometric(100)
    expected = [10.0 ** (-i / 10) for i in range(100)]
    torch.testing.assert_close(encoding.omega, torch.tensor(expected))
    assert not list(encoding.parameters())


def test_encoding_is_the_cosine_of_omega_times_the_time_delta():
    encoding = TimeEncoding.between(4, 1e-3, 1.0, learn=True)
    with torch.no_grad():
        encoding.phase[:] = torch.tensor([0.0, 0.5, 0.0, 0.0])
    out = encoding(torch.tensor([[0.0, 2.0]]))
    assert out.shape == (1, 2, 4)
    expected = [math.cos(2.0), math.cos(0.2 + 0.5), math.cos(0.02), math.cos(0.002)]
    torch.testing.assert_close(out[0, 1], torch.tensor(expected))
    torch.testing.assert_close(out[0, 0], torch.tensor([1.0, math.cos(0.5), 1.0, 1.0]))


def test_learnable_encoding_has_a_gradient_for_omega_and_phase():
    encoding = TimeEncoding.between(3, 1e-9, 1.0, learn=True).double()
    gap = torch.tensor([0.3, 7.0], dtype=torch.float64)
    omega, phase = encoding.omega.detach().requires_grad_(), encoding.phase.detach().requires_grad_()

    def encode(w: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return torch.func.functional_call(encoding, {"omega": w, "phase": b}, gap)

    assert torch.autograd.gradcheck(encode, (omega, phase))


def test_empty_and_precision():
    assert TimeEncoding.between(5, 1e-9, 1.0, learn=False)(torch.zeros(0)).shape == (0, 5)
    assert TimeEncoding.between(2, 1e-9, 1.0, learn=False).double()(torch.zeros(3)).dtype == torch.float64


def test_impossible_settings_are_named():
    with pytest.raises(ConfigError):
        TimeEncoding.geometric(0)
    with pytest.raises(ConfigError):
        TimeEncoding.between(0, 1e-9, 1.0, learn=True)
