"""Ranks of finished runs on links among repeat and new candidates, one row per run: a table in Markdown.

Each event is ranked among K candidates, half of them earlier partners of its source if there are enough; MRR with its
95 % interval, then by kind of the event's pair, and among earlier partners only. Runs over the same data and split get
the same candidates. Recency, EdgeBank and `pair-trees` are runs too: give them first. A row whose MRR is below that of
the best of these baselines on its data is marked.

    python benchmarks/ranking.py RUN [RUN ...] [--split test] [--events 1000] [--candidates 200] \
        [--resamples 200]
"""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from common import machine, require_green
from hopstate.errors import DataError
from hopstate.evaluation.link import LinkScores, ranking_metrics, score_split
from hopstate.runs.load import load_run
from hopstate.sampling.negatives import Negatives, one_against_many
from hopstate.training.run_folder import RunFolder
from hopstate.training.tasks.link import LinkTask

BASELINES = ("recency", "edgebank", "pair-trees")
KINDS = ("repeat_pairs", "new_pairs", "new_nodes", "among_repeat_candidates")
COLUMNS = ("mrr", "hits@10", "ndcg@10", *(f"mrr_{kind}" for kind in KINDS))
HEAD = ("data, events", "method", "MRR", "Hits@10", "NDCG@10", "repeat pair", "new pair", "new node", "among partners")


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", nargs="+", type=Path)
    parser.add_argument("--split", choices=("val", "test"), default="test")
    parser.add_argument("--events", type=int, default=0, help="spread evenly over the split; 0 means all")
    parser.add_argument("--candidates", type=int, default=200)
    parser.add_argument("--resamples", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    require_green("tests/evaluation/test_ranked_links.py", "tests/sampling/test_negatives.py")
    torch.set_num_threads(1)
    print(machine())
    print("| " + " | ".join(HEAD) + " |\n|" + "---|" * len(HEAD))
    baselines: dict[str, float] = {}
    for row in (row for run in args.runs for row in measured(run, args)):
        if row["method"] in BASELINES:
            baselines[row["data"]] = max(baselines.get(row["data"], 0.0), row["mrr"])
        print(shown(row, baselines.get(row["data"], 0.0)), flush=True)


def measured(run: Path, args: argparse.Namespace) -> list[dict[str, Any]]:
    """Return the metrics of a run, a row for all events and one for those with new nodes."""
    method = RunFolder.open(run).settings()["method"]
    rows = []
    with load_run(run) as (_, task):
        if not isinstance(task, LinkTask):
            raise DataError(f"{run} is a run of {method}, which predicts no links of events")
        for name, (own, drawn) in scored(task, args.split, args).items():
            new = ", new nodes" if name.startswith("new_") else ""
            about = {"data": f"{task.stream.name}{new}, {len(drawn):,}", "method": method, "run": run.name}
            columns = own.rows, own.positive, own.negative, own.offsets, drawn.dst
            found = ranking_metrics(task.stream, *columns, bootstrap=args.resamples, seed=args.seed)
            rows.append(found | about)
    return rows


Scored = dict[str, tuple[LinkScores, Negatives]]


def scored(task: LinkTask, split: str, args: argparse.Namespace) -> Scored:
    """Return scores of events and of their candidates: of a split, and of its new nodes."""
    stream, splits = task.stream, task.split
    drawn = {}
    for name, few in ((split, args.events), (f"new_{split}", args.events // 2)):
        found = one_against_many(stream, splits, name, num_negatives=args.candidates, seed=args.seed)
        drawn[name, "ranking"] = spread(found, few) if few else found
    kept = score_split(task.scorer(split), stream, splits.rows(split), drawn, batch_size=task.evaluation.batch_size)
    return {key[0]: (kept[key], drawn[key]) for key in kept}


def spread(drawn: Negatives, count: int) -> Negatives:
    """Return the candidates of some events, spread evenly."""
    sizes, kept = np.diff(drawn.offsets), np.zeros(len(drawn.rows), bool)
    kept[np.unique(np.linspace(0, len(kept) - 1, min(count, len(kept))).astype(np.int64))] = True
    of = np.repeat(kept, sizes)
    offsets = np.concatenate([np.zeros(1, np.int64), np.cumsum(sizes[kept])])
    return replace(drawn, rows=drawn.rows[kept], offsets=offsets, src=drawn.src[of], dst=drawn.dst[of])


def shown(row: dict[str, Any], baseline: float) -> str:
    """Return a row of the table, in percent."""
    values = [f"{100 * row[name]:.1f}" if name in row else "-" for name in COLUMNS]
    values[0] += f" ({100 * row['mrr_low']:.1f} to {100 * row['mrr_high']:.1f})"
    below = " (below a baseline)" if row["mrr"] < baseline and row["method"] not in BASELINES else ""
    return f"| {row['data']} | {row['method']} `{row['run']}`{below} | " + " | ".join(values) + " |"


if __name__ == "__main__":
    main()
