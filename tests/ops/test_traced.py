"""Operators in exported programs, which torch traces in their reference form, equal their definitions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from hopstate.errors import ConfigError
from hopstate.ops import conv1d, selective_scan, selective_scan_naive, use_reference_ops
from hopstate.testing.conformance import F64

LENGTHS = [
    [3, 0, 2, 1],
    [0, 3, 0, 0, 2, 1, 0],
    [4, 4, 4],
    [1],
    [0, 0],
    [],
]  # the first one is used for tracing
A = -torch.tensor([[0.1, 1.0], [0.7, 0.3], [2.0, 0.2]], dtype=torch.float64)
MARK = torch.tensor([0.3, -0.2, 0.5], dtype=torch.float64)


class Module(torch.nn.Module):
    """A function as a module, with constant tensors as its first arguments."""

    def __init__(self, function: Callable[..., Tensor]) -> None:
        super().__init__()
        self.function, self.A, self.mark = function, torch.nn.Parameter(A), torch.nn.Parameter(MARK)

    def forward(self, *given: Tensor) -> Tensor:
        return self.function(self.A, self.mark, *given)


def exported(function: Callable[..., Tensor], example: tuple[Tensor, ...], free: tuple[Any, ...]) -> Callable[..., Any]:
    """Return a program of a function with dynamic axes `free`."""
    with torch.no_grad(), use_reference_ops():
        return torch.export.export(Module(function), example, dynamic_shapes=(free,), strict=False).module()


def bounds(lengths: Tensor) -> Tensor:
    return torch.nn.functional.pad(lengths.cumsum(0), (1, 0))


def columns(*rows: int) -> list[Tensor]:
    """Return u, delta, z (..., 3), B, C (..., 2) in float64."""
    make = torch.Generator().manual_seed(sum(rows))
    return [torch.rand(*rows, width, dtype=torch.float64, generator=make) for width in (3, 3, 3, 2, 2)]


@pytest.mark.parametrize("rule", ["zoh", "euler"])
@pytest.mark.parametrize("reverse", [False, True])
def test_scans_of_packed_sequences_of_any_length(reverse: bool, rule: Any) -> None:
    how: dict[str, Any] = {"reverse": reverse, "discretization": rule}

    def scanned(A: Tensor, D: Tensor, lengths: Tensor, *given: Tensor) -> Any:
        u, delta, z, B, C = given
        return selective_scan(u, delta, A, B, C, D=D, z=z, offsets=bounds(lengths), **how)

    free = ({0: torch.export.Dim("sequence")}, *[{0: torch.export.Dim("token")}] * 5)
    example = torch.tensor(LENGTHS[0])
    program = exported(scanned, (example, *columns(int(example.sum()))), free)
    for given in LENGTHS:
        lengths = torch.tensor(given, dtype=torch.int64)
        u, delta, z, B, C = columns(int(lengths.sum()))
        expected, _ = selective_scan_naive(u, delta, A, B, C, MARK, z, bounds(lengths), None, **how)
        torch.testing.assert_close(program(lengths, u, delta, z, B, C), expected, rtol=F64, atol=F64)


@pytest.mark.parametrize("reverse", [False, True])
def test_scans_of_sequences_of_one_length_advance_together(reverse: bool) -> None:
    def scanned(A: Tensor, D: Tensor, *given: Tensor) -> Any:
        u, delta, z, B, C = given
        return selective_scan(u, delta, A, B, C, z=z, reverse=reverse)

    program = exported(scanned, tuple(columns(3, 4)), ({0: torch.export.Dim("batch")},) * 5)
    for batch in (0, 1, 5):
        u, delta, z, B, C = columns(batch, 4)
        flat = (x.flatten(0, 1) for x in (u, delta, B, C))
        first, size, into, out = flat
        expected, _ = selective_scan_naive(
            first, size, A, into, out, None, z.flatten(0, 1), torch.arange(batch + 1) * 4, None, reverse=reverse,
            discretization="zoh",
        )  # fmt: skip
        torch.testing.assert_close(program(u, delta, z, B, C), expected.view(u.shape), rtol=F64, atol=F64)


@pytest.mark.parametrize("reverse", [False, True])
def test_convolutions_of_packed_sequences_of_any_length(reverse: bool) -> None:
    weight = torch.rand(3, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0))

    def convolved(A: Tensor, bias: Tensor, lengths: Tensor, x: Tensor) -> Tensor:
        return conv1d(x, weight, bias, offsets=bounds(lengths), reverse=reverse, activation="silu")

    free = {0: torch.export.Dim("sequence")}, {0: torch.export.Dim("token")}
    example = torch.tensor(LENGTHS[0])
    program = exported(convolved, (example, columns(int(example.sum()))[0]), free)
    for given in LENGTHS:
        lengths = torch.tensor(given, dtype=torch.int64)
        x = columns(int(lengths.sum()))[0]
        expected = conv1d(x, weight, MARK, offsets=bounds(lengths), reverse=reverse, activation="silu")  # by kernels
        torch.testing.assert_close(program(lengths, x), expected, rtol=F64, atol=F64)


def test_states_that_a_program_cannot_carry_are_rejected() -> None:
    def scanned(A: Tensor, D: Tensor, *given: Tensor) -> Any:
        u, delta, _, B, C = given
        return selective_scan(u, delta, A, B, C, return_state=True)[0]

    with pytest.raises(ConfigError, match="states"):
        exported(scanned, tuple(columns(4)), ({0: torch.export.Dim("token")},) * 5)
