"""Evaluation of dynamic link prediction.

`streaming.replay` scores a batch of events and their negatives before the model observes the batch. A batch never
splits equal timestamps (except for published protocols), so a model has only seen strictly earlier events. Models that
read a neighbor store must query it strictly before the query time; `hopstate.evaluation.leak` tests this.

Protocols: "pooled" (default) computes AP and ROC AUC over all scores of a split. "dyglib" averages them over batches of
200, streams only the split's own training events and splits equal timestamps, to reproduce published tables.

Source: Yu et al. 2023, arXiv:2303.13047; Huang et al. 2023, arXiv:2307.01026 for MRR and Hits@k.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np

from hopstate.data.events import EventBatch, EventStream, as_slice
from hopstate.data.neighbor_store import Histories, NeighborStore
from hopstate.data.splits import EventSplit
from hopstate.errors import ConfigError, DataError, HopstateWarning
from hopstate.evaluation.calibration import Calibration, calibration
from hopstate.evaluation.intervals import bootstrap_areas, bootstrap_mean, interval_columns
from hopstate.evaluation.metrics import average_precision_of, pairwise_loss, roc_auc_of
from hopstate.evaluation.ranking import hits, mrr, ndcg, ranks, recall_at_k
from hopstate.io.scratch import release_pages
from hopstate.sampling.event_batches import batch_boundaries, event_batches, sample_rows
from hopstate.sampling.negatives import (
    DEFAULT_STRATEGIES,
    STRATEGIES,
    DrawOptions,
    Negatives,
    NoOtherPairError,
    distinct_sets,
    strategy_of,
)
from hopstate.streaming.protocols import LinkScorer
from hopstate.streaming.replay import as_scores, check_scores, replay_batches

_EPS = np.finfo(np.float64).eps  # no probability is nearer to 0 or 1 where it becomes a logit


@dataclass(frozen=True, eq=False, kw_only=True)
class LinkScores:
    """Scores of positives and their negatives.

    Args:
        rows: (P,) positions of the positives in the stream.
        positive: (P,) float64 scores of the positives.
        negative: (T,) float64 scores of the negatives.
        offsets: (P+1,) offsets of each positive's negatives.
        collisions: (T,) bool, which negatives equal the pair of their own positive; None if none do.
    """

    rows: np.ndarray
    positive: np.ndarray
    negative: np.ndarray
    offsets: np.ndarray
    collisions: np.ndarray | None = None

    def without_collisions(self) -> LinkScores:
        """Return the scores without the negatives that equal their own positive."""
        if self.collisions is None:
            return self
        kept = ~self.collisions
        of = np.repeat(np.arange(len(self.rows)), np.diff(self.offsets))[kept]
        offsets = np.concatenate([[0], np.cumsum(np.bincount(of, minlength=len(self.rows)))])
        return replace(self, negative=self.negative[kept], offsets=offsets, collisions=None)

    def pooled(self) -> tuple[np.ndarray, np.ndarray]:
        """Return (labels, scores) of all positives and negatives."""
        labels = np.repeat(np.array([1, 0], np.int8), [len(self.positive), len(self.negative)])
        return labels, np.concatenate([self.positive, self.negative])

    def loss(self) -> float:
        """Return the `pairwise_loss` of the logits; the scores must be probabilities."""
        bounded = (np.clip(p, _EPS, 1 - _EPS) for p in (self.positive, self.negative))
        positive, negative = (np.log(p) - np.log1p(-p) for p in bounded)
        return pairwise_loss(np.repeat(positive, np.diff(self.offsets)), negative)


KINDS = ("repeat_pairs", "new_pairs", "new_nodes")
HITS = (1, 3, 10)
MAX_RELATIONS = 50  # relations with metrics of their own
TOP_K = 10  # places that NDCG and recall look at


def pair_kinds(store: Histories, src: np.ndarray, dst: np.ndarray, t: np.ndarray) -> np.ndarray:
    """Return (Q,) indices into KINDS, strictly before t: repeat pair, new pair of seen nodes, or unseen node."""
    repeated = store.last_meeting(src, dst, t)[1]
    seen = [store.last(ends, t, 1).lengths > 0 for ends in (src, dst)]
    return np.where(repeated, 0, np.where(seen[0] & seen[1], 1, 2))


def ranking_metrics(
    stream: EventStream,
    rows: np.ndarray,
    positive: np.ndarray,
    negative: np.ndarray,
    offsets: np.ndarray,
    candidates: np.ndarray,
    *,
    bootstrap: int = 0,
    seed: int = 0,
) -> dict[str, float]:
    """Compute MRR, Hits@k, NDCG@10, recall@10, and MRR by kind of pair.

    "num_events_<kind>" is the number of events of a kind.

    Args:
        stream: the event stream, whose full history is used for the kinds.
        rows: (P,) positions of the events, each with at least one candidate.
        positive: (P,) scores of the events.
        negative: (T,) scores of the candidates.
        offsets: (P+1,) offsets of each event's candidates.
        candidates: (T,) int64 candidate destinations.
        bootstrap: resamples for confidence intervals (`mrr_low`, `mrr_high`, ...). Default: 0, no intervals.
        seed: random seed of the resamples.
    """
    src, dst, t = (column[rows] for column in (stream.src, stream.dst, stream.t))
    rank = ranks(positive, negative, offsets)
    metrics = {"mrr": mrr(rank)} | {f"hits@{k}": hits(rank, k) for k in HITS}
    time_number = np.unique(t, return_inverse=True)[1].reshape(-1)
    query = np.unique(src * len(rows) + time_number, return_inverse=True)[1].reshape(-1)
    values = {"mrr": 1 / rank, f"ndcg@{TOP_K}": ndcg(rank, TOP_K), f"recall@{TOP_K}": recall_at_k(rank, TOP_K, query)}
    store = NeighborStore.from_stream(stream)
    kind = pair_kinds(store, src, dst, t)
    values |= {f"mrr_{name}": 1 / rank[kind == i] for i, name in enumerate(KINDS)}
    if len(stream.relation_names) > 1:
        metrics |= relation_metrics(rank, stream.pairs(rows)[3], stream.relation_names)
    values["mrr_among_repeat_candidates"] = 1 / _ranks_among_past_destinations(
        store, (src, dst, t), kind, positive, negative, offsets, candidates
    )
    for name, column in values.items():
        if not len(column):
            continue
        metrics[name] = float(column.mean())
        if name.startswith("mrr_"):
            metrics[name.replace("mrr", "num_events")] = len(column)
        if bootstrap:
            metrics |= interval_columns({name: bootstrap_mean(column, repeats=bootstrap, seed=seed)})
    return metrics


def relation_metrics(rank: np.ndarray, relation: np.ndarray, names: Sequence[str]) -> dict[str, float]:
    """Return MRR and Hits@10 of each relation, and their means over relations ("mrr_macro").

    Args:
        rank: (P,) ranks of events.
        relation: (P,) their relations.
        names: names of the relations; metrics are called "mrr[NAME]", of the `MAX_RELATIONS` most frequent.
    """
    counts = np.bincount(relation, minlength=len(names))
    seen = np.flatnonzero(counts)
    by_relation = {"mrr": 1 / rank, "hits@10": rank <= 10}
    means = {
        name: np.bincount(relation, values, len(names))[seen] / counts[seen] for name, values in by_relation.items()
    }
    metrics = {f"{name}_macro": float(values.mean()) for name, values in means.items()}
    for at in np.argsort(-counts[seen], kind="stable")[:MAX_RELATIONS].tolist():
        label = names[seen[at]]
        metrics |= {f"{name}[{label}]": float(values[at]) for name, values in means.items()}
        metrics[f"num_events[{label}]"] = int(counts[seen[at]])
    return metrics


def _ranks_among_past_destinations(
    store: NeighborStore,
    events: tuple[np.ndarray, np.ndarray, np.ndarray],
    kind: np.ndarray,
    positive: np.ndarray,
    negative: np.ndarray,
    offsets: np.ndarray,
    candidates: np.ndarray,
) -> np.ndarray:
    """Return the ranks of repeat pairs among past destinations of the source; skips events without any."""
    src, _, t = events
    event = np.repeat(np.arange(len(src)), np.diff(offsets))
    rows = np.flatnonzero(kind[event] == 0)
    past = rows[store.last_meeting(src[event[rows]], candidates[rows], t[event[rows]])[1]]
    num_past = np.bincount(event[past], minlength=len(src))
    ranked = num_past > 0
    if not ranked.any():
        return np.empty(0)
    bounds = np.concatenate([[0], np.cumsum(num_past[ranked])])
    return ranks(positive[ranked], negative[past], bounds)


_PAGES = 1024  # batches after which what was read of a mapped stream is given back


@dataclass(frozen=True, eq=False)
class QueryPairs:
    """Pairs to score at the events of a split.

    Args:
        src, dst: (T,) int64 nodes; may be memory-mapped.
        rows: (P,) sorted positions of the events.
        offsets: (P+1,) offsets of each event's pairs. Default: one pair per event.
    """

    src: np.ndarray
    dst: np.ndarray
    rows: np.ndarray
    offsets: np.ndarray | None = None

    @classmethod
    def events(cls, stream: EventStream, rows: np.ndarray) -> QueryPairs:
        """Return the pairs of the events themselves, at sorted rows (P,)."""
        return cls(stream.src[as_slice(rows)], stream.dst[as_slice(rows)], rows)

    def part(self, low: int, high: int) -> tuple[slice, np.ndarray]:
        """Return the range of the pairs of events low .. high-1, and the event row of each pair."""
        rows = self.rows[low:high]
        if self.offsets is None:
            return slice(low, high), rows
        bounds = self.offsets[low : high + 1]
        return slice(int(bounds[0]), int(bounds[-1])), np.repeat(rows, np.diff(bounds))


def score_queries(
    scorer: LinkScorer,
    stream: EventStream,
    queries: Sequence[QueryPairs],
    rows: np.ndarray,
    boundaries: np.ndarray,
    history: Iterable[EventBatch],
) -> list[np.ndarray]:
    """Score several sets of pairs in one replay.

    All pairs of a batch are scored together, sorted by event, before the model observes the batch.
    """
    first = rows[np.minimum(boundaries, len(rows) - 1)]
    first[-1] += 1
    cuts = [np.searchsorted(query.rows, first) for query in queries]
    scores_of_sets = [np.empty(len(query.src)) for query in queries]
    for b in replay_batches(scorer, stream, rows=rows, boundaries=boundaries, history=history):
        if b + 1 == len(first):
            break
        parts = [query.part(int(cut[b]), int(cut[b + 1])) for query, cut in zip(queries, cuts, strict=True)]
        event_rows = np.concatenate([rows_of_part for _, rows_of_part in parts])
        if len(event_rows):
            order = np.argsort(event_rows, kind="stable")  # event by event, whatever the sets
            rows_of_pairs = event_rows[order]
            src = np.concatenate([query.src[at] for query, (at, _) in zip(queries, parts, strict=True)])[order]
            dst = np.concatenate([query.dst[at] for query, (at, _) in zip(queries, parts, strict=True)])[order]
            scores = np.empty(len(event_rows))
            columns = src, dst, *stream.pairs(rows_of_pairs)[2:]
            scores[order] = as_scores(scorer.score(*columns), len(event_rows))
            for out, (at, rows_of_part) in zip(scores_of_sets, parts, strict=True):
                out[at], scores = scores[: len(rows_of_part)], scores[len(rows_of_part) :]
        if b % _PAGES == _PAGES - 1:
            release_pages(stream.src, stream.dst, stream.t)
    release_pages(stream.src, stream.dst, stream.t)
    return [check_scores(scores) for scores in scores_of_sets]


LinkProtocol = Literal["pooled", "dyglib"]
_DYGLIB_BATCH = 200
_MIN_COLLISION_SHARE = 0.01  # share of negatives that are their own event from which on a report has it


@dataclass(frozen=True, eq=False, kw_only=True)
class LinkReport:
    """Evaluation results, one row per setting and negative-sampling strategy.

    Args:
        rows: dictionaries with split, setting ("transductive", "inductive"), strategy, events and metrics.
            `average_precision_low` and `average_precision_high` are bootstrap limits. `collision_rate` is the share of
            negatives that equal their own positive, if at least 1%. Calibration excludes them.
        scores: scores by (split, strategy).
        distinct: keys of the scores whose negatives do not equal those of an earlier key.
        reliability: calibration by (split, strategy); empty if scores are not probabilities.
    """

    rows: list[dict[str, Any]]
    scores: dict[tuple[str, str], LinkScores] = field(default_factory=dict)
    distinct: frozenset[tuple[str, str]] = frozenset()
    reliability: dict[tuple[str, str], Calibration] = field(default_factory=dict)

    def value(self, metric: str, strategy: str = "random", split: str | None = None) -> float:
        """Return one metric.

        Args:
            metric: metric name.
            strategy: negative-sampling strategy. Default: "random".
            split: split. Default: the first reported split.

        Raises:
            ConfigError: the metric was not computed.
        """
        for row in self.rows:
            if row["strategy"] == strategy and split in (None, row["split"]) and metric in row:
                return row[metric]
        raise ConfigError(f"no {metric!r} of {strategy!r} negatives was measured for split {split!r}")


def evaluate_link(
    scorer: LinkScorer,
    stream: EventStream,
    splits: EventSplit,
    split: Literal["val", "test"] = "test",
    *,
    strategies: tuple[str, ...] = DEFAULT_STRATEGIES,
    protocol: LinkProtocol = "pooled",
    batch_size: int = 200,
    num_negatives: int | Literal["all"] = 100,
    bootstrap: int = 0,
    seed: int = 0,
    negatives: Mapping[tuple[str, str], Negatives] | None = None,
    max_events: int | None = None,
) -> LinkReport:
    """Evaluate a link scorer on a split and its events with unseen nodes, in one pass over the stream.

    Args:
        scorer: the model. It is reset, observes every event before the split, and is then replayed over the split.
        stream: the event stream.
        splits: its splits.
        split: "val" or "test". Events with unseen nodes are reported as inductive.
        strategies: names in `hopstate.sampling.negatives.STRATEGIES`: random, historical and inductive (AP, ROC AUC),
            ranking (MRR, Hits@k). Default: random, historical and inductive.
        protocol: "pooled" or "dyglib"; see the module docstring. Default: "pooled".
        batch_size: minimum number of events per batch. Default: 200.
        num_negatives: negatives per event for "ranking". Default: 100.
        bootstrap: resamples for confidence intervals. Default: 0, no intervals.
        seed: random seed of bootstrap and "ranking"; the other strategies use DyGLib's seeds. Default: 0.
        negatives: precomputed negatives by (split, strategy). Default: draw them.
        max_events: evaluate a sample of at most this many events (see `sample_rows`). Default: all.

    Returns:
        Metrics and scores by split and strategy.

    Raises:
        ConfigError: the protocol, split or strategy is unknown.
        DataError: negatives belong to another split.
        DivergenceError: a score is NaN or infinite.
    """
    chosen = link_negatives(stream, splits, split, strategies, num_negatives, seed, negatives, max_events)
    scores = score_links(scorer, stream, splits, split, chosen, protocol=protocol, batch_size=batch_size)
    return link_report(scores, chosen, stream, protocol=protocol, bootstrap=bootstrap, seed=seed)


def link_negatives(
    stream: EventStream,
    splits: EventSplit,
    split: str,
    strategies: tuple[str, ...],
    num_negatives: int | Literal["all"],
    seed: int,
    negatives: Mapping[tuple[str, str], Negatives] | None,
    max_events: int | None,
) -> dict[tuple[str, str], Negatives]:
    """Return the negatives of a split and of its events with unseen nodes, by (split, strategy).

    An entry is missing if events with unseen nodes leave no other pair. For the arguments see `evaluate_link`.
    """
    if split not in ("val", "test"):
        raise ConfigError(f"links are evaluated on 'val' or 'test', not {split!r}")
    chosen = dict(negatives or {})
    positives = {name: sample_rows(stream.additions(splits.rows(name)), max_events) for name in (split, f"new_{split}")}
    parts = [name for name, rows in positives.items() if len(rows)]
    options: DrawOptions = {"num_negatives": num_negatives, "seed": seed, "max_events": max_events}
    for key in ((p, s) for p in parts for s in strategies):
        if key not in chosen:
            try:
                chosen[key] = strategy_of(key[1]).draw(stream, splits, key[0], **options)
            except NoOtherPairError:  # a few events with new nodes may be all pairs that these make
                if key[0] == split:
                    raise
                continue
        if not np.array_equal(chosen[key].rows, positives[key[0]]):
            raise DataError(f"the {key[1]} negatives given for {key[0]!r} are not of that split's events")
    return chosen


def score_links(
    scorer: LinkScorer,
    stream: EventStream,
    splits: EventSplit,
    split: str,
    negatives: Mapping[tuple[str, str], Negatives],
    *,
    protocol: LinkProtocol = "pooled",
    batch_size: int = 200,
) -> dict[tuple[str, str], LinkScores]:
    """Return the scores of a split's events and negatives, in one pass over the stream.

    For the arguments see `evaluate_link`; negatives are those of `link_negatives`.
    """
    if protocol not in ("pooled", "dyglib"):
        raise ConfigError(f"unknown protocol {protocol!r}; known: pooled, dyglib")
    history = None
    if protocol == "dyglib":
        history = splits.train if split == "val" else np.concatenate([splits.train, splits.val])
    return score_split(
        scorer,
        stream,
        splits.rows(split),
        negatives,
        history=history,
        batch_size=batch_size,
        keep_ties=protocol == "pooled" or getattr(scorer, "by_time", False),
    )


def link_report(
    scores: Mapping[tuple[str, str], LinkScores],
    negatives: Mapping[tuple[str, str], Negatives],
    stream: EventStream,
    *,
    protocol: LinkProtocol = "pooled",
    bootstrap: int = 0,
    seed: int = 0,
) -> LinkReport:
    """Compute the metrics of scores."""
    rows, reliability = [], {}
    for (name, strategy), link_scores in scores.items():
        setting = "inductive" if name.startswith("new_") else "transductive"
        row = {"split": name, "setting": setting, "strategy": strategy, "num_events": len(link_scores.rows)}
        rows.append(
            row | _metrics(link_scores, strategy, protocol, bootstrap, seed, stream, negatives[name, strategy].dst)
        )
        if link_scores.collisions is not None and link_scores.collisions.mean() >= _MIN_COLLISION_SHARE:
            rows[-1]["collision_rate"] = float(link_scores.collisions.mean())
        values = np.concatenate([link_scores.positive, link_scores.negative])
        if not STRATEGIES[strategy].ranking and values.min() >= 0 and values.max() <= 1:
            reliability[name, strategy] = curve = calibration(*link_scores.without_collisions().pooled())
            rows[-1] |= {"ece": curve.ece, "brier": curve.brier}
    distinct = frozenset(distinct_sets({key: negatives[key] for key in scores}))
    return LinkReport(rows=rows, scores=dict(scores), distinct=distinct, reliability=reliability)


def score_split(
    scorer: LinkScorer,
    stream: EventStream,
    rows: np.ndarray,
    negatives: Mapping[tuple[str, str], Negatives],
    *,
    history: np.ndarray | None = None,
    batch_size: int = 200,
    keep_ties: bool = True,
) -> dict[tuple[str, str], LinkScores]:
    """Replay a split, at sorted rows (P,), and return the scores of each set of negatives and its positives.

    The model first observes the events at `history`, by default all before the split.
    """
    events = stream.additions(rows)
    positive_rows = np.unique(np.concatenate([np.empty(0, np.int64), *(drawn.rows for drawn in negatives.values())]))
    queries = [QueryPairs.events(stream, positive_rows)]
    for key, drawn in negatives.items():
        position = np.minimum(np.searchsorted(events, drawn.rows), max(len(events) - 1, 0))
        if len(drawn.rows) and not (len(events) and np.array_equal(events[position], drawn.rows)):
            raise DataError(f"negatives {key} belong to events outside the split that is scored")
        queries.append(QueryPairs(drawn.src, drawn.dst, drawn.rows, drawn.offsets))
    boundaries = batch_boundaries(stream.t[as_slice(rows)], batch_size, keep_ties=keep_ties)
    positive, *negative = score_queries(
        scorer, stream, queries, rows, boundaries, _history_batches(stream, rows, history, batch_size)
    )
    return {
        key: LinkScores(
            rows=drawn.rows,
            positive=positive[np.searchsorted(positive_rows, drawn.rows)],
            negative=scores,
            offsets=drawn.offsets,
            # candidates of a ranking are other nodes
            collisions=None if STRATEGIES[drawn.strategy].ranking else drawn.collisions(stream),
        )
        for (key, drawn), scores in zip(negatives.items(), negative, strict=True)
    }


def _history_batches(
    stream: EventStream, rows: np.ndarray, history: np.ndarray | None, batch_size: int
) -> Iterator[EventBatch]:
    """Yield the batches before a split, lazily: models without state never read them."""
    yield from event_batches(stream, np.arange(rows[0]) if history is None else history, batch_size=batch_size)


def _metrics(
    link_scores: LinkScores,
    strategy: str,
    protocol: str,
    bootstrap: int,
    seed: int,
    stream: EventStream,
    candidates: np.ndarray,
) -> dict[str, float]:
    """Return AP and ROC AUC, or ranking metrics, with optional intervals."""
    if STRATEGIES[strategy].ranking:
        ranked = np.diff(link_scores.offsets) > 0  # alone, a positive would be first of one
        if not ranked.all():
            skipped = int((~ranked).sum())
            message = f"{skipped} of {len(ranked)} events have no negative to be ranked against; MRR leaves them out"
            warnings.warn(message, HopstateWarning, stacklevel=2)
        if not ranked.any():
            return {"mrr": float("nan")} | {f"hits@{k}": float("nan") for k in HITS}
        bounds = np.concatenate([[0], np.cumsum(np.diff(link_scores.offsets)[ranked])])
        columns = (link_scores.rows[ranked], link_scores.positive[ranked], link_scores.negative, bounds, candidates)
        return ranking_metrics(stream, *columns, bootstrap=bootstrap, seed=seed)
    if protocol == "dyglib":
        return _batch_means(link_scores)
    metrics = _ap_and_auc(link_scores.positive, link_scores.negative)
    if bootstrap:
        areas = bootstrap_areas(
            link_scores.positive, link_scores.negative, link_scores.offsets, repeats=bootstrap, seed=seed
        )
        metrics |= interval_columns(areas)
    return metrics


def _batch_means(score_queries: LinkScores) -> dict[str, float]:
    """Return the means of AP and ROC AUC over batches of 200 positives."""
    values = []
    for a in range(0, len(score_queries.positive), _DYGLIB_BATCH):
        b = min(a + _DYGLIB_BATCH, len(score_queries.positive))
        own = score_queries.positive[a:b], score_queries.negative[score_queries.offsets[a] : score_queries.offsets[b]]
        values.append(_ap_and_auc(*own))
    return {name: float(np.mean([value[name] for value in values])) for name in ("average_precision", "roc_auc")}


def _ap_and_auc(positive: np.ndarray, negative: np.ndarray) -> dict[str, float]:
    return {"average_precision": average_precision_of(positive, negative), "roc_auc": roc_auc_of(positive, negative)}
