"""The cost of pair features and mixed negatives in a DyG-Mamba training step, compared with a step without.

Steps of both kinds alternate, so that other load affects both; the ratio is that of the medians. A step is the training
work for a batch of 200: its share of drawing an epoch's pairs, queries, forward, backward, optimiser; all on one thread
(in training, drawing and queries are in a background thread).

    python benchmarks/pair_history.py [--data ml_uci.csv] [--batch 200] [--length 32] [--repeats 15]
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F

from common import machine, require_green
from dygformer_step import UCI, load
from hopstate.data.dates import Clock
from hopstate.data.events import EventStream
from hopstate.data.neighbor_store import NeighborStore
from hopstate.methods.dyg_mamba.method import MAX_TOKENS
from hopstate.methods.dyg_mamba.model import DyGMamba, DyGMambaConfig
from hopstate.methods.shared.link import PairHistoryTokenizer
from hopstate.sampling.negatives import Mixture, TrainingNegatives
from hopstate.streaming.history_scorer import PairTokenizer
from hopstate.tokens.history import HistoryConfig, HistoryTokenizer
from hopstate.tokens.pair_features import PairFeatures
from hopstate.training.tasks.events import EpochNegatives, split_by_tokens, with_negatives

MIXED = TrainingNegatives(mixture=Mixture(random=0.75, historical=0.25))


def main() -> None:
    """Print seconds per step without and with, and their ratio."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=UCI)
    parser.add_argument("--batch", type=int, default=200)
    parser.add_argument("--length", type=int, default=32)
    parser.add_argument("--repeats", type=int, default=15)
    args = parser.parse_args()
    require_green("tests/layers/test_pair_history.py", "tests/tokens/test_pair_features.py")
    torch.set_num_threads(1)
    stream = load(args.data)
    print(machine())
    print(f"{stream.name}, L = {args.length}, batches of {args.batch}")
    steps = {False: stepper(stream, args, pair_features=False), True: stepper(stream, args, pair_features=True)}
    spent: dict[bool, list[float]] = {False: [], True: []}
    for turn in range(args.repeats + 2):
        for pair_features, step in steps.items():
            begin = time.process_time()
            step(turn)
            if turn > 1:
                spent[pair_features].append(time.process_time() - begin)
    plain, full = (statistics.median(spent[pair_features]) for pair_features in (False, True))
    print(f"random pairs, no history      {1e3 * plain:8.1f} ms a step")
    print(f"a quarter historical, history {1e3 * full:8.1f} ms a step   ratio {full / plain:.3f}")


def stepper(stream: EventStream, args: argparse.Namespace, *, pair_features: bool) -> Callable[[int], None]:
    """Return a function that does one step on a batch of the stream's second half."""
    rows = np.arange(len(stream))
    store, clock = NeighborStore.from_stream(stream), Clock.fit(stream.t, stream.time_unit)
    tokenizer: PairTokenizer = HistoryTokenizer(store, stream, HistoryConfig(max_length=args.length), clock)
    if pair_features:
        tokenizer = PairHistoryTokenizer(tokenizer, PairFeatures(store, stream, clock, np.empty(0, np.int64)))
    drawn = EpochNegatives(stream, rows, args.batch, 0, MIXED if pair_features else TrainingNegatives())
    drawn.of(0)  # done once per run
    torch.manual_seed(0)
    model = DyGMamba(DyGMambaConfig(pair_features=pair_features))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-4)
    begin = time.process_time()
    others = drawn.of(1)
    share = (time.process_time() - begin) * args.batch / len(rows)
    print(f"drawing an epoch's pairs, a batch's share: {1e3 * share:.3f} ms")

    def step(turn: int) -> None:
        first = len(stream) // 2 + turn * args.batch
        own = slice(first, first + args.batch)
        columns = (stream.src[own], stream.dst[own], stream.t[own])
        pairs_of, labels = with_negatives(columns, others[0][own], others[1][own], 1)
        optimizer.zero_grad()
        for tokens, pairs in split_by_tokens(tokenizer, pairs_of, MAX_TOKENS):
            logits = model(tokens)
            (F.binary_cross_entropy_with_logits(logits, labels[pairs], reduction="sum") / len(labels)).backward()
        optimizer.step()

    return step


if __name__ == "__main__":
    main()
