"""CTDG-SSM's compiled loops over pairs give what its model gives, whatever its settings and its memory."""

from typing import Any

import pytest
import torch
from torch import Tensor

from hopstate.errors import DataError, ShapeError
from hopstate.layers.alike import alike
from hopstate.methods.ctdg_ssm.model import CTDGSSM
from hopstate.streaming.node_state import NodeState
from hopstate.testing.asserts import F32, F32_TIGHT, F64
from hopstate.tokens.pair_features import NAMES

NODES, PAIRS = 20, 37
SETTINGS: list[dict[str, Any]] = [
    {},
    {"hidden": 0},
    {"pair_dim": 0},
    {"pair_history": True},
    {"pair_history": True, "hidden": 0, "pair_dim": 0},
    {"time_dim": 0, "node_gaps": False},
    {"node_gaps": False},
    {"read_norm": False},
    {"static": "none", "static_dim": 32},
    {"static": "learnable"},
    {"dim": 64, "time_dim": 16, "static_dim": 32, "pair_dim": 64, "hidden": 64, "pair_history": True},
]


def _model(settings: dict[str, Any], kind: torch.dtype = torch.float32) -> CTDGSSM:
    torch.manual_seed(0)
    sizes = {"dim": 6, "time_dim": 4, "static": "random", "static_dim": 5, "pair_dim": 7, "hidden": 9}
    config = CTDGSSM.Config(**sizes | settings)
    nodes = NODES if config.static == "learnable" else None
    model = CTDGSSM(config, edge_dim=2, num_nodes=nodes).eval().to(kind)
    with torch.no_grad():  # biases and phases away from zero
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter), alpha=0.3)
    return model


def _asked(model: CTDGSSM, pairs: int = PAIRS) -> tuple[NodeState, Tensor, Tensor, Tensor]:
    """Return a memory with a deleted node, and pairs, also of nodes that it does not know."""
    kind = next(model.parameters()).dtype
    state = model.initial_state(NODES - 4)
    state.memory.normal_()
    state.output.normal_()
    state.output[3] = torch.nan
    source, target = torch.randint(0, NODES, (2, pairs))
    width = model.gaps + (len(NAMES) if model.config.pair_history else 0)
    gap = torch.randn(pairs, width, dtype=kind)
    told = gap[:, model.gaps :]
    told[torch.rand_like(told) < 0.2] = torch.nan
    return state, source, target, gap


def _same(found: Tensor, wanted: Tensor) -> None:
    double = found.dtype == torch.float64
    torch.testing.assert_close(found, wanted, rtol=F64 if double else F32, atol=F64 if double else F32_TIGHT)


@pytest.mark.parametrize("kind", [torch.float32, torch.float64])
@pytest.mark.parametrize("settings", SETTINGS, ids=str)
def test_compiled_loops_equal_the_model(settings: dict[str, Any], kind: torch.dtype) -> None:
    model = _model(settings, kind)
    asked, quick = _asked(model), model.compiled()
    assert quick is not None
    with torch.no_grad(), alike():
        wanted = model.link_logits(*asked, back=True)
    with torch.no_grad():
        found = quick(*asked, back=True)
        state, source, target, gap = asked
        alone = [quick(state, source[i : i + 1], target[i : i + 1], gap[i : i + 1], back=True) for i in range(PAIRS)]
        assert not len(quick(state, source[:0], target[:0], gap[:0], back=True))
    assert found.dtype == kind
    _same(found, wanted)
    _same(torch.cat(alone), wanted)
    assert found.std() > 1e-3


def test_loops_are_compiled_anew_for_other_weights_alone() -> None:
    model = _model({"pair_history": True})
    asked = _asked(model)
    with torch.no_grad():
        first, kept = model.compiled()(*asked, back=True), model.compiled().args[0]
        assert model.compiled().args[0] is kept
        model.decoder[0].weight.data.mul_(1.5)  # which raises no version
        assert model.compiled().args[0] is not kept
        model.requires_grad_(False)
        model.pair_history.mean.add_(1.0)
        with alike():
            wanted = model.link_logits(*asked, back=True)
        found = model.compiled()(*asked, back=True)
    _same(found, wanted)
    assert not torch.allclose(found, first)


def test_what_does_not_fit_is_refused_as_the_model_does() -> None:
    model = _model({"pair_history": True})
    state, source, target, gap = _asked(model)
    quick = model.compiled()
    for wrong in (gap[:, :-1], torch.cat([gap, gap], 1)):
        for asked in (quick, model.link_logits):
            with pytest.raises(ShapeError, match="history"):
                asked(state, source, target, wrong, back=True)
    source[0] = 3
    for asked in (quick, model.link_logits):
        with pytest.raises(DataError, match="3"):
            asked(state, source, target, gap)
    plain = _model({})
    with pytest.raises(ShapeError):  # loops would read beyond rows that are too short
        plain.compiled()(state, source, target, gap[:, :0], back=True)


def test_other_models_have_no_loops() -> None:
    model = _model({})
    assert type("Mine", (CTDGSSM,), {})(model.config, edge_dim=2).compiled() is None
    assert model.bfloat16().compiled() is None
