"""The club stream has its documented signals: repeat pairs, and clubs that only long histories show."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from hopstate.data.events import EventStream
from hopstate.datasets import load_dataset
from hopstate.datasets.temporal_generators import ClubConfig, generate_clubs
from hopstate.errors import ConfigError
from hopstate.evaluation.metrics import average_precision


def signal_ap(made: EventStream, noise: float) -> dict[str, float]:
    """Return the average precision of each signal of a pair on the last 15% of the events."""
    assert made.edge_attr is not None
    cut, n = int(0.85 * len(made)), made.num_nodes
    src, dst, readings = made.src[:cut], made.dst[:cut], made.edge_attr[:cut].astype(np.float64)
    total, last = np.zeros((2, n, readings.shape[1]))
    repeat = np.zeros((n, n), np.int8)
    for u, v in ((src, dst), (dst, src)):
        np.add.at(total, u, readings)
        repeat[u, v] = 1
    last[np.stack([src, dst], 1).ravel()] = readings.repeat(2, 0)  # the last one stays
    late = len(made) - cut
    u = np.tile(made.src[cut:], 2)
    v = np.concatenate([made.dst[cut:], np.random.default_rng(0).integers(0, n, late)])
    y = np.repeat([1, 0], late)

    def same_club(summed: np.ndarray) -> np.ndarray:
        """Bayes' rule on sums of readings."""
        logit = summed / noise**2
        share = np.exp(logit - logit.max(1, keepdims=True))
        share /= share.sum(1, keepdims=True)
        return np.asarray((share[u] * share[v]).sum(1) + 2 * repeat[u, v])

    common = (repeat[u].astype(np.int64) * repeat[v]).sum(1)
    scores = {
        "repeat": repeat[u, v],
        "common": common + 10 * repeat[u, v],
        "last": same_club(last),
        "all": same_club(total),
    }
    return {name: average_precision(y, score) for name, score in scores.items()}


def test_a_seed_fixes_the_stream_and_its_dates() -> None:
    config = ClubConfig()
    made = generate_clubs(config)
    assert made.content_hash == generate_clubs(config).content_hash == load_dataset("clubs-generated").content_hash
    assert made.content_hash != generate_clubs(replace(config, seed=1)).content_hash
    assert (len(made), made.num_nodes, made.feature_dims) == (6_000, 1_500, {"node_dim": 0, "edge_dim": 6})
    assert (made.time_unit, made.dates) == ("s", "UTC")
    days = made.t.astype("datetime64[s]").astype("datetime64[D]")
    assert str(days.min()) == "2026-01-01"
    assert str(days.max()) == "2026-03-01"
    assert (made.src != made.dst).all()


def test_a_long_history_is_informative_only_with_the_rule() -> None:
    config = ClubConfig()
    rule, none = (
        signal_ap(generate_clubs(replace(config, within=within)), config.noise) for within in (config.within, 0.0)
    )
    assert rule["common"] - rule["repeat"] < 0.05  # a club is far larger than a list of partners
    assert rule["all"] > rule["last"] + 0.08
    assert rule["all"] > rule["repeat"] + 0.2
    assert abs(none["repeat"] - rule["repeat"]) < 0.04  # the habit stays
    assert none["all"] < none["repeat"] + 0.08  # no other signal remains


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"num_nodes": 10}, "clubs"),
        ({"num_events": 0}, "num_events"),
        ({"days": 0.0}, "days"),
        ({"within": 1.5}, "within"),
        ({"habit": -0.1}, "habit"),
        ({"noise": float("nan")}, "noise"),
    ],
)
def test_bad_club_settings_are_named(wrong: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        ClubConfig(**wrong)
