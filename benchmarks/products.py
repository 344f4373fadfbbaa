"""Linear maps in training: `ops.products` compared with torch's own, forward and backward, and a step of whole models.

    python benchmarks/products.py [--repeats 7] [--threads 1]

Seconds are CPU time with one thread and wall time with more; both alternate, and the ratio is the median of rounds. If
`ops.products` is not faster (Intel's processors, no 512-bit vectors), both are torch's, and the script prints a note.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from contextlib import nullcontext

import torch
import torch.nn.functional as F
from torch import nn

from common import machine, median_time, require_green
from hopstate.layers.modes import linear, onednn_is_faster, training_products
from hopstate.methods.nagphormer.model import NAGphormer

Step = Callable[[], None]
SHAPES = ((18_786, 200, 400), (18_786, 400, 200), (18_786, 400, 32), (8_000, 512, 1_024), (2_000, 128, 128))


def main() -> None:
    """Print one line per shape and per model."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--threads", type=int, default=1)
    args = parser.parse_args()
    require_green("tests/ops/test_products.py", "tests/layers/test_products_in_training.py")
    torch.set_num_threads(args.threads)
    print(machine())
    if not onednn_is_faster():
        print("ops.products leaves every product to torch on this processor: the two below are the same")
    for rows, terms, width in SHAPES:
        layer = nn.Linear(terms, width)
        x = torch.randn(rows, terms, requires_grad=True)
        label = f"{rows:,} rows, {terms} to {width}"
        compare(label, passing(x, layer, linear), passing(x, layer, F.linear), args, 6 * rows * terms * width)
    model = NAGphormer(NAGphormer.Config(), in_dim=128, num_classes=10, num_hops=7)
    hops, labels = torch.randn(2_000, 8, 128), torch.randint(0, 10, (2_000,))

    def step(quick: bool) -> None:
        with training_products(model) if quick else nullcontext():
            F.cross_entropy(model(hops), labels).backward()

    compare("NAGphormer, 2,000 nodes of 8 hops", lambda: step(True), lambda: step(False), args)


def passing(x: torch.Tensor, layer: nn.Linear, product: Callable[..., torch.Tensor]) -> Step:
    """Return a function that goes forward and backward through a linear map."""
    return lambda: product(x, layer.weight, layer.bias).square().sum().backward()


def compare(
    what: str, ours: Callable[[], None], torchs: Callable[[], None], args: argparse.Namespace, work: int = 0
) -> None:
    """Print both, measured alternately."""
    clock = time.process_time if args.threads == 1 else time.perf_counter
    rounds = [
        [median_time(f, repeats=1, warmup=i == 0, clock=clock) for f in (ours, torchs)] for i in range(args.repeats)
    ]
    mine, theirs = (statistics.median(r[i] for r in rounds) for i in (0, 1))
    ratio = statistics.median(theirs / mine for mine, theirs in rounds)
    rate = f", {work / mine / 1e9:.0f} and {work / theirs / 1e9:.0f} GFLOP/s" if work else ""
    print(f"{what:<36} {1e3 * mine:8.1f} ms, torch's own {1e3 * theirs:8.1f} ms: {ratio:.2f} times{rate}")


if __name__ == "__main__":
    main()
