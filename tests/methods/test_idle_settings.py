"""A setting without effect among the others is rejected by name, unless it has its default."""

from types import SimpleNamespace

import numpy as np
import pytest

from hopstate.data.events import EventStream
from hopstate.errors import ConfigError
from hopstate.methods import get_method
from hopstate.methods.baselines.graphmixer import GraphMixerRun
from hopstate.methods.baselines.graphmixer import build as build_graphmixer
from hopstate.methods.config import as_dict, config_from
from hopstate.methods.ctdg_ssm.model import CTDGSSM
from hopstate.methods.dyg_mamba.model import TimeSpanConfig
from hopstate.methods.method import Context
from hopstate.methods.shared.link import feature_dims
from hopstate.training.run_folder import flatten

IDLE = [
    ("dyg-mamba", {"model.block.step": "data"}, "model.block.step_function", "log"),
    ("dyg-mamba", {"model.block.bc_source": "span"}, "model.block.spectral_bound", False),
    ("dyg-mamba-nodes", {"model.time_encoding": False}, "model.time_dim", 12),
    ("ctdg-ssm", {"model.order": 0}, "model.filter_init", 1.0),
    ("ctdg-ssm", {"model.order": 0}, "num_neighbors", 5),
    ("ctdg-ssm", {"model.time_dim": 0}, "model.node_time_deltas", True),
    ("ctdg-ssm", {"model.static": "onehot"}, "model.static_dim", 5),
    ("dygformer", {"split.kind": "chronological"}, "split.val_time", 3.0),
    ("graphmixer", {"split.kind": "dyglib"}, "split.test_time", "2024-03-01"),
    ("gmn", {"model.variant": "gps-mamba"}, "model.readout", "mean"),
    ("gmn", {"walks.max_length": 0}, "walks.eval_samples", 4),
    ("gmn-graphs", {"walks.repeats": 0}, "walks.eval_samples", 4),
]


@pytest.mark.parametrize(("method", "others", "name", "value"), IDLE, ids=lambda v: str(v))
def test_an_idle_setting_is_rejected_by_name_and_accepted_if_it_has_an_effect(method, others, name, value):
    chosen = get_method(method)
    config_from(chosen, {"data": "events.csv", **others})
    with pytest.raises(ConfigError, match=name.rsplit(".", 1)[-1]):
        config_from(chosen, {"data": "events.csv", **others, name: value})


def test_time_span_steps_and_data_maps_accept_their_settings():
    assert TimeSpanConfig(step="both", step_function="log").step_function == "log"
    assert not TimeSpanConfig(bc_source="data", spectral_bound=False).spectral_bound


@pytest.mark.parametrize("decoder", ["node", "sequence"])
@pytest.mark.parametrize("options", [{"node_time_deltas": True}, {"pair_dim": 4}], ids=str)
def test_pair_settings_are_rejected_for_nodes_and_sequences(decoder, options):
    CTDGSSM(CTDGSSM.Config(dim=4, **options))
    with pytest.raises(ConfigError, match=next(iter(options))):
        CTDGSSM(CTDGSSM.Config(dim=4, **options), decoder=decoder)


def _stream(x: np.ndarray | None) -> EventStream:
    src, dst = np.arange(30) % 5, 5 + np.arange(30) % 4
    return EventStream(src=src, dst=dst, t=np.arange(30), num_nodes=9, x=x)


@pytest.mark.parametrize("settings", [{"num_neighbors": 5}, {"window": 3.0}], ids=str)
def test_neighbors_without_features_are_rejected(settings, tmp_path):
    context = Context(run=tmp_path, cache=tmp_path)
    config = GraphMixerRun(data="memory:toy", **settings)
    build_graphmixer(_stream(np.ones((9, 2), np.float32)), config, context)
    with pytest.raises(ConfigError):
        build_graphmixer(_stream(None), config, context)


def test_widths_agree_with_training():
    stream = _stream(np.ones((9, 2), np.float32))
    for facts, expected in (
        (None, {"node_dim": 2, "edge_dim": 0}),
        ({"feature_dims": {"node_dim": 0, "edge_dim": 3}}, {"node_dim": 0, "edge_dim": 3}),
    ):
        assert feature_dims(stream, SimpleNamespace(trained=facts)) == expected


LOOP = {"loop": {"epochs": 1, "progress": False, "logger": "none", "device": "cpu"}}


def test_excessive_counts_are_rejected():
    for name, key, most in (
        ("ctdg-ssm", "evaluation.bootstrap", 10**6),
        ("ctdg-ssm", "num_neighbors", 2**20),
        ("ctdg-ssm-nodes", "bootstrap", 10**6),
    ):
        assert flatten(as_dict(config_from(get_method(name), {"data": "x", key: most})))[key] == most
        with pytest.raises(ConfigError, match=key):
            config_from(get_method(name), {"data": "x", key: most + 1})
