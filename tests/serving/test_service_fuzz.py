"""Requests generated from the OpenAPI schema and mutated: no response is a server error or missing, and the log has all
events of a request or none."""

import json
from collections.abc import Iterator
from functools import partial
from typing import Any
from urllib.parse import quote

import pytest

from made_events import small_run

pytest.importorskip("fastapi", reason="needs the extra serve: pip install 'hopstate[serve]'")
pytest.importorskip("apsw", reason="needs the extra serve: pip install 'hopstate[serve]'")

from fastapi.testclient import TestClient
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hopstate.serving.engine import Limits, ServiceEngine
from hopstate.serving.live import LiveRun
from hopstate.serving.service import service

pytestmark = pytest.mark.slow

FIELDS = ["src", "dst", "t", "kind", "event_id", "events", "score", "source", "time", "data", "name", "shape", "id", ""]
ODD: list[Any] = [None, True, 0, -1, 1, 900, 2**31, 2**63 - 1, 2**63, -(2**70), 0.5, -0.0, 5e-324, 1e308, "", " ", "u1"]
ODD += [
    "v1",
    "nan",
    "\0",
    "é\u0301",
    "\ud800",
    "u" * 1001,
    "2024-02-30",
    "2024-03-01T00:00:00+25:00",
    "../../etc/passwd",
    "=1+1",
]
# values within these bounds, so that most unspoiled requests are accepted
LEAVES = {"string": st.sampled_from(["u1", "u2", "v1", "new", "900", "2024-03-01"]), "boolean": st.booleans()}
LEAVES |= {"integer": st.integers(1, 30), "number": st.integers(1, 30)}
ODDITY = st.recursive(
    st.sampled_from(ODD) | st.text(max_size=5) | st.integers() | st.floats(allow_nan=True),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(FIELDS), inner, max_size=4),
    max_leaves=6,
)


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestClient]:
    run = small_run("recency", tmp_path_factory.mktemp("run"))
    limits = Limits(events=50, body=20_000, delay=0.0)
    with TestClient(service(ServiceEngine(partial(LiveRun, run.path), limits=limits), name="run")) as client:
        yield client


def valid(schema: dict[str, Any], known: dict[str, Any]) -> st.SearchStrategy[Any]:
    """A value that a schema accepts."""
    if "$ref" in schema:
        return valid(known[schema["$ref"].rpartition("/")[2]], known)
    if "anyOf" in schema:
        return st.one_of([valid(one, known) for one in schema["anyOf"]])
    kind = schema.get("type")
    if schema.get("title") == "Event":
        ends = {"src": LEAVES["string"], "dst": LEAVES["string"], "t": st.integers(160, 2_000)}
        assert ends.keys() <= schema["properties"].keys()
        return st.fixed_dictionaries(ends, optional={"event_id": LEAVES["string"], "kind": st.just("delete")})
    if kind == "array":
        return st.lists(valid(schema["items"], known), min_size=1, max_size=4)
    if kind == "object" and "properties" in schema:
        made = {name: valid(one, known) for name, one in schema["properties"].items()}
        needed = {name: made.pop(name) for name in schema.get("required", [])}
        return st.fixed_dictionaries(needed, optional=made)
    return LEAVES.get(str(kind), st.none())


@st.composite
def damaged(draw: Any, whole: Any) -> Any:
    """A value in which a part may be replaced, missing or added."""
    if draw(st.integers(0, 3)) == 0 or not isinstance(whole, (dict, list)) or not whole:
        return draw(ODDITY)
    places = list(whole) if isinstance(whole, dict) else list(range(len(whole)))
    at, how = draw(st.sampled_from(places)), draw(st.integers(0, 9))
    made = whole.copy()
    if how == 0:
        del made[at]
    elif how == 1 and isinstance(made, list):
        made += [made[at]] * draw(st.sampled_from([1, 60, 3_000]))
    elif how == 1:
        made[draw(st.sampled_from(FIELDS))] = draw(ODDITY)
    else:
        made[at] = draw(damaged(made[at]))
    return made


@st.composite
def requests(
    draw: Any, routes: list[tuple[str, str, Any]], known: dict[str, Any]
) -> tuple[str, str, bytes, dict[str, str]]:
    """A method, a path, a body and headers."""
    method, path, schema = draw(st.sampled_from(routes))
    model = draw(st.sampled_from(["run", "run", "run", "other", "..", "\0", "é", "a" * 300]))
    path = path.replace("{model}", quote(model, safe=""))
    if draw(st.integers(0, 9)) == 0:
        method = draw(st.sampled_from(["GET", "POST", "PUT", "DELETE", "PATCH", "OPTIONS", "HEAD"]))
    if draw(st.integers(0, 9)) == 0:
        path += draw(st.sampled_from(["/", "?", "?a=1&a=2", "?score=false", "/..", "//", "/%00", "?%ff"]))
    body = draw(valid(schema, known)) if schema else None
    for _ in range(draw(st.integers(0, 3))):
        body = draw(damaged(body))
    text = json.dumps(body).encode() if body is not None else b""
    if draw(st.integers(0, 9)) == 0 and text:
        at = draw(st.integers(0, len(text) - 1))
        text = text[:at] + draw(st.binary(max_size=4)) + text[at + draw(st.integers(0, 4)) :]
    kinds = ["application/json"] * 8 + ["", "text/plain", "application/json; charset=utf-16", "multipart/form-data"]
    return method, path, text, {"Content-Type": draw(st.sampled_from(kinds))}


def ids(text: bytes) -> set[str]:
    """The event ids of a request, if it has any."""
    try:
        events = json.loads(text)["events"]
        return {str(e["event_id"]) for e in events if isinstance(e.get("event_id"), (str, int))}
    except (ValueError, KeyError, TypeError, AttributeError):
        return set()


EVENT: dict[str, Any] = {
    "title": "Event",
    "type": "object",
    "properties": {
        "src": {"anyOf": [{"type": "string", "minLength": 1, "maxLength": 1_000}, {"type": "integer"}]},
        "dst": {"anyOf": [{"type": "string", "minLength": 1, "maxLength": 1_000}, {"type": "integer"}]},
        "t": {"anyOf": [{"type": "integer"}, {"type": "number"}, {"type": "string"}]},
        "kind": {"enum": ["add", "delete"]},
        "event_id": {"anyOf": [{"type": "string", "maxLength": 1_000}, {"type": "integer"}]},
    },
    "required": ["src", "dst", "t"],
}


def fuzz(client: TestClient, count: int) -> dict[int, int]:
    """Send `count` requests; return the number of each status."""
    described = client.get("/openapi.json").json()
    known, routes = described["components"]["schemas"], []
    known["EventsIn"]["properties"]["events"]["items"] = EVENT
    for path, methods in described["paths"].items():
        for method, one in methods.items():
            body = one.get("requestBody", {}).get("content", {}).get("application/json", {}).get("schema")
            routes += [(method.upper(), path, body)] * (6 if body else 1)
    live, counts = client.app.state.engine.live, dict[int, int]()  # type: ignore[attr-defined]

    @settings(
        max_examples=count, deadline=None, database=None, derandomize=True, suppress_health_check=list(HealthCheck)
    )
    @given(requests(routes, known))
    def send(request: tuple[str, str, bytes, dict[str, str]]) -> None:
        method, path, text, headers = request
        before, mine = live.position, {one for one in ids(text) if one.isprintable()}
        there = set(live.log.positions(sorted(mine)))
        answer = client.request(method, path, content=text, headers=headers)
        counts[answer.status_code] = counts.get(answer.status_code, 0) + 1
        assert answer.status_code < 500, answer.text
        came = live.position - before
        if answer.status_code == 200 and path.startswith("/events") and method == "POST":
            receipts = answer.json()["receipts"]
            assert came == sum(not r["duplicate"] for r in receipts)
            assert came == len({r["position"] for r in receipts if not r["duplicate"]})
        else:
            assert came == 0
            assert set(live.log.positions(sorted(mine))) == there
        assert len(live.log) == live.position

    send()
    return counts


def check(counts: dict[int, int], count: int) -> None:
    assert sum(counts.values()) >= count * 0.9
    assert counts[200] > count * 0.05  # some requests are valid
    assert sum(n for status, n in counts.items() if status >= 400) > count * 0.5


def test_requests_generated_from_the_schema_break_nothing(client: TestClient) -> None:
    check(fuzz(client, 300), 300)


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_ten_thousand_generated_requests_break_nothing(client: TestClient) -> None:
    check(fuzz(client, 14_000), 10_000)
