"""One training step of DyG-Mamba: seconds, memory, and where the time goes; compared with DyGFormer (patch size 1).

Seconds are CPU time with one thread and wall time with more. DyGFormer is measured three times: on packed histories,
as here; padded (`dygformer_naive`); and as DyGLib computes it, with two calls per step and its own neighbor queries
(`dygformer_released.py`). Rounds alternate, and ratios are medians over rounds.

UCI at L = 32 and Enron at L = 256 (DyGLib's files) if they are found, otherwise a synthetic stream. One core
unless --threads is given. The authors' own code takes 13.3 to 41 s per batch of 200 on UCI at L = 32, and 114 s on
Enron at L = 256, on one core (measured separately; it is not run here).

    python benchmarks/dyg_mamba_step.py [--data ml_uci.csv] [--batch 200] [--length 32] [--threads 1] [--profile]
"""

from __future__ import annotations

import argparse
import resource
import statistics
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

from common import machine, median_time, require_green
from dygformer_naive import dygformer_naive
from dygformer_released import Released
from dygformer_step import UCI, load
from hopstate.data.events import EventStream
from hopstate.data.neighbor_store import NeighborStore
from hopstate.layers.modes import training_products
from hopstate.methods.baselines.dygformer import DyGFormer
from hopstate.methods.dyg_mamba.method import MAX_TOKENS
from hopstate.methods.dyg_mamba.model import DyGMamba, DyGMambaConfig
from hopstate.streaming.history_scorer import to_device
from hopstate.tokens.history import HistoryConfig, HistoryTokenizer, HistoryTokens
from hopstate.training.devices import matmul_precision
from hopstate.training.tasks.events import split_by_tokens


def main() -> None:
    """Print a step's time and memory."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=UCI)
    parser.add_argument("--batch", type=int, default=200)
    parser.add_argument("--length", type=int, default=32)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--products", default="highest", choices=["highest", "medium"], help="as loop.matmul_precision")
    parser.add_argument("--profile", action="store_true", help="also print shares of a step's time")
    parser.add_argument("--no-baseline", action="store_true", help="leave DyGFormer out")
    args = parser.parse_args()
    require_green(
        "tests/methods/dyg_mamba/test_dyg_mamba.py",
        "tests/tokens/test_tokens_history.py",
        "tests/ops/test_span_step.py",
        "tests/benchmarks/test_dygformer_released.py",
    )
    torch.set_num_threads(args.threads)
    print(machine())
    with matmul_precision(args.products):
        measure(args)


def measure(args: argparse.Namespace) -> None:
    """Print the requested measurements, with the given matmul precision."""
    stream = load(args.data)
    batch = Batch(stream, args.batch, args.length)
    print(f"{stream.name}, L = {args.length}, {args.batch} events and as many negatives: {batch.tokens:,} tokens")
    clock = time.process_time if args.threads == 1 else time.perf_counter
    model = DyGMamba(DyGMambaConfig())
    mamba = in_training(model, stepper(model, batch, MAX_TOKENS))
    seconds = median_time(mamba, repeats=args.repeats, clock=clock)
    print(f"prepare a batch  {1e3 * median_time(batch.prepare, repeats=args.repeats):9.2f} ms, in a background thread")
    print(f"DyG-Mamba step   {seconds:9.3f} s, peak memory of the process {peak():.2f} GiB")
    if args.profile:
        shares(mamba)
    if not args.no_baseline:
        former = DyGFormer(DyGFormer.Config(max_length=args.length), node_dim=172, edge_dim=172)
        steps = {
            "packed": stepper(former, batch),
            "padded": stepper(Padded(former), batch),
            "as released": released_stepper(Released(stream, args.length), batch),
        }
        for name, step in steps.items():
            rounds = [
                [median_time(work, repeats=1, warmup=i == 0, clock=clock) for work in (mamba, step)]
                for i in range(args.repeats)
            ]
            baseline, ratio = (statistics.median(x) for x in ([r[1] for r in rounds], [r[0] / r[1] for r in rounds]))
            print(f"DyGFormer {name:<12} {baseline:9.3f} s, peak by now {peak():.2f} GiB   DyG-Mamba {ratio:.2f}")


class Padded(nn.Module):
    """DyGFormer in its published form: padding is computed, features of zeros are projected.

    Args:
        model: whose weights it has.
    """

    def __init__(self, model: DyGFormer) -> None:
        super().__init__()
        self.model = model

    def forward(self, tokens: HistoryTokens) -> torch.Tensor:
        return dygformer_naive(self.model, tokens)


class Batch:
    """The inputs of one training step: late events of a stream and random negatives."""

    def __init__(self, stream: EventStream, count: int, length: int, device: str = "cpu") -> None:
        self.device = device
        self.tokenizer = HistoryTokenizer(NeighborStore.from_stream(stream), stream, HistoryConfig(max_length=length))
        rows = slice(len(stream) // 2, len(stream) // 2 + count)
        drawn = np.random.default_rng(0).choice(np.unique(stream.dst), count)
        src, dst, t = stream.src[rows], stream.dst[rows], stream.t[rows]
        self.queries = np.tile(src, 2), np.concatenate([dst, drawn]), np.tile(t, 2)
        self.labels = torch.cat([torch.ones(count), torch.zeros(count)])
        self.tokens = len(self.prepare().nodes)

    def prepare(self) -> HistoryTokens:
        return self.tokenizer.pairs(*self.queries)

    def parts(self, most: int | None) -> Iterator[tuple[HistoryTokens, torch.Tensor]]:
        """Yield tokens and labels, in parts of at most `most` tokens as in training."""
        for tokens, pairs in split_by_tokens(self.tokenizer, self.queries, most):
            yield to_device((tokens, self.labels[pairs]), self.device)


def stepper(model: nn.Module, batch: Batch, most: int | None = None) -> Callable[[], None]:
    """Return a function that does one step: queries, forward and backward (`most` tokens at once), optimiser."""
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-4)

    def step() -> None:
        optimizer.zero_grad()
        for tokens, labels in batch.parts(most):
            loss = F.binary_cross_entropy_with_logits(model(tokens), labels, reduction="sum") / len(batch.labels)
            loss.backward()
        optimizer.step()

    return step


def in_training(model: nn.Module, step: Callable[[], None]) -> Callable[[], None]:
    """Return a step with the linear maps of a training run."""

    def done() -> None:
        with training_products(model):
            step()

    return done


def released_stepper(model: Released, batch: Batch) -> Callable[[], None]:
    """Return a function that does one step as DyGLib does: queries in the step, events and negatives in two calls."""
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-4)
    count = len(batch.labels) // 2
    (src, dst, t), drawn = (x[:count] for x in batch.queries), batch.queries[1][count:]

    def step() -> None:
        optimizer.zero_grad()
        model.step_loss(src, dst, drawn, t).backward()
        optimizer.step()

    return step


def shares(step: Callable[[], None]) -> None:
    """Print the fraction of a step in the model's arithmetic, by kind."""
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        started = time.perf_counter()
        step()
        wall = time.perf_counter() - started
    kinds = {"scan": 0.0, "matrix products": 0.0, "convolution": 0.0, "steps": 0.0, "element-wise and the rest": 0.0}
    for event in profile.key_averages():
        name, seconds = event.key, event.self_cpu_time_total / 1e6
        kind = "element-wise and the rest"
        for part, owner in (
            ("scan", "scan"),
            ("mm", "matrix products"),
            ("linear_pointwise", "matrix products"),
            ("conv1d", "convolution"),
            ("span", "steps"),
        ):
            if part in name:
                kind = owner
                break
        kinds[kind] += seconds
    measured = sum(kinds.values())
    for kind, seconds in kinds.items():
        print(f"  {kind:<28} {100 * seconds / wall:5.1f} %")
    print(f"  {'outside torch (look-ups, Python)':<28} {100 * max(0.0, wall - measured) / wall:5.1f} %")


def peak() -> float:
    """Return the process's peak memory in GiB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20


if __name__ == "__main__":
    main()
