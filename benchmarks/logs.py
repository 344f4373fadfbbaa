"""Events per second into the bare logs, in commits of 500 and one by one, compared with the file.

    python benchmarks/logs.py --log 'postgresql://HOST/DATABASE?log=bench'

Each log is measured directly after the file, and ratios are relative to the file. Every commit waits until it is
durable. A given log must be empty, and keeps the events afterwards.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time

from common import machine, require_green
from hopstate.serving.log import Entry, EventLog, open_log


def rate(log: EventLog, count: int, size: int) -> float:
    """Return events per second."""
    first = len(log)
    rows = [
        Entry(json.dumps({"src": f"u{i % 997}", "dst": f"v{i % 89}", "t": 1_700_000_000 + i}), f"e{i}")
        for i in range(first, first + count)
    ]
    start = time.perf_counter()
    for i in range(0, count, size):
        log.append(rows[i : i + size])
    return count / (time.perf_counter() - start)


def measure(place: str, many: int, few: int) -> dict[str, str]:
    """Return the rates of a log compared with the file."""
    found = {"log": place.partition("://")[0]}
    log = open_log(place)
    for name, count, size in (("in commits of 500", many, 500), ("one by one", few, 1)):
        with tempfile.TemporaryDirectory() as folder:
            file = open_log(folder)
            reference, mine = rate(file, count, size), rate(log, count, size)
            file.close()
        found[name] = f"{mine:,.0f} ({mine / reference:.2f} of the file's {reference:,.0f})"
    log.close()
    return found


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--log", nargs="*", default=[], help="addresses as of `hopstate serve --log`")
    parser.add_argument("--many", type=int, default=100_000)
    parser.add_argument("--few", type=int, default=2_000)
    options = parser.parse_args()
    require_green("tests/serving/test_log.py", "tests/serving/test_postgres_log.py")
    print(machine())
    for place in options.log:
        print(measure(place, options.many, options.few), flush=True)


if __name__ == "__main__":
    main()
