"""Seconds to draw historical and inductive negatives for a test split of about 62,000 events (the size of MOOC's).

    python benchmarks/negatives.py [FILE...]

The baseline is the definition with Python sets for each batch, as DyGLib has it, on the first batches.
"""

from __future__ import annotations

import argparse
import time
from functools import partial

import numpy as np

from common import machine, median_time, require_green
from hopstate.data.events import EventStream
from hopstate.data.readers.read_events import read_events
from hopstate.data.splits import EventSplit, dyglib_split
from hopstate.sampling.negatives import draw_negatives, one_against_many


def made_stream() -> EventStream:
    """Return a bipartite stream of MOOC's size: 412,000 events of 7,000 users and 97 items."""
    rng, count = np.random.default_rng(0), 412_000
    src, dst = rng.zipf(1.4, count) % 7000, 7000 + rng.integers(0, 97, count)
    return EventStream(src=src, dst=dst, t=np.sort(rng.uniform(0, 2.5e6, count)), name="made as large as MOOC")


def seconds_with_sets(stream: EventStream, split: EventSplit, batches: int = 5) -> float:
    """Measure the set arithmetic of the historical strategy for a few batches; return seconds for all of them."""
    start, batches = time.perf_counter(), min(batches, -(-len(split.test) // 200))
    for b in range(batches):
        t = stream.t[split.test[b * 200 : b * 200 + 200]]
        past, now = stream.t <= t[0], (stream.t >= t[0]) & (stream.t <= t[-1])
        seen = set(zip(stream.src[past], stream.dst[past], strict=True))
        np.array(list(seen - set(zip(stream.src[now], stream.dst[now], strict=True))))
    return (time.perf_counter() - start) / batches * len(split.test) / 200


def measure(stream: EventStream) -> None:
    """Print the seconds of every strategy on the test split of one stream."""
    split = dyglib_split(stream)
    print(f"{stream}, {len(split.test):,} test events")
    sets = seconds_with_sets(stream, split)
    for strategy in ("historical", "inductive"):
        ours = median_time(partial(draw_negatives, stream, split, "test", strategy))
        print(f"  {strategy}: {ours:.3f} s; sets rebuilt each batch {sets:.1f} s; ratio {sets / ours:.0f}")
    print(f"  one against 100: {median_time(partial(one_against_many, stream, split, 'test')):.3f} s")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="*")
    options = parser.parse_args()
    require_green("tests/sampling/test_negatives.py")
    print(machine())
    for stream in [made_stream(), *map(read_events, options.files)]:
        measure(stream)


if __name__ == "__main__":
    main()
