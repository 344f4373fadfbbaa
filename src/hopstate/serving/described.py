"""The description of a service's doors (`/openapi.json`): what an event holds, what each door may answer, the token."""

from __future__ import annotations

from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi

from hopstate.serving.doors import Doors
from hopstate.serving.event_columns import ID, LONGEST
from hopstate.serving.guard import NO_TOKEN, PAGES
from hopstate.serving.messages import Refused

_SAID = {
    400: "what was sent cannot be read as JSON",
    401: "no token, or a wrong one",
    403: "events for a replica",
    404: "no such model",
    408: "the request did not arrive in time",
    409: "an event earlier than the last one, or too far ahead",
    411: "the request does not tell its length",
    413: "the request is too large",
    415: "the request's Content-Type is not application/json",
    421: "a name by which this service is not to be asked",
    422: "what was sent cannot be taken; `detail` where it does not fit the description, else `error`",
    429: "too many requests wait; come again after Retry-After",
    503: "the log cannot be written; give the events again, with their event_id",
}
_BODY = (400, 408, 411, 413, 415, 422, 429)
_EVENT = "Event"


def answers(*more: int, body: bool = False) -> dict[int | str, dict[str, Any]]:
    """Return what a door may answer besides what was asked for.

    Args:
        more: of this door.
        body: it takes a body.
    """
    codes = sorted({401, 421, *more, *(_BODY if body else ())})
    return {code: {"model": Refused, "description": _SAID[code]} for code in codes}


def describe(app: FastAPI, doors: Doors, token: str | None) -> None:
    """Let a service describe itself, with the fields of its run's own events.

    Args:
        app: the service.
        doors: whose run it is, once it is open.
        token: what requests must bear, None for nothing.
    """

    def described() -> dict[str, Any]:
        if app.openapi_schema is None:
            found = get_openapi(title=app.title, version=app.version, description=app.description, routes=app.routes)
            schemas = found["components"]["schemas"]
            schemas[_EVENT] = event_schema(doors.live.event_fields)
            schemas["EventsIn"]["properties"]["events"]["items"] = {"$ref": f"#/components/schemas/{_EVENT}"}
            if token is not None:
                found["components"]["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer"}}
                for path, methods in found["paths"].items():
                    for one in methods.values():
                        is_open = path.startswith(NO_TOKEN) or path in PAGES
                        one["security"] = [] if is_open else [{"token": []}]
            app.openapi_schema = found
        return app.openapi_schema

    app.openapi = described  # type: ignore[method-assign]


def event_schema(fields: dict[str, Any]) -> dict[str, Any]:
    """Return what an event holds, as JSON Schema.

    Args:
        fields: names of source, target, time, kind ("" for none) and features, as `Incoming.fields` returns.
    """
    end = {"anyOf": [{"type": "string", "minLength": 1, "maxLength": LONGEST}, {"type": "integer"}]}
    time = {"anyOf": [{"type": "integer"}, {"type": "number"}, {"type": "string"}]}
    given: dict[str, Any] = {
        fields["src"]: end | {"description": "id of the source, as the run has ids"},
        fields["dst"]: end | {"description": "id of the target"},
        fields["t"]: time | {"description": "a number in the unit of the run's own times, or a date"},
        **{name: {"description": "a feature, as the run's own events have it"} for name in fields["features"]},
    }
    needed = list(given)
    if fields["kind"]:
        given[fields["kind"]] = {"enum": ["add", "delete"], "default": "add"}
    given[ID] = {
        "anyOf": [{"type": "string", "maxLength": LONGEST}, {"type": "integer"}],
        "description": "tells the event from others: given again, it changes nothing",
    }
    said = (
        "An event. Source, target and time may have other usual names (src, source, user; dst, target, item; t, time, "
        "timestamp, ...), one of each."
    )
    return {"title": _EVENT, "type": "object", "description": said, "properties": given, "required": needed}
