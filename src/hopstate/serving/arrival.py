"""A request arrives in time or is refused: whoever sends half of one and waits holds nothing up for ever.

And who has left is answered no further: a long ranking that nobody waits for ends with its slice.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send


class Arrival:
    """Bodies as a whole, within some seconds; what is late is answered 408.

    Args:
        app: what is asked then.
        seconds: from a request's head to its last byte.
        questions: ends of the paths of doors that change nothing, which are given up where the client leaves.
    """

    def __init__(self, app: ASGIApp, seconds: float, questions: tuple[str, ...] = ()) -> None:
        self.app, self.seconds, self.questions = app, seconds, questions

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Wait for a request's body and pass it on."""
        if scope["type"] != "http" or scope["method"] == "GET":
            await self.app(scope, receive, send)
            return
        body, message = b"", dict[str, Any](more_body=True)
        try:
            async with asyncio.timeout(self.seconds):
                while message.get("more_body", False):
                    message = dict(await receive())
                    body += message.get("body", b"")
        except TimeoutError:
            told = {"error": f"a request arrives within {self.seconds:g} s"}
            await JSONResponse(told, 408, {"Connection": "close"})(scope, receive, send)
            return
        first = [{**message, "body": body}] if message["type"] == "http.request" else [message]

        async def received() -> Message:
            return first.pop() if first else await receive()  # then only whether the client has gone

        if not scope["path"].endswith(self.questions):
            await self.app(scope, received, send)
            return
        answer, gone = asyncio.ensure_future(self.app(scope, received, send)), asyncio.ensure_future(receive())
        try:
            await asyncio.wait({answer, gone}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for left in (answer, gone):  # one of which is done
                left.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await answer
