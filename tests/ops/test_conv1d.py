"""The packed causal convolution: torch's Conv1d one sequence at a time, and gradients in float64."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scan_cases import offsets_of

from hopstate.errors import ConfigError, DataError, ShapeError, SlowPathWarning
from hopstate.ops import conv1d, conv1d_naive, dispatch
from hopstate.ops.conv1d.cpu_kernels import TILE
from hopstate.testing.conformance import assert_close_rmse
from torch_threads import with_threads


def make(lengths, channels, width, dtype=torch.float64, seed=0):
    generator = torch.Generator().manual_seed(seed)
    shapes = ((sum(lengths), channels), (channels, width), (channels,))
    return [torch.randn(s, generator=generator, dtype=torch.float64).to(dtype) for s in shapes]


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("function", [conv1d_naive, conv1d])
def test_equals_torch_conv1d_on_each_sequence(function, reverse):
    lengths = [5, 0, 1, 17, 2]
    x, weight, bias = make(lengths, 6, 4)
    y = function(x, weight, bias, offsets=offsets_of(lengths), reverse=reverse)
    for part, out in zip(x.split(lengths), y.split(lengths)):
        if len(part) == 0:
            continue
        one = (part.flip(0) if reverse else part).T[None]
        expected = torch.nn.functional.conv1d(one, weight[:, None], bias, padding=3, groups=6)[0, :, : len(part)].T
        assert_close_rmse(out, expected.flip(0) if reverse else expected)


@given(
    lengths=st.lists(st.sampled_from([0, 1, 2, 3, 13, 64]), min_size=1, max_size=4),
    channels=st.sampled_from([1, 6, 16, 37]),
    width=st.sampled_from([1, 2, 4, 7]),
    dtype=st.sampled_from([torch.float64, torch.float32, torch.float16, torch.bfloat16]),
    reverse=st.booleans(),
    biased=st.booleans(),
    act=st.sampled_from(["none", "silu"]),
)
@settings(max_examples=40, deadline=None, derandomize=True)
def test_output_and_gradients_equal_the_float64_definition(lengths, channels, width, dtype, reverse, biased, act):
    inputs, offsets, results = make(lengths, channels, width, dtype)[: 3 if biased else 2], offsets_of(lengths), []
    for fast, kind in ((True, dtype), (False, torch.float64)):
        leaves = [x.to(kind).requires_grad_() for x in inputs]
        arguments = (*leaves, *[None] * (3 - len(leaves)))
        if fast:
            y = conv1d(*arguments, offsets=offsets, reverse=reverse, activation=act)
        else:
            y = conv1d_naive(*arguments, offsets=offsets, reverse=reverse)
            y = torch.nn.functional.silu(y) if act == "silu" else y
        weights = torch.randn(y.shape, generator=torch.Generator().manual_seed(1), dtype=torch.float64).to(dtype)
        results.append((y, *torch.autograd.grad(y, leaves, weights.to(kind))))
    for name, actual, expected in zip(("y", "dx", "dweight", "dbias"), *results):
        few = expected.numel() < 16  # a single number that is a difference of larger ones is not averaged out then
        assert_close_rmse(actual, expected, dtype=dtype, name=name, factor=100 if few else 1)


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("width", [1, 4, TILE + 3])
def test_gradients_across_the_bounds_of_tiles(width, reverse):
    lengths = [TILE - 1, TILE, 0, TILE + 1, 2 * TILE, 3 * TILE + 2, 1]
    leaves, results = [x.requires_grad_() for x in make(lengths, 19, width)], []
    for function in (conv1d, conv1d_naive):
        y = function(*leaves, offsets=offsets_of(lengths), reverse=reverse)
        weights = torch.randn(y.shape, generator=torch.Generator().manual_seed(1), dtype=y.dtype)
        results.append(torch.autograd.grad(y, leaves, weights))
    for name, actual, expected in zip(("dx", "dweight", "dbias"), *results):
        assert_close_rmse(actual, expected, name=name)


def test_padded_equals_packed_and_threads_do_not_matter():
    x, weight, bias = make([50] * 40, 40, 4, torch.float32)
    expected = conv1d(x, weight, bias, offsets=offsets_of([50] * 40))
    torch.testing.assert_close(conv1d(x.view(40, 50, 40), weight, bias).view(-1, 40), expected, rtol=1e-5, atol=1e-6)
    weight.requires_grad_()
    assert torch.equal(
        *with_threads(lambda: torch.autograd.grad(conv1d(x.view(40, 50, 40), weight, bias).square().sum(), weight)[0])
    )


def test_gradcheck_and_compile():
    lengths = [4, 0, 3]
    leaves = [x.requires_grad_() for x in make(lengths, 2, 3)]
    offsets = offsets_of(lengths)
    for activation in ("none", "silu"):
        options = {"offsets": offsets, "reverse": True, "activation": activation}
        assert torch.autograd.gradcheck(lambda x, w, b, options=options: conv1d(x, w, b, **options), leaves)
    compiled = torch.compile(conv1d, fullgraph=True, backend="aot_eager")
    assert torch.equal(compiled(*leaves, offsets=offsets), conv1d(*leaves, offsets=offsets))
    torch.library.opcheck(torch.ops.hopstate.conv1d.default, (*leaves, offsets, True, True))


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"activation": "gelu"}, ConfigError, "activation"),
        ({"weight": torch.ones(5, 4)}, ShapeError, "weight"),
        ({"bias": torch.ones(5)}, ShapeError, "bias"),
        ({"x": torch.ones(7, 6, dtype=torch.int64)}, ShapeError, "x"),
        ({"x": torch.ones(7)}, ShapeError, "x"),
        ({"weight": torch.ones(6, 4, device="meta")}, ShapeError, "weight"),
        ({"offsets": torch.tensor([0, 5, 3, 7])}, DataError, r"offsets\[1\] = 5"),
        ({"offsets": torch.tensor([0, 6])}, DataError, "7"),
    ],
)
def test_bad_input_is_named(change, error, message):
    good = {"x": torch.ones(7, 6), "weight": torch.ones(6, 4), "bias": torch.ones(6), "offsets": torch.tensor([0, 7])}
    with pytest.raises(error, match=message):
        conv1d(**(good | change))


def test_slow_path_warns_and_agrees(monkeypatch):
    x, weight, bias = make([4, 2], 3, 2)
    expected = conv1d(x, weight, bias, offsets=offsets_of([4, 2]))
    monkeypatch.setattr(dispatch, "NUMBA", False)
    dispatch.warn_slow.cache_clear()
    with pytest.warns(SlowPathWarning, match="conv1d"):
        assert_close_rmse(conv1d(x, weight, bias, offsets=offsets_of([4, 2])), expected)
