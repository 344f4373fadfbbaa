"""What a request must fulfil before its body is read, and the count of all requests."""

from __future__ import annotations

import hmac
import re
import time
from collections import defaultdict
from collections.abc import Collection

from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from hopstate.serving.engine import ServiceEngine

HEADER_LINES, HEADER_BYTES = 100, 32 << 10
FAILED = 500  # the status of a request without a response
_PAGES = ("/", "/docs", "/openapi.json")  # hold no data, so they need no token
_READING = ("GET", "HEAD", "OPTIONS")


class RequestGuard:
    """Refuse a request by its head alone; count and log every request.

    token None needs none; hosts are lower-case names of this service, None allows any.
    """

    def __init__(self, app: ASGIApp, engine: ServiceEngine, token: str | None, hosts: Collection[str] | None) -> None:
        self.app, self.engine, self.token, self.hosts = app, engine, token, hosts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        start, status = time.perf_counter(), FAILED

        async def send_noting_status(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        app = self._refusal(scope) or self.app
        if app is self.app and _may_omit_type(scope["path"]) and b"content-type" not in dict(scope["headers"]):
            scope = {**scope, "headers": [*scope["headers"], (b"content-type", b"application/json")]}
        try:
            await app(scope, receive, send_noting_status)
        finally:
            route = getattr(scope.get("route"), "path", "other")
            self.engine.metrics.count_request(route, status, start)
            seconds = time.perf_counter() - start
            self.engine.lines("request", method=scope["method"], route=route, status=status, seconds=seconds)

    def _refusal(self, scope: Scope) -> JSONResponse | None:
        lines = scope["headers"]
        if len(lines) > HEADER_LINES or sum(len(name) + len(value) for name, value in lines) > HEADER_BYTES:
            return _error(431, f"a request has at most {HEADER_LINES} header lines and {HEADER_BYTES} bytes of them")
        headers = defaultdict[str, list[str]](list)
        for name, value in lines:
            headers[name.decode("latin-1").lower()].append(value.decode("latin-1"))
        if len(headers["host"]) > 1 or not self._is_allowed_host(headers["host"]):
            return _error(400, "Host is not a name of this service (serve --allowed-hosts)")
        path, reads = scope["path"], scope["method"] in _READING
        is_open = path.startswith("/v2/health") or (path in _PAGES and reads)
        if self.token is not None and not is_open and not self._has_token(headers["authorization"]):
            return _error(401, "a token is needed: Authorization: Bearer TOKEN", {"WWW-Authenticate": "Bearer"})
        lengths = headers["content-length"] or (["0"] if reads else [])
        if len(lengths) != 1 or not (lengths[0].isascii() and lengths[0].isdecimal()) or headers["transfer-encoding"]:
            return _error(411, "a request needs a Content-Length")
        most = self.engine.limits.body
        if len(lengths[0]) > 18 or int(lengths[0]) > most:
            return _error(413, f"a request has at most {most} bytes")
        if reads:
            return None
        if _is_of_another_site(headers):
            return _error(403, "pages of other sites may not send requests")
        return _refused_body(path, headers)

    def _is_allowed_host(self, host: list[str]) -> bool:
        found = re.fullmatch(r"(\[[^]]*\]|[^:]*)(:\d*)?", host[0].lower()) if host else None
        return self.hosts is None or (found is not None and found[1] in self.hosts)

    def _has_token(self, given: list[str]) -> bool:
        scheme, _, token = (given or [""])[0].partition(" ")
        # in constant time: a comparison that ends early shows how much of a guess is right
        is_same = hmac.compare_digest(token.strip().encode(), (self.token or "").encode())
        return len(given) == 1 and scheme.lower() == "bearer" and is_same


def _may_omit_type(path: str) -> bool:
    # tritonclient sends none
    return path.startswith("/v2/models/") and path.endswith("/infer")


def _is_of_another_site(headers: dict[str, list[str]]) -> bool:
    if sites := headers["sec-fetch-site"]:
        return not {"same-origin", "none"}.issuperset(sites)
    hosts = [host.lower() for host in headers["host"]]
    return any([origin.lower().partition("://")[2]] != hosts for origin in headers["origin"])


def _refused_body(path: str, headers: dict[str, list[str]]) -> JSONResponse | None:
    if headers["inference-header-content-length"]:
        advice = "give data as JSON (tritonclient: set_data_from_numpy(..., binary_data=False))"
        return _error(415, f"binary tensors are not supported; {advice}")
    if headers["content-encoding"] not in ([], ["identity"]):
        return _error(415, f"a compressed body is not supported: Content-Encoding {headers['content-encoding'][0]}")
    types = headers["content-type"] or (["application/json"] if _may_omit_type(path) else [])
    if [one.partition(";")[0].strip().lower() for one in types] != ["application/json"]:
        return _error(415, "a request needs Content-Type: application/json")
    return None


def _error(status: int, text: str, headers: dict[str, str] | None = None) -> JSONResponse:
    return JSONResponse({"error": text}, status, headers)
