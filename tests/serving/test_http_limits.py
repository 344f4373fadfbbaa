"""HTTP limits of a service, its OpenAPI description, and its metrics."""

import asyncio
import contextlib
import http.client
import os
import re
import socket
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from waiting import until

from made_events import small_run, table

pytest.importorskip("fastapi", reason="needs the extra serve: pip install 'hopstate[serve]'")
pytest.importorskip("apsw", reason="needs the extra serve: pip install 'hopstate[serve]'")
pytest.importorskip("uvicorn", reason="needs the extra serve: pip install 'hopstate[serve]'")

import uvicorn
from fastapi.testclient import TestClient

from hopstate.cli.serve import SERVER, _names
from hopstate.runs.run import Run
from hopstate.serving.engine import ServiceEngine
from hopstate.serving.live import LiveRun
from hopstate.serving.service import service

EVENTS = [row | {"event_id": f"e{k}"} for k, row in enumerate(table(200, 40, amount=True).to_dict("records"))]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    events = table(0, 160, amount=True)
    return small_run("recency", tmp_path_factory.mktemp("run"), events, **{"read.edge_columns": ["amount"]})


@pytest.fixture
def client(run: Run, tmp_path: Path) -> Iterator[TestClient]:
    app = service(
        ServiceEngine(partial(LiveRun, run.path, folder=tmp_path, late="dead-letter")), name="run", token="secret"
    )
    with TestClient(app, headers={"Authorization": "bearer secret"}) as client:  # the scheme is case-insensitive
        yield client


# ---- the description ----------------------------------------------------------------------------------------
def test_the_openapi_schema_names_routes_fields_and_the_token(client: TestClient) -> None:
    schema = client.get("/openapi.json", headers={"Authorization": ""}).json()
    assert {"/events", "/rank", "/metrics", "/state", "/v2/models/{model}/infer"} <= schema["paths"].keys()
    assert schema["components"]["securitySchemes"] == {"HTTPBearer": {"type": "http", "scheme": "bearer"}}
    for path in ("/events", "/rank"):
        route = schema["paths"][path]["post"]
        assert route["security"] == [{"HTTPBearer": []}]
        assert {"200", "4XX", "503"} <= route["responses"].keys()
    assert set(schema["components"]["schemas"]["RankIn"]["properties"]) >= {"source", "top", "time", "candidates"}
    assert client.get("/docs", headers={"Authorization": ""}).status_code == 200


def test_receipts_have_notes_only_if_needed(client: TestClient) -> None:
    first = client.post("/events", json={"events": EVENTS[10:12]}).json()
    assert all(receipt.keys() == {"position", "score", "duplicate"} for receipt in first["receipts"])
    late, other = EVENTS[0], EVENTS[10] | {"dst": "v0x"}
    receipts = client.post("/events", json={"events": [late, EVENTS[10], other]}).json()["receipts"]
    assert [receipt.get("note") for receipt in receipts] == ["late", None, "differs"]
    metrics = client.get("/metrics").text
    assert 'hopstate_events_out_total{why="late"} 1.0' in metrics
    assert "hopstate_events_differing_total 1.0" in metrics


def test_ignored_fields_are_named_in_the_response(run: Run, tmp_path: Path) -> None:
    opened = partial(LiveRun, run.path, folder=tmp_path, unknown_fields="ignore")
    with TestClient(service(ServiceEngine(opened), name="run")) as client:
        answer = client.post("/events", json={"events": [EVENTS[0] | {"colour": 1}, EVENTS[1]]}).json()
        assert (answer["position"], answer["ignored"]) == (2, ["colour"])
        assert "ignored" not in client.post("/events", json={"events": EVENTS[2:4]}).json()


@pytest.mark.parametrize(("late", "why"), [("reject", "late"), ("clamp", "future")])
def test_events_rejected_for_their_time_are_counted(late: str, why: str, run: Run, tmp_path: Path) -> None:
    opened = partial(LiveRun, run.path, folder=tmp_path, late=late, max_clock_skew=1_000)
    with TestClient(service(ServiceEngine(opened), name="run")) as client:
        client.post("/events", json={"events": EVENTS[:2]})
        answer = client.post("/events", json={"events": [EVENTS[2] | {"t": 1 if why == "late" else 10**9}]})
        assert answer.status_code == 409
        assert f'hopstate_events_out_total{{why="{why}"}} 1.0' in client.get("/metrics").text


# ---- metrics ------------------------------------------------------------------------------------------------
def test_ages_are_missing_before_the_first_event(client: TestClient) -> None:
    def metric(name: str) -> float:
        return float(re.findall(rf"^{name} (\S+)$", client.get("/metrics").text, re.M)[0])

    assert np.isnan(metric("hopstate_snapshot_age_seconds"))
    assert metric("hopstate_last_event_arrived") > 1.7e9  # the start of the service, not 1970
    assert client.get("/state").json()["snapshot_age"] is None
    client.app.state.engine.live.snapshot()  # type: ignore[attr-defined]
    client.post("/events", json={"events": EVENTS[:2]})
    assert 0 <= metric("hopstate_snapshot_age_seconds") < 1e6
    state = client.get("/state").json()
    assert (state["method"], state["waiting_events"], state["latency"]["/events"]["answers"]) == ("recency", 0, 1)
    assert 0 < state["latency"]["/events"]["p50"] <= state["latency"]["/events"]["p99"]


def test_the_age_of_a_snapshot_survives_a_restart(run: Run, tmp_path: Path) -> None:
    with LiveRun(run.path, folder=tmp_path) as live:
        live.take(EVENTS[:5])
    head = tmp_path / "state" / "live.json"
    os.utime(head, (time.time() - 500,) * 2)
    with LiveRun(run.path, folder=tmp_path) as live:
        assert live.snapshot_time is not None
        assert time.monotonic() - live.snapshot_time == pytest.approx(500, abs=60)


@pytest.mark.parametrize("shift", [-3600, 3600])
def test_rates_and_ages_do_not_follow_the_system_clock(
    shift: int, client: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    wall, steady = time.time, time.monotonic
    client.post("/events", json={"events": EVENTS[:30]})
    client.app.state.engine.live.snapshot()  # type: ignore[attr-defined]
    monkeypatch.setattr(time, "time", lambda: wall() + shift)
    client.post("/events", json={"events": EVENTS[30:31]})
    state = client.get("/state").json()
    assert state["events_per_second"] == pytest.approx(31 / 60)
    assert 0 <= state["arrived"] < 60
    assert 0 <= state["snapshot_age"] < 60
    monkeypatch.setattr(time, "monotonic", lambda: steady() + 600)
    state = client.get("/state").json()
    assert state["events_per_second"] == 0
    assert state["arrived"] == pytest.approx(600, abs=60)


@pytest.mark.slow
def test_all_alarms_are_counted_even_if_not_shown(client: TestClient) -> None:
    engine = client.app.state.engine  # type: ignore[attr-defined]
    for k in range(3):
        for _ in range(6):
            engine.quality.alarm("something")
        client.post("/events", json={"events": EVENTS[k : k + 1]})
        client.portal.call(engine.wait_for_evaluation)  # type: ignore[union-attr]
    assert "hopstate_alarms_total 18.0" in client.get("/metrics").text
    assert len(client.get("/state").json()["alarms"]) == 10


# ---- who is answered ----------------------------------------------------------------------------------------
HOSTS = {
    400: ("evil.example", "evil.example:8080", "127.0.0.1.evil.example", ""),
    200: ("localhost", "LOCALHOST:8080", "127.0.0.1:1", "[::1]:8080", "proxy.example"),
}


def test_host_names_that_a_service_accepts(run: Run, tmp_path: Path) -> None:
    names = _names("127.0.0.1", ["proxy.example"])
    with TestClient(
        service(ServiceEngine(partial(LiveRun, run.path, folder=tmp_path)), name="run", hosts=names)
    ) as client:
        for status, hosts in HOSTS.items():
            for host in hosts:
                for path in ("/", "/state", "/v2/health/live"):
                    assert client.get(path, headers={"Host": host}).status_code == status, (host, path)


def test_a_service_on_all_interfaces_accepts_any_host_name() -> None:
    assert _names("0.0.0.0", []) is _names("::", []) is None
    assert _names("0.0.0.0", ["a.example"]) == ["0.0.0.0", "localhost", "127.0.0.1", "[::1]", "a.example"]


@pytest.fixture
def listening(run: Run, tmp_path: Path) -> Iterator[Callable[..., tuple[str, int]]]:
    """A listening service with limits on its connections."""
    servers: list[tuple[Any, threading.Thread]] = []

    def made(**bounds: Any) -> tuple[str, int]:
        app = service(ServiceEngine(partial(LiveRun, run.path, folder=tmp_path)), name="run")
        place = socket.create_server(("127.0.0.1", 0))
        server = uvicorn.Server(uvicorn.Config(app, **SERVER | bounds))
        thread = threading.Thread(target=lambda: asyncio.run(server.serve(sockets=[place])))
        thread.start()
        servers.append((server, thread))
        until(lambda: server.started)
        return place.getsockname()

    yield made
    for server, thread in servers:
        server.should_exit = True
        thread.join(60)


HEALTH = b"GET /v2/health/live HTTP/1.1\r\nHost: h\r\n"


def answered(connection: socket.socket) -> bytes:
    """The bytes received until the connection ends or the response is complete."""
    found = b""
    try:
        while b'{"live":true}' not in found and (some := connection.recv(65536)):
            found += some
    except ConnectionResetError:
        pass
    return found


@pytest.mark.slow
def test_rejected_large_bodies_keep_the_connection(listening: Callable[..., tuple[str, int]]) -> None:
    """Also a body that is rejected before it has arrived: the rest is read and discarded."""
    connection = http.client.HTTPConnection(*listening(), timeout=60)
    for kind, status in (("application/json", 400), ("text/plain", 415), ("application/json", 400)):
        connection.request("POST", "/rank", b" " * 100_000, {"Content-Type": kind})
        answer = connection.getresponse()
        assert (answer.status, bool(answer.read())) == (status, True)
    connection.putrequest("POST", "/rank")
    connection.putheader("Content-Length", str(9 << 20))
    connection.endheaders()
    answer = connection.getresponse()
    assert (answer.status, bool(answer.read())) == (413, True)
    assert connection.sock is not None
    connection.sock.sendall(b" " * (9 << 20))
    connection.request("GET", "/v2/health/live")
    assert connection.getresponse().status == 200


def test_connections_above_the_limit_are_rejected(listening: Callable[..., tuple[str, int]]) -> None:
    place = listening(limit_concurrency=3)
    open_ones = [socket.create_connection(place, timeout=60) for _ in range(2)]
    for connection in open_ones:
        connection.sendall(HEALTH + b"\r\n")
        assert answered(connection).startswith(b"HTTP/1.1 200")
    with socket.create_connection(place, timeout=60) as one_more:
        one_more.sendall(HEALTH + b"Connection: close\r\n\r\n")
        assert answered(one_more).startswith(b"HTTP/1.1 503")
    open_ones.pop().close()

    def is_reachable() -> bool:
        with socket.create_connection(place, timeout=60) as one:
            one.sendall(HEALTH + b"Connection: close\r\n\r\n")
            return answered(one).startswith(b"HTTP/1.1 200")

    until(is_reachable)
    for connection in open_ones:
        connection.close()


# ---- what is refused by its head ----------------------------------------------------------------------------
@pytest.mark.parametrize("pause", [0, 5_000], ids=["at once", "in pieces"])
@pytest.mark.parametrize("head", [b"a: b\r\n" * 10_000, b"a: b\r\n" * 101, b"a: " + b"b" * (33 << 10) + b"\r\n"])
def test_large_headers_are_rejected(head: bytes, pause: int, listening: Callable[..., tuple[str, int]]) -> None:
    whole = HEALTH + b"Connection: close\r\n" + head + b"\r\n"
    with socket.create_connection(listening(), timeout=60) as connection:
        for start in range(0, len(whole), pause or len(whole)):
            connection.sendall(whole[start : start + (pause or len(whole))])
            time.sleep(0.001)
        assert answered(connection).startswith(b"HTTP/1.1 431")


def test_an_endless_header_is_rejected(listening: Callable[..., tuple[str, int]]) -> None:
    with socket.create_connection(listening(), timeout=60) as connection:
        with contextlib.suppress(ConnectionError):
            for _ in range(1_000):
                connection.sendall(b"GET / HTTP/1.1\r\na: " + b"b" * 10_000)
        assert not answered(connection).startswith(b"HTTP/1.1 2")


def test_two_host_headers_are_rejected(client: TestClient) -> None:
    headers = [("Host", "testserver"), ("Host", "other"), ("Authorization", "Bearer secret")]
    assert client.get("/state", headers=headers).status_code == 400


def test_two_host_headers_are_rejected_by_the_server(listening: Callable[..., tuple[str, int]]) -> None:
    with socket.create_connection(listening(), timeout=60) as connection:
        connection.sendall(HEALTH + b"Host: other\r\n\r\n")
        assert answered(connection).startswith(b"HTTP/1.1 400")


EVENT = b'{"events": [{"src": "u1", "dst": "v1", "t": 900, "amount": 1}]}'
INFER = b'{"inputs": [%s]}' % b", ".join(
    b'{"name": "%s", "shape": [1], "datatype": "BYTES", "data": ["u1"]}' % name for name in (b"source", b"target")
)


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Content-Type": "application/json"}, 200),
        ({"Content-Type": "Application/JSON; charset=utf-8"}, 200),
        ({}, 415),
        ({"Content-Type": ""}, 415),
        ({"Content-Type": "text/plain"}, 415),
        ({"Content-Type": "application/x+json"}, 415),
        ({"Content-Type": "application/json", "Content-Encoding": "gzip"}, 415),
        ({"Content-Type": "application/json", "Origin": "http://evil.example"}, 403),
        ({"Content-Type": "application/json", "Origin": "null"}, 403),
        ({"Content-Type": "application/json", "Sec-Fetch-Site": "cross-site"}, 403),
        ({"Content-Type": "application/json", "Sec-Fetch-Site": "same-site"}, 403),
        ({"Content-Type": "application/json", "Origin": "http://testserver"}, 200),
        ({"Content-Type": "application/json", "Sec-Fetch-Site": "same-origin", "Origin": "http://testserver"}, 200),
    ],
)
def test_events_must_be_json_from_the_same_site(headers: dict[str, str], status: int, client: TestClient) -> None:
    answer = client.post("/events", content=EVENT, headers=headers)
    assert answer.status_code == status
    assert client.get("/state").json()["position"] == (status == 200)


def test_inference_needs_a_content_type_only_from_other_sites(client: TestClient) -> None:
    for headers, status in (
        ({}, 200),
        ({"Sec-Fetch-Site": "same-origin"}, 200),
        ({"Sec-Fetch-Site": "cross-site"}, 403),
        ({"Origin": "http://evil.example"}, 403),
        ({"Content-Type": "text/plain"}, 415),
        ({"Inference-Header-Content-Length": "20"}, 415),
    ):
        for version in ("", "/versions/1"):
            answer = client.post(f"/v2/models/run{version}/infer", content=INFER, headers=headers)
            assert (answer.status_code, "error" in answer.json()) == (status, status != 200), headers


@pytest.mark.parametrize("path", ["/events", "/rank", "/v2/models/run/infer"])
def test_a_repeated_key_is_rejected(path: str, client: TestClient) -> None:
    for body in (
        b'{"source": "u1", "source": "u2"}',
        b'{"events": [{"src": "u1", "src": "u2", "dst": "v1", "t": 900}]}',
    ):
        answer = client.post(path, content=body, headers={"Content-Type": "application/json"})
        assert answer.status_code == 400
        assert "src" in answer.json()["error"] or "source" in answer.json()["error"]


@pytest.mark.parametrize(("text", "is_good"), [("\u00e9" * 500, True), ("\u00e9" * 501, False), ("x" * 1001, False)])
def test_ids_of_queries_have_at_most_a_thousand_bytes(text: str, is_good: bool, client: TestClient) -> None:
    columns = [{"name": n, "shape": [1], "datatype": "BYTES", "data": [text]} for n in ("source", "target")]
    for path, body in (
        ("/rank", {"source": text}),
        ("/rank", {"source": "u1", "candidates": [text]}),
        ("/v2/models/run/infer", {"inputs": columns}),
    ):
        assert client.post(path, json=body).status_code == (200 if is_good else 422)
