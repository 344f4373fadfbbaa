"""Operators and their references, and forward-mode derivatives, which kernels lack."""

import warnings
from collections.abc import Callable
from functools import partial

import pytest
import torch
from torch import Tensor
from torch.autograd import forward_ad
from torch.func import jvp, vmap

from hopstate.errors import SlowPathWarning
from hopstate.ops import conv1d, selective_scan, use_reference_ops
from hopstate.ops.dispatch import choose_path
from hopstate.ops.edge_attention import edge_attention
from hopstate.ops.gated import gated_mean
from hopstate.ops.neighbor_statistics import neighbor_statistics
from hopstate.ops.span_step import span_step
from hopstate.testing.conformance import F64, F64_SOLVED

OFFSETS = torch.tensor([0, 2, 2, 7])
INDPTR, INDICES = torch.tensor([0, 2, 2, 5, 6]), torch.tensor([1, 2, 0, 0, 3, 1])


def drawn(*shape: int) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64)


def operators() -> dict[str, tuple[Callable[..., Tensor], tuple[Tensor, ...]]]:
    """Return each operator as a function of its differentiable tensors, and example tensors."""
    torch.manual_seed(0)
    sizes = drawn(7, 4).abs()
    scan = partial(selective_scan, offsets=OFFSETS)
    attention = partial(edge_attention, INDPTR, INDICES, torch.arange(4))
    return {
        "selective_scan": (scan, (drawn(7, 4), sizes, -drawn(4, 3).abs() - 0.1, drawn(7, 3), drawn(7, 3))),
        "conv1d": (partial(conv1d, offsets=OFFSETS), (drawn(7, 4), drawn(4, 3), drawn(4))),
        "span_step": (partial(span_step, sizes[:, 0]), (drawn(4).abs(), drawn(4).abs())),
        "edge_attention": (attention, (drawn(4, 2), drawn(4, 2), drawn(4, 2, 3))),
        "gated_mean": (partial(gated_mean, INDPTR, INDICES), (drawn(4, 3), drawn(4, 3), drawn(4, 3))),
        "neighbor_statistics": (lambda x: torch.cat(neighbor_statistics(INDPTR, INDICES, x), 1), (drawn(4, 3),)),
    }


NAMES = sorted(operators())


@pytest.mark.parametrize("name", NAMES)
def test_kernels_equal_their_references(name: str) -> None:
    work, inputs = operators()[name]
    expected = work(*inputs)
    with warnings.catch_warnings(), use_reference_ops():
        warnings.simplefilter("error", SlowPathWarning)
        assert choose_path("cpu", torch.float64).name == "naive"
        torch.testing.assert_close(work(*inputs), expected, rtol=F64_SOLVED, atol=F64_SOLVED)
    assert choose_path("cpu", torch.float64).name == "numba"


@pytest.mark.parametrize("name", NAMES)
def test_forward_mode_agrees_with_the_backward_pass(name: str) -> None:
    """<w, J t> = <J^T w, t>: one by references in forward mode, the other by kernels."""
    work, inputs = operators()[name]
    directions = tuple(torch.randn_like(x) for x in inputs)
    needed = [x.clone().requires_grad_() for x in inputs]
    out = work(*needed)
    weight = torch.randn_like(out)
    gradients = torch.autograd.grad(out, needed, weight)
    expected = sum((g * t).sum() for g, t in zip(gradients, directions, strict=True))
    try:
        _, moved = jvp(work, inputs, directions)
    except NotImplementedError:  # torch has no forward-mode derivative of the minimum and maximum of rows
        assert name == "neighbor_statistics"
        return
    torch.testing.assert_close((moved * weight).sum(), expected, rtol=F64_SOLVED, atol=F64)
    with forward_ad.dual_level():
        dual = work(*(forward_ad.make_dual(x, t) for x, t in zip(inputs, directions, strict=True)))
        torch.testing.assert_close(forward_ad.unpack_dual(dual).tangent, moved, rtol=F64, atol=F64)


@pytest.mark.parametrize("name", ["edge_attention", "gated_mean", "neighbor_statistics"])
def test_registered_operators_pass_opcheck(name: str) -> None:
    """Schema, fake tensors, autograd registration, and tracing with dynamic shapes."""
    inputs: list[object] = [x.clone().requires_grad_() for x in operators()[name][1]]
    if name == "edge_attention":  # laid out in lanes of 16
        a, b, v = drawn(4, 16), drawn(4, 16), drawn(4, 48)
        inputs = [torch.arange(4), *(x.requires_grad_() for x in (a, b, v)), 0.2]
    if name == "gated_mean":
        inputs = [None, *inputs, None]
    torch.library.opcheck(getattr(torch.ops.hopstate, name).default, (INDPTR, INDICES, *inputs))


@pytest.mark.filterwarnings("ignore:There is a performance drop")
@pytest.mark.parametrize("name", NAMES)
def test_vmap_equals_a_loop(name: str) -> None:
    work, inputs = operators()[name]
    several = tuple(torch.stack([x, x.flip(0).abs() * x.sign()]) for x in inputs)
    expected = torch.stack([work(*(x[i] for x in several)) for i in range(2)])
    torch.testing.assert_close(vmap(work)(*several), expected, rtol=F64, atol=F64)
