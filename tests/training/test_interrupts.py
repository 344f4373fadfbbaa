"""Within the block, signals call the given function in the main thread; afterwards the old handlers are back."""

import signal
import threading

import pytest

from hopstate.training.trainer import STOPPING, interrupts, signals_to

BOTH = (signal.SIGINT, signal.SIGTERM)


def handlers() -> list[object]:
    return [signal.getsignal(number) for number in BOTH]


@pytest.mark.parametrize("fails", [False, True])
def test_handlers_are_active_within_the_block_and_restored_after_it(fails: bool) -> None:
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


def test_other_threads_install_no_handler() -> None:
    before, seen = handlers(), list[object]()

    def look() -> None:
        with signals_to(lambda number: None):
            seen.extend(handlers())

    other_thread = threading.Thread(target=look)
    other_thread.start()
    other_thread.join()
    assert seen == before


def test_the_first_signal_prints_a_message_and_the_second_stops() -> None:
    messages = list[str]()
    with interrupts(messages.append) as stop:
        signal.raise_signal(signal.SIGINT)
        assert stop.is_set()
        assert messages == [STOPPING]
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
    assert messages == [STOPPING]


def test_a_failing_message_is_ignored() -> None:
    def busy(text: str) -> None:
        raise RuntimeError("reentrant call")

    with interrupts(busy) as stop:
        signal.raise_signal(signal.SIGINT)
    assert stop.is_set()
