"""y_r = W x_r + b, each sum over the terms in their order, so that a row's bits depend on that row alone.

A matrix product of a library sums in an order that depends on how many rows there are and where one stands among them.
For inference on the CPU; there is no gradient.
"""

from __future__ import annotations

import weakref
from functools import partial
from typing import NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from hopstate.errors import ShapeError

UNIT = 64  # rows that a thread takes at a time


def row_linear_naive(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """Return W x + b of rows x (..., k), weight (n, k), bias (n,): the definition."""
    y = (x.unsqueeze(-2) * weight).sum(-1)
    return y if bias is None else y + bias


def row_linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """Return (..., n) W x + b; a row has the same bits alone and among others, for any number of threads.

    Args:
        x: (..., k) float32 or float64 on the CPU.
        weight: (n, k).
        bias: (n,), or None.
    """
    from hopstate.ops.row_linear import kernels

    if x.dtype not in (torch.float32, torch.float64):
        return F.linear(x, weight, bias)
    width, terms = weight.shape
    rows = x.numel() // max(terms, 1) if terms else int(np.prod(x.shape[:-1]))
    kind = x.detach().dtype
    packed = _packed(weight, kernels.LANES, kind)
    shift = torch.zeros(packed.shape[0] * kernels.LANES, dtype=kind)
    if bias is not None:
        shift[:width] = bias.detach()
    arrays = [a.view(-1).numpy() for a in (x.detach().contiguous(), packed, shift)]
    return torch.from_numpy(_products(rows, terms, width, *arrays)).view(*x.shape[:-1], width)


class RowLinear:
    """`row_linear` with a weight (n, k) and bias (n,) as they are now, of arrays (rows, k)."""

    def __init__(self, weight: Tensor, bias: Tensor) -> None:
        from hopstate.ops.row_linear.kernels import LANES

        self.width, self.terms = weight.shape
        packed = _pack(weight, LANES, weight.dtype)
        shift = torch.zeros(packed.shape[0] * LANES, dtype=weight.dtype)
        shift[: self.width] = bias.detach()
        self._arrays = packed.view(-1).numpy(), shift.numpy()

    def __call__(self, x: np.ndarray) -> np.ndarray:
        """Return (rows, n) of contiguous x (rows, k), of the weight's type.

        Raises:
            ShapeError: x has another number of columns.
        """
        if x.shape[1] != self.terms:
            raise ShapeError(f"x has {x.shape[1]} columns, the weight {self.terms}")
        return _products(len(x), self.terms, self.width, x.reshape(-1), *self._arrays)


def _products(rows: int, terms: int, width: int, *arrays: np.ndarray) -> np.ndarray:
    """Return (rows, n); arrays: flat x, packed weight and bias."""
    from hopstate.ops.cpu.parallel import run_units
    from hopstate.ops.row_linear import kernels

    y = np.empty((rows, width), arrays[0].dtype)
    units = max(1, -(-rows // UNIT))
    bounds = np.minimum(np.arange(units + 1, dtype=np.int64) * UNIT, rows)
    run_units(kernels.linear, units, bounds, terms, width, *arrays, y.reshape(-1))
    return y


def _packed(weight: Tensor, lanes: int, kind: torch.dtype) -> Tensor:
    """Return (blocks, k, lanes) of a weight (n, k); of a parameter that has not changed, what was made the last time.

    Packing takes longer than a few rows' products. Whether it changed is seen by its numbers, since not all that writes
    into a parameter counts as a new version of it.
    """
    if not isinstance(weight, nn.Parameter):
        return _pack(weight, lanes, kind)
    held, plain = _made.get(id(weight)), weight.detach()
    if held is not None and held.of() is weight and held.same(plain, kind):
        return held.packed
    packed = _pack(plain, lanes, kind)
    gone: weakref.ref[Tensor] = weakref.ref(weight, partial(_forget, id(weight)))
    _made[id(weight)] = _Made(gone, plain.clone(), packed)
    return packed


def _pack(weight: Tensor, lanes: int, kind: torch.dtype) -> Tensor:
    width, terms = weight.shape
    blocks = -(-width // lanes)
    packed = torch.zeros(blocks * lanes, terms, dtype=kind)
    packed[:width] = weight.detach()
    return packed.view(blocks, lanes, terms).transpose(1, 2).contiguous()


class _Made(NamedTuple):
    of: weakref.ref[Tensor]
    plain: Tensor
    packed: Tensor

    def same(self, plain: Tensor, kind: torch.dtype) -> bool:
        return self.packed.dtype == kind and self.plain.dtype == plain.dtype and torch.equal(self.plain, plain)


_made: dict[int, _Made] = {}


def _forget(key: int, gone: weakref.ref[Tensor]) -> None:
    if key in _made and _made[key].of is gone:
        del _made[key]
