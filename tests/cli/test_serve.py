"""`hopstate serve`: wrong usage is rejected before slow work, and a signal stops it."""

import json
import os
import shutil
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
from hopstate.runs.run import Run


def test_a_port_in_use_is_named_before_the_run_is_read(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        assert main(["serve", str(tmp_path / "missing"), "--port", str(port)]) == 2
    error = capsys.readouterr().err
    assert str(port) in error
    assert "--port" in error
    assert "missing" not in error


def test_an_address_of_another_machine_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    token = tmp_path / "token"
    token.write_text("secret")
    for host in ("192.0.2.1", "a" * 300):
        assert main(["serve", str(tmp_path / "run"), "--host", host, "--token-file", str(token)]) == 2
        error = capsys.readouterr().err
        assert host in error
        assert "--host" in error
    assert main(["serve", str(tmp_path / "run"), "--host", "0.0.0.0"]) == 2
    assert "--token-file" in capsys.readouterr().err


def test_small_responses_are_sent_immediately() -> None:
    """Asyncio sets TCP_NODELAY only for sockets that declare the TCP protocol."""
    with _bound("127.0.0.1", 0) as place:
        assert place.proto == socket.IPPROTO_TCP


def no_room(live: object) -> int:
    raise StorageError("no room: 0 bytes")


@pytest.mark.parametrize(
    ("number", "snapshot", "status"),
    [
        (signal.SIGTERM, None, 0),
        pytest.param(signal.SIGINT, None, 0, marks=pytest.mark.slow),
        (signal.SIGTERM, no_room, 1),
    ],
    ids=["TERM", "Ctrl-C", "no room for the snapshot"],
)
def test_a_stop_by_a_signal_keeps_all_events(
    number: int,
    snapshot: Callable[[object], int] | None,
    status: int,
    tmp_path: Path,
    trained: Callable[[str], Run],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    for needed in ("apsw", "fastapi", "uvicorn"):
        pytest.importorskip(needed, reason="needs pip install 'hopstate[serve]'")
    from hopstate.serving.live import LiveRun

    monkeypatch.setattr(serve, "_make_even", lambda: None)  # of this whole process
    if snapshot is not None:
        monkeypatch.setattr(LiveRun, "snapshot", snapshot)
    run = tmp_path / "recency"
    shutil.copytree(trained("recency").path, run)
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    positions, opened = list[int](), threading.Event()

    def client() -> None:
        event = json.dumps({"events": [{"src": "u1", "dst": "v1", "t": 9_000, "amount": 1.0}]}).encode()
        request = Request(f"http://127.0.0.1:{port}/events", event, {"Content-Type": "application/json"})
        try:
            for _ in range(600):
                try:
                    positions.append(json.load(urlopen(request, timeout=60))["position"])
                    break
                except OSError as error:  # it does not listen yet
                    if not isinstance(getattr(error, "reason", None), ConnectionRefusedError):
                        raise
                    opened.wait(0.1)
        finally:
            os.kill(os.getpid(), number)

    before = [signal.getsignal(one) for one in (signal.SIGINT, signal.SIGTERM)]
    other = threading.Thread(target=client)
    other.start()
    assert main(["serve", str(run), "--port", str(port)]) == status
    other.join()
    assert positions == [1]
    assert [signal.getsignal(one) for one in (signal.SIGINT, signal.SIGTERM)] == before
    assert ("no room: 0 bytes" in capsys.readouterr().err) == (status == 1)
