"""The commands of the page on live runs, word for word, against a running service."""

import contextlib
import json
import re
import shlex
import shutil
import signal
import socket
import subprocess
import sys
from pathlib import Path
from urllib.request import Request, urlopen

import pytest

from hopstate.serving.snapshots import snapshot_sizes
from made_events import small_run

pytest.importorskip("uvicorn", reason="needs the extra serve: pip install 'hopstate[serve]'")
pytest.importorskip("apsw", reason="needs the extra serve: pip install 'hopstate[serve]'")

pytestmark = pytest.mark.slow
PAGE = Path(__file__).parents[2] / "docs" / "live-run.md"


@pytest.mark.skipif(shutil.which("curl") is None, reason="needs curl")
def test_commands_of_the_page_are_answered(tmp_path: Path) -> None:
    """With the port of this service."""
    served = small_run("pair-trees", tmp_path).path
    commands = re.findall(r"^curl .*$", PAGE.read_text("utf-8"), re.M)
    assert len(commands) == 2
    start = [sys.executable, "-m", "hopstate.cli.main", "serve", str(served), "--port", "0"]
    with subprocess.Popen(start, stdout=subprocess.PIPE, text=True) as service:
        try:
            assert service.stdout is not None
            where = re.search(r"http://127\.0\.0\.1:(\d+)", service.stdout.readline())
            assert where is not None

            def run_command(command: str) -> dict[str, object]:
                words = shlex.split(command.replace("localhost:8080", f"127.0.0.1:{where[1]}"))
                done = subprocess.run([*words, "--silent", "--fail-with-body", "--noproxy", "*"], capture_output=True)
                assert done.returncode == 0, (command, done.stdout)
                return dict(json.loads(done.stdout))

            events, ranked = map(run_command, commands)
        finally:
            service.send_signal(signal.SIGTERM)
    assert events["position"] == 1
    assert isinstance(ranked["ranked"], list)
    assert [row["src"] for row in ranked["ranked"]] == ["alice"] * 3
    assert service.returncode == 0


def test_a_client_that_does_not_read_does_not_delay_a_stop(tmp_path: Path) -> None:
    """A client that sends requests and never reads, and one that has sent half a request."""
    run = small_run("recency", tmp_path).path
    start = [sys.executable, "-m", "hopstate.cli.main", "serve", str(run), "--port", "0"]
    with subprocess.Popen(start, stdout=subprocess.PIPE, text=True) as service:
        assert service.stdout is not None
        where = re.search(r"http://127\.0\.0\.1:(\d+)", service.stdout.readline())
        assert where is not None
        place = "127.0.0.1", int(where[1])
        event = json.dumps({"events": [{"src": "u1", "dst": "v1", "t": 9_000}]}).encode()
        request = Request(f"http://127.0.0.1:{where[1]}/events", event, {"Content-Type": "application/json"})
        assert urlopen(request, timeout=60).status == 200
        with socket.create_connection(place) as unread, socket.create_connection(place) as half:
            half.sendall(b"POST /events HTTP/1.1\r\nHost: here\r\nContent-Length: 90\r\n\r\n{")
            unread.settimeout(1)
            with contextlib.suppress(TimeoutError):  # until all buffers between are full
                for _ in range(5000):
                    unread.sendall(b"GET /openapi.json HTTP/1.1\r\nHost: here\r\n\r\n")
            service.send_signal(signal.SIGTERM)
            service.wait(60)
    assert service.returncode == 0
    assert snapshot_sizes(run / "live" / "state"), "the snapshot of a stop that ended as it should"
