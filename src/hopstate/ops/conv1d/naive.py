"""The depthwise causal convolution as a sum of shifted copies: the definition the kernels are held to.

    y[t, c] = bias[c] + sum_j weight[c, j] x[t - (width - 1 - j), c]        (reverse: t + (width - 1 - j))

where a shifted token outside t's own sequence counts as zero.
"""

from __future__ import annotations

import torch
from torch import Tensor

from hopstate.types import Float, Int, shapecheck


@shapecheck
def conv1d_naive(
    x: Float[Tensor, "token channel"],
    weight: Float[Tensor, "channel width"],
    bias: Float[Tensor, " channel"] | None,
    offsets: Int[Tensor, " _"],
    *,
    reverse: bool,
) -> Float[Tensor, "token channel"]:
    """Sum the shifted copies with plain torch operations; autograd gives the gradients."""
    kind = torch.promote_types(x.dtype, torch.float32)
    tokens, width = x.shape[0], weight.shape[1]
    wide, position = x.to(kind), torch.arange(tokens, device=x.device)
    sequence = token_sequences(offsets, tokens)
    bound = offsets[sequence + 1] if reverse else offsets[sequence]
    y = wide.new_zeros(x.shape)
    for j in range(width):
        source = position + (width - 1 - j) * (1 if reverse else -1)
        inside = source < bound if reverse else source >= bound
        shifted = torch.where(inside[:, None], wide[torch.where(inside, source, position)], 0.0)
        y = y + shifted * weight[:, j].to(kind)
    return (y if bias is None else y + bias.to(kind)).to(x.dtype)


def token_sequences(offsets: Tensor, tokens: int) -> Tensor:
    """Return each token's sequence, (token,)."""
    sequences = torch.arange(offsets.shape[0] - 1, device=offsets.device)
    return torch.repeat_interleave(sequences, offsets.diff(), output_size=tokens)
