"""A training step of DyG-Mamba and of DyGFormer (patch size 1) against the length of the histories: seconds and memory.

Four events and as many negatives of a synthetic stream whose histories are full at every length. Each measurement is a
separate process; memory is the growth of the process (on a GPU, torch's allocation), and measurements above --gib are
skipped.

    OMP_NUM_THREADS=1 taskset -c 0 python benchmarks/dyg_mamba_lengths.py [--lengths 32,128,512,2048] [--plot FILE]
    python benchmarks/dyg_mamba_lengths.py --device cuda --plot FILE
"""

from __future__ import annotations

import argparse
import multiprocessing
import resource
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import numpy as np
import torch
from matplotlib.figure import Figure

from common import machine, median_time, require_green
from dyg_mamba_step import Batch, peak, stepper
from hopstate.data.events import EventStream
from hopstate.io.output import draw_figure
from hopstate.methods.baselines.dygformer import DyGFormer
from hopstate.methods.dyg_mamba.method import MAX_TOKENS
from hopstate.methods.dyg_mamba.model import DyGMamba, DyGMambaConfig

NAMES = ("DyG-Mamba", "DyGFormer")
Found = tuple[float, float] | None  # seconds, GiB


def main() -> None:
    """Print the table, and draw it on request."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lengths", default="32,64,128,256,512,1024,2048,4096")
    parser.add_argument("--events", type=int, default=4)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--gib", type=float, default=16.0, help="most memory of a process on the CPU")
    parser.add_argument("--plot", type=Path, help="also draw it there: .png, .pdf or .svg")
    args = parser.parse_args()
    require_green("tests/methods/dyg_mamba/test_dyg_mamba.py", "tests/tokens/test_tokens_history.py")
    print(machine())
    titles = (
        ("L", 6),
        ("DyG-Mamba s", 12),
        ("GiB", 7),
        ("DyGFormer s", 12),
        ("GiB", 7),
        ("ratio", 7),
        ("less memory", 11),
    )
    print(" ".join(f"{title:>{width}}" for title, width in titles))
    lengths = [int(n) for n in args.lengths.split(",")]
    table: list[list[Found]] = []
    for length in lengths:
        table.append([apart(name, length, args) for name in NAMES])
        print(line(length, *table[-1]), flush=True)
    if args.plot:
        draw(args.plot, lengths, table)


def apart(name: str, length: int, args: argparse.Namespace) -> Found:
    """Measure in a new process; None if memory did not suffice."""
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
        return pool.submit(measured, name, length, args).result()


def measured(name: str, length: int, args: argparse.Namespace) -> Found:
    """Return seconds per step and the GiB that steps add to this process."""
    rng, events = np.random.default_rng(0), 40 * length
    src, dst = rng.integers(0, 20, (2, events))
    stream = EventStream(src=src, dst=dst, t=np.arange(events, dtype=np.float64), name="full")
    batch = Batch(stream, args.events, length, args.device)
    former = DyGFormer.Config(max_length=length, patch_size=1)
    model = DyGMamba(DyGMambaConfig()) if name == "DyG-Mamba" else DyGFormer(former)
    most = MAX_TOKENS if name == "DyG-Mamba" else None  # as in training
    step, before = stepper(model.to(args.device), batch, most), peak()
    if args.device == "cpu":
        resource.setrlimit(resource.RLIMIT_DATA, (int(args.gib * 2**30),) * 2)
    try:
        seconds = median_time(step, repeats=args.repeats)
    except (RuntimeError, MemoryError) as error:
        if "memory" not in str(error):
            raise
        return None
    added = peak() - before if args.device == "cpu" else torch.cuda.max_memory_allocated() / 2**30
    return seconds, added


def line(length: int, mamba: Found, former: Found) -> str:
    """Return a row of the table."""
    cells = " ".join("           -       -" if f is None else f"{f[0]:12.3f} {f[1]:7.2f}" for f in (mamba, former))
    if mamba is None or former is None:
        return f"{length:>6} {cells}"
    return f"{length:>6} {cells} {former[0] / mamba[0]:7.2f} {100 * (1 - mamba[1] / former[1]):9.0f} %"


def draw(path: Path, lengths: list[int], table: list[list[Found]]) -> None:
    """Draw seconds and memory against L, on logarithmic axes."""

    def paint(figure: Figure) -> None:
        for k, (axis, what) in enumerate(zip(figure.subplots(1, 2), ("seconds a step", "memory of a step, GiB"))):
            for column, name in enumerate(NAMES):
                found = [(n, row[column]) for n, row in zip(lengths, table)]
                points = [(n, f[k]) for n, f in found if f is not None]
                if points:
                    axis.plot(*zip(*points), "o-", label=name)
            axis.set_xscale("log", base=2)
            axis.set(yscale="log", xlabel="events of a history, L", ylabel=what)
            axis.grid(alpha=0.3)
            axis.legend(frameon=False)

    draw_figure(path, (9, 3.6), paint)


if __name__ == "__main__":
    main()
