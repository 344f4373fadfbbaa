"""Packed sequences in plain operations give what the operators' definitions give, empty ones among them."""

import pytest
import torch

from hopstate.layers.mpnn import pool
from hopstate.layers.plain import EqualSequences, Sequences
from hopstate.ops.conv1d.naive import conv1d_naive
from hopstate.ops.selective_scan.naive import selective_scan_naive
from hopstate.testing.asserts import F64

LENGTHS = [
    torch.tensor([0, 3, 0, 0, 2, 1, 0]),
    torch.tensor([4, 4, 4]),
    torch.tensor([0, 0]),
    torch.tensor([], dtype=torch.int64),
]


def made(lengths: torch.Tensor) -> list[Sequences]:
    equal = len(lengths) > 0 and bool((lengths == 4).all())
    count = int(lengths.sum())
    return [Sequences(lengths, count), *([EqualSequences(4, count)] if equal else [])]


def values(lengths: torch.Tensor, width: int, seed: int) -> torch.Tensor:
    return torch.rand(int(lengths.sum()), width, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def bounds(lengths: torch.Tensor) -> torch.Tensor:
    return torch.cat([lengths.new_zeros(1), lengths.cumsum(0)])


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("lengths", LENGTHS, ids=lambda x: str(x.tolist()))
def test_scans_and_convolutions_are_those_of_the_definitions(lengths: torch.Tensor, reverse: bool) -> None:
    u, delta, B, C = (values(lengths, width, seed) for seed, width in enumerate((3, 3, 2, 2)))
    A, weight, bias = -torch.rand(3, 2).double() - 0.1, torch.rand(3, 4).double(), torch.rand(3).double()
    scan, _ = selective_scan_naive(
        u, delta, A, B, C, None, None, bounds(lengths), None, reverse=reverse, discretization="zoh"
    )
    convolved = conv1d_naive(u, weight, bias, bounds(lengths), reverse=reverse)
    for own in made(lengths):
        found = own.scanned(u, delta, A, B, C, reverse=reverse)
        torch.testing.assert_close(found, scan, rtol=F64, atol=F64)
        found = own.convolved(u, weight, bias, reverse=reverse)
        torch.testing.assert_close(found, convolved, rtol=F64, atol=F64)


@pytest.mark.parametrize("how", ["sum", "mean", "max"])
@pytest.mark.parametrize("lengths", LENGTHS, ids=lambda x: str(x.tolist()))
def test_pooled_rows_are_those_of_pool(lengths: torch.Tensor, how: str) -> None:
    x = values(lengths, 3, 0) - 2
    found = Sequences(lengths, len(x)).pooled(x, how)  # type: ignore[arg-type]
    torch.testing.assert_close(found, pool(x, bounds(lengths), how), rtol=F64, atol=F64)  # type: ignore[arg-type]
