"""Prepare the next batches in a background thread while the present one is being computed."""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterable, Iterator
from typing import Any, Generic, TypeVar

T = TypeVar("T")
_END = object()


class Prefetcher(Generic[T]):
    """Iterate over items, taken from their source by one background thread, in the source's order.

    Useful where making an item is compiled code that releases the interpreter lock. Leaving the loop early, by
    break or exception, stops the thread; an error of the source is raised where its item would have been.

    Args:
        source: what to iterate over; it is touched by the background thread alone.
        ahead: most items held ready, at least 1.
    """

    def __init__(self, source: Iterable[T], ahead: int = 1) -> None:
        self.source, self.ahead = source, max(1, ahead)

    def __iter__(self) -> Iterator[T]:
        ready: queue.Queue[tuple[Any, BaseException | None]] = queue.Queue(self.ahead)
        stop = threading.Event()
        worker = threading.Thread(target=self._fill, args=(ready, stop), name="hopstate-prefetch", daemon=True)
        worker.start()
        try:
            while True:
                item, error = ready.get()
                if error is not None:
                    raise error
                if item is _END:
                    return
                yield item
        finally:
            stop.set()
            while worker.is_alive():  # a full queue would keep the thread waiting
                while not ready.empty():
                    ready.get_nowait()
                worker.join(0.01)

    def _fill(self, ready: queue.Queue[tuple[Any, BaseException | None]], stop: threading.Event) -> None:
        try:
            for item in self.source:
                if stop.is_set():
                    return
                ready.put((item, None))
            ready.put((_END, None))
        except BaseException as error:
            ready.put((None, error))
