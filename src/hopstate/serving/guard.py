"""What every request passes first: the name it asks for, a token, its length, and a note of what became of it."""

from __future__ import annotations

import hmac
import time
from collections.abc import Collection

from starlette.datastructures import Headers
from starlette.responses import JSONResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from hopstate.serving.doors import Doors

NO_TOKEN = "/v2/health"  # paths below it need none, nor do pages, which hold no data
PAGES = ("/", "/docs", "/openapi.json")
_EMPTY = ("GET", "HEAD", "OPTIONS")  # methods of requests that need not say that they hold nothing
FAILED, LEFT = 500, 499  # what counts where there was no answer: after an error, and where the client has left


class Guard:
    """Requests that may pass, counted and told.

    Args:
        app: what is asked then.
        doors: whose meters and lines; its limits.
        token: what requests must bear (`Authorization: Bearer TOKEN`), None for nothing.
        hosts: names by which it may be asked, None for any: a page of another site whose name is given this machine's
            address in a browser asks by its own.
    """

    def __init__(self, app: ASGIApp, doors: Doors, token: str | None, hosts: Collection[str] | None = None) -> None:
        self.app, self.doors, self.token = app, doors, token
        self.hosts = None if hosts is None else {host.lower() for host in hosts}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Refuse a request, or pass it on."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        start, status, headers = time.perf_counter(), FAILED, Headers(scope=scope)
        path, method = "other", scope["method"]

        async def noted(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            refused = self._refused(scope["path"], method, headers)
            await (refused or self.app)(scope, receive, noted)
            status = LEFT if status == FAILED else status
            path = getattr(scope.get("route"), "path", path)
        finally:
            self.doors.meters.answered(path, status, start)
            seconds = time.perf_counter() - start
            self.doors.lines("request", method=method, door=path, status=status, seconds=seconds)

    def _refused(self, path: str, method: str, headers: Headers) -> Response | None:
        if self.hosts is not None and (name := _name(headers.get("host"))) is not None and name not in self.hosts:
            told = f"this service is not called {name[:80]!r}; serve --host-names {name[:80]} if it is to be"
            return JSONResponse({"error": told.encode("ascii", "replace").decode()}, 421)
        if (
            self.token is not None
            and not path.startswith(NO_TOKEN)
            and not (path in PAGES and method in ("GET", "HEAD"))
        ):
            kind, _, given = headers.get("authorization", "").partition(" ")
            if not hmac.compare_digest(given.strip().encode(), self.token.encode()) or kind.lower() != "bearer":
                needed = {"error": "a token is needed: Authorization: Bearer TOKEN"}
                return JSONResponse(needed, 401, headers={"WWW-Authenticate": "Bearer"})
        length = headers.get("content-length", "0" if method in _EMPTY else "")
        if not length.isdecimal() or "transfer-encoding" in headers:
            return JSONResponse({"error": "a request tells its length (Content-Length)"}, 411)
        if int(length) > self.doors.limits.body:
            return JSONResponse({"error": f"a request has at most {self.doors.limits.body} bytes"}, 413)
        return None


def _name(host: str | None) -> str | None:
    """Return the name in a Host header, without its port; None where there is none: browsers always send one."""
    if host is None:
        return None
    name = host.strip().lower()
    return name[1 : name.find("]")] if name.startswith("[") else name.partition(":")[0].rstrip(".")
