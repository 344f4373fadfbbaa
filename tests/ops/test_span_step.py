"""The step of a span: the compiled form against the formula, in outputs and gradients."""

import pytest
import torch

from hopstate.ops.span_step import span_step, span_step_naive
from hopstate.testing.conformance import assert_close_rmse
from torch_threads import with_threads


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
@pytest.mark.parametrize(("tokens", "channels"), [(0, 5), (1, 1), (37, 16), (700, 41)])
def test_equals_the_formula(tokens, channels, dtype):
    r = torch.rand(tokens, dtype=torch.float64)
    r[: tokens // 3] = 0.0
    leaves = [torch.rand(channels, dtype=torch.float64) * 3 + 0.01 for _ in range(2)]
    results = []
    for function, kind in ((span_step, dtype), (span_step_naive, torch.float64)):
        mine = [x.to(dtype).to(kind).requires_grad_() for x in leaves]
        y = function(r.to(dtype).to(kind), *mine)
        weight = torch.linspace(-1, 1, y.numel(), dtype=torch.float64).view(y.shape).to(dtype).to(kind)
        results.append((y, *torch.autograd.grad((y * weight).sum(), mine)))
    for name, actual, expected in zip(("y", "dsize", "dspeed"), *results):
        assert actual.dtype == dtype
        assert_close_rmse(actual, expected, dtype=dtype, name=name, factor=20)
    assert (results[0][0][: tokens // 3] == 0).all()  # no time, no step


def test_threads_do_not_matter_and_the_graph_is_one_node():
    r, size, speed = torch.rand(3000), torch.rand(40).requires_grad_(), torch.rand(40).requires_grad_()
    one, three = with_threads(lambda: torch.autograd.grad(span_step(r, size, speed).square().sum(), (size, speed)))
    assert all(map(torch.equal, one, three))
    torch.library.opcheck(torch.ops.hopstate.span_step.default, (r, size, speed))
