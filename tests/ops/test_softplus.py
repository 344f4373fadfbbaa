"""The inverse of softplus, from tiny values to large ones."""

import torch
import torch.nn.functional as F

from hopstate.ops.span_step import inverse_softplus


def test_inverse_softplus_inverts_softplus():
    for kind, close in ((torch.float64, 1e-10), (torch.float32, 1e-5)):
        value = torch.logspace(-6, 2.5, 60, dtype=kind)
        torch.testing.assert_close(F.softplus(inverse_softplus(value)), value, rtol=close, atol=0)
