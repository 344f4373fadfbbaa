"""The HTTP routes of a live run equal the offline run, and no request breaks them."""

import functools
import json
import random
import re
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from waiting import until

from made_events import small_run, table

pytest.importorskip("fastapi", reason="needs the extra serve: pip install 'hopstate[serve]'")
pytest.importorskip("apsw", reason="needs the extra serve: pip install 'hopstate[serve]'")

from fastapi.testclient import TestClient
from gated_log import GatedLog

from hopstate.cli.main import main
from hopstate.errors import StorageError
from hopstate.runs.run import Run
from hopstate.serving.engine import Limits, ServiceEngine
from hopstate.serving.live import LiveRun
from hopstate.serving.log import SqliteLog
from hopstate.serving.replay import replayed
from hopstate.serving.service import service
from hopstate.serving.transaction import Request
from hopstate.testing.conformance import F32


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    run = small_run("ctdg-ssm", tmp_path_factory.mktemp("run"))
    run.score([("u1", "v1")])  # fits the calibration
    return run


@pytest.fixture
def client(run: Run, tmp_path: Path) -> Iterator[TestClient]:
    limits = Limits(events=50, body=20_000)
    with TestClient(
        service(ServiceEngine(partial(LiveRun, run.path, folder=tmp_path), limits=limits), name="run")
    ) as client:
        yield client


def infer(client: TestClient, pairs: list[tuple[Any, Any]], t: list[Any] | None = None) -> Any:
    columns = [("source", [u for u, _ in pairs]), ("target", [v for _, v in pairs])]
    columns += [("time", t)] if t is not None else []
    kinds = {str: "BYTES", int: "INT64", float: "FP64"}
    inputs = [{"name": n, "shape": [len(d)], "datatype": kinds[type(d[0])], "data": d} for n, d in columns]
    return client.post("/v2/models/run/infer", json={"id": "7", "inputs": inputs})


def post(client: TestClient, events: list[dict[str, Any]]) -> Any:
    return client.post("/events", json={"events": events})


def test_responses_equal_the_offline_run(client: TestClient, run: Run) -> None:
    events, pairs = table(200, 40), [("u1", "v2"), ("u3", "v3")]
    answer = post(client, events.to_dict("records"))
    assert answer.status_code == 200
    assert [r["position"] for r in answer.json()["receipts"]] == list(range(40))
    found = infer(client, pairs)
    expected = run.score(pairs, events=events)
    assert found.json()["outputs"][0]["data"] == expected["score"].tolist()
    assert found.json()["outputs"][1]["data"] == expected["probability"].tolist()
    assert found.json()["id"] == "7"
    later = infer(client, pairs, ["900", "901"]).json()["outputs"][0]["data"]
    assert later == run.score(pairs, [900, 901], events=events)["score"].tolist()
    ranked = client.post("/rank", json={"source": "u1", "top": 3, "explain": True}).json()
    offline = run.rank("u1", top=3, events=events, explain=True)
    assert [row["dst"] for row in ranked["ranked"]] == offline["dst"].tolist()
    assert [row["score"] for row in ranked["ranked"]] == offline["score"].tolist()
    assert [row["why"] for row in ranked["ranked"]] == offline["why"].tolist()
    new = client.post("/rank", json={"source": "absent", "top": 2, "candidates": ["v1", "v2", "v3"]}).json()
    assert new["warnings"]
    assert len(new["ranked"]) == 2


def test_a_restart_continues_where_the_service_stopped(run: Run, tmp_path: Path) -> None:
    events = table(200, 40).to_dict("records")

    def restarted() -> TestClient:
        return TestClient(service(ServiceEngine(partial(LiveRun, run.path, folder=tmp_path)), name="run"))

    with restarted() as client:
        post(client, events[:25])
        before = infer(client, [("u1", "v2")], [900]).json()
        assert client.get("/v2/health/ready").json() == {"ready": True}
    assert (tmp_path / "state" / "live.json").is_file()  # a snapshot at the stop
    with restarted() as client:
        assert client.get("/state").json()["position"] == 25
        assert infer(client, [("u1", "v2")], [900]).json() == before
        assert post(client, events[25:]).json()["position"] == 40


def test_concurrent_clients_with_duplicates(client: TestClient, run: Run, tmp_path: Path) -> None:
    """The log has each event once and every acknowledged one, and a replay gives the returned scores."""
    rows = [{"src": f"u{i % 10}", "dst": f"v{i % 7}", "t": 500, "event_id": f"e{i}"} for i in range(120)]

    def send(seed: int) -> list[tuple[str, dict[str, Any]]]:
        mine = random.Random(seed).sample(rows, 60)
        found = []
        for i in range(0, 60, 4):
            answer = post(client, mine[i : i + 4])
            assert answer.status_code == 200
            names = [row["event_id"] for row in mine[i : i + 4]]
            found += list(zip(names, answer.json()["receipts"], strict=True))
        return found

    with ThreadPoolExecutor(8) as pool:
        receipts = [one for part in pool.map(send, range(8)) for one in part]
    where = {name: receipt["position"] for name, receipt in receipts}
    assert all(receipt["position"] == where[name] for name, receipt in receipts)
    assert sorted(where.values()) == list(range(len(where)))
    scores = {r["position"]: r["score"] for _, r in receipts if not r["duplicate"]}
    again = pd.concat(list(replayed(run.path, tmp_path)))
    assert again["score"].tolist() == [scores[i] for i in range(len(where))]
    text = client.get("/metrics").text
    assert f"hopstate_events_total {len(where)}.0" in text
    assert f"hopstate_position {len(where)}.0" in text


@pytest.mark.slow
def test_events_that_are_only_stored_change_no_score(run: Run, tmp_path: Path) -> None:
    """Other events of the same commit keep their scores, and later events are scored as without them."""
    events = table(200, 40).to_dict("records")
    with TestClient(service(ServiceEngine(partial(LiveRun, run.path, folder=tmp_path / "a")), name="run")) as client:
        found = [client.post("/events", json={"events": [e], "score": k % 3 > 0}).json() for k, e in enumerate(events)]
        scores = [answer["receipts"][0]["score"] for answer in found]
        both = [Request([events[-1]], False), Request([events[-1]] * 2, True)]
        together = client.portal.call(client.app.state.engine._commit_group, both)  # type: ignore[attr-defined, union-attr]
        assert [[r.score is None for r in receipts] for receipts in together] == [[True], [False] * 2]
    again = pd.concat(list(replayed(run.path, tmp_path / "a")))["score"].tolist()
    assert scores == [None if k % 3 == 0 else again[k] for k in range(40)]
    never = service(ServiceEngine(partial(LiveRun, run.path, folder=tmp_path / "b"), score_events=False), name="run")
    with TestClient(never) as client:
        assert [r["score"] for r in post(client, events).json()["receipts"]] == [None] * 40
    stored = pd.concat(list(replayed(run.path, tmp_path / "b")))["score"]
    assert stored.tolist() == pytest.approx(again[:40], rel=F32)


REFUSED: dict[str, tuple[str, str, Any, int]] = {
    "an earlier event": ("POST", "/events", {"events": [{"src": "u1", "dst": "v1", "t": 1}]}, 409),
    "no events": ("POST", "/events", {"events": []}, 422),
    "an event that is none": ("POST", "/events", {"events": [3]}, 422),
    "too many events": ("POST", "/events", {"events": [{"src": "u1", "dst": "v1", "t": 900}] * 51}, 422),
    "no JSON": ("POST", "/events", b"{", 400),
    "NaN": ("POST", "/events", b'{"events": [{"src": "u1", "dst": "v1", "t": NaN}]}', 422),
    "a number without end": ("POST", "/events", b'{"events": [{"src": 1, "dst": 2, "t": ' + b"9" * 5000 + b"}]}", 400),
    "deep": ("POST", "/events", b'{"events": ' + b"[" * 9000 + b"]" * 9000 + b"}", 400),
    "too large": ("POST", "/events", b" " * 20_001, 413),
    "a path for an id": ("POST", "/rank", {"source": {"path": "/etc/passwd"}}, 422),
    "a file for candidates": ("POST", "/rank", {"source": "u1", "candidates": "/etc/passwd"}, 422),
    "an unknown field": ("POST", "/rank", {"source": "u1", "tops": 3}, 422),
    "top of 0": ("POST", "/rank", {"source": "u1", "top": 0}, 422),
    "another model": ("GET", "/v2/models/other", None, 404),
    "no such route": ("GET", "/nowhere", None, 404),
    "columns that are missing": ("POST", "/v2/models/run/infer", {"inputs": []}, 422),
}


def test_invalid_requests_are_rejected(client: TestClient) -> None:
    for kind, (method, route, body, status) in REFUSED.items():
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        answer = client.request(method, route, content=content, headers={"Content-Type": "application/json"})
        assert answer.status_code == status, (kind, answer.text)
        assert isinstance(answer.json()["error"], str), kind
        assert client.get("/state").json()["position"] == 0, kind


def value(rng: random.Random, depth: int = 0) -> Any:
    kinds: list[Any] = [None, True, 0, -1, 10**12, 2**63, 2**70, 0.5, 1e308, "", "u1", "é\u0000", "=1+1", "2024-02-30"]
    kinds += ["nan", "u" * 300, "2024-03-01T00:00:00Z", [], {}]
    if depth < 3 and rng.random() < 0.3:
        if rng.random() < 0.5:
            return [value(rng, depth + 1) for _ in range(rng.randrange(3))]
        return {rng.choice(["src", "dst", "t", "name", ""]): value(rng, depth + 1) for _ in range(rng.randrange(4))}
    return rng.choice(kinds)


def test_malformed_requests_never_break_a_route(client: TestClient) -> None:
    """No response is a server error, and a rejected request leaves nothing in the log."""
    rng, stored = random.Random(5), 0
    for _ in range(40):
        event = {"src": "u1", "dst": "v1", "t": 900} | ({rng.choice(["src", "dst", "t", "event_id"]): value(rng)})
        query = {"source": "u1", "top": 2} | {rng.choice(["source", "time", "candidates"]): value(rng)}
        data = {"name": rng.choice(["time", "source"]), "shape": [1], "datatype": "BYTES", "data": [value(rng)]}
        pair = [
            {"name": n, "shape": [1], "datatype": "BYTES", "data": [d]} for n, d in (("source", "u1"), ("target", 3))
        ]
        for route, body in (
            ("/events", {"events": [event]}),
            ("/rank", query),
            ("/v2/models/run/infer", {"inputs": [*pair, data][rng.randrange(2) :]}),
            (rng.choice(["/events", "/rank"]), value(rng)),
        ):
            answer = client.post(route, json=body)
            assert answer.status_code < 500, (route, body, answer.text)
            stored += sum(not r["duplicate"] for r in answer.json()["receipts"]) if "receipts" in answer.json() else 0
    assert client.get("/state").json()["position"] == stored


def test_a_token_is_required(run: Run, tmp_path: Path) -> None:
    app = service(ServiceEngine(partial(LiveRun, run.path, folder=tmp_path)), name="run", token="secret")
    with TestClient(app) as client:
        for open_to_all in ("/v2/health/live", "/"):  # a browser sends no token when it requests the page
            assert client.get(open_to_all).status_code == 200
        assert [client.get("/metrics").status_code, client.post("/", json={}).status_code] == [401, 401]
        for headers in ({}, {"Authorization": "Bearer wrong"}, {"Authorization": "secret"}):
            assert client.get("/state", headers=headers).status_code == 401
        assert client.get("/state", headers={"Authorization": "Bearer secret"}).status_code == 200


def test_requests_above_the_queue_limit_are_rejected(run: Run, tmp_path: Path) -> None:
    """The queue fills up to its limit; every further request is rejected until one is answered."""
    events = [row | {"event_id": f"e{k}"} for k, row in enumerate(table(200, 4).to_dict("records"))]

    log = GatedLog(tmp_path)
    opened = partial(LiveRun, run.path, folder=tmp_path, log=log)
    app = service(ServiceEngine(opened, limits=Limits(waiting=2)), name="run")
    with TestClient(app) as client, ThreadPoolExecutor(2) as threads:
        waiting = [threads.submit(post, client, [event]) for event in events[:2]]
        until(lambda: client.get("/state").json()["waiting"] == 2)
        assert client.get("/state").json()["waiting_events"] == 2
        for refused in (
            post(client, events[2:3]),
            client.post("/rank", json={"source": "u1"}),
            infer(client, [(1, 2)]),
        ):
            assert (refused.status_code, refused.headers["Retry-After"]) == (429, "1")
        log.leave.set()
        assert [one.result().status_code for one in waiting] == [200, 200]
        assert post(client, events[2:]).json()["position"] == 4  # no rejected event is stored
        assert client.get("/state").json()["waiting"] == 0


def test_the_page_and_the_openapi_schema(client: TestClient) -> None:
    page = client.get("/")
    assert page.status_code == 200
    names = ("http-equiv", "http://www.w3.org/2000/svg")  # of an attribute, and in the icon's format
    text = functools.reduce(lambda text, name: text.replace(name, ""), names, page.text)
    assert "http" not in text  # no external resource
    described = client.get("/openapi.json").json()["paths"]
    assert {"/events", "/rank", "/metrics", "/v2/models/{model}/infer"} <= described.keys()
    assert client.get("/v2/models/run").json()["platform"] == "hopstate"


def test_quality_is_reported(client: TestClient) -> None:
    events = table(200, 60).to_dict("records")
    for i in range(0, 60, 20):
        assert client.post("/events", json={"events": events[i : i + 20]}).status_code == 200
        client.portal.call(client.app.state.engine.wait_for_evaluation)  # type: ignore[attr-defined, union-attr]
    state = client.get("/state").json()
    assert state["evaluated"] >= 1
    assert set(state["quality"]) <= {"random", "historical"}
    row = state["quality"]["random"]
    assert 0 <= row["brier"] <= 1  # the run has a calibration
    assert row.keys() >= {"average_precision", "recency_average_precision", "mrr", "recency_mrr", "ece"}
    assert state["alarms"] == []
    assert 'hopstate_quality{metric="mrr",others="random"}' in client.get("/metrics").text


@pytest.mark.slow
def test_dashboard_and_systemd_unit_use_existing_names(client: TestClient, capsys: pytest.CaptureFixture[str]) -> None:
    examples = Path(__file__).parents[2] / "docs" / "live"
    text = client.get("/metrics").text
    names = set(re.findall(r"^# TYPE (\S+)", text, re.M))
    panels = json.loads((examples / "grafana.json").read_text())["panels"]
    used = {n for p in panels for target in p["targets"] for n in re.findall(r"hopstate_\w+", target["expr"])}
    assert len(used) >= 15
    assert {re.sub(r"_bucket$", "", name) for name in used} <= names
    unit = (examples / "hopstate.service").read_text()
    command = re.search(r"^ExecStart=\S+ (.*)$", unit, re.M)
    assert command is not None
    main(["serve", "--help"])
    known = capsys.readouterr().out
    assert all(option in known for option in re.findall(r"--[a-z-]+", command[1]))


@pytest.mark.slow
def test_a_temporary_failure_of_the_log_is_survived(run: Run, tmp_path: Path) -> None:
    """Concurrent requests get an error, the page shows it, and the next request succeeds."""

    class Away(SqliteLog):
        gone = full = False

        def __len__(self) -> int:
            if Away.gone:
                raise RuntimeError("the connection is gone")
            return super().__len__()

        def append(self, *args: Any) -> int:
            if Away.full:
                raise StorageError("no space left")
            return super().append(*args)

    (tmp_path / "live").mkdir()
    opened = partial(LiveRun, run.path, folder=tmp_path / "live", log=Away(tmp_path / "live"))
    limits, event = Limits(delay=0.3), {"src": "u1", "dst": "v1", "t": 900}
    with TestClient(service(ServiceEngine(opened, limits=limits), name="run"), raise_server_exceptions=False) as client:
        Away.gone = True
        with ThreadPoolExecutor(2) as threads:
            statuses = list(
                threads.map(lambda _: client.post("/events", json={"events": [event]}).status_code, range(2))
            )
        assert statuses == [500, 500]
        Away.gone, Away.full = False, True
        assert client.post("/events", json={"events": [event]}).status_code == 503
        assert client.get("/state").json()["trouble"] == "no space left"
        Away.full = False
        assert client.post("/events", json={"events": [event]}).status_code == 200
        assert client.get("/state").json()["trouble"] == ""


@pytest.mark.slow
def test_head_requests_of_load_balancers_are_answered(run: Run, tmp_path: Path) -> None:
    with TestClient(
        service(ServiceEngine(partial(LiveRun, run.path, folder=tmp_path)), name="run", token="secret")
    ) as client:
        assert [client.head(path).status_code for path in ("/v2/health/live", "/v2/health/ready", "/")] == [200] * 3
        assert client.head("/state").status_code == 401


@pytest.mark.slow
def test_a_busy_log_delays_only_the_page(run: Run, tmp_path: Path) -> None:
    """Only the page counts late events and waits for the log."""
    busy = threading.Event()
    with TestClient(
        service(ServiceEngine(partial(LiveRun, run.path, folder=tmp_path, late="dead-letter")), name="run")
    ) as client:
        live = client.app.state.engine.live
        live.log.num_dead_letters = lambda: (busy.wait(30), 3)[1]
        counts: list[int] = []
        page = threading.Thread(target=lambda: counts.append(client.get("/state").json()["dead_letters"]))
        page.start()
        try:
            assert client.get("/v2/health/live").status_code == 200
            assert not counts
        finally:
            busy.set()
            page.join(30)
    assert counts == [3]


def test_ids_reject_characters_that_text_columns_drop(client: TestClient) -> None:
    assert client.post("/rank", json={"source": "u1\0"}).status_code == 422
    assert infer(client, [("u1\0", "v1")]).status_code == 422
    assert client.post("/events", json={"events": [{"src": "u1\0", "dst": "v1", "t": 900}]}).status_code == 422


def test_errors_do_not_echo_the_request(client: TestClient) -> None:
    """Nor values that JSON cannot express, which would be a server error."""
    for body in (b"[Infinity]", b'{"source": {"\\ud800": "secret"}}', b'{"secret": 1}'):
        answer = client.post("/rank", content=body, headers={"Content-Type": "application/json"})
        assert (answer.status_code, "secret" in answer.text.replace("body.secret:", "")) == (422, False)
    assert client.post("/rank", content=b"{}").status_code == 415
