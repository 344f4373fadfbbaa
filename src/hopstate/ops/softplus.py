"""The inverse of softplus, for parameters that start at a value that must stay positive."""

from __future__ import annotations

import torch
from torch import Tensor


def inverse_softplus(value: Tensor) -> Tensor:
    """Return r with softplus(r) = value, for values above 0; exact far from 0 and near it."""
    return value + torch.log(-torch.expm1(-value))
