"""Splits of event streams; DyGLib's split compared with arrays from its code."""

import numpy as np
import pandas as pd
import pytest

from hopstate.data.dates import parse_times
from hopstate.data.events import EventStream
from hopstate.data.splits import (
    EVENT_SPLITS,
    chronological_split,
    dyglib_split,
    split_at,
)
from hopstate.errors import ConfigError, DataError


def stream_of(t, **fields) -> EventStream:
    t = np.asarray(t)
    rng = np.random.default_rng(0)
    return EventStream.from_arrays(*rng.integers(0, 9, (2, len(t))), t, num_nodes=9, **fields)


@pytest.mark.shared
@pytest.mark.parametrize("name", ["uci", "enron"])
def test_the_dyglib_split_equals_that_of_its_code(shared, name):
    table = pd.read_csv(shared / f"data/temporal/{name}/ml_{name}.csv")
    golden = np.load(shared / f"golden/dyglib_{name}.npz")
    split = dyglib_split(EventStream.from_arrays(table.u.to_numpy() - 1, table.i.to_numpy() - 1, table.ts.to_numpy()))
    for part in ("train", "val", "test", "new_val", "new_test"):
        np.testing.assert_array_equal(split.rows(part), golden[part], err_msg=part)
    np.testing.assert_array_equal(split.new_nodes + 1, np.sort(golden["new_nodes"]))
    assert (split.val_time, split.test_time) == (golden["val_time"], golden["test_time"])


def test_the_chronological_split_never_separates_equal_timestamps():
    split = chronological_split(stream_of(np.repeat(np.arange(10), 10)))
    t = np.repeat(np.arange(10), 10)
    assert set(t[split.train]).isdisjoint(t[split.val])
    assert set(t[split.val]).isdisjoint(t[split.test])
    assert sorted(np.concatenate([split.train, split.val, split.test])) == list(range(100))


def test_inductive_parts_contain_only_events_with_unseen_nodes():
    stream = stream_of(np.arange(100))
    split = dyglib_split(stream, new_node_ratio=0.3)
    known = np.union1d(stream.src[split.train], stream.dst[split.train])
    assert not np.isin(split.new_nodes, known).any()
    for part, of in ((split.new_val, split.val), (split.new_test, split.test)):
        touches = ~(np.isin(stream.src[of], known) & np.isin(stream.dst[of], known))
        np.testing.assert_array_equal(part, of[touches])


def test_split_by_date_counts_in_the_unit_of_the_stream():
    days = np.arange(10) * 86400
    split = split_at(stream_of(days, time_unit="s", dates="naive"), "1970-01-05", "1970-01-08T12:00:00")
    assert (split.train.tolist(), split.val.tolist(), split.test.tolist()) == ([0, 1, 2, 3, 4], [5, 6, 7], [8, 9])
    with pytest.raises(ConfigError, match="time_unit"):
        split_at(stream_of(days), "1970-01-05", "1970-01-08")
    with pytest.raises(ConfigError):
        split_at(stream_of(days, time_unit="s"), "yesterday", "1970-01-08")
    with pytest.raises(ConfigError):
        split_at(stream_of(days), 6, 5)
    for nan in (float("nan"), "nan"):
        with pytest.raises(ConfigError):
            split_at(stream_of(days), nan, 5)


def test_a_split_with_an_empty_part_is_an_error():
    with pytest.raises(DataError):
        chronological_split(stream_of(np.zeros(50)))
    with pytest.raises(DataError):
        chronological_split(stream_of([1]))
    with pytest.raises(DataError):
        chronological_split(stream_of([]))
    with pytest.raises(ConfigError):
        chronological_split(stream_of(np.arange(9)), val_ratio=0.6, test_ratio=0.5)
    with pytest.raises(ConfigError):
        chronological_split(stream_of(np.arange(9))).rows("new")


def test_nanoseconds_are_split_like_small_integers() -> None:
    """Times one nanosecond apart, 1.7e18 ns after 1970: they are equal in float64."""
    rng = np.random.default_rng(0)
    t = np.sort(rng.integers(0, 90, 200))
    src, dst = rng.integers(0, 9, (2, 200))
    parts = []
    for start in (0, 1_700_000_000 * 10**9):
        stream = EventStream(src=src, dst=dst, t=start + t, num_nodes=9)
        splits = chronological_split(stream), dyglib_split(stream)
        parts += [[split.rows(name).tolist() for name in EVENT_SPLITS] for split in splits]
    assert parts[:2] == parts[2:]


def test_years_in_nanoseconds_are_split_like_microseconds() -> None:
    """Three years are 2^56 ns: a quantile in float64 is some ns before the event at that position."""
    for seed in range(30):
        rng = np.random.default_rng(seed)
        t = 1_600_000_000_000_000 + np.sort(rng.integers(0, 3 * 365 * 86_400_000_000, 2001))
        src, dst = rng.integers(0, 9, (2, 2001))
        parts = []
        for unit in (1, 1000):
            split = chronological_split(EventStream(src=src, dst=dst, t=t * unit, num_nodes=9))
            parts.append([split.rows(name).tolist() for name in EVENT_SPLITS])
        assert parts[0] == parts[1]


@pytest.mark.parametrize("when", ["01/02/2026", " 1.2.2026", "13-02-26 12:00"])
def test_an_ambiguous_date_is_rejected_as_a_split_time(when: str) -> None:
    with pytest.raises(ConfigError):
        parse_times([when], "s", "naive", "events")
    with pytest.raises(ConfigError):
        parse_times(["soon"], "s", "naive", "events")
