"""The two baselines without parameters, computed manually."""

import numpy as np
import pytest

from hopstate.data.events import EventStream
from hopstate.data.neighbor_store import NeighborStore
from hopstate.errors import ConfigError
from hopstate.methods.heuristics.edgebank import EdgeBank
from hopstate.methods.heuristics.method import NEVER, Recency

# pairs 0-1 three times, 0-2 once, 3-4 twice
STREAM = EventStream(
    src=np.array([0, 0, 3, 0, 3, 0]), dst=np.array([1, 2, 4, 1, 4, 1]), t=np.array([0, 10, 20, 30, 40, 50])
)
U, V = np.array([0, 0, 3, 1, 2]), np.array([1, 2, 4, 0, 3])


def bank(**settings) -> EdgeBank:
    model = EdgeBank(5, EdgeBank.Config(**settings))
    for start in range(0, 6, 2):
        model.observe(STREAM.take(np.arange(start, start + 2)))
    return model


def scores(model) -> list[float]:
    return model.score(U, V, np.full(5, 60)).tolist()


def test_recency_equals_a_manual_computation():
    store = NeighborStore.from_stream(STREAM)
    found = Recency(store).score(U, V, np.array([50, 60, 40, 60, 60]))
    np.testing.assert_allclose(found, [-np.log(21), -np.log(51), -np.log(21), -np.log(11), NEVER])
    assert Recency(store, directed=True).score(U, V, np.full(5, 60))[3] == NEVER
    assert Recency(store).score(np.array([0]), np.array([1]), np.array([2**62]))[0] > NEVER


def test_unlimited_memory_is_directed():
    assert scores(bank()) == [1, 1, 1, 0, 0]


def test_the_window_of_a_fraction_starts_at_a_quantile():
    assert scores(bank(memory="window", proportion=0.5)) == [1, 0, 1, 0, 0]  # from t = 25
    assert scores(bank(memory="window", proportion=0.1)) == [1, 0, 0, 0, 0]
    start = bank(memory="window", proportion=0.37)
    assert start._window_start() == np.quantile(STREAM.t, 0.63)


def test_the_window_of_repeats_is_the_mean_time_delta_of_all_pairs():
    model = bank(memory="window", window="repeat")
    assert model._window_start() == 50 - (25 + 0 + 20) / 3
    assert scores(model) == [1, 0, 1, 0, 0]


def test_the_threshold_is_the_mean_count():
    assert scores(bank(memory="threshold")) == [1, 0, 1, 0, 0]  # 6 events / 3 pairs


@pytest.mark.parametrize("memory", ["unlimited", "window", "threshold"])
def test_a_reset_clears_the_history(memory):
    model = bank(memory=memory)
    model.reset()
    assert scores(model) == [0] * 5


def test_settings_are_checked():
    for bad in ({"memory": "all"}, {"window": "fixed"}, {"proportion": 0.0}):
        with pytest.raises(ConfigError):
            EdgeBank.Config(**bad)
