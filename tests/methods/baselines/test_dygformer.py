"""DyGFormer: packed against padded, its parameters, and the conformance suite."""

import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from history_cases import EDGE_DIM, NODE_DIM, Column, make_queries, make_store, make_stream, take_sequences

from hopstate.errors import ConfigError, ShapeError
from hopstate.methods.baselines.dygformer import DyGFormer
from hopstate.testing.conformance import F64, F64_DEEP, F64_SUM, ModelCase, check_model
from hopstate.tokens.history import HistoryConfig, HistoryTokenizer, HistoryTokens

sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "benchmarks"))

from dygformer_naive import dygformer_naive

SMALL = {"max_length": 8, "channel_dim": 4, "time_dim": 6, "out_dim": 5, "dropout": 0.0}


def _tokens(*, features: bool = True, max_length: int = 8, count: int = 12) -> HistoryTokens:
    stream = make_stream(features=features)
    tokenizer = HistoryTokenizer(make_store(stream), stream, HistoryConfig(max_length=max_length))
    return tokenizer.pairs(*make_queries(stream, count))


def _model(**options: object) -> DyGFormer:
    model = DyGFormer(DyGFormer.Config(**{**SMALL, **options}), node_dim=NODE_DIM, edge_dim=EDGE_DIM)
    for parameter in model.parameters():  # biases away from zero, so that padding is not the zero vector
        torch.nn.init.normal_(parameter, std=0.3)
    return model


def _gradients(model: DyGFormer, logits: torch.Tensor) -> dict[str, torch.Tensor]:
    weight = torch.linspace(-1, 1, len(logits), dtype=logits.dtype)
    model.zero_grad()
    (weight * logits).sum().backward()
    return {n: torch.zeros_like(p) if p.grad is None else p.grad.clone() for n, p in model.named_parameters()}


@pytest.mark.parametrize("patch_size", [1, 2, 4, 8])
@pytest.mark.parametrize("features", [True, False])
def test_packed_equals_padded_in_outputs_and_every_gradient(patch_size, features):
    model, tokens = _model(patch_size=patch_size).double(), _tokens(features=features)
    packed, padded = model(tokens), dygformer_naive(model, tokens)
    torch.testing.assert_close(packed, padded, rtol=F64_SUM, atol=F64)
    expected = _gradients(model, padded)
    for name, gradient in _gradients(model, model(tokens)).items():
        torch.testing.assert_close(gradient, expected[name], rtol=F64_DEEP, atol=F64_SUM, msg=name)
    assert packed.std() > 1e-3


def test_published_size():
    """DyGLib's DyGFormer on UCI: 172 features per node and event, channels of 50, 100 frequencies, two blocks."""
    model = DyGFormer(DyGFormer.Config(), node_dim=172, edge_dim=172)
    channels = 2 * (172 * 50 + 50) + (100 * 50 + 50) + (50 * 50 + 50)
    counts, time = (50 + 50) + (50 * 50 + 50), 2 * 100
    block = (600 * 200 + 600) + (200 * 200 + 200) + (800 * 200 + 800) + (200 * 800 + 200) + 2 * 400
    output, head = 200 * 172 + 172, (344 * 172 + 172) + (172 + 1)
    expected = channels + counts + time + 2 * block + output + head
    assert sum(p.numel() for p in model.parameters()) == expected == 1_087_035


def _take(inputs: tuple, rows: torch.Tensor) -> tuple:
    half = inputs[0].num_sequences // 2
    return (take_sequences(inputs[0], torch.cat([rows, rows + half])),)


@pytest.mark.parametrize("options", [{}, {"patch_size": 2}])
def test_conformance(options):
    config = DyGFormer.Config(**{**SMALL, "dropout": 0.2, **options})
    check_model(
        ModelCase(
            make=lambda: Column(DyGFormer(config, node_dim=NODE_DIM, edge_dim=EDGE_DIM)),
            inputs=(_tokens(),),
            permute=_take,
            take=_take,
        )
    )


def test_an_empty_batch_of_pairs():
    assert _model()(take_sequences(_tokens(), torch.zeros(0, dtype=torch.int64))).shape == (0,)


def test_wrong_tokens_are_named():
    stream = make_stream()
    tokenizer = HistoryTokenizer(make_store(stream), stream, HistoryConfig(max_length=9))
    model = _model()
    with pytest.raises(ShapeError, match="occurrence"):
        model(tokenizer.nodes(np.array([0, 1]), np.array([3.0, 4.0])))
    with pytest.raises(ShapeError, match="9"):
        model(tokenizer.pairs(np.array([0]), np.array([1]), np.array([99.0])))
    plain = DyGFormer(DyGFormer.Config(**SMALL), edge_dim=EDGE_DIM)
    with pytest.raises(ShapeError, match="node"):
        plain(_tokens())


@pytest.mark.parametrize(
    "wrong",
    [{"max_length": 1}, {"patch_size": 3}, {"num_heads": 3}, {"dropout": 1.0}, {"time_dim": 0}],
)
def test_impossible_settings_are_named(wrong):
    with pytest.raises(ConfigError, match=r"model\."):
        DyGFormer.Config(**wrong)
