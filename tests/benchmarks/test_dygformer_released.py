"""The released form of DyGFormer in the benchmark equals the library's model."""

import sys
from pathlib import Path

import numpy as np
import torch

from hopstate.data.events import EventStream
from hopstate.data.neighbor_store import NeighborStore
from hopstate.methods.baselines.dygformer import DyGFormer
from hopstate.testing.conformance import F32, F32_SUM
from hopstate.tokens.history import HistoryConfig, HistoryTokenizer

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "benchmarks"))

from dygformer_naive import dygformer_naive
from dygformer_released import Released


def copy_weights(model: DyGFormer, released: Released) -> None:
    """Give the released form a model's weights."""
    released.frequencies.weight.copy_(model.time.omega.unsqueeze(1))
    released.frequencies.bias.copy_(model.time.phase)
    pairs = [(released.count, model.count), (released.project, model.project), (released.output, model.output)]
    pairs += [(released.head[0], model.head.merge), (released.head[2], model.head.score)]
    for ours, block in zip(released.blocks, model.blocks, strict=True):
        attention = block.attention
        ours.attention.in_proj_weight.copy_(attention.qkv.weight)
        ours.attention.in_proj_bias.copy_(attention.qkv.bias)
        pairs += [(ours.attention.out_proj, attention.out), (ours.norms[0], block.attention_norm)]
        pairs += [(ours.norms[1], block.ffn_norm), (ours.wide, block.ffn[0]), (ours.narrow, block.ffn[3])]
    for ours, theirs in pairs:
        for mine, value in zip(ours.parameters(), theirs.parameters(), strict=True):
            mine.copy_(value)


def test_scores_equal_those_of_the_library() -> None:
    rng = np.random.default_rng(0)
    ends = rng.integers(0, 12, (2, 300))
    stream = EventStream(src=ends[0], dst=12 + ends[1], t=np.sort(rng.integers(0, 150, 300)).astype(np.float64))
    tokenizer = HistoryTokenizer(NeighborStore.from_stream(stream), stream, HistoryConfig(max_length=8))
    torch.manual_seed(0)
    model = DyGFormer(DyGFormer.Config(max_length=8), node_dim=172, edge_dim=172).eval()
    released = Released(stream, length=8).eval()
    rows = np.r_[3:9, 200:220]  # short histories, and full ones
    src, dst, t = stream.src[rows], stream.dst[rows], stream.t[rows]
    with torch.no_grad():
        for values in model.parameters():
            values.add_(0.02 * torch.randn_like(values))
        copy_weights(model, released)
        expected = dygformer_naive(model, tokenizer.pairs(src, dst, t)).sigmoid()
        torch.testing.assert_close(released(src, dst, t), expected, rtol=F32_SUM, atol=F32)
        assert expected.std() > 0.01
    assert sum(p.numel() for p in released.parameters()) == sum(p.numel() for p in model.parameters())
