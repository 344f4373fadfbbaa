"""Connections of a service: a request's head arrives whole, within some seconds and bytes, and there are not too many.

uvicorn itself bounds none of these before a first request. Whoever may open many connections still holds others up for
so many seconds: where strangers can connect, a proxy in front has to count them by their address.
"""

from __future__ import annotations

import asyncio
from typing import Any

from uvicorn.protocols.http.auto import AutoHTTPProtocol

HEAD = 32 << 10  # bytes
SECONDS = 10.0
_OWN = 128  # files of this process: its log, snapshots, modules


def bounded(seconds: float = SECONDS, most_bytes: int = HEAD, most: int | None = None) -> type[asyncio.Protocol]:
    """Return a protocol for uvicorn.

    Args:
        seconds: in which a head must have arrived, from the connection or from its own first byte on.
        most_bytes: of a head.
        most: connections at a time; further ones are closed at once. By default what files this process may open
            leaves beside its own.
    """
    limit = _left() if most is None else most

    class Bounded(AutoHTTPProtocol):  # type: ignore[misc, valid-type]
        _timer: asyncio.TimerHandle | None = None
        _head = 0  # bytes of the head that is arriving

        def connection_made(self, transport: Any) -> None:
            super().connection_made(transport)
            if len(self.connections) > limit:
                transport.abort()
                return
            self._wait()

        def data_received(self, data: bytes) -> None:
            before = self.cycle
            super().data_received(data)
            if self.cycle is not before:  # a head was whole, what may come behind it is bounded by the next call
                self._head = 0
                self._stop()
            elif self.cycle is None or (self.cycle.response_complete and not self.cycle.more_body):
                self._head += len(data)
                if self._head > most_bytes:
                    self._stop()
                    self.transport.write(b"HTTP/1.1 431 Request Header Fields Too Large\r\nConnection: close\r\n\r\n")
                    self.transport.close()
                elif self._timer is None:
                    self._wait()

        def connection_lost(self, error: Exception | None) -> None:
            self._stop()
            super().connection_lost(error)

        def _wait(self) -> None:
            self._timer = asyncio.get_running_loop().call_later(seconds, self.transport.abort)

        def _stop(self) -> None:
            if self._timer is not None:
                self._timer.cancel()
                self._timer = None

    return Bounded


def _left() -> int:
    """Return how many files this process may open beside its own."""
    try:
        import resource
    except ImportError:  # Windows
        return 1 << 16
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return 1 << 16 if limit == resource.RLIM_INFINITY else max(limit - _OWN, _OWN)
