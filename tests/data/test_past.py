"""A past takes events in: ids that go on, units of time, and what cannot be joined."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from hopstate.data.events import EventStream
from hopstate.data.past import Past
from hopstate.data.vocabulary import Vocabulary
from hopstate.errors import DataError, TimeOrderError


def events(t: list[float], **fields: Any) -> EventStream:
    rng = np.random.default_rng(len(t))
    return EventStream(src=rng.integers(0, 3, len(t)), dst=rng.integers(3, 5, len(t)), t=np.array(t), **fields)


def past(stream: EventStream) -> Past:
    return Past().joined(stream)[1]


def test_new_events_follow_in_the_same_rows() -> None:
    old = EventStream(
        src=np.array([0, 1]), dst=np.array([2, 2]), t=np.array([1, 2]), node_ids=Vocabulary(np.array(["a", "b", "c"]))
    )
    new = EventStream(
        src=np.array([3, 0]),
        dst=np.array([1, 2]),
        t=np.array([2, 5]),
        edge_attr=np.ones((2, 1), np.float32),
        node_ids=Vocabulary(np.array(["b", "c", "x", "y"])),
    )
    part, now = past(old).joined(new)
    whole = now.events()
    assert whole.node_ids is not None
    assert whole.node_ids.ids.tolist() == ["a", "b", "c", "y", "x"]
    assert whole.src.tolist() == [0, 1, 3, 1]
    assert whole.dst.tolist() == [2, 2, 2, 4]
    assert part.event_ids.tolist() == [2, 3]
    assert part.take(np.array([1])).src.tolist() == [1]
    assert part.edge_attr is not None
    assert whole.edge_attr is None  # earlier ones have none
    assert now.events(2).edge_attr is not None
    assert now.events(1, 3).t.tolist() == [2, 2]
    assert now.events(3, 3).t.tolist() == []


def test_numbers_may_follow_text_and_text_never_numbers() -> None:
    text = Vocabulary(np.array(["0", "1", "2", "3", "4"]))
    assert past(events([1, 2], node_ids=text)).joined(events([3, 4]))[1].num_nodes == 5
    for ids in (None, Vocabulary(np.arange(5))):
        with pytest.raises(DataError):
            past(events([1, 2], node_ids=ids, num_nodes=5)).joined(events([3, 4], node_ids=text))


def test_what_cannot_follow_is_named() -> None:
    now = past(events([1, 5]))
    with pytest.raises(TimeOrderError, match="4"):
        now.joined(events([4, 6]))
    pair = {"src": np.array([0]), "dst": np.array([0]), "t": np.array([9])}
    gone = {"kind": np.array([1], np.int8), "from_start": False}
    with pytest.raises(DataError):
        now.joined(EventStream(**pair, **gone))
    added = now.joined(EventStream(**pair))[1]
    after = added.joined(EventStream(**pair, **gone))[1]
    assert after.has_deletes
    with pytest.raises(DataError):
        after.joined(EventStream(**pair | {"t": np.array([10])}, **gone))


def test_the_events_taken_last_are_refused_unless_they_happened_again() -> None:
    new = events([5, 5], num_nodes=5)
    now = past(events([1, 5])).joined(new)[1]
    with pytest.raises(DataError):
        now.joined(new)
    assert len(now.joined(new, again=True)[1]) == 6
    assert len(now.joined(events([5, 5, 5]))[1]) == 7
    stranger = now.joined(events([5], num_nodes=9))[1]  # more nodes do not hide that it is the same
    with pytest.raises(DataError):
        stranger.joined(events([5], num_nodes=12))


@pytest.mark.parametrize(("own", "unit"), [("", "s"), ("s", ""), ("day", "s"), ("s", "h")])
def test_times_of_another_unit_are_refused(own: str, unit: str) -> None:
    now = past(events([1, 5], time_unit=own))
    with pytest.raises(DataError, match="time_unit"):
        now.joined(events([6, 7], time_unit=unit))
    assert now.joined(events([6, 7], time_unit=own))[1].time_unit == own


def test_units_of_dates_are_converted_where_nothing_is_lost() -> None:
    fine, coarse = past(events([1000, 5000], time_unit="ms")), past(events([1, 5], time_unit="s"))
    part, whole = fine.joined(events([6, 7], time_unit="s"))
    assert whole.events().t.tolist() == [1000, 5000, 6000, 7000]
    assert (whole.time_unit, part.time_unit, part.t.dtype) == ("ms", "ms", np.int64)
    assert coarse.joined(events([6000, 7000], time_unit="ms"))[0].t.tolist() == [6, 7]
    with pytest.raises(DataError):
        coarse.joined(events([6000, 7001], time_unit="ms"))


def test_a_past_that_does_not_tell_its_unit_takes_that_of_what_follows() -> None:
    old = replace(past(events([1, 5])), time_unit=None)
    assert old.joined(events([6, 7], time_unit="s"))[1].time_unit == "s"


def test_a_number_far_beyond_all_nodes_is_refused_before_memory_is_taken() -> None:
    far = EventStream(src=np.array([1]), dst=np.array([0]), t=np.array([9]), node_ids=Vocabulary(np.array([0, 10**12])))
    with pytest.raises(DataError):
        past(events([1, 5])).joined(far)
