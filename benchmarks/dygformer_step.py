"""One training step of DyGFormer on packed histories against the same model with every sequence padded.

The baseline, `dygformer_naive`, is the published form: the same parameters, padding computed, zero features projected.
Both use the same tokenizer, whose time is part of the step. One core; UCI (DyGLib's files) if it is found, otherwise a
synthetic stream.

    python benchmarks/dygformer_step.py [--data ml_uci.csv] [--batch 200] [--length 32] [--repeats 5]
"""

from __future__ import annotations

import argparse
import resource
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F

from common import ROOT, machine, median_time, require_green
from dygformer_naive import dygformer_naive
from hopstate.data.events import EventStream
from hopstate.data.neighbor_store import NeighborStore
from hopstate.methods.baselines.dygformer import DyGFormer
from hopstate.tokens.history import HistoryConfig, HistoryTokenizer, HistoryTokens

UCI = ROOT.parent / "shared" / "data" / "temporal" / "uci" / "ml_uci.csv"


def load(path: Path) -> EventStream:
    """Return DyGLib's event list, or a synthetic stream of its size without the file."""
    if path.is_file():
        import pandas as pd

        table = pd.read_csv(path)
        src, dst = (table[c].to_numpy(np.int64) - 1 for c in ("u", "i"))
        return EventStream(src=src, dst=dst, t=table["ts"].to_numpy(np.float64), name=path.stem)
    rng = np.random.default_rng(0)
    src, dst = (rng.zipf(1.6, (2, 60_000)) % 1899).astype(np.int64)
    return EventStream(src=src, dst=dst, t=np.sort(rng.uniform(0, 1.6e7, 60_000)), name="synthetic")


def main() -> None:
    """Print seconds per step, their ratio and the peak memory."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, default=UCI)
    parser.add_argument("--batch", type=int, default=200)
    parser.add_argument("--length", type=int, default=32)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--no-baseline", action="store_true", help="measure only the packed step and its memory")
    args = parser.parse_args()
    require_green("tests/methods/baselines/test_dygformer.py", "tests/tokens/test_tokens_history.py")
    torch.set_num_threads(1)
    stream = load(args.data)
    tokenizer = HistoryTokenizer(NeighborStore.from_stream(stream), stream, HistoryConfig(max_length=args.length))
    torch.manual_seed(0)
    model = DyGFormer(DyGFormer.Config(max_length=args.length), node_dim=172, edge_dim=172)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-4)
    rows = np.arange(len(stream) // 2, len(stream) // 2 + args.batch)
    drawn = np.random.default_rng(0).choice(np.unique(stream.dst), args.batch)
    labels = torch.cat([torch.ones(args.batch), torch.zeros(args.batch)])

    def prepare() -> HistoryTokens:
        src, dst, t = stream.src[rows], stream.dst[rows], stream.t[rows]
        return tokenizer.pairs(np.tile(src, 2), np.concatenate([dst, drawn]), np.tile(t, 2))

    def step(padded: bool) -> None:
        tokens = prepare()
        logits = dygformer_naive(model, tokens) if padded else model(tokens)
        optimizer.zero_grad()
        F.binary_cross_entropy_with_logits(logits, labels).backward()
        optimizer.step()

    tokens = prepare()
    print(machine())
    print(
        f"{stream.name}: {sum(p.numel() for p in model.parameters()):,} parameters, {args.batch} events and as many "
        f"negatives, {len(tokens.nodes):,} tokens of {4 * args.batch * args.length:,}"
    )
    packed = median_time(lambda: step(False), repeats=args.repeats)
    print(f"prepare a batch         {1e3 * median_time(prepare, repeats=args.repeats):9.2f} ms")
    print(f"packed step             {packed:9.3f} s")
    print(f"peak memory so far      {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20:9.2f} GiB")
    if not args.no_baseline:
        padded = median_time(lambda: step(True), repeats=args.repeats)
        print(f"padded step (published) {padded:9.3f} s   ratio {padded / packed:.2f}")
        print(f"peak memory so far      {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20:9.2f} GiB")


if __name__ == "__main__":
    main()
