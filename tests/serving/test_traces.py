"""Spans of requests and commits where OpenTelemetry is there; without it nothing changes."""

import sys
from functools import partial
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
