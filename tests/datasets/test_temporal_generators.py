"""Generated event streams: CTAN's recipe written out, and a message stream with its documented structure."""

import numpy as np
import pytest

from hopstate.data.neighbor_store import NeighborStore
from hopstate.data.splits import dyglib_split
from hopstate.datasets.temporal_generators import MessageConfig, generate_messages, path_sequences
from hopstate.errors import ConfigError
from hopstate.evaluation.link import evaluate_link
from hopstate.methods.heuristics.method import Recency


@pytest.mark.parametrize("length", [2, 3, 20])
def test_path_sequences_follow_the_recipe_bit_for_bit(length):
    count = 20
    rng = np.random.default_rng(9)  # the published recipe, one sequence at a time
    x = rng.uniform(-1, 1, (length * count, 2))
    made = path_sequences(length, count=count)
    for i in range(count):
        sign = 1 if i % 2 else -1
        x[i * length] = sign
        messages = rng.uniform(-1, 1, (length - 1, 2))
        messages[0] = sign
        np.testing.assert_array_equal(made.edge_attr[i], messages.astype(np.float32))
    np.testing.assert_array_equal(made.x.reshape(-1, 2), x.astype(np.float32))
    np.testing.assert_array_equal(made.y, np.arange(count) % 2)
    assert made.t.dtype == np.int64
    assert [len(part) for part in made.split.values()] == [14, 3, 3]


def test_the_full_dataset_has_the_published_sizes():
    made = path_sequences(9)
    assert {name: (rows[0], len(rows)) for name, rows in made.split.items()} == {
        "train": (0, 700),
        "val": (700, 150),
        "test": (850, 150),
    }
    stream = made.stream(3)
    assert (len(stream), stream.num_nodes, stream.t.tolist()) == (8, 9, list(range(8)))
    assert (stream.x[0] == 1).all()


def test_the_other_variant_has_scalars_random_times_and_a_random_split():
    made, again = (path_sequences(9, count=200, variant="ctdg-ssm", seed=1) for _ in range(2))
    np.testing.assert_array_equal(made.x, again.x)
    assert made.x.shape == (200, 9, 1)
    assert made.t.dtype == np.float64
    assert (np.diff(made.t) >= 0).all()
    assert 0 <= made.t.min() < 1 < 9 < made.t.max() <= 10
    np.testing.assert_array_equal(made.x[:, 0, 0], 2 * made.y - 1)
    np.testing.assert_array_equal(np.sort(np.concatenate(list(made.split.values()))), np.arange(200))
    assert made.split["train"][0] != 0 or made.split["train"][1] != 1


def test_messages_are_seeded_and_sorted_and_have_the_configured_size():
    stream, again, other = (generate_messages(MessageConfig(num_events=1500, seed=s)) for s in (1, 1, 2))
    assert stream.content_hash == again.content_hash != other.content_hash
    assert (stream.num_nodes, stream.time_unit) == (300, "s")
    assert 1300 < len(stream) < 1700
    assert not (stream.src == stream.dst).any()


def test_messages_hold_replies_groups_rhythm_ties_and_newcomers():
    stream = generate_messages()
    store = NeighborStore.from_stream(stream)
    answers = stream.edge_attr[:, 0] == 1
    assert 0.35 < answers.mean() < 0.55
    heard = store.last_meeting(stream.dst[answers], stream.src[answers], stream.t[answers] + 1, directed=True)[1]
    assert heard.mean() > 0.99  # an answer follows a message the other way
    hour = stream.t // 3600 % 24
    assert np.isin(hour, [12, 13, 14, 15, 16, 17]).sum() > 2 * np.isin(hour, [0, 1, 2, 3, 4, 5]).sum()
    assert (stream.t % 60 == 0).all()
    coarse = generate_messages(MessageConfig(tick=3600))
    assert (np.diff(coarse.t) == 0).mean() > 0.7 > 0.1 > (np.diff(stream.t) == 0).mean() > 0
    assert 0 < stream.labels.mean() < 0.5
    assert len(dyglib_split(stream).new_test) > 50


def test_messages_are_learnable_beyond_recency():
    stream = generate_messages()
    report = evaluate_link(Recency(NeighborStore.from_stream(stream)), stream, dyglib_split(stream))
    assert 0.7 < report.value("roc_auc") < 0.93


def test_bad_settings_are_named():
    with pytest.raises(ConfigError, match="length"):
        path_sequences(1)
    with pytest.raises(ConfigError, match="variant"):
        path_sequences(3, variant="other")
    with pytest.raises(ConfigError, match="communities"):
        MessageConfig(num_nodes=5)
    with pytest.raises(ConfigError, match="repeat"):
        MessageConfig(repeat=1.5)
    with pytest.raises(ConfigError, match="reply"):
        MessageConfig(reply=1.0)
