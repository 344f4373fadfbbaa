"""Settings that suit a stream: from training events alone, encodings tell gaps apart, what is given stands."""

import numpy as np
import pytest
import torch

from hopstate.data.clock import Clock
from hopstate.data.events import EventStream
from hopstate.errors import ConfigError
from hopstate.layers.time import TimeEncoding
from hopstate.methods import get_method
from hopstate.methods.ctdg_ssm.model import CTDGSSM
from hopstate.methods.settings import config_from, parse_given
from hopstate.runs.data import settle

METHODS = ("ctdg-ssm", "dyg-mamba", "dygformer", "graphmixer")


def made(count: int = 600, unit: float = 1.0, seed: int = 0) -> EventStream:
    """Bursts: gaps over five decades."""
    rng = np.random.default_rng(seed)
    t = np.cumsum(np.round(10 ** rng.uniform(0, 5, count)))
    return EventStream(src=rng.integers(0, 9, count), dst=9 + rng.integers(0, 9, count), t=t * unit)


def settled(method: str, stream: EventStream, **given):
    chosen = get_method(method)
    return settle(chosen, parse_given(chosen, {"data": "memory:toy", "loop.progress": False, **given}), record=stream)[
        0
    ]


def test_every_encoding_of_gaps_tells_them_apart():
    stream = made()
    config = settled("ctdg-ssm", stream)
    clock = Clock.fit(stream.t[:420], stream.time_unit)
    gaps = np.append(clock.log_gaps(stream.t[20:420], stream.t[:400], config.model.never), config.model.never)
    model = CTDGSSM(config.model, num_nodes=18)
    for encoding in (model.gap_in, model.gap_out):
        assert encoding(torch.from_numpy(gaps).float()).std(0).min() > 0.03
    before = TimeEncoding.decades(16, span=3.0, learn=False)(torch.from_numpy(gaps).float()).std(0)
    assert (before < 0.03).sum() >= 4  # as it was: columns that hardly move


def test_frequencies_do_not_depend_on_the_files_unit_nor_on_what_is_held_back():
    stream, config = made(), settled("ctdg-ssm", made())
    assert settled("ctdg-ssm", made(unit=1e3)).model == config.model
    t = np.concatenate([stream.t[:420], stream.t[420:] + 10 ** np.arange(180).clip(max=9)])
    later = EventStream(src=stream.src, dst=np.append(stream.dst[:420], np.full(180, 9)), t=np.sort(t))
    for method in METHODS:
        assert settled(method, later) == settled(method, stream)


def test_bounds_of_frequencies():
    old, new = TimeEncoding.decades(16, span=3.0, learn=False), TimeEncoding.between(16, 1e-3, 1.0, learn=False)
    assert torch.equal(old.omega, new.omega)
    for wrong in ((0.0, 1.0), (2.0, 1.0)):
        with pytest.raises(ConfigError):
            TimeEncoding.between(4, *wrong, learn=False)
        with pytest.raises(ConfigError):
            CTDGSSM.Config(slowest=wrong[0], fastest=wrong[1])


@pytest.mark.parametrize("method", METHODS)
def test_what_is_given_stands_and_plain_settings_are_the_papers(method):
    given = settled(method, made(), **{"loop.optim.lr": 0.5, "loop.epochs": 7, "batch_size": 33})
    assert (given.loop.optim.lr, given.loop.epochs, given.batch_size) == (0.5, 7, 33)
    plain = config_from(get_method(method), {"data": "memory:toy"})
    assert plain.loop.epochs == (200 if method == "ctdg-ssm" else 100)


@pytest.mark.parametrize(
    "given",
    [{"model.order": 0}, {"model.time_dim": 0}, {"model.static": "none"}, {"model.static": "onehot"}],
    ids=str,
)
def test_suited_settings_never_stand_beside_what_makes_them_idle(given):
    config = settled("ctdg-ssm", made(), **given)
    assert config.model.order == given.get("model.order", 1)


@pytest.mark.parametrize("method", METHODS)
def test_longer_streams_get_fewer_epochs(method):
    def long(count: int) -> EventStream:
        ends = np.random.default_rng(0).integers(0, 50, (2, count))
        return EventStream(src=ends[0], dst=50 + ends[1], t=np.arange(count))

    few, many = (settled(method, long(count)) for count in (500, 60_000))
    assert few.loop.epochs > many.loop.epochs >= 2
    assert few.batch_size < many.batch_size


def test_sequences_keep_the_critical_start_and_nodes_see_no_pairs():
    assert config_from(get_method("ctdg-ssm-sequences"), {"data": "path-sequences"}).model.filter_start == "critical"
    stream = made().with_(labels=np.arange(600) % 2)
    nodes = settled("ctdg-ssm-nodes", stream)
    assert (nodes.model.filter_start, nodes.model.pair_dim, nodes.model.node_gaps) == (1.0, 0, False)


def test_what_only_a_suited_setting_allows_can_be_given_alone():
    """Static vectors have a size where there are some: those are suited, and no default."""
    config = settled("ctdg-ssm", made(), **{"model.static_dim": 16})
    assert (config.model.static, config.model.static_dim) == ("random", 16)
    with pytest.raises(ConfigError, match="static_dim"):
        settled("ctdg-ssm", made(), **{"model.static_dim": 16, "model.static": "none"})
    chosen = get_method("ctdg-ssm")
    parse = parse_given(chosen, {"data": "memory:toy", "loop.progress": False, "model.static_dim": 16})
    with pytest.raises(ConfigError, match="static_dim"):
        settle(chosen, parse, record=made(), suit=False)


def test_nothing_is_suited_where_that_is_asked():
    chosen = get_method("ctdg-ssm")
    parse = parse_given(chosen, {"data": "memory:toy", "batch_size": 50})
    assert settle(chosen, parse, record=made(), suit=False)[0] == config_from(
        chosen, {"data": "memory:toy", "batch_size": 50}
    )
