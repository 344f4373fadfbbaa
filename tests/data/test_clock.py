"""The clock: exact differences, the median time delta as unit, results that do not depend on the unit of the file."""

import numpy as np
import pytest

from hopstate.data.dates import Clock, elapsed
from hopstate.data.events import EventStream
from hopstate.data.neighbor_store import NeighborStore
from hopstate.errors import ConfigError
from hopstate.streaming.active_batch import recent_context
from hopstate.testing.conformance import F64_LAST

NS = 10**9
START = 1_700_000_000  # seconds since 1970; in nanoseconds float64 is exact to 256


def test_differences_are_exact_before_they_are_floats() -> None:
    t = START * NS
    assert elapsed(np.array([t + 3, t]), np.array([t, t + 3])).tolist() == [3, 0]
    far = elapsed(np.array([2**62 + 5]), np.array([-(2**62) - 7]))
    assert far.tolist() == [2**63 + 12]  # more than int64 holds
    assert elapsed(np.array([2.5]), np.array([1])).tolist() == [1.5]


def test_the_unit_is_the_median_time_delta_without_ties() -> None:
    t = np.array([5, 5, 5, 6, 8, 8, 12, 13])
    assert Clock.fit(t).unit == 1  # of gaps 1, 2, 4, 1
    assert Clock.fit(t[:7]).unit == 2  # of 1, 2, 4
    assert Clock.fit(np.full(4, 7)).unit == Clock.fit(t[:0]).unit == 1
    assert Clock.fit(t.astype(float) / 8).unit == 1 / 8


@pytest.mark.parametrize("time_scale", ["median", "seconds"])
def test_time_deltas_are_bit_identical_in_every_unit(time_scale: str) -> None:
    rng = np.random.default_rng(0)
    t = START + np.sort(rng.integers(0, 10**6, 50))
    found = []
    for unit, factor in (("s", 1), ("ms", 1000), ("us", 10**6), ("ns", NS)):
        clock = Clock.fit(t * factor, unit, time_scale)
        found.append(clock.log_time_deltas(t[1:] * factor, t[0] * factor))
        assert clock.over("s").unit == pytest.approx(Clock.fit(t, "s", time_scale).unit, rel=F64_LAST)
    for other in found[1:]:
        np.testing.assert_allclose(other, found[0], rtol=1e-5, atol=1e-6)
    far = START + (3 * rng.permutation(40)).cumsum()
    expected = Clock.fit(far).gaps(far, START)
    np.testing.assert_array_equal(Clock.fit(far * NS).gaps(far * NS, START * NS), expected)


def test_a_fitted_clock_converts_other_units_and_ignores_unknown_ones() -> None:
    clock = Clock(unit=2.0, time_unit="s")
    assert (clock.over("ns").unit, clock.over("ns").ratio) == (2e9, 1e9)
    assert clock.over("ns").over("s") == clock
    assert clock.over("") is clock
    assert Clock(unit=2.0).over("ns").unit == 2.0


def test_the_value_for_never_exceeds_every_time_delta() -> None:
    clock, never = Clock(), 45.0
    gaps = clock.log_time_deltas(np.array([2**63 - 1, 2**63 - 1]), np.array([-(2**63), 0]), never)
    assert (gaps < never).all()
    small = clock.log_time_deltas(np.array([10**6, 10]), np.array([0, 0]), 5.0)
    assert small[1] == np.log1p(10)
    assert np.float32(small[0]) < np.float32(5.0)
    assert clock.log_time_deltas(np.array([1e300]), np.array([0.0]), never)[0] < never


def test_bad_clock_settings_are_named() -> None:
    with pytest.raises(ConfigError, match="time_scale"):
        Clock.fit(np.arange(3), "s", "hours")  # type: ignore[arg-type]
    for unit in (0.0, -1.0, float("nan"), float("inf")):
        with pytest.raises(ConfigError):
            Clock(unit=unit)


def test_the_context_in_nanoseconds_equals_that_in_seconds() -> None:
    """Times 1 ns apart, which float64 cannot represent separately at this distance from 1970."""
    rng = np.random.default_rng(1)
    t = np.sort(rng.integers(0, 60, 120))
    src, dst = rng.integers(0, 10, (2, 120))
    found = []
    for start, factor in ((0, 1), (START * NS, 1)):
        when = start + t * factor
        stream = EventStream(src=src, dst=dst, t=when, num_nodes=10)
        for at in (20, 40, 59):
            query_times = np.full(10, start + at * factor)
            edges, ids, _ = recent_context(NeighborStore.from_stream(stream), np.arange(10), query_times, 4, 2)
            assert (when[ids] < query_times[0]).all()
            found.append((edges.tolist(), ids.tolist()))
    assert found[:3] == found[3:]
