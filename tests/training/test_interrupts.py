"""Signals call what they are told to, within, in the main thread; after it they do what they did. Ctrl-C is told."""

import signal
import threading

import pytest

from hopstate.training.trainer import STOPPING, interrupts, signals_to

BOTH = (signal.SIGINT, signal.SIGTERM)


def handlers() -> list[object]:
    return [signal.getsignal(number) for number in BOTH]


@pytest.mark.parametrize("fails", [False, True])
def test_signals_are_heard_within_and_do_what_they_did_afterwards(fails: bool) -> None:
    before, heard = handlers(), list[int]()
    try:
        with signals_to(heard.append):
            for number in BOTH:
                signal.raise_signal(number)
            if fails:
                raise ZeroDivisionError
    except ZeroDivisionError:
        assert fails
    assert heard == list(BOTH)
    assert handlers() == before


def test_beside_the_main_thread_nothing_is_changed() -> None:
    before, seen = handlers(), list[object]()

    def look() -> None:
        with signals_to(lambda number: None):
            seen.extend(handlers())

    beside = threading.Thread(target=look)
    beside.start()
    beside.join()
    assert seen == before


def test_the_first_wish_says_what_it_waits_for_and_the_second_stops() -> None:
    told = list[str]()
    with interrupts(told.append) as stop:
        signal.raise_signal(signal.SIGINT)
        assert stop.is_set()
        assert told == [STOPPING]
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
    assert told == [STOPPING]


def test_what_cannot_be_said_says_nothing() -> None:
    def busy(text: str) -> None:
        raise RuntimeError("reentrant call")

    with interrupts(busy) as stop:
        signal.raise_signal(signal.SIGINT)
    assert stop.is_set()
