"""StructuredLogger of a service: machine-readable lines for each request, commit and alarm."""

import io
import json
import logging
import re
import time
import warnings
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from made_events import small_run, table

pytest.importorskip("fastapi", reason="needs the extra serve: pip install 'hopstate[serve]'")
pytest.importorskip("apsw", reason="needs the extra serve: pip install 'hopstate[serve]'")

from fastapi.testclient import TestClient

from hopstate.errors import HopstateWarning
from hopstate.serving.engine import ServiceEngine
from hopstate.serving.live import LiveRun
from hopstate.serving.metrics import SERVER_LINES, StructuredLogger
from hopstate.serving.service import service


@pytest.mark.parametrize("form", ["json", *(pytest.param(form, marks=pytest.mark.slow) for form in ("text", "off"))])
def test_requests_commits_and_alarms_are_logged(form: str, tmp_path: Path) -> None:
    run, out = small_run("recency", tmp_path), io.StringIO()
    events = table(200, 6).to_dict("records")
    lines = StructuredLogger(form, out)  # type: ignore[arg-type]
    app = service(ServiceEngine(partial(LiveRun, run.path), lines=lines), name="run")
    with TestClient(app) as client:
        engine = app.state.engine
        client.post("/events", json={"events": events[:4]})
        engine.quality.alarm('two words, a "quote"\nand a line')
        client.post("/events", json={"events": events[4:]})
        client.post("/events", json={"events": events[:1]})
        client.get("/nowhere?secret=1")
        engine._trouble("source", "it is away")
        engine._trouble("source", "it is away")
    lines = out.getvalue().splitlines()
    if form == "off":
        assert not lines
        return
    if form == "text":
        rows = [re.fullmatch(r"\d{4}-\S+T\S+ ([a-z]+) .*", line) for line in lines]
        assert [row and row[1] for row in rows].count("request") == 4
        assert r'text="two words, a \"quote\"\nand a line"' in out.getvalue()
        return
    rows = [json.loads(line) for line in lines]
    assert all(row["time"].endswith("+00:00") for row in rows)
    kinds = [row["event"] for row in rows]
    assert (kinds[0], kinds[-1]) == ("opened", "closed")
    assert [(row["first"], row["events"]) for row in rows if row["event"] == "commit"] == [(0, 4), (4, 2)]
    requests = [(row["method"], row["route"], row["status"]) for row in rows if row["event"] == "request"]
    assert requests == [("POST", "/events", 200)] * 2 + [("POST", "/events", 409), ("GET", "other", 404)]
    assert [row["position"] for row in rows if row["event"] == "alarm"] == [4]
    assert kinds.count("trouble") == 1
    assert "secret" not in out.getvalue()


def test_warnings_are_log_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    out, others = io.StringIO(), []
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        monkeypatch.setattr(warnings, "showwarning", lambda *args, **kwargs: others.append(args[0]))
        StructuredLogger("json", out).take_warnings()
        warnings.warn("no snapshot was kept", HopstateWarning, stacklevel=1)
        warnings.warn("of another library", UserWarning, stacklevel=1)
    assert json.loads(out.getvalue()) | {"time": ""} == {"time": "", "event": "warning", "text": "no snapshot was kept"}
    assert len(others) == 1


def test_unread_log_lines_do_not_block() -> None:
    out = io.StringIO()
    out.close()
    lines = StructuredLogger("json", out)
    lines("request", status=200)
    assert lines.form == "off"


@pytest.fixture
def server_logger() -> Iterator[logging.Logger]:
    logger = logging.getLogger("uvicorn.error")
    before = logger.handlers, logger.propagate
    yield logger
    logger.handlers, logger.propagate = before


@pytest.mark.parametrize("form", ["json", "off"])
def test_warnings_of_the_web_server_are_bounded_lines(
    form: str, server_logger: logging.Logger, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(warnings, "showwarning", warnings.showwarning)
    StructuredLogger(form).take_warnings()  # type: ignore[arg-type]
    for _ in range(1_000):
        server_logger.warning("Invalid HTTP request received.")
    try:
        raise KeyError("x")
    except KeyError:
        server_logger.exception("of the application")
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == SERVER_LINES
    steady = time.monotonic
    monkeypatch.setattr(time, "monotonic", lambda: steady() + 61)
    server_logger.warning("after a minute")
    lines += capsys.readouterr().err.splitlines()
    assert len(lines) == SERVER_LINES + 2
    assert "991 more" in lines[-2]
    if form == "json":
        rows = [json.loads(line) for line in lines]
        assert {row["event"] for row in rows} == {"server"}
        assert rows[-1]["text"] == "after a minute"
