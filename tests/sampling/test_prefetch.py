"""The background thread that prepares batches."""

import threading
import time

import pytest

from hopstate.training.tasks.task import Prefetcher


def _workers() -> int:
    return sum(thread.name == "hopstate-prefetch" for thread in threading.enumerate())


def test_items_come_in_order_and_every_time():
    items = Prefetcher([0, 1, 2, None, 4])
    assert list(items) == [0, 1, 2, None, 4]
    assert list(items) == [0, 1, 2, None, 4]
    assert list(Prefetcher([])) == []
    assert _workers() == 0


def test_an_error_is_raised_where_its_item_would_have_been():
    def source():
        yield 1
        yield 2
        raise KeyError("three")

    items = iter(Prefetcher(source()))
    assert [next(items), next(items)] == [1, 2]
    with pytest.raises(KeyError, match="three"):
        next(items)
    assert _workers() == 0


def test_leaving_early_stops_the_thread():
    made = []

    def source():
        for i in range(10_000):
            made.append(i)
            yield i

    for item in Prefetcher(source(), buffer_size=3):
        if item == 5:
            break
    assert _workers() == 0
    assert len(made) <= 5 + 1 + 3 + 2


def test_the_next_item_is_made_while_the_first_is_used():
    second = threading.Event()

    def source():
        yield 1
        second.set()
        yield 2

    for item in Prefetcher(source()):
        if item == 1:
            assert second.wait(10)


def test_no_more_is_made_than_asked_for():
    made = []

    def source():
        for i in range(100):
            made.append(i)
            yield i

    reader = iter(Prefetcher(source(), buffer_size=2))
    next(reader)
    time.sleep(0.05)
    assert len(made) <= 1 + 2 + 1
    reader.close()
    assert _workers() == 0
