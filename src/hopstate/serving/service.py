"""HTTP routes of a live run: events in, answers out, over HTTP.

`/v2/...` is the Open Inference Protocol, version 2; `/events` and `/rank` are what it has no word for.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
from collections.abc import AsyncIterator, Callable, Collection, Coroutine
from contextlib import asynccontextmanager
from functools import partial
from importlib.resources import files
from typing import Annotated, Any, Literal, TypeVar

import numpy as np
import pandas as pd
from fastapi import Depends, FastAPI, HTTPException, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import HTMLResponse, JSONResponse
from fastapi.routing import APIRoute
from fastapi.security import HTTPBearer
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, StrictBool, StrictFloat, StrictInt, StrictStr
from starlette.exceptions import HTTPException as StarletteHTTPException

from hopstate import __version__
from hopstate.data.vocabulary import LONGEST
from hopstate.errors import DataError, FormatError, HopstateError, StorageError, TimeOrderError
from hopstate.io.opening import parse_json
from hopstate.runs.queries import pair_probabilities, rank_session
from hopstate.serving.engine import BusyServiceError, ServiceEngine, rank_kind
from hopstate.serving.event_parser import is_id
from hopstate.serving.live import ReplicaError
from hopstate.serving.request_guard import RequestGuard
from hopstate.serving.work_queue import OverloadError

T = TypeVar("T")
CLIENT_LEFT = 499  # the status of a request whose client disconnected before the answer
VERSION = "1"  # of the model that is served: a service has one
_OUTPUTS = ("score", "probability")


def _checked_id(value: str) -> str:
    if not is_id(value):
        raise DataError(f"an id is a text without NUL of 1 to {LONGEST} bytes")
    return value


Id = Annotated[StrictStr, AfterValidator(_checked_id)] | StrictInt
Time = StrictInt | StrictFloat | StrictStr


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", allow_inf_nan=False)


class Refused(BaseModel):
    """Why a request was refused."""

    error: str


class ReceiptOut(BaseModel):
    """Result of an event.

    `position` is its place in the log, null for a dead letter. `score` depends on earlier events only. `duplicate` is
    true if the log had its id. `note` is the reason of a dead letter ("late", "future"), or "differs" if the earlier
    event with its id had other content.
    """

    position: int | None
    score: float | None
    duplicate: bool
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
    """The most likely next partners of a source; fields as the arguments of `hopstate.rank`.

    With `predict` "relation", the most likely relations of the source with each of the candidates.
    """

    source: Id
    top: StrictInt = Field(default=10, ge=1, le=10_000)
    time: Time | None = None
    relation: Id | None = None
    predict: Literal["target", "relation"] = "target"
    candidates: list[Id] | None = Field(default=None, min_length=1)
    exclude_seen: StrictBool = False
    explain: StrictBool = False


class UnknownModelError(DataError):
    """The service does not have the requested model."""


_DATATYPES: dict[str, type] = {"BYTES": str}
_DATATYPES |= {f"{sign}INT{bits}": int for sign in ("", "U") for bits in (8, 16, 32, 64)}
_DATATYPES |= {f"FP{bits}": float for bits in (16, 32, 64)}


class Tensor(BaseModel):
    """A column of a request of the Open Inference Protocol, flat or as rows of one value."""

    name: StrictStr
    shape: list[StrictInt]
    datatype: StrictStr
    data: list[Any]

    def values(self) -> list[Any]:
        """Return the column's values, which are of its datatype."""
        kind = _DATATYPES.get(self.datatype)
        if kind is None or (kind is float and self.name != "time"):
            raise DataError(f"input {self.name} has datatype {self.datatype}; give BYTES or INT64, times also FP64")
        values = self.data
        if len(self.shape) == 2 and all(type(row) is list and len(row) == 1 for row in values):
            values = [row[0] for row in values]
        if self.shape not in ([len(values)], [len(values), 1]):
            raise DataError(f"input {self.name} has {len(values)} values and shape {self.shape}")
        bounds = np.iinfo(self.datatype.lower()) if kind is int else None
        for value in values:
            is_other = type(value) is not kind and not (kind is float and type(value) is int)
            if is_other or (bounds and not bounds.min <= value <= bounds.max):
                raise DataError(f"input {self.name} of datatype {self.datatype} holds {_text(value)[:40]!r}")
            if isinstance(value, str):
                _checked_id(value)
        return values


class Output(BaseModel):
    """A requested output."""

    name: Literal["score", "probability"]


class InferIn(BaseModel):
    """A request of the Open Inference Protocol: columns source, target and perhaps time and relation."""

    id: StrictStr | None = None
    inputs: list[Tensor]
    outputs: list[Output] | None = None

    def pairs(self) -> tuple[list[tuple[Any, Any]], list[Any] | None, list[Any] | None]:
        """Return pairs, their times and their relations, None if none are given."""
        columns = {tensor.name: tensor.values() for tensor in self.inputs}
        if len(columns) < len(self.inputs) or columns.keys() - {"time", "relation"} != {"source", "target"}:
            names = ", ".join(tensor.name[:40] for tensor in self.inputs)
            raise DataError(f"inputs are source, target and perhaps time, relation, once each: got {names or 'none'}")
        lengths = {len(values) for values in columns.values()}
        if len(lengths) > 1 or lengths == {0}:
            raise DataError(f"inputs are of lengths {sorted(lengths)}; give as many of each, at least one")
        pairs = list(zip(columns["source"], columns["target"], strict=True))
        return pairs, columns.get("time"), columns.get("relation")


class _OnceKeyed(Request):
    """A request whose JSON has no key twice in an object: readers differ in which of them counts."""

    async def json(self) -> Any:
        try:
            return parse_json(await self.body(), "the body", kind=None)
        except FormatError as error:
            raise HTTPException(400, _text(error)) from None


class _OnceKeyedRoute(APIRoute):
    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handle = super().get_route_handler()

        async def handle_once_keyed(request: Request) -> Response:
            return await handle(_OnceKeyed(request.scope, request.receive))

        return handle_once_keyed


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


_STATUSES: tuple[tuple[type[HopstateError], int, int | None], ...] = (  # with seconds after which to ask again
    (BusyServiceError, 429, 1),
    (OverloadError, 503, 1),
    (StorageError, 503, 5),
    (UnknownModelError, 404, None),
    (ReplicaError, 403, None),
    (TimeOrderError, 409, None),
    (ClientLeftError, CLIENT_LEFT, None),
)
_RESPONSES: dict[int | str, dict[str, Any]] = {
    "4XX": {"model": Refused, "description": "refused; docs/live-run.md lists the statuses"},
    503: {"model": Refused, "description": "too much work, or the log cannot be written; send it again later"},
}


def service(
    engine: ServiceEngine, *, name: str, token: str | None = None, hosts: Collection[str] | None = None
) -> FastAPI:
    """Return the service of a run; its model is `/v2/models/NAME`. See `RequestGuard` for token and hosts."""

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
    app.router.route_class = _OnceKeyedRoute

    known = None if hosts is None else {host.lower() for host in hosts}
    app.add_middleware(RequestGuard, engine=engine, token=token, hosts=known)
    _error_handlers(app)
    _health(app, engine, name)
    _answers(app, engine, name)
    _pages(app, engine)
    return app


def _error_handlers(app: FastAPI) -> None:
    @app.exception_handler(HopstateError)
    async def refused(request: Request, error: HopstateError) -> JSONResponse:
        return _error(error)

    @app.exception_handler(StarletteHTTPException)
    async def of_http(request: Request, error: StarletteHTTPException) -> JSONResponse:
        return JSONResponse({"error": _text(error.detail)}, error.status_code, error.headers)

    @app.exception_handler(RequestValidationError)
    async def unreadable(request: Request, error: RequestValidationError) -> JSONResponse:
        """Return what does not fit the description, and where; what was sent is not sent back."""
        found = [f"{'.'.join(map(_text, one['loc']))}: {_text(one['msg'])}" for one in error.errors()[:10]]
        return JSONResponse({"error": "; ".join(found)}, 422)

    @app.exception_handler(RecursionError)
    @app.exception_handler(OverflowError)
    @app.exception_handler(UnicodeError)
    async def beyond(request: Request, error: Exception) -> JSONResponse:
        text = f"a number, a text or a nesting that cannot be read: {type(error).__name__}"
        return JSONResponse({"error": text}, 422)


def _text(value: object) -> str:
    return str(value)[:1_000].encode("utf-8", "replace").decode()


def _error(error: HopstateError) -> JSONResponse:
    for kind, status, retry_after in _STATUSES:
        if isinstance(error, kind):
            seconds = getattr(error, "retry_after", retry_after)
            headers = None if seconds is None else {"Retry-After": str(seconds)}
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

    @app.get("/v2")
    async def server() -> dict[str, Any]:
        return {"name": "hopstate", "version": __version__, "extensions": []}

    @app.get("/v2/models/{model}/versions/{version}/ready", responses={503: {"description": "not ready"}})
    @app.get("/v2/models/{model}/ready", responses={503: {"description": "not ready"}})
    async def model_ready(model: str, version: str = VERSION) -> JSONResponse:
        _check_model(model, version, name)
        return JSONResponse({"name": name, "ready": engine.ready}, 200 if engine.ready else 503)

    @app.get("/v2/models/{model}/versions/{version}")
    @app.get("/v2/models/{model}")
    async def metadata(model: str, version: str = VERSION) -> dict[str, Any]:
        _check_model(model, version, name)
        ids = {"datatype": "BYTES", "shape": [-1]}
        return {
            "name": name,
            "versions": [VERSION],
            "platform": "hopstate",
            "inputs": [{"name": "source", **ids}, {"name": "target", **ids}, {"name": "time", **ids}],
            "outputs": [{"name": n, "datatype": "FP64", "shape": [-1]} for n in _OUTPUTS],
        }


def _answers(app: FastAPI, engine: ServiceEngine, name: str) -> None:
    @app.post("/events", response_model=EventsOut)
    async def events(given: EventsIn) -> JSONResponse:
        """Take events: all of them are on the disk when this answers, or none."""
        if len(given.events) > engine.limits.events:
            raise DataError(f"a request has at most {engine.limits.events} events; got {len(given.events)}")
        receipts = await engine.take(given.events, score=given.score)
        reply = {"receipts": [receipt.to_json() for receipt in receipts], "position": engine.live.position}
        if engine.live.unknown_fields == "ignore" and (ignored := engine.live.unread_fields(given.events)):
            reply["ignored"] = [_text(name) for name in ignored]
        return JSONResponse(reply)

    @app.post("/rank")
    async def rank(request: Request, given: RankIn) -> dict[str, Any]:
        """Rank destinations for a source."""
        options = given.model_dump(exclude={"source"})
        question = partial(rank_session, sources=given.source, **options)
        kind = rank_kind(top=given.top, explain=given.explain, candidates=given.candidates or ())
        answer = engine.answer(question, kind=kind, key=("rank", given.model_dump_json()))
        table, told = await _while_connected(request, answer)
        return {"ranked": _rows(table), "probability": table.attrs.get("probability"), "warnings": told}

    @app.post("/v2/models/{model}/versions/{version}/infer", response_model=dict[str, Any])
    @app.post("/v2/models/{model}/infer", response_model=dict[str, Any])
    async def infer(request: Request, model: str, given: InferIn, version: str = VERSION) -> JSONResponse:
        """Return probabilities of pairs, in the Open Inference Protocol."""
        _check_model(model, version, name)
        pairs, t, relation = given.pairs()
        question = partial(pair_probabilities, pairs=pairs, time=t, relation=relation)
        key = ("pairs", repr((pairs, t, relation)))
        answer = engine.answer(question, kind=("pairs", len(pairs).bit_length()), key=key)
        found, told = await _while_connected(request, answer)
        columns = dict(zip(_OUTPUTS, found, strict=True))
        outputs = [
            {"name": n, "datatype": "FP64", "shape": [len(columns[n])], "data": _finite(columns[n].tolist())}
            for n in ([one.name for one in given.outputs] if given.outputs else _OUTPUTS)
        ]
        reply = {"model_name": name, "model_version": VERSION, "outputs": outputs, "parameters": {"warnings": told}}
        return JSONResponse(reply if given.id is None else reply | {"id": given.id})


def _pages(app: FastAPI, engine: ServiceEngine) -> None:
    @app.get("/metrics")
    async def metrics() -> Response:
        """Return counts, latencies and ages for Prometheus."""
        return Response(generate_latest(engine.metrics.registry), media_type=CONTENT_TYPE_LATEST)

    @app.get("/state")
    async def state() -> dict[str, Any]:
        """Return what the page shows, as JSON."""
        return await engine.state()

    @app.head("/", include_in_schema=False)
    @app.get("/")
    async def page() -> HTMLResponse:
        """Give the page, which asks for what it shows with the token behind its address."""
        return HTMLResponse(files("hopstate.serving").joinpath("page.html").read_text("utf-8"))


def _check_model(given: str, version: str, name: str) -> None:
    if (given, version) != (name, VERSION):
        raise UnknownModelError(
            f"no model {given!r} of version {version!r} here; it is {name!r} of version {VERSION!r}"
        )


def _rows(table: pd.DataFrame) -> list[dict[str, Any]]:
    return [dict(zip(table.columns, row, strict=True)) for row in zip(*(_plain(table[c]) for c in table.columns))]


def _plain(column: pd.Series) -> list[Any]:
    found = column.astype(str).tolist() if column.dtype.kind == "M" else column.tolist()
    return _finite(found)


def _finite(values: list[Any]) -> list[Any]:
    return [None if isinstance(value, float) and not math.isfinite(value) else value for value in values]
