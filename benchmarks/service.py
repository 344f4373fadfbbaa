"""A soak of a whole service over HTTP, with restarts and kills; `serving_latency.py` has its latencies.

    python benchmarks/service.py --data PATH/uci/ml_uci.csv --methods recency --events 1000000

Each method with its defaults, after one epoch, fitted to the first 20,000 events of a stream; what comes live
is the rest of it again and again, later each time. The service is a process of its own (`hopstate serve`), the load
this one. Seconds are those of the clock beside those of the service's processor; the load of the machine is told.
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

import hopstate
from common import machine, require_green

QUIET = {"loop": {"epochs": 1, "progress": False, "logger": "none", "device": "cpu"}}
OWN = 20_000
JSON = {"Content-Type": "application/json"}


class Service:
    """`hopstate serve` as a process; `ready` are the seconds from its start to its first answer."""

    def __init__(self, run: Path) -> None:
        begin = time.perf_counter()
        command = [sys.executable, "-m", "hopstate.cli.main", "serve", str(run), "--port", "0"]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert self.process.stdout is not None
        self.port = int(self.process.stdout.readline().split("http://127.0.0.1:")[1].split()[0])
        self.door = http.client.HTTPConnection("127.0.0.1", self.port, timeout=120)
        self.ask("GET", "/state", tries=6_000)
        self.ready = time.perf_counter() - begin
        self.started = f"{self.ready:.1f} s ({self.cpu():.1f} of its processor)"

    def ask(self, method: str, door: str, body: Any = None, tries: int = 1) -> Any:
        """Return an answer."""
        for k in range(tries):
            try:
                self.door.request(method, door, None if body is None else json.dumps(body), JSON)
                answer = self.door.getresponse()
                told = json.loads(answer.read())
                assert answer.status == 200, str(told)[:300]
                return told
            except ConnectionError:
                self.door.close()
                if k + 1 == tries:
                    raise
                time.sleep(0.01)
        return None

    def megabytes(self) -> float:
        """Memory that it has now."""
        for line in Path(f"/proc/{self.process.pid}/status").read_text().splitlines():
            if line.startswith("VmRSS"):
                return int(line.split()[1]) / 1024
        return 0.0

    def cpu(self) -> float:
        """Seconds of the processor so far."""
        told = Path(f"/proc/{self.process.pid}/stat").read_text().rsplit(")", 1)[1].split()
        return (int(told[11]) + int(told[12])) / os.sysconf("SC_CLK_TCK")

    def end(self, sign: signal.Signals) -> float:
        """End it; return how long that took."""
        begin = time.perf_counter()
        self.process.send_signal(sign)
        self.process.wait()
        return time.perf_counter() - begin


def live(table: pd.DataFrame, own: int) -> Iterator[dict[str, Any]]:
    """Yield the events behind the run's own, again and again, later each time."""
    rest = table[own:]
    span, shift = int(rest["t"].iloc[-1] - rest["t"].iloc[0]) + 1, 0
    rows = rest.to_dict("records")
    while True:
        for row in rows:
            yield {**row, "t": row["t"] + shift}
        shift += span


def soak(run: Path, events: Iterator[dict[str, Any]], count: int, size: int) -> Iterator[str]:
    """Yield what becomes of memory and rate on the way, and how long starts take."""
    service = Service(run)
    yield f"first start {service.started}, {service.megabytes():.0f} MB"
    begin, cpu, told, step = time.perf_counter(), service.cpu(), 0, max(count // 10, size)
    for k in range(0, count, size):
        service.ask("POST", "/events", {"events": [next(events) for _ in range(size)]})
        if (k + size) // step > told:
            told, clock = (k + size) // step, time.perf_counter() - begin
            now = service.cpu()
            yield (
                f"{k + size:,} events: {service.megabytes():.0f} MB; {step / clock:,.0f} a second of the clock, "
                f"{step / (now - cpu):,.0f} of its processor; load {os.getloadavg()[0]:.1f}"
            )
            begin, cpu = time.perf_counter(), now
    stopped = service.end(signal.SIGTERM)
    service = Service(run)
    yield f"stop {stopped:.1f} s; start from the snapshot {service.started}, {service.megabytes():.0f} MB"
    for _ in range(0, 50_000, size):
        service.ask("POST", "/events", {"events": [next(events) for _ in range(size)]})
    position = service.ask("GET", "/state")["position"]
    service.end(signal.SIGKILL)
    service = Service(run)
    assert service.ask("GET", "/state")["position"] == position
    yield f"start after SIGKILL, 50,000 events beyond the snapshot: {service.started}"
    service.end(signal.SIGTERM)


def main() -> None:
    """Print what was found."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", required=True, help="DyGLib's table of a stream: u, i, ts")
    parser.add_argument("--methods", nargs="+", default=["recency"])
    parser.add_argument("--own", type=int, default=OWN, help="events of the run itself; the others come live")
    parser.add_argument("--events", type=int, default=100_000, help="of the soak")
    parser.add_argument("--commit", type=int, default=500)
    options = parser.parse_args()
    require_green("tests/serving/test_service.py")
    print(machine())
    warnings.simplefilter("ignore")
    raw = pd.read_csv(options.data)
    table = pd.DataFrame({"src": raw["u"], "dst": raw["i"], "t": raw["ts"].astype(np.int64)})
    for name in options.methods:
        with tempfile.TemporaryDirectory() as folder:
            home = Path(folder)
            table[: options.own].to_csv(home / "own.csv", index=False)
            settings = {**QUIET, "evaluation": {"strategies": ["random"]}}
            run = hopstate.fit(name, home / "own.csv", out=home / "run", config=settings)
            events = live(table, options.own)
            for told in soak(run.path, events, options.events, options.commit):
                print(f"{name}: {told}", flush=True)


if __name__ == "__main__":
    main()
