"""Evaluation mode, and faster linear layers in training."""

from __future__ import annotations

import platform
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from types import MethodType
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

BLOCKS = (2048, 512)  # rows per oneDNN call; torch processes the remainder


def linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """Return x W^T + b; equals torch's result and gradients up to rounding."""
    if not _supports_onednn(x, weight, bias):
        return F.linear(x, weight, bias)
    y: Tensor = _Linear.apply(x.reshape(-1, x.shape[-1]), weight, bias)
    return y.view(*x.shape[:-1], len(weight))


@lru_cache(maxsize=1)
def onednn_is_faster() -> bool:
    """Return whether oneDNN multiplies faster than MKL: on processors with 512-bit vectors that are not Intel's.

    MKL uses only 256-bit vectors there.
    """
    has_both = torch.backends.mkl.is_available() and hasattr(torch.ops.mkldnn, "_linear_pointwise")
    return has_both and torch.backends.cpu.get_cpu_capability() == "AVX512" and "GenuineIntel" not in _processor()


def _processor() -> str:
    cpuinfo = Path("/proc/cpuinfo")
    return cpuinfo.read_text(errors="replace").partition("\n\n")[0] if cpuinfo.is_file() else platform.processor()


def _supports_onednn(x: Tensor, weight: Tensor, bias: Tensor | None) -> bool:
    tensors = [x, weight] if bias is None else [x, weight, bias]
    return (
        onednn_is_faster()
        and all(t.dtype == torch.float32 and t.device.type == "cpu" for t in tensors)
        and x.shape[-1] == weight.shape[-1] > 0
        and x.numel() >= BLOCKS[-1] * x.shape[-1]
        and torch.get_float32_matmul_precision() == "highest"
        and not torch.is_autocast_enabled("cpu")
        and not torch.compiler.is_compiling()
    )


class _Linear(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        ctx.save_for_backward(x, weight)
        return _rows(x, weight, bias)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
        x, weight = ctx.saved_tensors
        plain = torch.is_grad_enabled()  # double backward
        of_x = of_weight = None
        if ctx.needs_input_grad[0]:
            of_x = grad @ weight if plain else _rows(grad, weight.t(), None)
        if ctx.needs_input_grad[1]:
            of_weight = grad.t() @ x if plain else _over_rows(grad, x)
        return of_x, of_weight, grad.sum(0) if ctx.needs_input_grad[2] else None


def _rows(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """Return x W^T + b (rows, n), block by block."""
    y = x.new_empty(len(x), len(weight))
    for block, product in _blocks(len(x)):
        y[block] = product(x[block], weight, bias)
    return y


def _over_rows(grad: Tensor, x: Tensor) -> Tensor:
    """Return grad^T x (n, k), summed over blocks in order."""
    total = grad.new_zeros(grad.shape[1], x.shape[1])
    for block, product in _blocks(len(x)):
        total += product(grad[block].t(), x[block].t(), None)
    return total


def _blocks(rows: int) -> Iterator[tuple[slice, Callable[[Tensor, Tensor, Tensor | None], Tensor]]]:
    begin = 0
    for size in BLOCKS:
        while rows - begin >= size:
            yield slice(begin, begin + size), _by_onednn
            begin += size
    if begin < rows:
        yield slice(begin, rows), F.linear


def _by_onednn(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    y: Tensor = torch.ops.mkldnn._linear_pointwise(x, weight, bias, "none", [], "")
    return y


@contextmanager
def training_products(model: nn.Module) -> Iterator[None]:
    """Use `linear` for each `nn.Linear` in training mode inside the block, if oneDNN is faster."""
    changed = []
    if onednn_is_faster():
        changed = [m for m in model.modules() if type(m).forward is nn.Linear.forward and "forward" not in vars(m)]
    for module in changed:
        module.forward = MethodType(_forward, module)  # a bound method, so that a copied model gets its own
    try:
        yield
    finally:
        for module in changed:
            vars(module).pop("forward", None)


def _forward(self: nn.Linear, input: Tensor) -> Tensor:
    return (linear if self.training else F.linear)(input, self.weight, self.bias)


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """Set a model to evaluation mode without gradients inside the block, then restore each module's mode."""
    # a model that evaluates is not searched, which takes longer than small layers
    training = [module for module in model.modules() if module.training] if model.training else []
    if training:
        model.eval()
    try:
        with torch.no_grad():
            yield
    finally:
        for module in training:
            module.training = True
