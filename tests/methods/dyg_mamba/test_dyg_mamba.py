"""DyG-Mamba: packed against written out, exact contributions, histories of any length, the conformance suite."""

import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

sys.path.insert(0, str(Path(__file__).parents[1] / "baselines"))
from dyg_mamba_naive import dyg_mamba_naive
from history_cases import EDGE_DIM, NODE_DIM, make_queries, make_store, make_stream, take_sequences

from hopstate.errors import ConfigError, ShapeError
from hopstate.methods.dyg_mamba.model import DyGMamba, DyGMambaConfig, DyGMambaNodes, TimeSpanConfig
from hopstate.ops.rows import segment_sum
from hopstate.testing.conformance import (
    F32,
    F32_LAST,
    F64,
    F64_DEEP,
    F64_SOLVED,
    F64_SUM,
    ModelCase,
    check_model,
)
from hopstate.tokens.history import HistoryConfig, HistoryTokenizer, HistoryTokens

BLOCK = TimeSpanConfig(state_dim=3, dropout=0.0)
SMALL = DyGMambaConfig(channel_dim=4, time_dim=6, out_dim=5, block=BLOCK)
VARIANTS = [
    {"step": "data"},
    {"step": "both"},
    {"step": "fixed", "bc_source": "fixed"},
    {"bc_source": "span"},
    {"spectral_bound": False},
    {"gate": False},
    {"residual": False},
    {"bidirectional": False},
    {"conv_width": 0},
    *({"step_function": f} for f in ("linear", "log", "sigmoid", "exponential", "unnormalized")),
]


def _tokens(*, features: bool = True, count: int = 5, **history: object) -> HistoryTokens:
    stream = make_stream(features=features)
    config = HistoryConfig(**{"max_length": 8, **history})
    return HistoryTokenizer(make_store(stream), stream, config).pairs(*make_queries(stream, count))


def _model(block: dict | None = None, **options: object) -> DyGMamba:
    if not options.get("time_encoding", True):
        options["time_dim"] = DyGMambaConfig.time_dim  # a width without an encoding is rejected
    config = replace(SMALL, **options, block=replace(BLOCK, **(block or {})))
    model = DyGMamba(config, node_dim=NODE_DIM, edge_dim=EDGE_DIM)
    with torch.no_grad():  # nonzero biases, active gates and bounds
        for name, parameter in model.named_parameters():
            if not name.endswith("A_log"):
                parameter.add_(torch.randn_like(parameter), alpha=0.3)
    return model.double()


def _same(model: DyGMamba, tokens: HistoryTokens) -> None:
    weight = torch.linspace(-1, 1, tokens.num_sequences // 2, dtype=torch.float64)
    found = []
    for logits in (model(tokens), dyg_mamba_naive(model, tokens)):
        gradients = torch.autograd.grad((weight * logits).sum(), list(model.parameters()), allow_unused=True)
        found.append((logits, gradients))
    (fast, fast_gradients), (naive, naive_gradients) = found
    torch.testing.assert_close(fast, naive, rtol=F64_DEEP, atol=F64_SOLVED)
    for (name, parameter), a, b in zip(model.named_parameters(), fast_gradients, naive_gradients):
        a, b = (torch.zeros_like(parameter) if g is None else g for g in (a, b))
        torch.testing.assert_close(a, b, rtol=F32, atol=F32_LAST, msg=lambda text, name=name: f"{name}: {text}")
    assert fast.std() > 1e-4


@pytest.mark.parametrize("block", [{}, *VARIANTS], ids=str)
def test_packed_equals_the_reference_in_outputs_and_every_gradient(block):
    if block.get("step_function") == "unnormalized":
        block = {**block, "step": "both"}
    _same(_model(block), _tokens())


@pytest.mark.parametrize(
    ("options", "target"),
    [
        ({"encoders": "independent"}, "last"),
        ({"time_encoding": False}, "none"),
        ({"cooccurrence": False}, "first"),
        ({"cross_attention": 2}, "none"),
    ],
    ids=str,
)
def test_options_and_places_of_the_target_node(options, target):
    _same(_model(**options), _tokens(target=target))


def test_zero_features_may_be_omitted():
    _same(_model(), _tokens(features=False))


def test_histories_longer_than_the_cap_and_without_one():
    everything, capped = _tokens(max_length=None), _tokens(max_length=3)
    assert everything.longest > 8
    assert capped.longest == 3
    for tokens in (everything, capped):
        _same(_model(), tokens)


def test_two_new_nodes_have_a_finite_score_without_any_token():
    stream = make_stream()
    tokenizer = HistoryTokenizer(make_store(stream), stream, HistoryConfig(target="none"))
    isolated = np.array([stream.num_nodes - 1])
    tokens = tokenizer.pairs(isolated, isolated, np.array([10.0]))
    assert len(tokens.nodes) == 0
    for cross in (0, 1):
        assert torch.isfinite(_model(cross_attention=cross)(tokens)).all()
    assert _model()(tokenizer.pairs(isolated[:0], isolated[:0], np.zeros(0))).shape == (0,)


def test_packed_equals_single_pairs():
    model, tokens = _model(), _tokens(count=9)
    together = model(tokens)
    for p in range(9):
        single = model(take_sequences(tokens, torch.tensor([p, p + 9])))
        torch.testing.assert_close(single, together[p : p + 1], rtol=F64_SUM, atol=F64)


def test_mixed_precision_counts_many_tokens_exactly():
    """Sums of many tokens are computed in float32, and the spectral bound holds exactly."""
    x = torch.rand(5000, 3)
    offsets = torch.tensor([0, 5000])
    total = segment_sum(x.bfloat16(), offsets).float()
    torch.testing.assert_close(total[0], x.sum(0), rtol=0.02, atol=0)
    model = DyGMamba(SMALL, node_dim=NODE_DIM, edge_dim=EDGE_DIM)
    raw = model.encoders[0].blocks[0].directions[0].to_maps
    with torch.no_grad():
        raw.weight.mul_(50)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        for W in raw.bounded().chunk(2):
            assert torch.linalg.matrix_norm(W.float(), 2) <= 1 + 1e-5
        assert torch.isfinite(model(_tokens())).all()


def test_node_classifier():
    stream = make_stream()
    tokenizer = HistoryTokenizer(make_store(stream), stream, HistoryConfig(max_length=8))
    u, _, t = make_queries(stream, 12)
    tokens = tokenizer.nodes(u, t)

    def take(inputs: tuple, rows: torch.Tensor) -> tuple:
        return (take_sequences(inputs[0], rows),)

    check_model(
        ModelCase(
            make=lambda: DyGMambaNodes(SMALL, 3, node_dim=NODE_DIM, edge_dim=EDGE_DIM),
            inputs=(tokens,),
            permute=lambda inputs, order: take(inputs, order),
            take=take,
        )
    )


def test_conformance():
    def take(inputs: tuple, rows: torch.Tensor) -> tuple:
        half = inputs[0].num_sequences // 2
        return (take_sequences(inputs[0], torch.cat([rows, rows + half])),)

    for options in ({}, {"encoders": "independent", "cross_attention": 2}):
        check_model(
            ModelCase(
                make=lambda options=options: DyGMamba(replace(SMALL, **options), node_dim=NODE_DIM, edge_dim=EDGE_DIM),
                inputs=(_tokens(),),
                permute=lambda inputs, order: take(inputs, order),
                take=take,
            )
        )


def test_bad_input_is_named():
    model, tokens = _model(), _tokens()
    with pytest.raises(ShapeError, match="edge"):
        DyGMamba(SMALL, node_dim=NODE_DIM, edge_dim=7)(tokens)
    with pytest.raises(ShapeError, match="counts"):
        model(tokens._replace(counts=None))
    with pytest.raises(ShapeError):
        model(take_sequences(tokens, torch.tensor([0, 1, 2])))
    for wrong in ({"encoders": "one"}, {"cross_attention": 3}, {"channel_dim": 0}):
        with pytest.raises(ConfigError):
            replace(SMALL, **wrong)
    for wrong in (
        {"bc_source": "span", "step_function": "unnormalized"},
        {"step": "time"},
        {"step_function": "root"},
        {"state_dim": 0},
        {"dropout": 1.0},
    ):
        with pytest.raises(ConfigError):
            replace(BLOCK, **wrong)


def test_published_size():
    """4d = 200, inner 400, S = 16, two blocks, and the time and co-occurrence channels of a stream without features."""
    model = DyGMamba(DyGMambaConfig())
    encodings = (100 * 50 + 50) + (50 * 50 + 50) + (50 + 50) + (50 * 50 + 50)
    direction = (400 * 4 + 400) + 2 * 400 + (400 * 32 + 32) + 400 * 16
    block = 400 + 2 * (200 * 400 + 400) + 2 * direction + (400 * 200 + 200)
    head = 200 * 172 + 172 + (344 * 172 + 172) + 173
    assert sum(p.numel() for p in model.parameters()) == encodings + 2 * block + head


def test_the_two_halves_are_the_sequences_of_source_and_destination():
    stream = make_stream()
    tokens = HistoryTokenizer(make_store(stream), stream, HistoryConfig(max_length=5)).pairs(*make_queries(stream, 4))
    columns = tokens._fields.index("longest")
    for second in (False, True):
        half = tokens.half(second=second)
        picked = take_sequences(tokens, torch.arange(4) + 4 * second)
        assert all(torch.equal(a, b) for a, b in zip(half[:columns], picked[:columns]))
