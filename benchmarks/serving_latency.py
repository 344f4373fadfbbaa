"""Milliseconds to an answer about one pair while events arrive, what becomes of an overload, and a soak of a service.

    python benchmarks/serving_latency.py --data PATH/uci/ml_uci.csv --methods pair-trees ctdg-ssm dyg-mamba
    python benchmarks/serving_latency.py --data PATH/uci/ml_uci.csv --methods recency --soak 1000000

Each method with its defaults, after one epoch, fitted to the first events of a stream. The service (`hopstate serve`),
events and queries come from two separate processes. p50/p99 of acknowledgements ("ack", ten
events each) and of one pair ("pair"). The overload is explained rankings of different sources, all at once. The soak
sends the rest of the stream again and again, later each time, with restarts and a kill; its seconds are those of the
clock, together with CPU times of the service.
"""

from __future__ import annotations

import argparse
import http.client
import json
import multiprocessing
import os
import signal
import subprocess
import sys
import tempfile
import time
import warnings
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

import hopstate
from common import machine, require_green

SETTINGS = {
    "loop": {"epochs": 1, "progress": False, "logger": "none", "device": "cpu"},
    "evaluation": {"strategies": ["random"]},
}
OWN = 20_000
JSON = {"Content-Type": "application/json"}
RATE, TOGETHER = 500, 10  # events a second, events of a request


class Service:
    """`hopstate serve` as a process; `ready` are the seconds from its start to its first answer."""

    def __init__(self, run: Path) -> None:
        begin = time.perf_counter()
        command = [sys.executable, "-m", "hopstate.cli.main", "serve", str(run), "--port", "0"]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert self.process.stdout is not None
        self.port = int(self.process.stdout.readline().split("http://127.0.0.1:")[1].split()[0])
        self.connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=120)
        self.ask("GET", "/state", tries=6_000)
        self.ready = time.perf_counter() - begin
        self.started = f"{self.ready:.1f} s ({self.cpu():.1f} of its processor)"

    def ask(self, method: str, path: str, body: Any = None, tries: int = 1) -> Any:
        """Return an answer."""
        for k in range(tries):
            try:
                self.connection.request(method, path, None if body is None else json.dumps(body), JSON)
                answer = self.connection.getresponse()
                found = json.loads(answer.read())
                assert answer.status == 200, str(found)[:300]
                return found
            except ConnectionError:
                self.connection.close()
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
        columns = Path(f"/proc/{self.process.pid}/stat").read_text().rsplit(")", 1)[1].split()
        return (int(columns[11]) + int(columns[12])) / os.sysconf("SC_CLK_TCK")

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
    begin, cpu, steps, step = time.perf_counter(), service.cpu(), 0, max(count // 10, size)
    for k in range(0, count, size):
        service.ask("POST", "/events", {"events": [next(events) for _ in range(size)]})
        if (k + size) // step > steps:
            steps, clock = (k + size) // step, time.perf_counter() - begin
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


class Client:
    """A connection to a service, and the seconds of its requests."""

    def __init__(self, port: int) -> None:
        self.connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        self.seconds: list[float] = []

    def post(self, path: str, body: Any) -> int:
        """Return the status of an answer."""
        text, begin = json.dumps(body), time.perf_counter()
        self.connection.request("POST", path, text, JSON)
        answer = self.connection.getresponse()
        answer.read()
        self.seconds.append(time.perf_counter() - begin)
        return answer.status

    def quantiles(self) -> str:
        """Return p50/p99 in milliseconds."""
        return "/".join(f"{q:.1f}" for q in np.quantile(self.seconds, [0.5, 0.99]) * 1e3)


def feed(port: int, events: Sequence[dict[str, Any]], out: Connection) -> None:
    """Send events at a steady rate, then the p50/p99 of their acknowledgements."""
    client, begin = Client(port), time.perf_counter()
    for sent in range(0, len(events), TOGETHER):
        time.sleep(max(begin + sent / RATE - time.perf_counter(), 0))
        assert client.post("/events", {"events": events[sent : sent + TOGETHER]}) == 200
    out.send(client.quantiles())


def pair(source: int, target: int) -> dict[str, Any]:
    ends = {"source": source, "target": target}
    return {"inputs": [{"name": n, "shape": [1], "datatype": "INT64", "data": [x]} for n, x in ends.items()]}


def latency(service: Service, name: str, events: Iterator[dict[str, Any]], seconds: float) -> dict[str, str]:
    """Return p50/p99 while events arrive."""
    first, rest = list(islice(events, 2_000)), list(islice(events, int(RATE * seconds)))
    client, rng, path = Client(service.port), np.random.default_rng(0), f"/v2/models/{name}/infer"
    client.post("/events", {"events": first})
    for event in first[:30]:  # compiles
        client.post(path, pair(event["src"], event["dst"]))
    client.seconds.clear()
    quantiles, out = multiprocessing.Pipe(duplex=False)
    sender = multiprocessing.get_context("spawn").Process(target=feed, args=(service.port, rest, out))
    cpu, begin = service.cpu(), time.perf_counter()
    sender.start()  # returns when the new process has imported all: longer than an idle connection may last
    client.connection.close()
    while sender.is_alive():
        event = first[rng.integers(len(first))]
        assert client.post(path, pair(event["src"], event["dst"])) == 200
        time.sleep(0.02)
    sender.join()
    busy = (service.cpu() - cpu) / (time.perf_counter() - begin)
    return {"pair": client.quantiles(), "ack": quantiles.recv(), "processor": f"{busy:.0%}"}


def overload(service: Service, sources: Sequence[int]) -> str:
    """Ask explained rankings at once; return how many were answered with which status, and after how many seconds."""
    begin = time.perf_counter()

    def ask(source: int) -> tuple[int, float]:
        return Client(service.port).post("/rank", {"source": source, "explain": True}), time.perf_counter() - begin

    with ThreadPoolExecutor(len(sources)) as threads:
        answers = list(threads.map(ask, sources))
    found = []
    for status, count in sorted(Counter(status for status, _ in answers).items()):
        took = [seconds for one, seconds in answers if one == status]
        found.append(f"{count} of {status} in {min(took):.1f} to {max(took):.1f} s")
    return ", ".join(found)


def main() -> None:
    """Print what was found."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", required=True, help="DyGLib's table of a stream: u, i, ts")
    parser.add_argument("--methods", nargs="+", default=["pair-trees", "ctdg-ssm", "dyg-mamba"])
    parser.add_argument("--own", type=int, default=OWN, help="events of the run itself; the others come live")
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--overload", type=int, nargs="*", default=[40, 450], help="rankings at once")
    parser.add_argument("--soak", type=int, help="events of a soak, instead of latencies")
    parser.add_argument("--commit", type=int, default=500, help="events of a request of the soak")
    options = parser.parse_args()
    require_green("tests/serving/test_service.py")
    print(machine())
    warnings.simplefilter("ignore")
    raw = pd.read_csv(options.data)
    table = pd.DataFrame({"src": raw["u"], "dst": raw["i"], "t": raw["ts"].astype(np.int64)})
    for name in options.methods:
        with tempfile.TemporaryDirectory() as folder:
            table[: options.own].to_csv(Path(folder, "own.csv"), index=False)
            run = hopstate.fit(name, Path(folder, "own.csv"), out=Path(folder, "run"), config=SETTINGS)
            events = live(table, options.own)
            if options.soak is not None:
                for line in soak(run.path, events, options.soak, options.commit):
                    print(f"{name}: {line}", flush=True)
                continue
            run.score([(int(table["src"][0]), int(table["dst"][0]))])  # its curve of probabilities
            service = Service(run.path)
            found = latency(service, run.path.name, events, options.seconds)
            print({"method": name, **found, "load": f"{os.getloadavg()[0]:.1f}"}, flush=True)
            for count in options.overload:
                sources = table["src"][: options.own].unique()
                print(f"{count} rankings of as many sources: {overload(service, sources[:count].tolist())}", flush=True)
                print(f"{count} equal rankings: {overload(service, [int(sources[0])] * count)}", flush=True)
            service.end(signal.SIGTERM)


if __name__ == "__main__":
    main()
