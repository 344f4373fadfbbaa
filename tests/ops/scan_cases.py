"""Inputs of the selective scan for its tests, and the comparison of outputs and every gradient against float64."""

from typing import Any

import torch
from torch import Tensor

from hopstate.ops import selective_scan, selective_scan_naive
from hopstate.testing.conformance import assert_close_rmse

NAMES = ("u", "delta", "A", "B", "C", "D", "z", "initial_state")


def offsets_of(lengths: list[int]) -> Tensor:
    return torch.tensor([0, *lengths], dtype=torch.int64).cumsum(0)


def make_case(
    lengths: list[int], channels: int, S: int, dtype: torch.dtype = torch.float64, *, seed: int = 0, plain: bool = False
) -> dict[str, Tensor]:
    """Random packed inputs; plain leaves out skip, gate and initial state."""
    generator = torch.Generator().manual_seed(seed)

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator, dtype=torch.float64)

    def uniform(*shape: int) -> Tensor:
        return torch.rand(*shape, generator=generator, dtype=torch.float64)

    tokens = sum(lengths)
    case = {
        "u": normal(tokens, channels),
        "delta": uniform(tokens, channels) * 0.7,
        "A": -uniform(channels, S) * 4 - 0.01,
        "B": normal(tokens, S),
        "C": normal(tokens, S),
        "D": normal(channels),
        "z": normal(tokens, channels),
        "initial_state": normal(len(lengths), channels, S),
    }
    for name in ("D", "z", "initial_state") if plain else ():
        del case[name]
    return {name: x.to(dtype) for name, x in case.items()}


def run_and_grad(case: dict[str, Tensor], offsets: Tensor, *, naive: bool = False, **options: Any) -> dict[str, Tensor]:
    """y, state and the gradient of every input, for fixed random output gradients."""
    leaves = {name: x.detach().clone().requires_grad_() for name, x in case.items()}
    if naive:
        arguments = [leaves.get(name) for name in NAMES]
        packed = (*arguments[:7], offsets, arguments[7])
        y, state = selective_scan_naive(*packed, reverse=options.pop("reverse", False), **options)
    else:
        maps = {name: leaves[name] for name in ("D", "z", "initial_state") if name in leaves}
        first = (leaves[name] for name in NAMES[:5])
        y, state = selective_scan(*first, **maps, offsets=offsets, return_state=True, **options)
    generator = torch.Generator().manual_seed(1)
    weights = [torch.randn(x.shape, generator=generator, dtype=torch.float64).to(x) for x in (y, state)]
    grads = torch.autograd.grad((y, state), list(leaves.values()), weights, materialize_grads=True)
    return {"y": y, "state": state, **{f"d{name}": g for name, g in zip(leaves, grads)}}


def assert_matches_naive(case: dict[str, Tensor], offsets: Tensor, **options: Any) -> None:
    """Compare outputs and all gradients of the fast path with the naive loop in float64 on the same rounded inputs."""
    dtype = case["u"].dtype
    actual = run_and_grad(case, offsets, **options)
    expected = run_and_grad({k: x.double() for k, x in case.items()}, offsets, naive=True, **options)
    for name, value in expected.items():
        few = value.numel() < 16  # a single number that is a difference of larger ones is not averaged out then
        assert_close_rmse(actual[name], value, dtype=dtype, name=name, factor=100 if few else 1)
