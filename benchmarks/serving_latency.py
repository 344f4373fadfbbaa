"""Milliseconds to an answer about one pair while events arrive at a steady rate, and what becomes of an overload.

    python benchmarks/serving_latency.py --data PATH/uci/ml_uci.csv --methods pair-trees ctdg-ssm dyg-mamba

Each method with its defaults, after one epoch, fitted to the first events of a stream. The service,
the process that sends events and the one that asks are processes of their own. p50/p99 of acknowledgements ("ack", ten
events each) and of one pair ("pair"). The overload is explained rankings of different sources, all at once.
"""

from __future__ import annotations

import argparse
import http.client
import json
import multiprocessing
import os
import signal
import tempfile
import time
import warnings
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

import hopstate
from common import machine, require_green
from service import JSON, OWN, QUIET, Service, live

RATE, TOGETHER = 500, 10  # events a second, events of a request


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
    """Send events at a steady rate; tell p50/p99."""
    client, begin = Client(port), time.perf_counter()
    for sent in range(0, len(events), TOGETHER):
        time.sleep(max(begin + sent / RATE - time.perf_counter(), 0))
        assert client.post("/events", {"events": events[sent : sent + TOGETHER]}) == 200
    out.send(client.quantiles())


def pair(source: int, target: int) -> dict[str, Any]:
    ends = {"source": source, "target": target}
    return {"inputs": [{"name": n, "shape": [1], "datatype": "INT64", "data": [x]} for n, x in ends.items()]}


def latency(service: Service, name: str, events: list[dict[str, Any]], seconds: float) -> dict[str, str]:
    """Return p50/p99 while events arrive."""
    first, rest = events[:2_000], events[2_000 : 2_000 + int(RATE * seconds)]
    client, rng, path = Client(service.port), np.random.default_rng(0), f"/v2/models/{name}/infer"
    client.post("/events", {"events": first})
    for event in first[:30]:  # compiles
        client.post(path, pair(event["src"], event["dst"]))
    client.seconds.clear()
    told, out = multiprocessing.Pipe(duplex=False)
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
    return {"pair": client.quantiles(), "ack": told.recv(), "processor": f"{busy:.0%}"}


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
    options = parser.parse_args()
    require_green("tests/serving/test_service.py")
    print(machine())
    warnings.simplefilter("ignore")
    raw = pd.read_csv(options.data)
    table = pd.DataFrame({"src": raw["u"], "dst": raw["i"], "t": raw["ts"].astype(np.int64)})
    for name in options.methods:
        with tempfile.TemporaryDirectory() as folder:
            table[: options.own].to_csv(Path(folder, "own.csv"), index=False)
            settings = {**QUIET, "evaluation": {"strategies": ["random"]}}
            run = hopstate.fit(name, Path(folder, "own.csv"), out=Path(folder, "run"), config=settings)
            run.score([(int(table["src"][0]), int(table["dst"][0]))])  # its curve of probabilities
            stream = live(table, options.own)
            events = [next(stream) for _ in range(2_000 + int(RATE * options.seconds))]
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
