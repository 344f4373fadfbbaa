"""Compare the Triton kernels with the float64 loop: used by test_triton.py, interpreted on the CPU or compiled.

Run as a program under TRITON_INTERPRET=1, because the interpreter must be selected before Triton is imported.
"""

import sys

import torch
from scan_cases import make_case, offsets_of, run_and_grad

from hopstate.ops import conv1d_naive
from hopstate.ops.conv1d import triton as conv_path
from hopstate.ops.selective_scan import triton as path
from hopstate.testing.conformance import assert_close_rmse

NAMES = ("u", "delta", "A", "B", "C", "D", "z")


def run_path(case, offsets, reverse, rule):
    """The result of run_and_grad with the functions of the Triton path."""
    inputs = [case.get(name) for name in NAMES]
    initial, zoh = case.get("initial_state"), rule == "zoh"
    y, state, checkpoints = path.forward(*inputs, offsets, initial, reverse, zoh, True, True)
    generator = torch.Generator().manual_seed(1)
    weights = [torch.randn(x.shape, generator=generator, dtype=torch.float64).to(x) for x in (y, state)]
    grads = path.backward(*inputs, offsets, initial, checkpoints, *weights, reverse, zoh)
    named = {f"d{name}": g for name, g in zip((*NAMES, "initial_state"), grads) if name in case}
    return {"y": y, "state": state, **named}


def check_scan(lengths, channels, S, dtype, rule, reverse, plain, device):
    case = make_case(lengths, channels, S, dtype, plain=plain)
    expected = run_and_grad(
        {k: x.double() for k, x in case.items()}, offsets_of(lengths), naive=True, reverse=reverse, discretization=rule
    )
    moved = {k: x.to(device) for k, x in case.items()}
    actual = run_path(moved, offsets_of(lengths).to(device), reverse, rule)
    for name, value in expected.items():
        few = value.numel() < 16
        assert_close_rmse(actual[name].cpu(), value, dtype=dtype, name=name, factor=100 if few else 1)


def check_all(device, sizes):
    """Outputs and gradients: whole sequences, then chunked ones (of 8 steps, not 256, so that short inputs are cut)."""
    for (rule, reverse), (channels, S) in zip((("zoh", False), ("euler", True), ("zoh", True)), sizes):
        check_scan([5, 0, 1, 11], channels, S, torch.float32, rule, reverse, False, device)
        check_conv([5, 0, 1, 11], channels, 4, torch.float32, reverse, device)
    check_scan([9, 2], 6, 4, torch.bfloat16, "zoh", False, True, device)
    check_scan([9, 2], 6, 4, torch.float16, "euler", True, True, device)
    whole = path.SHORT, path.CHUNK
    try:
        path.SHORT = path.CHUNK = 8
        path._LENGTHS.clear()
        check_scan([19, 0, 3, 8], 6, 3, torch.float32, "zoh", False, False, device)
        check_scan([19, 0, 3], 6, 4, torch.float32, "euler", True, True, device)
    finally:
        path.SHORT, path.CHUNK = whole


def check_conv(lengths, channels, width, dtype, reverse, device):
    x, weight, bias = (
        torch.randn(s, dtype=torch.float64) for s in ((sum(lengths), channels), (channels, width), (channels,))
    )
    offsets = offsets_of(lengths)
    leaves = [v.clone().requires_grad_() for v in (x, weight, bias)]
    y = conv1d_naive(*leaves, offsets, reverse=reverse)
    dy = torch.randn_like(y)
    expected = (y, *torch.autograd.grad(y, leaves, dy))
    x, weight, bias, dy = (v.to(device, dtype) for v in (x, weight, bias, dy))
    offsets = offsets.to(device)
    actual = (
        conv_path.forward(x, weight, bias, offsets, reverse),
        conv_path.forward(dy, weight, None, offsets, not reverse),
        *conv_path.weight_grad(x, dy, offsets, width, reverse),
    )
    for name, a, e in zip(("y", "dx", "dweight", "dbias"), actual, expected):
        assert_close_rmse(a.cpu(), e, dtype=dtype, name=name)


if __name__ == "__main__":
    if sys.argv[1:] == ["few"]:
        check_scan([3, 0, 2], 3, 2, torch.float32, "zoh", False, False, "cpu")
        check_conv([3, 0, 4], 3, 2, torch.float32, False, "cpu")
    else:
        check_all("cpu", [(19, 5), (4, 16), (6, 1)])
