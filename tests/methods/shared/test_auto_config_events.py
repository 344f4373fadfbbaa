"""Automatic settings of streams: from training events only, distinguishable time deltas, given values win."""

import json
import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from hopstate.data.dates import Clock
from hopstate.data.events import EventStream
from hopstate.errors import ConfigError
from hopstate.layers.encodings import TimeEncoding
from hopstate.methods import MODULES, get_method
from hopstate.methods.config import parse_given
from hopstate.methods.ctdg_ssm.model import CTDGSSM
from hopstate.methods.shared.link import HISTORICAL_SHARE
from hopstate.runs.run import resolve_config
from hopstate.testing.conformance import F64

METHODS = ("ctdg-ssm", "dyg-mamba", "dygformer", "graphmixer")


def made(count: int = 600, unit: float = 1.0, seed: int = 0) -> EventStream:
    """Bursts: time deltas over five decades."""
    rng = np.random.default_rng(seed)
    t = np.cumsum(np.round(10 ** rng.uniform(0, 5, count)))
    return EventStream(src=rng.integers(0, 9, count), dst=9 + rng.integers(0, 9, count), t=t * unit)


def settled(method: str, stream: EventStream, **given):
    chosen = get_method(method)
    parse = parse_given(chosen, {"data": "memory:toy", "loop.progress": False, **given})
    return resolve_config(chosen, parse, record=stream)[0]


def automatic_settings(method: str, stream: EventStream, **given: Any) -> Mapping[str, Any]:
    """Return the automatic settings of a stream for a configuration with these fields."""
    chosen = get_method(method)
    return chosen.auto_config(stream, chosen.config(data="memory:toy", **given), ())  # type: ignore[misc]


def test_every_time_encoding_distinguishes_time_deltas():
    stream = made()
    config = settled("ctdg-ssm", stream)
    clock = Clock.fit(stream.t[:420], stream.time_unit)
    gaps = np.append(
        clock.log_time_deltas(stream.t[20:420], stream.t[:400], config.model.max_log_delta), config.model.max_log_delta
    )
    model = CTDGSSM(config.model, num_nodes=18)
    for encoding in (model.gap_in, model.readout.gap):
        assert encoding(torch.from_numpy(gaps).float()).std(0).min() > 0.03
    before = TimeEncoding.between(16, 1e-3, 1.0, learn=False)(torch.from_numpy(gaps).float()).std(0)
    assert (before < 0.03).sum() >= 4  # default: nearly constant columns


def test_frequencies_depend_neither_on_the_unit_nor_on_held_out_events():
    stream = made()
    own, other = (automatic_settings("ctdg-ssm", one) for one in (stream, made(unit=1e3)))
    assert own["model.min_frequency"] == pytest.approx(other["model.min_frequency"])
    t = np.concatenate([stream.t[:420], stream.t[420:] + 10 ** np.arange(180).clip(max=9)])
    later = EventStream(src=stream.src, dst=np.append(stream.dst[:420], np.full(180, 9)), t=np.sort(t))
    for method in METHODS:
        assert automatic_settings(method, later) == automatic_settings(method, stream)


def test_bounds_of_frequencies():
    old, new = TimeEncoding.between(16, 1e-3, 1.0, learn=False), TimeEncoding.between(16, 1e-3, 1.0, learn=False)
    assert torch.equal(old.omega, new.omega)
    for wrong in ((0.0, 1.0), (2.0, 1.0)):
        with pytest.raises(ConfigError):
            TimeEncoding.between(4, *wrong, learn=False)
        with pytest.raises(ConfigError):
            CTDGSSM.Config(min_frequency=wrong[0], max_frequency=wrong[1])


@pytest.mark.parametrize("method", ["ctdg-ssm", "graphmixer"])
def test_given_settings_win(method):
    given = settled(method, made(), **{"loop.optim.lr": 0.5, "loop.epochs": 7, "batch_size": 33})
    assert (given.loop.optim.lr, given.loop.epochs, given.batch_size) == (0.5, 7, 33)


@pytest.mark.parametrize("method", METHODS)
def test_default_settings_are_the_papers(method):
    plain = get_method(method).config(data="memory:toy")
    assert plain.loop.epochs == (200 if method == "ctdg-ssm" else 100)
    np.testing.assert_array_equal(plain.negatives.mixture.shares(), [1, 0, 0, 0])
    assert (plain.model.pair_features, plain.evaluation.select_by) == (False, "first")


@pytest.mark.parametrize(
    "given",
    [{"model.order": 0}, {"model.time_dim": 0}, {"model.static": "none"}],
    ids=str,
)
def test_automatic_settings_are_never_idle(given):
    config = settled("ctdg-ssm", made(), **given)
    assert config.model.order == given.get("model.order", 1)


@pytest.mark.parametrize("method", METHODS)
def test_longer_streams_get_fewer_epochs(method):
    def long(count: int) -> EventStream:
        ends = np.random.default_rng(0).integers(0, 50, (2, count))
        return EventStream(src=ends[0], dst=50 + ends[1], t=np.arange(count))

    few, many = (automatic_settings(method, long(count)) for count in (500, 60_000))
    assert few["loop.epochs"] > many["loop.epochs"] >= 2
    assert few["batch_size"] < many["batch_size"]


def test_automatic_settings_of_sequences_and_nodes():
    assert get_method("ctdg-ssm-sequences").config(data="path-sequences").model.filter_init == "critical"
    stream = made().with_(labels=np.arange(600) % 2)
    nodes = settled("ctdg-ssm-nodes", stream)
    assert (nodes.model.filter_init, nodes.model.pair_dim, nodes.model.node_time_deltas) == (1.0, 0, False)


def test_a_setting_that_needs_an_automatic_one_can_be_given_without_it():
    """The size of static vectors needs static vectors, which are an automatic setting and not a default."""
    config = settled("ctdg-ssm", made(), **{"model.static_dim": 16})
    assert (config.model.static, config.model.static_dim) == ("random", 16)
    with pytest.raises(ConfigError, match="static_dim"):
        settled("ctdg-ssm", made(), **{"model.static_dim": 16, "model.static": "none"})
    chosen = get_method("ctdg-ssm")
    parse = parse_given(chosen, {"data": "memory:toy", "loop.progress": False, "model.static_dim": 16})
    with pytest.raises(ConfigError, match="static_dim"):
        resolve_config(chosen, parse, record=made(), auto=False)


def test_no_setting_is_automatic_on_request():
    chosen = get_method("ctdg-ssm")
    parse = parse_given(chosen, {"data": "memory:toy", "batch_size": 50})
    found = resolve_config(chosen, parse, record=made(), auto=False)[0]
    assert found == chosen.config(data="memory:toy", batch_size=50)


@pytest.mark.parametrize("method", sorted(name for name in MODULES if get_method(name).data == "events"))
def test_automatic_settings_add_no_inputs_and_no_layers(method):
    """A method's name means the paper's network: sizes and training settings follow from the data, inputs do not."""
    chosen = (
        automatic_settings(method, made().with_(labels=np.arange(600) % 2)) if get_method(method).auto_config else {}
    )
    allowed = r"""batch_size|loop\.\w+(\.\w+)?|negatives\.mixture\.\w+|evaluation\.select_by
        |model\.(dim|num_layers|dropout|min_frequency|max_frequency|filter_init|max_norm|embedding_norm|static)"""
    assert [name for name in chosen if not re.fullmatch(allowed, name, re.VERBOSE)] == []
    assert set(chosen) <= set(get_method(method).automatic)  # which --help marks


@pytest.mark.parametrize("method", ["ctdg-ssm", "dyg-mamba"])
@pytest.mark.parametrize(
    ("given", "shares"),
    [
        ({}, [0.75, 0.25, 0, 0]),
        ({"negatives.mixture.historical": 0.1}, [0.9, 0.1, 0, 0]),
        ({"negatives.mixture.popular": 0.5}, [0.5, 0, 0, 0.5]),
        ({"negatives.loss": "softmax", "negatives.candidates": 4}, [1, 0, 0, 0]),
    ],
    ids=str,
)
def test_given_strategies_are_the_only_ones(method, given, shares):
    found = settled(method, made(), **given).negatives
    np.testing.assert_allclose(found.mixture.shares(), shares, rtol=F64)


@pytest.mark.parametrize("method", [*METHODS, "recency", "edgebank", "pair-trees"])
def test_a_single_strategy_selects_the_model(method):
    """All methods of a table then have the same metric."""
    usual = get_method(method).config(data="x").evaluation
    for kinds, choose in (
        (("random",), None),
        (("ranking",), None),
        (("random", "ranking"), None),
        (("random", "historical"), "mean"),
    ):
        evaluation = replace(usual, strategies=kinds)
        assert automatic_settings(method, made(), evaluation=evaluation).get("evaluation.select_by") == choose


def test_a_run_records_its_automatic_pairs(trained):
    kept = json.loads((trained("graphmixer").path / "config.json").read_text())
    assert kept["negatives"]["mixture"]["historical"] == 0.25
    noted = json.loads((trained("graphmixer").path / "data.json").read_text())["automatic"]
    assert "negatives.mixture.historical" in noted
    assert "loop.epochs" not in noted  # given


def test_historical_negatives_are_used_in_training_if_pairs_repeat():
    rng = np.random.default_rng(0)
    src, dst = np.divmod(rng.permutation(200 * 200)[:600], 200)
    never = EventStream(src=src, dst=200 + dst, t=np.arange(600))
    late = EventStream(src=np.append(src[:420], src[:180]), dst=200 + np.append(dst[:420], dst[:180]), t=np.arange(600))
    for method in METHODS:
        shares = [
            automatic_settings(method, one).get("negatives.mixture.historical", 0) for one in (made(), never, late)
        ]
        assert shares == [HISTORICAL_SHARE, 0, 0]  # held-out events are ignored
    given = {"negatives.mixture": {"random": 0.5, "historical": 0.5}}
    assert settled("dyg-mamba", never, **given).negatives.mixture.historical == 0.5
