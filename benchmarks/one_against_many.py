"""Ranking every test event among many destinations: batched compared with one event at a time, with equal metrics.

    python benchmarks/one_against_many.py [--events 4000] [--negatives 20,100] [--methods recency,edgebank,ctdg-ssm]

One event at a time: for each event of a batch of 200, one call of the model with its pair and its negatives, and the
formula of TGB's evaluator on the scores. Both update the model with the same batches. Models are trained for one epoch
at small sizes. Seconds are CPU time; `moving_s`, part of both, is the time of updating the model over the stream, and
`scoring_ratio` compares the remainder.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from importlib.util import find_spec
from pathlib import Path

import numpy as np

from common import machine, require_green
from hopstate.datasets.registry import load_dataset
from hopstate.evaluation.link import score_split
from hopstate.evaluation.ranking import hits, mrr, ranks
from hopstate.runs.load import load_run
from hopstate.runs.run import fit
from hopstate.sampling.event_batches import batch_boundaries, event_batches
from hopstate.sampling.negatives import one_against_many
from hopstate.streaming.replay import replay

SMALL = {
    "graphmixer": {"model.num_links": 10},
    "dyg-mamba": {"model.channel_dim": 16, "model.time_dim": 16, "model.out_dim": 32, "history.max_length": 16},
    "ctdg-ssm": {"model.dim": 32, "model.time_dim": 16, "model.hidden": 32},
}


def one_at_a_time(scorer, stream, rows, drawn, batch_size=200):
    """Return the reciprocal ranks of a split's events, each scored by a separate call."""

    def reciprocal(mine):
        found = []
        for i in mine:
            dst = np.append(stream.dst[rows[i]], drawn.dst[drawn.offsets[i] : drawn.offsets[i + 1]])
            src, t = np.full(len(dst), stream.src[rows[i]]), np.full(len(dst), stream.t[rows[i]])
            score = np.asarray(scorer.score(src, dst, t), np.float64)
            found.append(1 / (((score[1:] > score[0]).sum() + (score[1:] >= score[0]).sum()) / 2 + 1))
        return np.array(found)

    return replay(
        scorer,
        reciprocal,
        stream,
        np.arange(len(rows)),
        rows=rows,
        boundaries=batch_boundaries(stream.t[rows], batch_size),
        history=event_batches(stream, np.arange(rows[0]), batch_size=batch_size),
    )


def at_once(scorer, stream, rows, drawn):
    """Return the same by batches."""
    scored = score_split(scorer, stream, rows, {("test", "ranking"): drawn})["test", "ranking"]
    return 1 / ranks(scored.positive, scored.negative, scored.offsets)


def compare_tgb(events, count):
    """Return a row of MRR and Hits@10 of given scores: py-tgb's evaluator per event, and ours in one call."""
    from tgb.linkproppred.evaluate import Evaluator

    rng, evaluator = np.random.default_rng(0), Evaluator(name="tgbl-wiki", k_value=10)
    positive, negative = rng.integers(0, 50, events) / 50, rng.integers(0, 50, (events, count)) / 50
    begin = time.process_time()
    evaluated = [
        evaluator.eval({"y_pred_pos": positive[i : i + 1], "y_pred_neg": negative[i], "eval_metric": ["mrr"]})
        for i in range(events)
    ]
    theirs = [float(np.mean([one[name] for one in evaluated], dtype=np.float64)) for name in ("mrr", "hits@10")]
    one, times = time.process_time() - begin, []
    for _ in range(3):
        begin = time.process_time()
        rank = ranks(positive, negative)
        ours = [mrr(rank), hits(rank, 10)]
        times.append(time.process_time() - begin)
    row = {"evaluator": "scores given", "events": events, "negatives": count, "tgb_s": round(one, 3)}
    row |= {"ours_s": round(min(times), 4), "ratio": round(one / min(times), 1)}
    return row | {"mrr": ours[0], "largest_difference": max(abs(a - b) for a, b in zip(ours, theirs, strict=True))}


def measured(method, stream, counts, folder):
    """Return a row for each number of negatives."""
    config = {"loop.epochs": 1, "loop.progress": False, "loop.device": "cpu", "evaluation.strategies": ["random"]}
    run = fit(method, stream, out=folder / method, config=config | SMALL.get(method, {}))
    found = []
    with load_run(run.path) as (_, task):
        rows = task.split.rows("test")
        scorer = task.scorer("test")
        for count in counts:
            drawn = one_against_many(task.stream, task.split, "test", num_negatives=count)
            times, values = {}, {}
            for name, way in (("batch", at_once), ("one", one_at_a_time)):
                way(scorer, task.stream, rows[:5], drawn.take(rows[:5]))  # kernels are compiled
                begin = time.process_time()
                values[name] = way(scorer, task.stream, rows, drawn)
                times[name] = time.process_time() - begin
            begin = time.process_time()
            scorer.reset()
            for batch in event_batches(task.stream, np.arange(rows[-1] + 1), batch_size=200):
                scorer.observe(batch)
            times["moving"] = time.process_time() - begin
            row = {"method": method, "events": len(rows), "negatives": count}
            row |= {f"{name}_s": round(seconds, 3) for name, seconds in times.items()}
            row |= {"ratio": round(times["one"] / times["batch"], 1), "mrr": mrr(1 / values["batch"])}
            one, batch = times["one"] - times["moving"], times["batch"] - times["moving"]
            row |= {"scoring_ratio": round(one / batch, 1)} if batch > 0 else {}
            found.append(row | {"largest_difference": float(np.abs(values["batch"] - values["one"]).max())})
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--events", type=int, default=4000)
    parser.add_argument("--negatives", default="20,100")
    parser.add_argument("--methods", default="recency,edgebank,graphmixer,ctdg-ssm,dyg-mamba")
    o = parser.parse_args()
    require_green("tests/evaluation/test_others_evaluators.py", "tests/evaluation/test_ranking.py")
    print(json.dumps(machine()))
    if find_spec("tgb") is not None:
        for count in (20, 100, 999):
            print(json.dumps(compare_tgb(23_621, count)), flush=True)
    stream = load_dataset("messages-generated", num_events=o.events)
    with tempfile.TemporaryDirectory() as folder:
        for method in o.methods.split(","):
            for row in measured(method, stream, [int(n) for n in o.negatives.split(",")], Path(folder)):
                print(json.dumps(row), flush=True)


if __name__ == "__main__":
    main()
