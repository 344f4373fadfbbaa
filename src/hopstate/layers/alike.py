"""A model computed so that what it says of a query has the same bits whatever queries are beside it.

Within `alike` linear maps and attention sum each row in one order, and functions that processors compute in another way
at the end of an array than within it (exponentials, cosines and what is made of them) have no such end. What else a
model does must treat each query by itself: such models say `alike = True`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.overrides import TorchFunctionMode

from hopstate.ops.row_attention import row_attention
from hopstate.ops.row_linear import row_linear
from hopstate.ops.threads import one_thread

WHOLE = 64  # elements, a whole number of any processor's vectors
_CURVES: set[Any] = {torch._C._nn.silu, torch._C._nn.softplus, torch._C._nn.gelu} | {
    getattr(place, name)
    for place in (torch, Tensor)
    for name in ("cos", "sin", "exp", "expm1", "log", "log1p", "sigmoid", "tanh", "erf")
}
_OWN: set[Any] = _CURVES | {F.linear, F.scaled_dot_product_attention}


class _Rows(TorchFunctionMode):
    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func not in _OWN:  # nearly all: each look at a size comes here too
            return func(*args, **kwargs) if kwargs else func(*args)
        kwargs = kwargs or {}
        if func is F.linear:
            return row_linear(*args, **kwargs)
        if func is F.scaled_dot_product_attention:
            return _attention(*args, **kwargs)
        return padded(func, *args, **kwargs)


def _attention(q: Tensor, k: Tensor, v: Tensor, attn_mask: Tensor | None = None, dropout_p: float = 0.0) -> Tensor:
    assert not dropout_p  # nothing is trained here
    return row_attention(q, k, v, attn_mask)


def padded(func: Callable[..., Tensor], x: Tensor, *rest: Any, **named: Any) -> Tensor:
    """Return func of each element of x, computed among a whole number of a processor's vectors."""
    count = x.numel()
    if count % WHOLE == 0 and x.is_contiguous():
        return func(x, *rest, **named)
    whole = x.new_zeros(-(-count // WHOLE) * WHOLE)
    whole[:count] = x.reshape(-1)
    return func(whole, *rest, **named)[:count].view(x.shape)


def can_be_alike(device: torch.device) -> bool:
    """Return whether `alike` works here: on a CPU, in single or double precision."""
    return device.type == "cpu" and not torch.is_autocast_enabled("cpu")


@contextmanager
def alike() -> Iterator[None]:
    """Within it a model's answers do not depend on company; see `can_be_alike`."""
    with one_thread(), _Rows():
        yield
