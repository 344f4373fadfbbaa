"""Splits by windows: correct durations in every unit; invalid durations are rejected."""

import numpy as np
import pytest

from hopstate.data.events import EventStream
from hopstate.data.splits import parse_duration, split_windows
from hopstate.errors import ConfigError


def stream_of(t, **fields) -> EventStream:
    t = np.asarray(t)
    rng = np.random.default_rng(0)
    return EventStream.from_arrays(*rng.integers(0, 9, (2, len(t))), t, num_nodes=9, **fields)


@pytest.mark.parametrize(("unit", "factor"), [("s", 1), ("ms", 10**3), ("ns", 10**9)])
def test_windows_have_the_given_duration_in_every_unit(unit, factor):
    hours = 1_700_000_000 + 3600 * np.arange(0, 24 * 10, 3)  # ten days
    stream = stream_of(hours * factor, time_unit=unit)
    for window in ("2d", "48h", 172_800 * factor):
        split = split_windows(stream, window)
        assert [len(split.rows(part)) for part in ("train", "val", "test")] == [48, 16, 16]
        last = hours[-1] - 172_800
        assert (hours[split.test] > last).all()
        assert (hours[split.val] <= last).all()
        assert (hours[split.val] > last - 172_800).all()
    with pytest.raises(ConfigError):
        split_windows(stream, "1w")


def test_invalid_durations_are_rejected():
    stream = stream_of(np.arange(10), time_unit="s")
    assert parse_duration(stream, "15m") == 900
    assert parse_duration(stream_of(np.arange(10.0)), 0.25) == 0.25
    for wrong in ("7 days", "d", "-1d", 0, "nan", "inf", None, ""):
        with pytest.raises(ConfigError):
            parse_duration(stream, wrong)
    with pytest.raises(ConfigError):
        parse_duration(stream_of(np.arange(10)), "7d")
