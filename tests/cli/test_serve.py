"""`hopstate serve` as a process: what is wrong is told before anything long is done."""

import socket
from pathlib import Path

import pytest

from hopstate.cli.main import main
from hopstate.cli.serve import _bound


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
