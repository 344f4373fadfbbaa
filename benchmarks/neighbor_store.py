"""Queries per second of `NeighborStore` for the last k events before t, and the time of co-occurrence counts.

    python benchmarks/neighbor_store.py FILE... [--million 20]

FILE is an event file (for example DyGLib's ml_uci.csv). The baseline is PyG's `LastNeighborLoader` (which has no
time filter: it sees what was inserted so far). With --million N, a store of N million events is built from a
memory-mapped stream, and its memory per event is printed.
"""

from __future__ import annotations

import argparse
import resource
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from torch_geometric.nn.models.tgn import LastNeighborLoader

from common import machine, median_time, require_green
from hopstate.data.events import EventStream
from hopstate.data.neighbor_store import NeighborStore
from hopstate.data.readers.read_events import read_events
from hopstate.ops.neighbors import PackedNeighbors, cooccurrence


def queries_per_second(stream: EventStream, store: NeighborStore, k: int, batch: int = 600) -> float:
    """Measure batches of queries at the times of the last 30% of events: sources, destinations, random nodes."""
    rng = np.random.default_rng(0)
    rows = rng.permutation(np.arange(int(0.7 * len(stream)), len(stream)))[: 30 * (batch // 3)]
    batches = []
    for part in np.array_split(rows, max(1, len(rows) // (batch // 3))):
        ends = (stream.src[part], stream.dst[part], rng.integers(0, stream.num_nodes, len(part)))
        batches.append((np.concatenate(ends), np.tile(stream.t[part], 3)))

    def run() -> None:
        for nodes, t in batches:
            store.last(nodes, t, k)

    seconds = median_time(run)
    return sum(len(nodes) for nodes, _ in batches) / seconds


def loader_queries_per_second(stream: EventStream, k: int, batch: int = 600) -> float:
    """Measure PyG's loader holding all events, on the same number of nodes."""
    loader = LastNeighborLoader(stream.num_nodes, size=k)
    src, dst = torch.from_numpy(stream.src.copy()), torch.from_numpy(stream.dst.copy())
    for start in range(0, len(src), 200):
        loader.insert(src[start : start + 200], dst[start : start + 200])
    nodes = torch.unique(torch.randint(0, stream.num_nodes, (batch,)))
    return len(nodes) / median_time(lambda: loader(nodes))


def cooccurrence_seconds(store: NeighborStore, stream: EventStream, length: int = 32, pairs: int = 400) -> float:
    """Measure the counts of 400 pairs, 800 histories, of full length if the data allow it."""
    rows = np.arange(len(stream) - pairs, len(stream))
    u, v = (store.last(ends[rows], stream.t[rows], length) for ends in (stream.src, stream.dst))
    return median_time(lambda: cooccurrence(u.offsets, u.nodes, v.offsets, v.nodes))


def full_histories(length: int = 32, pairs: int = 400) -> tuple[PackedNeighbors, PackedNeighbors]:
    """Return pairs of full histories."""
    rng, offsets = np.random.default_rng(0), np.arange(pairs + 1) * length
    size = pairs * length
    nodes = rng.integers(0, 2000, (2, size))
    u, v = (PackedNeighbors(offsets, n, np.arange(size), np.zeros(size)) for n in nodes)
    return u, v


def build_memory(million: float) -> None:
    """Build a store from a memory-mapped stream and print seconds, state bytes per event, and the peak."""
    count, nodes = int(million * 1e6), int(million * 1e5)
    with tempfile.TemporaryDirectory() as folder:
        columns = {}
        for name, dtype in (("src", np.int64), ("dst", np.int64), ("t", np.int64)):
            columns[name] = np.lib.format.open_memmap(Path(folder, f"{name}.npy"), "w+", dtype, (count,))
        rng = np.random.default_rng(0)
        for start in range(0, count, 1 << 20):
            size = min(1 << 20, count - start)
            for name in ("src", "dst"):
                columns[name][start : start + size] = rng.zipf(1.5, size) % nodes
            columns["t"][start : start + size] = np.arange(start, start + size)
        del columns
        src, dst, t = (np.load(Path(folder, f"{name}.npy"), mmap_mode="r") for name in ("src", "dst", "t"))
        NeighborStore.from_events(src[:1000], dst[:1000], t[:1000], num_nodes=nodes)  # compile
        before, start_time = _private_bytes(), time.perf_counter()
        store = NeighborStore.from_events(src, dst, t, num_nodes=nodes)
        seconds, grown = time.perf_counter() - start_time, _private_bytes() - before
        print(
            f"  {count:,} events, {nodes:,} nodes: built in {seconds:.1f} s, {grown / count:.1f} bytes per "
            f"event grown, peak {_peak_bytes() / 2**30:.2f} GiB of which some is mapped file"
        )
        probe = np.arange(count - 600, count)
        rate = 600 / median_time(lambda: store.last(np.asarray(src[probe]), np.asarray(t[probe]), 20))
        print(f"  last 20 of it: {rate / 1e6:.2f} M queries/s")


def _private_bytes() -> int:
    """Return anonymous resident bytes."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("RssAnon"):
            return int(line.split()[1]) * 1024
    return 0


def _peak_bytes() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="*")
    parser.add_argument("--million", type=float, default=0)
    options = parser.parse_args()
    require_green("tests/data/test_neighbor_store.py")
    torch.set_num_threads(1)
    print(machine())
    for file in options.files:
        stream = read_events(file)
        store = NeighborStore.from_stream(stream)
        print(stream)
        for k in (20, 512):
            ours, theirs = queries_per_second(stream, store, k), loader_queries_per_second(stream, k)
            print(
                f"  last {k} before t: {ours / 1e6:.2f} M queries/s; PyG's loader {theirs / 1e6:.2f} M; "
                f"ratio {ours / theirs:.1f}"
            )
        print(f"  co-occurrence, 800 histories of at most 32: {1e3 * cooccurrence_seconds(store, stream):.3f} ms")
    u, v = full_histories()
    seconds = median_time(lambda: cooccurrence(u.offsets, u.nodes, v.offsets, v.nodes))
    print(f"co-occurrence, 800 full histories of 32: {1e3 * seconds:.3f} ms")
    if options.million:
        build_memory(options.million)


if __name__ == "__main__":
    main()
