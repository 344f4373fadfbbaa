"""DyG-Mamba's compiled loops over pairs give what its model gives, whatever the settings and the batch."""

import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch

sys.path.insert(0, str(Path(__file__).parents[1] / "baselines"))
from history_cases import EDGE_DIM, NODE_DIM, make_queries, make_store, make_stream

from hopstate.errors import ShapeError
from hopstate.layers.alike import alike
from hopstate.methods.dyg_mamba.model import DyGMamba, DyGMambaConfig
from hopstate.methods.dyg_mamba.timespan import TimeSpanConfig
from hopstate.streaming.history_scorer import HistoryScorer
from hopstate.testing.asserts import F32, F32_TIGHT, F64
from hopstate.tokens.history import HistoryConfig, HistoryTokenizer
from hopstate.tokens.pair_features import NAMES

SMALL = DyGMambaConfig(channel_dim=5, time_dim=7, out_dim=9, block=TimeSpanConfig(state_dim=3))
WRITTEN = [
    {},
    {"encoders": "independent"},
    {"time_encoding": False, "time_dim": DyGMambaConfig.time_dim},
    {"cooccurrence": False},
    {"num_layers": 0},
    {"pair_history": True},
    {"channel_dim": 50, "time_dim": 100, "out_dim": 172},
    *({"block": block} for block in ({"spectral_bound": False}, {"gate": False}, {"residual": False})),
    *({"block": block} for block in ({"bidirectional": False}, {"step_function": "unnormalized"}, {"state_dim": 16})),
]
LEFT = [{"cross_attention": 2, "channel_dim": 4}, {"block": {"maps": "span"}}, {"block": {"step": "both"}}]


def _model(options: dict, kind: torch.dtype = torch.float32) -> DyGMamba:
    options = options | {"block": replace(SMALL.block, **options.get("block", {}))}
    model = DyGMamba(replace(SMALL, **options), node_dim=NODE_DIM, edge_dim=EDGE_DIM).eval().to(kind)
    with torch.no_grad():  # biases away from zero, bounds at work
        for name, parameter in model.named_parameters():
            if not name.endswith("A_log"):
                parameter.add_(torch.randn_like(parameter), alpha=0.3)
    return model


def _scorer(model: DyGMamba, *, features: bool = True, alike: bool = True, most: int = 512) -> HistoryScorer:
    stream = make_stream(features=features)
    tokenizer = HistoryTokenizer(make_store(stream), stream, HistoryConfig(max_length=8))
    return HistoryScorer(model, tokenizer, alike=alike, compiled=model.compiled, max_queries=most)


def _same(found: torch.Tensor, wanted: torch.Tensor) -> None:
    double = found.dtype == torch.float64
    torch.testing.assert_close(found, wanted, rtol=F64 if double else F32, atol=F64 if double else F32_TIGHT)


@pytest.mark.parametrize("kind", [torch.float32, torch.float64])
@pytest.mark.parametrize("options", WRITTEN, ids=str)
def test_compiled_loops_equal_the_model(options: dict, kind: torch.dtype) -> None:
    features = (WRITTEN.index(options) + (kind == torch.float64)) % 2 == 0
    model, stream = _model(options, kind), make_stream(features=features)
    tokens = _scorer(model, features=features).tokenizer.pairs(*make_queries(stream, 70))
    if options.get("pair_history"):
        tokens = tokens._replace(pair=torch.randn(70, len(NAMES)).where(torch.rand(70, len(NAMES)) > 0.2, torch.nan))
    quick = model.compiled()
    assert quick is not None
    with torch.no_grad(), alike():
        wanted = model(tokens)
    found = quick(tokens)
    assert found.dtype == kind
    _same(found, wanted)
    assert found.std() > 1e-4


@pytest.mark.parametrize("options", LEFT, ids=str)
def test_settings_without_compiled_loops_use_the_model(options: dict) -> None:
    model, queries = _model(options), make_queries(make_stream(), 6)
    assert model.compiled() is None
    with torch.no_grad(), alike():
        wanted = model(_scorer(model).tokenizer.pairs(*queries)).double().sigmoid()
    torch.testing.assert_close(_scorer(model).score(*queries), wanted, rtol=F32, atol=F32_TIGHT)


def test_a_score_does_not_depend_on_its_batch() -> None:
    scorer, (u, v, t) = _scorer(_model({})), make_queries(make_stream(), 33)
    whole = scorer.score(u, v, t)
    alone = torch.cat([scorer.score(u[i : i + 1], v[i : i + 1], t[i : i + 1]) for i in range(33)])
    for other in (
        alone,
        _scorer(scorer.model, most=5).score(u, v, t),
        _scorer(scorer.model, alike=False).score(u, v, t),
    ):
        torch.testing.assert_close(other, whole, rtol=F32, atol=F32_TIGHT)
    assert not len(scorer.score(u[:0], v[:0], t[:0]))


def test_loops_are_compiled_anew_for_other_weights_alone() -> None:
    model, queries = _model({}), make_queries(make_stream(), 6)
    first, kept = _scorer(model).score(*queries), model.compiled()
    assert model.compiled() is kept
    assert model.requires_grad_(False).compiled() is kept
    model.load_state_dict({name: value.clone() for name, value in model.state_dict().items()})
    assert model.compiled() is kept  # the same numbers
    model.load_state_dict({name: 1.1 * value for name, value in model.state_dict().items()})
    assert model.compiled() is not kept
    kept = model.compiled()
    model.output.weight = torch.nn.Parameter(2 * model.output.weight, requires_grad=False)
    assert model.compiled() is not kept
    kept = model.requires_grad_(True).compiled()
    model.encoders[0].blocks[0].directions[0].A_log.data.mul_(1.5)  # which raises no version
    assert model.compiled() is not kept
    with torch.no_grad(), alike():
        wanted = model(_scorer(model).tokenizer.pairs(*queries)).double().sigmoid()
    torch.testing.assert_close(_scorer(model).score(*queries), wanted, rtol=F32, atol=F32_TIGHT)
    assert not torch.allclose(first, wanted)


def test_tokens_that_do_not_fit_are_refused_and_subclasses_have_no_loops() -> None:
    """Loops would read beyond the rows of features that are too narrow."""
    model = _model({})
    quick, tokens = model.compiled(), _scorer(model).tokenizer.pairs(*make_queries(make_stream(), 6))
    assert quick is not None
    wrong = [{"x": tokens.x[:, 1:]}, {"edge_attr": tokens.edge_attr.repeat(1, 2)}, {"counts": None}]
    for part in wrong:
        for asked in (quick, model):
            with pytest.raises(ShapeError):
                asked(tokens._replace(**part))
    assert type("Mine", (DyGMamba,), {})(model.config, node_dim=NODE_DIM, edge_dim=EDGE_DIM).compiled() is None
