"""The background thread that prepares batches."""

import threading
import time

import pytest

from hopstate.training.tasks.task import prefetched


def _workers() -> int:
    return sum(thread.name.startswith("hopstate-prefetch") for thread in threading.enumerate())


def test_items_come_in_order():
    assert list(prefetched([0, 1, 2, None, 4])) == [0, 1, 2, None, 4]
    assert list(prefetched([])) == []
    assert _workers() == 0


def test_an_error_is_raised_where_its_item_would_have_been():
    def source():
        yield 1
        yield 2
        raise KeyError("three")

    items = prefetched(source())
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

    for item in prefetched(source()):
        if item == 5:
            break
    assert _workers() == 0
    assert len(made) <= 5 + 2


def test_the_next_item_is_prepared_while_the_first_is_used():
    second = threading.Event()

    def source():
        yield 1
        second.set()
        yield 2

    for item in prefetched(source()):
        if item == 1:
            assert second.wait(10)


def test_no_more_items_are_prepared_than_requested():
    made = []

    def source():
        for i in range(100):
            made.append(i)
            yield i

    reader = prefetched(source())
    next(reader)
    time.sleep(0.05)
    assert len(made) <= 2
    reader.close()
    assert _workers() == 0
