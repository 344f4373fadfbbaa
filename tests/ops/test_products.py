"""Linear maps by oneDNN in training: the definition, every gradient, few shapes, and cases that use torch."""

import pytest
import torch
import torch.nn.functional as F

from hopstate.layers import modes
from hopstate.layers.modes import linear
from hopstate.testing.conformance import F32_SUM, F64

here = pytest.mark.skipif(not hasattr(torch.ops.mkldnn, "_linear_pointwise"), reason="this torch has no oneDNN")
SIZES = [(512, 1, 1), (513, 7, 5), (2047, 33, 16), (2560, 20, 9), (5000, 16, 40)]


@pytest.fixture
def wide(monkeypatch):
    """Pretend that oneDNN is faster, and record its calls."""
    calls = []
    monkeypatch.setattr(modes, "onednn_is_faster", lambda: True)
    plain = modes._by_onednn
    monkeypatch.setattr(modes, "_by_onednn", lambda *a: (calls.append((a[0].shape, a[1].shape)), plain(*a))[1])
    return calls


def made(rows: int, terms: int, width: int, kind: torch.dtype = torch.float32) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    shapes = (rows, terms), (width, terms), (width,)
    return [torch.randn(s, dtype=torch.float64, generator=generator).to(kind).requires_grad_() for s in shapes]


@here
@pytest.mark.parametrize("has_bias", [True, False])
@pytest.mark.parametrize(("rows", "terms", "width"), SIZES)
def test_output_and_every_gradient_equal_the_definition(
    rows: int, terms: int, width: int, has_bias: bool, wide: list
) -> None:
    ours, exact = made(rows, terms, width), made(rows, terms, width, torch.float64)
    weights = torch.randn(rows, width, dtype=torch.float64)
    found, expected = ((f(x, w, b if has_bias else None)) for f, (x, w, b) in ((linear, ours), (F.linear, exact)))
    (found * weights.float()).sum().backward()
    (expected * weights).sum().backward()
    assert wide
    torch.testing.assert_close(found.double(), expected, rtol=F32_SUM, atol=F32_SUM)
    for a, b in list(zip(ours, exact, strict=True))[: 3 if has_bias else 2]:
        torch.testing.assert_close(a.grad.double(), b.grad, rtol=F32_SUM, atol=F32_SUM * rows**0.5)


@here
def test_strides_leading_axes_and_an_expanded_gradient(wide: list) -> None:
    x, w, b = made(1300, 6, 4)
    steep = x.detach().t().contiguous().t().view(2, 650, 6).requires_grad_()
    y = linear(steep, w, b)
    assert y.shape == (2, 650, 4)
    y.sum().backward()
    torch.testing.assert_close(y.flatten(0, 1), F.linear(x, w, b), rtol=F32_SUM, atol=F32_SUM)
    torch.testing.assert_close(steep.grad.flatten(0, 1), w.sum(0).expand(1300, 6), rtol=F32_SUM, atol=F32_SUM)


@here
def test_repeated_calls_are_bit_identical_and_use_few_shapes(wide: list) -> None:
    x, w, b = (t.detach().requires_grad_() for t in made(3000, 8, 3))
    for rows in range(2900, 2940):
        twice = [torch.autograd.grad(linear(x[:rows], w, b).square().sum(), [w, b]) for _ in range(2)]
        assert all(torch.allclose(a, b, rtol=1e-5, atol=1e-6) for a, b in zip(*twice, strict=True))
    assert len(set(wide)) <= 3 * len(modes.BLOCKS)


@here
def test_second_derivatives(wide: list) -> None:
    x, w, b = made(600, 3, 2)
    inner = torch.autograd.grad(linear(x, w, b).pow(3).sum(), x, create_graph=True)[0]
    exact = [t.detach().double().requires_grad_() for t in (x, w, b)]
    known = torch.autograd.grad(F.linear(*exact).pow(3).sum(), exact[0], create_graph=True)[0]
    found, expected = torch.autograd.grad(inner.sum(), w)[0], torch.autograd.grad(known.sum(), exact[1])[0]
    torch.testing.assert_close(found.double(), expected, rtol=F32_SUM, atol=0.01)


@here
@pytest.mark.parametrize("why", ["few rows", "none", "float64", "mixed", "inexact"])
def test_torch_multiplies_if_onednn_does_not_apply(why: str, wide: list) -> None:
    x, w, b = made(
        {"few rows": 511, "none": 0}.get(why, 600), 4, 3, torch.float64 if why == "float64" else torch.float32
    )
    before = torch.get_float32_matmul_precision()
    try:
        torch.set_float32_matmul_precision("medium" if why == "inexact" else before)
        with torch.autocast("cpu", torch.bfloat16, enabled=why == "mixed"):
            torch.testing.assert_close(linear(x, w, b), F.linear(x, w, b), rtol=1e-5, atol=1e-6)
    finally:
        torch.set_float32_matmul_precision(before)
    assert not wide
    assert why != "float64" or (linear(x, w, b) - F.linear(x, w, b)).abs().max() < F64


def test_onednn_is_faster_on_avx512_of_other_vendors_than_intel(monkeypatch) -> None:
    def is_faster(capability: str, processor: str) -> bool:
        monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: capability)
        monkeypatch.setattr(modes, "_processor", lambda: processor)
        modes.onednn_is_faster.cache_clear()
        return modes.onednn_is_faster()

    try:
        assert is_faster("AVX512", "vendor_id : AuthenticAMD") == hasattr(torch.ops.mkldnn, "_linear_pointwise")
        assert not is_faster("AVX512", "vendor_id : GenuineIntel")
        assert not is_faster("AVX2", "vendor_id : AuthenticAMD")
    finally:
        monkeypatch.undo()
        modes.onednn_is_faster.cache_clear()
