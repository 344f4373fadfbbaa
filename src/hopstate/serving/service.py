"""HTTP routes of a live run: events in, answers out, over HTTP.

`/v2/...` is the Open Inference Protocol, version 2; `/events` and `/rank` are what it has no word for.
"""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import math
import time
from collections.abc import AsyncIterator, Callable, Collection, Coroutine
from contextlib import asynccontextmanager
from functools import partial
from importlib.resources import files
from typing import Annotated, Any, TypeVar

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
from hopstate.runs.queries import pair_probabilities, ranking
from hopstate.serving.engine import SOON, BusyServiceError, Limits, ServiceEngine
from hopstate.serving.live import LiveRun, ReplicaError
from hopstate.serving.metrics import StructuredLogger

T = TypeVar("T")
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
        """Return pairs and their times, None if none are given."""
        columns = {tensor.name: tensor for tensor in self.inputs}
        if len(columns) < len(self.inputs) or columns.keys() - {"time"} != {"source", "target"}:
            names = ", ".join(tensor.name for tensor in self.inputs)
            raise DataError(f"inputs are source, target and perhaps time, once each; got {names or 'none'}")
        for name, tensor in columns.items():
            if tensor.shape not in ([len(tensor.data)], [len(tensor.data), 1]):
                raise DataError(f"input {name} has {len(tensor.data)} values and shape {tensor.shape}")
            types = {int, str, float} if name == "time" else {int, str}
            for value in tensor.data:
                if type(value) not in types or "\0" in str(value):
                    raise DataError(f"input {name} holds {value!r}, which is none")
        lengths = {len(tensor.data) for tensor in self.inputs}
        if len(lengths) > 1 or lengths == {0}:
            raise DataError(f"inputs are of lengths {sorted(lengths)}; give as many of each, at least one")
        pairs = list(zip(columns["source"].data, columns["target"].data, strict=True))
        return pairs, columns["time"].data if "time" in columns else None


_NO_TOKEN = "/v2/health"  # paths below it need no token
_PAGES = ("/", "/docs", "/openapi.json")  # nor do these, which hold no data
_WITHOUT_BODY = ("GET", "HEAD", "OPTIONS")
FAILED, CLIENT_LEFT = 500, 499  # statuses of requests without a response


class RequestLimits:
    """Refuse requests without the token, without a length, or too large; count and log all of them.

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
        start, status = time.perf_counter(), FAILED

        async def send_noting_status(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        respond = self._refusal(scope["path"], scope["method"], Headers(scope=scope)) or self.app
        try:
            await respond(scope, receive, send_noting_status)
        finally:
            path = getattr(scope.get("route"), "path", "other")
            self.engine.metrics.count_request(path, status, start)
            seconds = time.perf_counter() - start
            self.engine.lines("request", method=scope["method"], route=path, status=status, seconds=seconds)

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
            return JSONResponse({"error": "a request needs a Content-Length"}, 411)
        if int(length) > self.engine.limits.body:
            return JSONResponse({"error": f"a request has at most {self.engine.limits.body} bytes"}, 413)
        return None


class ClientLeftError(HopstateError):
    """The client disconnected before it was answered."""


async def _while_connected(request: Request, answer: Coroutine[Any, Any, T]) -> T:
    """Return an answer; work on it ends if the client disconnects."""
    work, disconnect = asyncio.ensure_future(answer), asyncio.ensure_future(request.receive())
    try:
        await asyncio.wait({work, disconnect}, return_when=asyncio.FIRST_COMPLETED)
        if not work.done():
            raise ClientLeftError
        return work.result()
    finally:
        disconnect.cancel()
        if work.cancel():
            with contextlib.suppress(asyncio.CancelledError):
                await work


_STATUSES: tuple[tuple[type[HopstateError], int, dict[str, str] | None], ...] = (
    (BusyServiceError, 429, {"Retry-After": "1"}),
    (StorageError, 503, {"Retry-After": "5"}),
    (UnknownModelError, 404, None),
    (ReplicaError, 403, None),
    (TimeOrderError, 409, None),
    (ClientLeftError, CLIENT_LEFT, None),
)
_RESPONSES: dict[int | str, dict[str, Any]] = {
    "4XX": {"model": Refused, "description": "refused; docs/live-run.md lists the statuses"},
    503: {"model": Refused, "description": "the log cannot be written; send the events again, with their event_id"},
}


def service(
    open_run: Callable[[], LiveRun],
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
        open_run: opens the run; see `ServiceEngine`.
        name: of the model, in `/v2/models/NAME`.
        token: what requests must bear (`Authorization: Bearer TOKEN`), None for nothing; health asks for none.
        hosts: names by which it may be asked, None for any.
        limits: see `Limits`.
        score_events, source, lines: see `ServiceEngine`.
    """
    limits = limits or Limits()
    engine = ServiceEngine(open_run, limits, score_events=score_events, source=source, lines=lines)

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
        """Return what does not fit the description, and where; what was sent is not sent back."""
        if "json" not in request.headers.get("content-type", ""):
            return JSONResponse({"error": "a request needs Content-Type: application/json"}, 415)
        details = [{"loc": [_text(at) for at in one["loc"]], "msg": _text(one["msg"])} for one in error.errors()[:10]]
        return JSONResponse({"detail": details}, 422)

    @app.exception_handler(RecursionError)
    @app.exception_handler(OverflowError)
    @app.exception_handler(UnicodeError)
    async def beyond(request: Request, error: Exception) -> JSONResponse:
        return JSONResponse(
            {"error": f"a number, a text or a nesting that cannot be read: {type(error).__name__}"}, 422
        )


def _text(value: object) -> str:
    return str(value)[:1_000].encode("utf-8", "replace").decode()


def _error(error: HopstateError) -> JSONResponse:
    for kind, status, headers in _STATUSES:
        if isinstance(error, kind):
            return JSONResponse({"error": _text(error)}, status, headers)
    return JSONResponse({"error": _text(error)}, 422)


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
    async def rank(request: Request, given: RankIn) -> dict[str, Any]:
        """Tell whom a source meets next."""
        options = given.model_dump(exclude={"source"})
        question = partial(ranking, sources=given.source, **options)
        table, told = await _while_connected(request, engine.answer(question, SOON))
        return {"ranked": _rows(table), "probability": table.attrs.get("probability"), "warnings": told}

    @app.post("/v2/models/{model}/infer", response_model=dict[str, Any])
    async def infer(request: Request, model: str, given: InferIn) -> JSONResponse:
        """Tell how likely pairs are, in the Open Inference Protocol."""
        _check_name(model, name)
        pairs, t = given.pairs()
        found, told = await _while_connected(request, engine.answer(partial(pair_probabilities, pairs=pairs, time=t)))
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
