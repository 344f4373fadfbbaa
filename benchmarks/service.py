"""A whole service over HTTP: a soak with restarts and kills, and latencies while events come at a steady rate.

    python benchmarks/service.py --data PATH/uci/ml_uci.csv --methods recency --events 1000000
    python benchmarks/service.py --data PATH/uci/ml_uci.csv --methods recency pair-trees ctdg-ssm dyg-mamba --seconds 20

Each method with its defaults, weights as they are drawn, fitted to the first 20,000 events of a stream; what comes live
is the rest of it again and again, later each time. The service is a process of its own (`hopstate serve`), the load
this one. Seconds are those of the clock beside those of the service's processor; the load of the machine is told.
Methods of `--stored` take events without scoring them, and rank in two stages (the first is made before, which takes a
minute). "cpu ms" are milliseconds of the service's processor for a request of ten events, of a pair and of a ranking,
each kind alone, after the paced part.
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
import threading
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

import hopstate
from common import machine, require_green

QUIET = {"loop": {"epochs": 0, "progress": False, "logger": "none", "device": "cpu"}}
OWN, RATE = 20_000, 500
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


def paced(run: Path, events: Iterator[dict[str, Any]], seconds: float, *, score: bool) -> dict[str, str]:
    """Return p50/p99 in milliseconds of acknowledgements and questions while events come at a steady rate."""
    service, spent = Service(run), {"ack": [], "infer": [], "rank": []}  # type: dict[str, list[float]]
    first = [next(events) for _ in range(2_000)]
    service.ask("POST", "/events", {"events": first, "score": score})
    asked = [(e["src"], e["dst"]) for e in first]
    ended = threading.Event()

    def timed(door: http.client.HTTPConnection, kind: str, where: str, body: Any) -> None:
        text, begin = json.dumps(body), time.perf_counter()
        door.request("POST", where, text, JSON)
        answer = door.getresponse()
        answer.read()
        spent[kind].append(time.perf_counter() - begin)
        assert answer.status == 200, answer.status

    def give(door: http.client.HTTPConnection) -> None:
        timed(door, "ack", "/events", {"events": [next(events) for _ in range(10)], "score": score})

    def feed() -> None:
        door, begin, sent = http.client.HTTPConnection("127.0.0.1", service.port, timeout=60), time.perf_counter(), 0
        while not ended.is_set():
            time.sleep(max(begin + sent / RATE - time.perf_counter(), 0))
            give(door)
            sent += 10

    thread = threading.Thread(target=feed)
    door, rng = http.client.HTTPConnection("127.0.0.1", service.port, timeout=60), np.random.default_rng(0)
    name = f"/v2/models/{run.name}/infer"

    def ask(k: int) -> None:
        u, v = asked[rng.integers(len(asked))]
        if k % 10 == 9:
            timed(door, "rank", "/rank", {"source": u, "top": 10})
        else:
            columns = [
                {"name": n, "shape": [1], "datatype": "INT64", "data": [x]} for n, x in (("source", u), ("target", v))
            ]
            timed(door, "infer", name, {"inputs": columns})

    for k in range(30):  # what compiles, and the curve of probabilities
        ask(k)
    for times in spent.values():
        times.clear()
    cpu, begin, k = service.cpu(), time.perf_counter(), 0
    thread.start()
    while time.perf_counter() < begin + seconds:
        ask(k)
        k += 1
        time.sleep(0.02)
    ended.set()
    thread.join()
    busy, rate = (
        (service.cpu() - cpu) / (time.perf_counter() - begin),
        10 * len(spent["ack"]) / (time.perf_counter() - begin),
    )
    found = {k: "/".join(f"{q:.1f}" for q in np.quantile(v, [0.5, 0.99]) * 1e3) for k, v in spent.items()}
    alone = {}
    for kind, count, work in (
        ("ack", 100, lambda: give(door)),
        ("infer", 100, lambda: ask(0)),
        ("rank", 20, lambda: ask(9)),
    ):
        cpu = service.cpu()
        for _ in range(count):
            work()
        alone[kind] = f"{(service.cpu() - cpu) / count * 1e3:.1f}"
    service.end(signal.SIGTERM)
    found |= {"events/s": f"{rate:.0f}", "processor": f"{busy:.0%}", "load": f"{os.getloadavg()[0]:.1f}"}
    return found | {"cpu ms": "/".join(alone.values())}


def main() -> None:
    """Print what was found."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", required=True, help="DyGLib's table of a stream: u, i, ts")
    parser.add_argument("--methods", nargs="+", default=["recency"])
    parser.add_argument("--own", type=int, default=OWN, help="events of the run itself; the others come live")
    parser.add_argument("--events", type=int, default=0, help="of the soak; 0 leaves it out")
    parser.add_argument("--seconds", type=float, default=0.0, help="of the steady rate; 0 leaves it out")
    parser.add_argument("--stored", nargs="*", default=["dyg-mamba"], help="methods that only store events")
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
            if options.seconds:
                run.score([(int(table["src"][0]), int(table["dst"][0]))])  # its curve of probabilities
                stored = name in options.stored
                if stored:
                    run.rank(int(table["src"][0]), prefilter=100)
                print({"method": name, **paced(run.path, events, options.seconds, score=not stored)}, flush=True)
            if options.events:
                for told in soak(run.path, events, options.events, options.commit):
                    print(f"{name}: {told}", flush=True)


if __name__ == "__main__":
    main()
