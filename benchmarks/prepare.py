"""A store of many events with string ids from Parquet: events per second, and peak memory.

Run: python benchmarks/prepare.py --out FOLDER [--million 100] [--memory 2GiB] [--engine duckdb] [--seed 0]

Writes FOLDER/events.parquet (reused if it exists) and FOLDER/store, and keeps both for
training. A tenth as many nodes as events, with frequencies proportional to 1 / sqrt(rank); times increase by 0 to 2 s,
so ties are frequent. The ratio compares the time of `hopstate prepare` with DuckDB's own sort of the same file by time
into Parquet, with the same memory and threads.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from common import machine, require_green

_ROWS = 1_000_000  # rows of a row group


def _ids(letter: str, rows: np.ndarray) -> pa.Array:
    return pc.binary_join_element_wise(letter, pa.array(rows).cast(pa.string()), "")


def write(path: Path, events: int, seed: int) -> None:
    """Write synthetic events with string ids, sorted by time."""
    rng, nodes, now = np.random.default_rng(seed), max(events // 20, 1), 1_600_000_000
    schema = pa.schema([("src", pa.string()), ("dst", pa.string()), ("t", pa.int64())])
    part = path.with_suffix(".part")
    with pq.ParquetWriter(part, schema) as out:
        for start in range(0, events, _ROWS):
            count = min(_ROWS, events - start)
            pairs = (rng.random((2, count)) ** 2 * nodes).astype(np.int64)
            t = now + np.cumsum(rng.integers(0, 3, count))
            now = int(t[-1])
            out.write_table(pa.table([_ids("user-", pairs[0]), _ids("item-", pairs[1]), pa.array(t)], schema=schema))
    part.rename(path)


def sort_only(path: Path, out: Path, memory: str, threads: int) -> float:
    """Return the seconds of DuckDB's sort of the file by time."""
    con = duckdb.connect()
    con.execute(
        f"SET memory_limit = '{memory}'; SET threads = {threads}; SET temp_directory = '{out.parent / 'spill'}'"
    )
    start = time.perf_counter()
    con.execute(f"COPY (SELECT * FROM read_parquet('{path}') ORDER BY t) TO '{out}' (FORMAT parquet)")
    return time.perf_counter() - start


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--million", type=float, default=100)
    parser.add_argument("--memory", default="2GiB")
    parser.add_argument("--engine", default="duckdb")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    require_green("tests/data/prepare/test_prepare_store.py")
    print(machine(), flush=True)
    options.out.mkdir(parents=True, exist_ok=True)
    source, events = options.out / "events.parquet", round(options.million * 1e6)
    if not source.exists():
        # In a separate process: memory of this one would count as peak memory of its children.
        with ProcessPoolExecutor(1, get_context("spawn")) as apart:
            apart.submit(write, source, events, options.seed).result()
    print(f"{events:,} events, {source.stat().st_size / 1e9:.2f} GB of Parquet", flush=True)
    with ProcessPoolExecutor(1, get_context("spawn")) as apart:
        sorted_to = options.out / "sorted.parquet"
        sort_seconds = apart.submit(sort_only, source, sorted_to, options.memory, options.threads).result()
    (options.out / "sorted.parquet").unlink()
    command = [sys.executable, "-m", "hopstate", "prepare", str(source), "--out", str(options.out / "store")]
    command += ["--memory", options.memory, "--engine", options.engine, "--threads", str(options.threads)]
    start = time.perf_counter()
    # The usage of this child only: RUSAGE_CHILDREN includes the tests.
    _, status, child = os.wait4(subprocess.Popen(command).pid, 0)
    spent = time.perf_counter() - start
    if status:
        raise SystemExit(f"prepare ended with status {os.waitstatus_to_exitcode(status)}")
    print(
        f"prepare ({options.engine}, {options.threads} threads, --memory {options.memory}): {spent:.0f} s, "
        f"{events / spent / 1e6:.2f} M events/s, processor {child.ru_utime + child.ru_stime:.0f} s, "
        f"peak {child.ru_maxrss / 2**20:.2f} GiB; {spent / sort_seconds:.1f} times DuckDB's sort ({sort_seconds:.0f} s)"
    )


if __name__ == "__main__":
    main()
