"""`hopstate serve` as a process: what is wrong is told before anything long is done."""

import json
import os
import signal
import socket
import threading
from collections.abc import Callable
from pathlib import Path
from urllib.request import Request, urlopen

import pytest

import hopstate.cli.serve as serve
from hopstate.cli.main import main
from hopstate.cli.serve import _bound
from hopstate.errors import StorageError
from made_events import small_run


def test_a_port_in_use_is_told_before_the_run_is_read(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        assert main(["serve", str(tmp_path / "no such run"), "--port", str(port)]) == 2
    told = capsys.readouterr().err
    assert f"port {port} of 127.0.0.1" in told
    assert "give another --port" in told
    assert "no such run" not in told


def test_no_such_address(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    token = tmp_path / "token"
    token.write_text("secret")
    for host in ("no.such.host.invalid", "192.0.2.1", "a" * 300):
        assert main(["serve", str(tmp_path / "run"), "--host", host, "--token-file", str(token)]) == 2
        assert "give another --port or --host" in capsys.readouterr().err


def test_small_answers_are_sent_at_once() -> None:
    """Asyncio switches delays off for sockets alone that say that they are TCP's."""
    with _bound("127.0.0.1", 0) as place:
        assert place.proto == socket.IPPROTO_TCP


def no_room(live: object) -> int:
    raise StorageError("the disk is full")


@pytest.mark.parametrize(
    ("number", "snapshot", "status"),
    [(signal.SIGTERM, None, 0), (signal.SIGINT, None, 0), (signal.SIGTERM, no_room, 1)],
    ids=["TERM", "Ctrl-C", "no room for the snapshot"],
)
def test_a_stop_that_keeps_all_is_no_failure(
    number: int,
    snapshot: Callable[[object], int] | None,
    status: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    for needed in ("apsw", "fastapi", "uvicorn"):
        pytest.importorskip(needed, reason="needs pip install 'hopstate[serve]'")
    from hopstate.serving.live import LiveRun

    monkeypatch.setattr(serve, "_make_even", lambda: None)  # of this whole process
    if snapshot is not None:
        monkeypatch.setattr(LiveRun, "snapshot", snapshot)
    run = small_run("recency", tmp_path).path
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    taken, opened = list[int](), threading.Event()

    def client() -> None:
        event = json.dumps({"events": [{"src": "u1", "dst": "v1", "t": 9_000}]}).encode()
        asked = Request(f"http://127.0.0.1:{port}/events", event, {"Content-Type": "application/json"})
        try:
            for _ in range(600):
                try:
                    taken.append(json.load(urlopen(asked, timeout=60))["position"])
                    break
                except OSError as error:  # it does not listen yet
                    if not isinstance(getattr(error, "reason", None), ConnectionRefusedError):
                        raise
                    opened.wait(0.1)
        finally:
            os.kill(os.getpid(), number)

    before = [signal.getsignal(one) for one in (signal.SIGINT, signal.SIGTERM)]
    beside = threading.Thread(target=client)
    beside.start()
    assert main(["serve", str(run), "--port", str(port)]) == status
    beside.join()
    assert taken == [1]
    assert [signal.getsignal(one) for one in (signal.SIGINT, signal.SIGTERM)] == before
    assert ("the disk is full" in capsys.readouterr().err) == (status == 1)
