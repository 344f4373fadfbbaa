"""HTTP routes of a live run: events in, answers out, over HTTP.

`/v2/...` is the Open Inference Protocol, version 2; `/events` and `/rank` are what it has no word for.
"""

from __future__ import annotations

import math
from collections.abc import AsyncIterator, Callable, Collection
from contextlib import asynccontextmanager
from functools import partial
from importlib.resources import files
from typing import Any

import pandas as pd
from fastapi import Depends, FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import HTMLResponse, JSONResponse
from fastapi.security import HTTPBearer
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from starlette.middleware.trustedhost import TrustedHostMiddleware

from hopstate import __version__
from hopstate.errors import DataError, HopstateError, StorageError, TimeOrderError
from hopstate.runs.queries.ask import chances, ranking
from hopstate.serving.engine import SOON, BusyServiceError, Limits, ServiceEngine
from hopstate.serving.live import LiveRun, ReplicaError
from hopstate.serving.metrics import StructuredLogger
from hopstate.serving.middleware import RequestLimits
from hopstate.serving.schemas import EventsIn, EventsOut, InferIn, RankIn, Refused, UnknownModelError

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
    """Return what does not fit the description, and where; what was sent is not sent back."""
    if "json" not in request.headers.get("content-type", ""):
        return JSONResponse({"error": "a request says what it holds: Content-Type: application/json"}, 415)
    told = [{"loc": [_text(at) for at in one["loc"]], "msg": _text(one["msg"])} for one in error.errors()[:10]]
    return JSONResponse({"detail": told}, 422)


def _text(value: object) -> str:
    """Return what can be sent, and is not long."""
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
    """Return values that JSON has: no NaN, times as text."""
    found = column.astype(str).tolist() if column.dtype.kind == "M" else column.tolist()
    return _finite(found)


def _finite(values: list[Any]) -> list[Any]:
    return [None if isinstance(value, float) and not math.isfinite(value) else value for value in values]
