"""What every request passes first: the token, its length, the time in which it must arrive; metrics and log lines."""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import time
from typing import Any

from starlette.datastructures import Headers
from starlette.responses import JSONResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from hopstate.serving.engine import ServiceEngine

_NO_TOKEN = "/v2/health"  # paths below it need no token
_PAGES = ("/", "/docs", "/openapi.json")  # nor do these, which hold no data
_WITHOUT_BODY = ("GET", "HEAD", "OPTIONS")
_READ_ONLY = ("/rank", "/infer")  # ends of paths whose work is cancelled if the client disconnects
FAILED, CLIENT_LEFT = 500, 499  # statuses of requests that got no response


class RequestLimits:
    """Refuse requests without the token, without a length, too large or too slow; count and log all of them.

    Args:
        app: the application.
        engine: whose limits, metrics and log lines are used.
        token: what requests must carry (`Authorization: Bearer TOKEN`), None if nothing.
    """

    def __init__(self, app: ASGIApp, engine: ServiceEngine, token: str | None) -> None:
        self.app, self.engine, self.token = app, engine, token

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        start, status, path = time.perf_counter(), FAILED, "other"

        async def send_noting_status(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            await self._respond(scope, receive, send_noting_status)
            status = CLIENT_LEFT if status == FAILED else status
            path = getattr(scope.get("route"), "path", path)
        finally:
            self.engine.metrics.answered(path, status, start)
            seconds = time.perf_counter() - start
            self.engine.lines("request", method=scope["method"], route=path, status=status, seconds=seconds)

    async def _respond(self, scope: Scope, receive: Receive, send: Send) -> None:
        refusal = self._refusal(scope["path"], scope["method"], Headers(scope=scope))
        if refusal is not None:
            await refusal(scope, receive, send)
            return
        if scope["method"] == "GET":
            await self.app(scope, receive, send)
            return
        seconds = self.engine.limits.arrival
        try:
            async with asyncio.timeout(seconds):
                whole = await _whole_body(receive)
        except TimeoutError:
            late = {"error": f"a request arrives within {seconds:g} s"}
            await JSONResponse(late, 408, {"Connection": "close"})(scope, receive, send)
            return
        first = [whole]

        async def received() -> Message:
            return first.pop() if first else await receive()  # after the body only a disconnect can come

        if scope["path"].endswith(_READ_ONLY):
            await _until_disconnect(self.app(scope, received, send), receive)
        else:
            await self.app(scope, received, send)

    def _refusal(self, path: str, method: str, headers: Headers) -> Response | None:
        is_open = path.startswith(_NO_TOKEN) or (path in _PAGES and method in ("GET", "HEAD"))
        if self.token is not None and not is_open:
            scheme, _, given = headers.get("authorization", "").partition(" ")
            # bytes, in constant time: a comparison that ends early tells how much of a guess is right
            if not hmac.compare_digest(given.strip().encode(), self.token.encode()) or scheme.lower() != "bearer":
                error = {"error": "a token is needed: Authorization: Bearer TOKEN"}
                return JSONResponse(error, 401, headers={"WWW-Authenticate": "Bearer"})
        length = headers.get("content-length", "0" if method in _WITHOUT_BODY else "")
        if not length.isdecimal() or "transfer-encoding" in headers:
            return JSONResponse({"error": "a request tells its length (Content-Length)"}, 411)
        if int(length) > self.engine.limits.body:
            return JSONResponse({"error": f"a request has at most {self.engine.limits.body} bytes"}, 413)
        return None


async def _whole_body(receive: Receive) -> Message:
    body, message = b"", dict[str, Any](more_body=True)
    while message.get("more_body", False):
        message = dict(await receive())
        body += message.get("body", b"")
    return {**message, "body": body} if message["type"] == "http.request" else message


async def _until_disconnect(response: Any, receive: Receive) -> None:
    """Run the application until it ends or the client leaves, whichever is first."""
    work, disconnect = asyncio.ensure_future(response), asyncio.ensure_future(receive())
    try:
        await asyncio.wait({work, disconnect}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in (work, disconnect):  # one of them has ended
            task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await work
