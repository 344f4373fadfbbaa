"""DyGFormer with every sequence padded to max_length, as published: the reference of the packed form.

Every padding token is computed, all-zero features are multiplied out, and the count perceptron runs on every token.
"""

from __future__ import annotations

import torch
from torch import Tensor

from hopstate.layers.attention import PackedTransformerBlock
from hopstate.methods.baselines.dygformer import DyGFormer
from hopstate.tokens.history import HistoryTokens


def dygformer_naive(model: DyGFormer, tokens: HistoryTokens) -> Tensor:
    """Return (P,) logits with a model's weights; padding is attended to, for every configuration."""
    c, num_pairs = model.config, tokens.num_sequences // 2
    dtype = model.output.weight.dtype
    where = (tokens.rows(), tokens.positions())
    shape = (tokens.num_sequences, c.max_length)

    def pad(values: Tensor) -> Tensor:
        return values.new_zeros(*shape, *values.shape[1:]).index_put(where, values)

    assert tokens.counts is not None
    counts = pad(tokens.counts).to(dtype)
    encodings = {
        "node": pad(_or_zeros(tokens.x, tokens, model.node_dim, dtype)),
        "edge": pad(_or_zeros(tokens.edge_attr, tokens, model.edge_dim, dtype)),
        "time": pad(model.time(tokens.gaps)),
        "count": model.count(counts.unsqueeze(-1)).sum(2),
    }
    slots = c.max_length // c.patch_size
    parts = [p(encodings[k].reshape(*shape[:1], slots, -1)) for k, p in model.project.items()]
    x = torch.cat(parts, -1)
    x = torch.cat([x[:num_pairs], x[num_pairs:]], 1)  # both sequences of a pair in one
    for block in model.blocks:
        assert isinstance(block, PackedTransformerBlock)
        x = x + block.dropout(_attend(block, block.attention_norm(x)))
        x = x + block.dropout(block.ffn(block.ffn_norm(x)))
    u, v = x[:, :slots].mean(1), x[:, slots:].mean(1)
    return model.head(model.output(u), model.output(v), tokens.pair)


def _attend(block: PackedTransformerBlock, x: Tensor) -> Tensor:
    heads = block.attention.num_heads
    q, k, v = (p.unflatten(-1, (heads, -1)).transpose(1, 2) for p in block.attention.qkv(x).chunk(3, -1))
    weight = torch.softmax(q @ k.transpose(-1, -2) / q.shape[-1] ** 0.5, -1)
    mixed = torch.dropout(weight, block.attention.dropout, block.training) @ v
    return block.attention.out(mixed.transpose(1, 2).flatten(2))


def _or_zeros(values: Tensor | None, tokens: HistoryTokens, width: int, dtype: torch.dtype) -> Tensor:
    if values is None:
        return torch.zeros(len(tokens.nodes), width, dtype=dtype, device=tokens.offsets.device)
    return values.to(dtype)
