"""Test metrics of a trained link prediction run with a noisy history.

    python benchmarks/robustness.py RUN [--levels 0,0.3,0.6] [--noise sequences,stream] [--out noise.csv]

"sequences" replaces a share of the events of every neighbor query (models that read histories). "stream" adds a
share of random edges to the history. "laplacian" adds random matrices to the Laplacians of a memory. The events that
are scored, and those that update a memory, are unchanged.

Source: DyG-Mamba, arXiv:2408.06966, section 5.5 and appendix D.3: sigma L positions of a sampled sequence get a random
node and a random time. Positions are replaced, so that a sequence keeps its length, and are sorted by time again.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
import torch

from hopstate.data.events import EventStream
from hopstate.data.neighbor_store import Histories, NeighborStore
from hopstate.evaluation.link import evaluate_link
from hopstate.ops.neighbors import PackedNeighbors
from hopstate.random import named_rng
from hopstate.runs.load import load_run
from hopstate.streaming.protocols import LinkScorer
from hopstate.training.devices import bare
from hopstate.training.tasks.events import HistoryPairs
from hopstate.training.tasks.link import LinkTask
from hopstate.training.tasks.memory import MemoryWindows

LEVELS = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6)


class NoisyLookups:
    """A store whose queries have round(sigma L) of their L events replaced by random ones.

    A random event has a node drawn from all nodes, a time between the sequence's first event and the query, and the
    event id -1 (no features). Nothing at or after the query appears.

    Args:
        store: the true histories.
        sigma: share of events replaced, in [0, 1].
        seed: the n-th neighbor queries of two equal runs get equal noise.
    """

    def __init__(self, store: Histories, sigma: float, seed: int = 0) -> None:
        self.store, self.sigma, self._rng = store, sigma, named_rng(seed, 1)
        self.num_nodes, self.time_dtype = store.num_nodes, store.time_dtype

    def last(self, nodes: np.ndarray, times: np.ndarray, k: int) -> PackedNeighbors:
        """Return `NeighborStore.last` with noise."""
        found = self.store.last(nodes, times, k)
        row, lengths = found.rows(), found.lengths
        if not len(row):
            return found
        order = np.lexsort((self._rng.random(len(row)), row))  # each sequence's positions, shuffled
        rank = np.empty(len(row), np.int64)
        rank[order] = np.arange(len(row)) - found.offsets[row]
        noisy = rank < np.round(self.sigma * lengths)[row]
        first = np.repeat(found.times[found.offsets[:-1][lengths > 0]], lengths[lengths > 0])
        return self._replace(found, noisy, first, np.asarray(times)[row])

    def _replace(
        self, found: PackedNeighbors, noisy: np.ndarray, first: np.ndarray, query: np.ndarray
    ) -> PackedNeighbors:
        count, when = int(noisy.sum()), found.times.copy()
        share = self._rng.random(count)
        if when.dtype.kind == "f":
            when[noisy] = first[noisy] + share * (query[noisy] - first[noisy])
            when = np.minimum(when, np.nextafter(query, -np.inf))
        else:
            until = query[noisy] if query.dtype.kind == "i" else np.ceil(query[noisy])  # float64 rounds nanoseconds
            when[noisy] = first[noisy] + np.floor(share * (until - first[noisy])).astype(np.int64)
        nodes, ids = found.nodes.copy(), found.event_ids.copy()
        nodes[noisy], ids[noisy] = self._rng.integers(0, self.num_nodes, count), -1
        order = np.lexsort((when, found.rows()))
        return PackedNeighbors(found.offsets, nodes[order], ids[order], when[order])


def noisy_edges(stream: EventStream, sigma: float, seed: int = 0, *, deletions: bool = False) -> tuple[np.ndarray, ...]:
    """Return columns src, dst, t, event_ids of a stream's events and round(sigma E) random ones among them.

    A random event has a source among the sources, a destination among the destinations, a time uniform over the
    stream's, and the event id -1 (no features). Deletions are excluded unless requested.

    """
    rows = np.arange(len(stream)) if deletions else stream.additions()
    rng, count = named_rng(seed, 2), round(sigma * len(rows))
    src, dst = (rng.choice(np.unique(column), count) for column in (stream.src, stream.dst))
    t = rng.uniform(stream.t[0], stream.t[-1], count).astype(stream.t.dtype) if count else stream.t[:0]
    order = np.argsort(np.concatenate([stream.t[rows], t]), kind="stable")
    ids = np.concatenate([rows + stream.first_id, np.full(count, -1)])
    return (
        np.concatenate([stream.src[rows], src])[order],
        np.concatenate([stream.dst[rows], dst])[order],
        np.concatenate([stream.t[rows], t])[order],
        ids[order],
    )


def robustness(
    task: LinkTask, noise: Sequence[str] | None = None, levels: Sequence[float] = LEVELS, seed: int = 0
) -> pd.DataFrame:
    """Return test metrics against random negatives: one row per kind of noise, level and setting."""
    kinds = noise_of(task) if noise is None else noise
    return pd.DataFrame([row for kind in kinds for sigma in levels for row in measure(task, kind, sigma, seed)])


def noise_of(task: LinkTask) -> tuple[str, ...]:
    """Return the kinds of noise that the model of a task has."""
    if isinstance(task.source, HistoryPairs):
        return ("sequences", "stream")
    assert isinstance(task.source, MemoryWindows), "this needs dyg-mamba, dygformer, graphmixer or ctdg-ssm"
    return ("stream", "laplacian") if hasattr(task.source.memory_model, "laplacian_noise") else ("stream",)


def noisy_scorer(task: LinkTask, kind: str, sigma: float, seed: int) -> LinkScorer:
    """Return the model as a scorer under noise."""
    stream, source = task.stream, task.source
    if isinstance(source, HistoryPairs):
        if kind == "sequences":
            return scorer_with(task, NoisyLookups(source.inputs.store, sigma, seed))
        src, dst, t, ids = noisy_edges(stream, sigma, seed, deletions=source.inputs.deletions)
    else:
        assert isinstance(source, MemoryWindows)
        if kind == "laplacian":
            source.memory_model.laplacian_noise = sigma  # type: ignore[attr-defined]
            return task.scorer("test")
        assert not stream.has_deletes, "random edges of a memory look like deleted ones; use laplacian"
        src, dst, t, ids = noisy_edges(stream, sigma, seed, deletions=False)
        # the paths of a memory distinguish edges by their ids
        ids = np.where(ids < 0, -2 - np.arange(len(ids)), ids)
    return scorer_with(task, NeighborStore.from_events(src, dst, t, ids, stream.num_nodes))


def scorer_with(task: LinkTask, store: Any) -> LinkScorer:
    """Return the model over other histories of the same stream, with the interface of `NeighborStore`."""
    source = task.source
    assert isinstance(source, HistoryPairs | MemoryWindows)
    inputs = source.make_inputs(task.stream)
    inputs.store = store
    if isinstance(source, MemoryWindows) and inputs.pair_features is not None:
        inputs.pair_features.store = store
    return source.scorer_of(task.model, inputs)


def measure(task: LinkTask, kind: str, sigma: float, seed: int) -> list[dict[str, Any]]:
    """Return a row for each setting of the test split."""
    model: Any = bare(task.model)
    trained_with = getattr(model, "laplacian_noise", None)
    report = evaluate_link(
        noisy_scorer(task, kind, sigma, seed),
        task.stream,
        task.split,
        "test",
        strategies=("random",),
        protocol=task.evaluation.protocol,
        batch_size=task.evaluation.batch_size,
        negatives={k: v for k, v in task.negatives.items() if k[0].endswith("test") and k[1] == "random"},
        max_events=task.evaluation.event_limit,
    )
    if trained_with is not None:
        model.laplacian_noise = trained_with
    columns = ("setting", "average_precision", "roc_auc")
    return [{"noise": kind, "sigma": sigma} | {name: row[name] for name in columns} for row in report.rows]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run")
    parser.add_argument("--levels", default=",".join(map(str, LEVELS)))
    parser.add_argument("--noise", default=None)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", default=None)
    o = parser.parse_args()
    levels = [float(level) for level in o.levels.split(",")]
    if not all(0 <= level <= 1 for level in levels):
        parser.error(f"a noise level is a share in [0, 1]: got {o.levels}")
    with load_run(o.run) as (computation, task), torch.no_grad(), computation.precision():
        task.model.eval()
        assert isinstance(task, LinkTask)
        kinds = None if o.noise is None else o.noise.split(",")
        table = robustness(task, kinds, levels, o.seed)
    if o.out is not None:
        table.to_csv(o.out, index=False)
    print(table.to_string(index=False))


if __name__ == "__main__":
    main()
