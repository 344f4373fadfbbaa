"""Spans of requests and commits where OpenTelemetry is there; without it nothing changes."""

import sys
import threading
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from made_events import small_run, table

pytest.importorskip("fastapi", reason="needs the extra serve: pip install 'hopstate[serve]'")
pytest.importorskip("apsw", reason="needs the extra serve: pip install 'hopstate[serve]'")

from fastapi.testclient import TestClient

from hopstate.errors import MissingExtraError
from hopstate.serving import traces
from hopstate.serving.live import LiveRun
from hopstate.serving.service import service

pytestmark = pytest.mark.slow


def test_requests_and_commits_are_spans(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sdk = pytest.importorskip("opentelemetry.sdk.trace", reason="needs the extra otel: pip install 'hopstate[otel]'")
    from opentelemetry import trace
    from opentelemetry.sdk.trace.export import SimpleSpanProcessor
    from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

    told, provider = InMemorySpanExporter(), sdk.TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(told))
    monkeypatch.setattr(trace, "get_tracer", lambda *names: provider.get_tracer(*names))
    run = small_run("recency", tmp_path)
    caller = "0af7651916cd43dd8448eb211c80319c"
    with TestClient(service(partial(LiveRun, run.path), name="run")) as client:
        headers = {"traceparent": f"00-{caller}-b7ad6b7169203331-01"}
        client.post("/events", json={"events": table(200, 6).to_dict("records")}, headers=headers)
        client.get("/nowhere")
    spans = {span.name: span for span in told.get_finished_spans()}
    assert f"{spans['POST'].context.trace_id:032x}" == caller
    wanted = {"http.request.method": "POST", "http.route": "/events", "http.response.status_code": 200}
    assert dict(spans["POST"].attributes) == wanted
    assert spans["GET"].attributes["http.response.status_code"] == 404
    assert dict(spans["commit"].attributes) == {"hopstate.events": 6, "hopstate.position": 6}


class Collector(ThreadingHTTPServer):
    """What spans are sent to: it keeps the bodies of requests, and whether each was one of OTLP."""

    def __init__(self) -> None:
        self.got: list[tuple[str, str, bytes]] = []
        super().__init__(("127.0.0.1", 0), self.Handler)

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            self.server.got.append((self.path, self.headers["Content-Type"], body))  # type: ignore[attr-defined]
            self.send_response(200)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *told: object) -> None:
            pass


def test_spans_arrive_at_a_collector(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("opentelemetry.exporter.otlp.proto.http", reason="needs the extra otel: 'hopstate[otel]'")
    from opentelemetry import trace
    from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
    from opentelemetry.util._once import Once

    monkeypatch.setattr(trace, "_TRACER_PROVIDER", None)  # it is told once a process
    monkeypatch.setattr(trace, "_TRACER_PROVIDER_SET_ONCE", Once())
    run = small_run("recency", tmp_path)
    with Collector() as collector:
        threading.Thread(target=collector.serve_forever, daemon=True).start()
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", f"http://127.0.0.1:{collector.server_port}")
        assert traces.export()
        assert traces.export()  # one that is there stays
        with TestClient(service(partial(LiveRun, run.path), name="run")) as client:
            client.post("/events", json={"events": table(200, 6).to_dict("records")})
        trace.get_tracer_provider().shutdown()  # type: ignore[attr-defined]
        collector.shutdown()
    assert {(path, kind) for path, kind, _ in collector.got} == {("/v1/traces", "application/x-protobuf")}
    told = [ExportTraceServiceRequest.FromString(body) for _, _, body in collector.got]
    resources = [one for request in told for one in request.resource_spans]
    names = {a.key: a.value.string_value for one in resources for a in one.resource.attributes}
    assert names["service.name"] == "hopstate"
    ours = [scope for one in resources for scope in one.scope_spans if scope.scope.name == "hopstate"]
    spans = {span.name: span for scope in ours for span in scope.spans}
    assert set(spans) == {"POST", "commit"}
    found = {a.key: a.value.int_value for a in spans["commit"].attributes}
    assert found == {"hopstate.events": 6, "hopstate.position": 6}
    assert spans["POST"].end_time_unix_nano > spans["POST"].start_time_unix_nano


def test_without_it_nothing_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry", None)
    traces._api.cache_clear()
    with traces.span("commit") as told:
        told["hopstate.events"] = 1
    traces._api.cache_clear()
    assert not traces.export()
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:1")
    with pytest.raises(MissingExtraError, match=r"hopstate\[otel\]"):
        traces.export()
