"""HTTP routes of a live run: events in, answers out, over HTTP.

`/v2/...` is the Open Inference Protocol, version 2; `/events` and `/rank` are what it has no word for.
"""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import math
import time
from collections.abc import AsyncIterator, Callable, Collection
from contextlib import asynccontextmanager
from functools import partial
from importlib.resources import files
from typing import Annotated, Any

import pandas as pd
from fastapi import Depends, FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import HTMLResponse, JSONResponse
from fastapi.security import HTTPBearer
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from pydantic import BaseModel, ConfigDict, Field, StrictBool, StrictFloat, StrictInt, StrictStr
from starlette.datastructures import Headers
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from hopstate import __version__
from hopstate.errors import DataError, HopstateError, StorageError, TimeOrderError
from hopstate.runs.queries import chances, ranking
from hopstate.serving.engine import SOON, BusyServiceError, Limits, ServiceEngine
from hopstate.serving.live import LiveRun, ReplicaError
from hopstate.serving.metrics import StructuredLogger

Id = Annotated[StrictStr, Field(pattern="^[^\\x00]*$")] | StrictInt  # no id holds NUL, which numpy's texts drop
Time = StrictInt | StrictFloat | StrictStr


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", allow_inf_nan=False)


class Refused(BaseModel):
    """Why a request was refused: `error` in a sentence, or `detail` where it does not fit the description."""

    error: str | None = None
    detail: list[dict[str, Any]] | None = None


class ReceiptOut(BaseModel):
    """What became of an event.

    `position` in the log, null of one that was kept aside; `score` from what came before it; `again` where its id was
    known; `note` says why it was kept aside ("late", "ahead"), or that what came before under its id "differs".
    """

    position: int | None
    score: float | None
    again: bool
    note: str | None = None


class EventsOut(BaseModel):
    """Receipts in the order of the events; `ignored` names fields that the run does not read, where such are taken."""

    receipts: list[ReceiptOut]
    position: int
    ignored: list[str] | None = None


class EventsIn(_Strict):
    """Events in order of time, with the columns of the run's own file and perhaps an `event_id` each.

    With `score` false they are stored and not scored, which is quicker.
    """

    events: list[dict[str, Any]] = Field(min_length=1)
    score: StrictBool = True


class RankIn(_Strict):
    """The most likely next partners of a source; fields as the arguments of `hopstate.rank`."""

    source: Id
    top: StrictInt = Field(default=10, ge=1, le=10_000)
    time: Time | None = None
    candidates: list[Id] | None = Field(default=None, min_length=1)
    new_only: StrictBool = False
    explain: StrictBool = False


class UnknownModelError(DataError):
    """A model was asked for that is not here."""


class Tensor(BaseModel):
    """A column of a request of the Open Inference Protocol."""

    name: StrictStr
    shape: list[StrictInt]
    datatype: StrictStr
    data: list[Any]


class InferIn(BaseModel):
    """A request of the Open Inference Protocol: columns source, target and perhaps time."""

    id: StrictStr | None = None
    inputs: list[Tensor]

    def pairs(self) -> tuple[list[tuple[Any, Any]], list[Any] | None]:
        """Return pairs and their times, None where none are given."""
        columns = {one.name: one for one in self.inputs}
        unknown = sorted(columns.keys() - {"source", "target", "time"})
        if unknown or len(columns) < len(self.inputs) or not {"source", "target"} <= columns.keys():
            found = ", ".join(one.name for one in self.inputs)
            raise DataError(f"inputs are source, target and perhaps time, once each; got {found or 'none'}")
        lengths = {len(one.data) for one in columns.values()}
        for name, one in columns.items():
            if one.shape not in ([len(one.data)], [len(one.data), 1]):
                raise DataError(f"input {name} has {len(one.data)} values and says shape {one.shape}")
            kinds = (str, int) if name != "time" else (str, int, float)
            wrong = [v for v in one.data if not isinstance(v, kinds) or isinstance(v, bool)]
            wrong += [v for v in one.data if isinstance(v, str) and "\0" in v]
            if wrong:
                raise DataError(f"input {name} holds {wrong[0]!r}, which is none")
        if len(lengths) > 1 or lengths == {0}:
            raise DataError(f"inputs are of lengths {sorted(lengths)}; give as many of each, at least one")
        pairs = list(zip(columns["source"].data, columns["target"].data, strict=True))
        return pairs, columns["time"].data if "time" in columns else None


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
    work, disconnect = asyncio.ensure_future(response), asyncio.ensure_future(receive())
    try:
        await asyncio.wait({work, disconnect}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in (work, disconnect):  # one of them has ended
            task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await work


_RESPONSES: dict[int | str, dict[str, Any]] = {
    "4XX": {"model": Refused, "description": "refused; docs/live-run.md lists the statuses"},
    503: {"model": Refused, "description": "the log cannot be written; send the events again, with their event_id"},
}


def service(
    opened: Callable[[], LiveRun],
    *,
    name: str,
    token: str | None = None,
    hosts: Collection[str] | None = None,
    limits: Limits | None = None,
    score_events: bool = True,
    source: str | None = None,
    lines: StructuredLogger | None = None,
) -> FastAPI:
    """Return the service of a run.

    Args:
        opened: opens the run; see `ServiceEngine`.
        name: of the model, in `/v2/models/NAME`.
        token: what requests must bear (`Authorization: Bearer TOKEN`), None for nothing; health asks for none.
        hosts: names by which it may be asked, None for any.
        limits: see `Limits`.
        score_events, source, lines: see `ServiceEngine`.
    """
    limits = limits or Limits()
    engine = ServiceEngine(opened, limits, score_events=score_events, source=source, lines=lines)

    @asynccontextmanager
    async def life(app: FastAPI) -> AsyncIterator[None]:
        await engine.start()
        yield
        await engine.stop()

    security = [] if token is None else [Depends(HTTPBearer(auto_error=False))]  # the middleware checks it
    app = FastAPI(
        title="hopstate",
        version=__version__,
        lifespan=life,
        description=__doc__ or "",
        redoc_url=None,
        dependencies=security,
        responses=_RESPONSES,
    )
    app.state.engine = engine

    if hosts is not None:
        app.add_middleware(TrustedHostMiddleware, allowed_hosts=list(hosts), www_redirect=False)
    app.add_middleware(RequestLimits, engine=engine, token=token)  # outermost: it counts what the others refuse

    _error_handlers(app)
    _health(app, engine, name)
    _answers(app, engine, name)
    _pages(app, engine)
    return app


def _error_handlers(app: FastAPI) -> None:
    @app.exception_handler(HopstateError)
    async def told(request: Request, error: HopstateError) -> JSONResponse:
        return _error(error)

    @app.exception_handler(RequestValidationError)
    async def unreadable(request: Request, error: RequestValidationError) -> JSONResponse:
        return _unreadable(request, error)

    @app.exception_handler(RecursionError)
    @app.exception_handler(OverflowError)
    @app.exception_handler(UnicodeError)
    async def beyond(request: Request, error: Exception) -> JSONResponse:
        return JSONResponse(
            {"error": f"a number, a text or a nesting that cannot be read: {type(error).__name__}"}, 422
        )


def _unreadable(request: Request, error: RequestValidationError) -> JSONResponse:
    if "json" not in request.headers.get("content-type", ""):
        return JSONResponse({"error": "a request says what it holds: Content-Type: application/json"}, 415)
    told = [{"loc": [_text(at) for at in one["loc"]], "msg": _text(one["msg"])} for one in error.errors()[:10]]
    return JSONResponse({"detail": told}, 422)


def _text(value: object) -> str:
    return str(value)[:1_000].encode("utf-8", "replace").decode()


def _error(error: HopstateError) -> JSONResponse:
    if isinstance(error, BusyServiceError):
        return JSONResponse({"error": _text(error)}, 429, headers={"Retry-After": "1"})
    if isinstance(error, StorageError):
        return JSONResponse({"error": _text(error)}, 503, headers={"Retry-After": "5"})
    if isinstance(error, UnknownModelError):
        return JSONResponse({"error": _text(error)}, 404)
    if isinstance(error, ReplicaError):
        return JSONResponse({"error": _text(error)}, 403)
    return JSONResponse({"error": _text(error)}, 409 if isinstance(error, TimeOrderError) else 422)


# ---- routes -------------------------------------------------------------------------------------------------
def _health(app: FastAPI, engine: ServiceEngine, name: str) -> None:
    @app.head("/v2/health/live", include_in_schema=False)
    @app.get("/v2/health/live")
    async def live() -> dict[str, bool]:
        return {"live": True}

    @app.head("/v2/health/ready", include_in_schema=False)
    @app.get("/v2/health/ready", responses={503: {"description": "not ready"}})
    async def ready() -> JSONResponse:
        return JSONResponse({"ready": engine.ready}, 200 if engine.ready else 503)

    @app.get("/v2/models/{model}/ready", responses={503: {"description": "not ready"}})
    async def model_ready(model: str) -> JSONResponse:
        _check_name(model, name)
        return JSONResponse({"name": name, "ready": engine.ready}, 200 if engine.ready else 503)

    @app.get("/v2/models/{model}")
    async def metadata(model: str) -> dict[str, Any]:
        _check_name(model, name)
        ids = {"datatype": "BYTES", "shape": [-1]}
        return {
            "name": name,
            "versions": [engine.live.past.model],
            "platform": "hopstate",
            "inputs": [{"name": "source", **ids}, {"name": "target", **ids}, {"name": "time", **ids}],
            "outputs": [{"name": n, "datatype": "FP64", "shape": [-1]} for n in ("score", "probability")],
        }


def _answers(app: FastAPI, engine: ServiceEngine, name: str) -> None:
    @app.post("/events", response_model=EventsOut)
    async def events(given: EventsIn) -> JSONResponse:
        """Take events: all of them are on the disk when this answers, or none."""
        if len(given.events) > engine.limits.events:
            raise DataError(f"a request has at most {engine.limits.events} events; got {len(given.events)}")
        receipts = await engine.take(given.events, score=given.score)
        told = {"receipts": [receipt.shown() for receipt in receipts], "position": engine.live.position}
        if engine.live.other_fields == "ignore" and (ignored := engine.live.others(given.events)):
            told["ignored"] = [_text(name) for name in ignored]
        return JSONResponse(told)

    @app.post("/rank")
    async def rank(given: RankIn) -> dict[str, Any]:
        """Tell whom a source meets next."""
        options = given.model_dump(exclude={"source"})
        table, told = await engine.answer(partial(ranking, sources=given.source, **options), SOON)
        return {"ranked": _rows(table), "probability": table.attrs.get("probability"), "warnings": told}

    @app.post("/v2/models/{model}/infer", response_model=dict[str, Any])
    async def infer(model: str, given: InferIn) -> JSONResponse:
        """Tell how likely pairs are, in the Open Inference Protocol."""
        _check_name(model, name)
        pairs, t = given.pairs()
        found, told = await engine.answer(partial(chances, pairs=pairs, time=t))
        outputs = [
            {"name": n, "datatype": "FP64", "shape": [len(column)], "data": _finite(column.tolist())}
            for n, column in zip(("score", "probability"), found, strict=True)
        ]
        return JSONResponse({"model_name": name, "id": given.id, "outputs": outputs, "parameters": {"warnings": told}})


def _pages(app: FastAPI, engine: ServiceEngine) -> None:
    @app.get("/metrics")
    async def metrics() -> Response:
        """Tell counts, latencies and ages to Prometheus."""
        return Response(generate_latest(engine.metrics.registry), media_type=CONTENT_TYPE_LATEST)

    @app.get("/state")
    async def state() -> dict[str, Any]:
        """Tell what the page shows."""
        return await engine.state()

    @app.head("/", include_in_schema=False)
    @app.get("/")
    async def page() -> HTMLResponse:
        """Give the page, which asks for what it shows with the token behind its address."""
        return HTMLResponse(files("hopstate.serving").joinpath("page.html").read_text("utf-8"))


def _check_name(given: str, name: str) -> None:
    if given != name:
        raise UnknownModelError(f"no model {given!r} here; it is {name!r}")


def _rows(table: pd.DataFrame) -> list[dict[str, Any]]:
    return [dict(zip(table.columns, row, strict=True)) for row in zip(*(_plain(table[c]) for c in table.columns))]


def _plain(column: pd.Series) -> list[Any]:
    found = column.astype(str).tolist() if column.dtype.kind == "M" else column.tolist()
    return _finite(found)


def _finite(values: list[Any]) -> list[Any]:
    return [None if isinstance(value, float) and not math.isfinite(value) else value for value in values]
