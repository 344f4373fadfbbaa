"""Dynamic link prediction: one loop for every temporal model, and the tables made from its scores.

`streaming.replay` scores a batch of events and their negatives, then lets the model see the batch. A batch never ends
amid events of one time (unless asked to, for published protocols), so what a model has seen is strictly earlier than
what it scores. A model that looks its events up in a store must look strictly before the query time;
`hopstate.evaluation.leak` checks that.

Protocols: "pooled" (default) takes AP and ROC AUC over all scores of a split; "dyglib" averages them over batches of
200, streams the split's own training events and cuts ties, so that published tables can be compared.

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
from hopstate.evaluation.calibration import Calibration, Curve, calibration
from hopstate.evaluation.intervals import bootstrap_areas, bootstrap_mean, limits_of
from hopstate.evaluation.metrics import average_precision_of, pairwise_loss, roc_auc_of
from hopstate.evaluation.ranking import gains, hits, mrr, ranks, recalls
from hopstate.io.scratch import release_pages
from hopstate.sampling.event_batches import batch_boundaries, event_batches, judged
from hopstate.sampling.negatives import (
    STRATEGIES,
    USUAL,
    HowDrawn,
    Negatives,
    NoOtherPairError,
    distinct_sets,
    strategy_of,
)
from hopstate.streaming.protocols import LinkScorer, StreamingModel
from hopstate.streaming.replay import as_scores, check_scores, moments

_EPS = np.finfo(np.float64).eps  # no probability is nearer to 0 or 1 where it becomes a logit


@dataclass(frozen=True, eq=False, kw_only=True)
class LinkScores:
    """Scores of some positives and their negatives.

    Args:
        rows: (P,) positions of the positives in the stream.
        positive: (P,) float64.
        negative, offsets: (T,) float64, packed by (P+1,) offsets.
        own_event: (T,) bool, which negatives are the very pair of their event; None if none is.
    """

    rows: np.ndarray
    positive: np.ndarray
    negative: np.ndarray
    offsets: np.ndarray
    own_event: np.ndarray | None = None

    def without_own_event(self) -> LinkScores:
        """Return the scores without negatives that are the very pair of their event."""
        if self.own_event is None:
            return self
        kept = ~self.own_event
        of = np.repeat(np.arange(len(self.rows)), np.diff(self.offsets))[kept]
        offsets = np.concatenate([[0], np.cumsum(np.bincount(of, minlength=len(self.rows)))])
        return replace(self, negative=self.negative[kept], offsets=offsets, own_event=None)

    def pooled(self) -> tuple[np.ndarray, np.ndarray]:
        """Return (labels, scores) of all positives and negatives."""
        labels = np.repeat(np.array([1, 0], np.int8), [len(self.positive), len(self.negative)])
        return labels, np.concatenate([self.positive, self.negative])

    def loss(self) -> float:
        """Return the `pairwise_loss` of the logits of events and negatives, whose scores are probabilities."""
        bounded = (np.clip(p, _EPS, 1 - _EPS) for p in (self.positive, self.negative))
        positive, negative = (np.log(p) - np.log1p(-p) for p in bounded)
        return pairwise_loss(np.repeat(positive, np.diff(self.offsets)), negative)


KINDS = ("met", "new_pair", "new_node")
HITS = (1, 3, 10)
FIRST = 10  # places that NDCG and recall look at


def kinds_of(store: Histories, src: np.ndarray, dst: np.ndarray, t: np.ndarray) -> np.ndarray:
    """Return (Q,) what pairs src (Q,), dst (Q,) were strictly before t (Q,): positions in KINDS."""
    met = store.last_meeting(src, dst, t)[1]
    old = [store.last(ends, t, 1).lengths > 0 for ends in (src, dst)]
    return np.where(met, 0, np.where(old[0] & old[1], 1, 2))


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
    """Return MRR, Hits@k, NDCG@10 and recall@10 of events, and MRR by kind; `mrr_low`, `mrr_high` are limits.

    Of each kind "<kind>_events" says how many events it is told from.

    Args:
        stream: where the events stand; what had happened is looked up in all of it.
        rows: (P,) positions of the events, each with a candidate at least.
        positive: (P,) their scores.
        negative: (T,) scores of the candidates, packed by offsets (P+1,).
        candidates: (T,) int64 the candidates, each of its event's own source.
        bootstrap: resamples for intervals; 0 gives none.
        seed: of the resamples.
    """
    src, dst, t = (column[rows] for column in (stream.src, stream.dst, stream.t))
    rank = ranks(positive, negative, offsets)
    found = {"mrr": mrr(rank)} | {f"hits@{k}": hits(rank, k) for k in HITS}
    moment = np.unique(t, return_inverse=True)[1].reshape(-1)
    query = np.unique(src * len(rows) + moment, return_inverse=True)[1].reshape(-1)
    values = {"mrr": 1 / rank, f"ndcg@{FIRST}": gains(rank, FIRST), f"recall@{FIRST}": recalls(rank, FIRST, query)}
    store = NeighborStore.from_stream(stream)
    kind = kinds_of(store, src, dst, t)
    values |= {f"{name}_mrr": 1 / rank[kind == i] for i, name in enumerate(KINDS)}
    values["known_mrr"] = 1 / _among_known(store, (src, dst, t), kind, positive, negative, offsets, candidates)
    for name, column in values.items():
        if not len(column):
            continue
        found[name] = float(column.mean())
        if name.removesuffix("_mrr") in (*KINDS, "known"):
            found[f"{name.removesuffix('_mrr')}_events"] = len(column)
        if bootstrap:
            found |= limits_of({name: bootstrap_mean(column, repeats=bootstrap, seed=seed)})
    return found


def _among_known(
    store: NeighborStore,
    events: tuple[np.ndarray, np.ndarray, np.ndarray],
    kind: np.ndarray,
    positive: np.ndarray,
    negative: np.ndarray,
    offsets: np.ndarray,
    candidates: np.ndarray,
) -> np.ndarray:
    """Return ranks of events whose pair met, among candidates that their source had met; none without such."""
    src, _, t = events
    of = np.repeat(np.arange(len(src)), np.diff(offsets))
    asked = np.flatnonzero(kind[of] == 0)
    kept = asked[store.last_meeting(src[of[asked]], candidates[asked], t[of[asked]])[1]]
    count = np.bincount(of[kept], minlength=len(src))
    mine = count > 0
    if not mine.any():
        return np.empty(0)
    bounds = np.concatenate([[0], np.cumsum(count[mine])])
    return ranks(positive[mine], negative[kept], bounds)


_PAGES = 1024  # batches after which what was read of a mapped stream is given back


@dataclass(frozen=True, eq=False)
class Asked:
    """Pairs of some events of a split.

    Args:
        src, dst: (T,) int64; may be mapped.
        rows: (P,) rising positions of the events.
        offsets: (P+1,) where each event's pairs begin; None where each has one.
    """

    src: np.ndarray
    dst: np.ndarray
    rows: np.ndarray
    offsets: np.ndarray | None = None

    @classmethod
    def events(cls, stream: EventStream, rows: np.ndarray) -> Asked:
        """Return the events at rising rows (P,) themselves."""
        return cls(stream.src[as_slice(rows)], stream.dst[as_slice(rows)], rows)

    def part(self, low: int, high: int) -> tuple[slice, np.ndarray]:
        """Return where the pairs of events low .. high-1 stand, and the row of each one's event."""
        rows = self.rows[low:high]
        if self.offsets is None:
            return slice(low, high), rows
        bounds = self.offsets[low : high + 1]
        return slice(int(bounds[0]), int(bounds[-1])), np.repeat(rows, np.diff(bounds))


def scored(
    scorer: LinkScorer,
    stream: EventStream,
    asked: Sequence[Asked],
    rows: np.ndarray,
    boundaries: np.ndarray,
    history: Iterable[EventBatch],
) -> list[np.ndarray]:
    """Return (T,) float64 scores of each set of pairs.

    Those of a batch are asked for together, event by event, before the batch is shown.

    Args:
        scorer: the model; reset, then shown the history.
        stream: the events.
        asked: pairs of events among rows.
        rows: (P,) rising positions of the split, at least one.
        boundaries: where batches begin and end among rows, 0..P.
        history: what is shown before.

    Raises:
        DataError: a score is NaN or infinite.
    """
    first = rows[np.minimum(boundaries, len(rows) - 1)]
    first[-1] += 1
    cuts = [np.searchsorted(one.rows, first) for one in asked]
    found = [np.empty(len(one.src)) for one in asked]
    for b in moments(scorer, stream, rows=rows, boundaries=boundaries, history=history):
        if b + 1 == len(first):
            break
        parts = [one.part(int(cut[b]), int(cut[b + 1])) for one, cut in zip(asked, cuts, strict=True)]
        own = np.concatenate([some for _, some in parts])
        if len(own):
            order = np.argsort(own, kind="stable")  # event by event, whatever the sets
            src = np.concatenate([one.src[at] for one, (at, _) in zip(asked, parts, strict=True)])[order]
            dst = np.concatenate([one.dst[at] for one, (at, _) in zip(asked, parts, strict=True)])[order]
            scores = np.empty(len(own))
            scores[order] = as_scores(scorer.score(src, dst, stream.t[own[order]]), len(own))
            for out, (at, some) in zip(found, parts, strict=True):
                out[at], scores = scores[: len(some)], scores[len(some) :]
        if b % _PAGES == _PAGES - 1:
            release_pages(stream.src, stream.dst, stream.t)
    release_pages(stream.src, stream.dst, stream.t)
    return [check_scores(scores) for scores in found]


LinkProtocol = Literal["pooled", "dyglib"]
_DYGLIB_BATCH = 200
_TOLD = 0.01  # share of negatives that are their own event from which on a report has it


@dataclass(frozen=True, eq=False, kw_only=True)
class LinkReport:
    """One row for each setting and strategy.

    Args:
        rows: dictionaries with split, setting ("transductive", "inductive"), strategy, events and metrics;
            `average_precision_low`, `average_precision_high` and so on are bootstrap limits. `own_event_share` is the
            share of negatives that are the very pair of their event, from 1% on. Reliability, `ece` and `brier` are
            of the other negatives.
        scores: the scores behind them, by (split, strategy).
        distinct: keys of the scores whose negatives are not those of an earlier key.
        reliability: reliability of probabilities, by (split, strategy); empty for scores outside 0..1.
        curve: from scores to probabilities.
    """

    rows: list[dict[str, Any]]
    scores: dict[tuple[str, str], LinkScores] = field(default_factory=dict)
    distinct: frozenset[tuple[str, str]] = frozenset()
    reliability: dict[tuple[str, str], Calibration] = field(default_factory=dict)
    curve: Curve | None = None

    def value(self, metric: str, strategy: str = "random", split: str | None = None) -> float:
        """Return one metric of a strategy of negatives; by default of the first split reported.

        Raises:
            ConfigError: nothing of that name was measured.
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
    strategies: tuple[str, ...] = USUAL,
    protocol: LinkProtocol = "pooled",
    batch_size: int = 200,
    num_negatives: int | Literal["all"] = 100,
    bootstrap: int = 0,
    seed: int = 0,
    negatives: Mapping[tuple[str, str], Negatives] | None = None,
    max_events: int | None = None,
) -> LinkReport:
    """Score a split and its new-node events under each strategy, in one pass over the stream.

    Args:
        scorer: the model; it is reset, then shown every event before the split, then replayed over the split.
        split: "val" or "test"; its events with new nodes are the inductive rows.
        strategies: names in `hopstate.sampling.negatives.STRATEGIES`: random, historical and inductive (AP, ROC AUC),
            many (MRR, Hits@k).
        protocol: see the top of this file.
        batch_size: events scored before the model sees them (at least: ties stay whole).
        num_negatives: of an event, of "many".
        bootstrap: resamples for confidence intervals; 0 gives none.
        seed: of bootstrap and "many"; the others take DyGLib's seeds.
        negatives: by (split, strategy), in place of drawing them.
        max_events: of the split, and of those with new nodes, that are judged (see `sampling.judged`); None for all.

    Raises:
        ConfigError: an unknown protocol, split or strategy.
        DataError: a NaN score, or negatives of another split.
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
    """Return the negatives of a split and of its events with new nodes, by (split, strategy).

    Where the events with new nodes are all pairs of their nodes, there is nothing to tell them from, and no such entry.

    Args:
        stream, splits, split: the data, and which part of it.
        strategies: see `evaluate_link`.
        num_negatives, seed: of "many".
        negatives: by (split, strategy), in place of drawing them.
        max_events: see `evaluate_link`.

    Raises:
        ConfigError: an unknown split.
        DataError: negatives of another split.
    """
    if split not in ("val", "test"):
        raise ConfigError(f"links are evaluated on 'val' or 'test', not {split!r}")
    chosen = dict(negatives or {})
    positives = {name: judged(stream.additions(splits.rows(name)), max_events) for name in (split, f"new_{split}")}
    there = [name for name, rows in positives.items() if len(rows)]
    how: HowDrawn = {"num_negatives": num_negatives, "seed": seed, "most": max_events}
    for key in ((p, s) for p in there for s in strategies):
        if key not in chosen:
            try:
                chosen[key] = strategy_of(key[1]).draw(stream, splits, key[0], **how)
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

    Args:
        scorer: the model; see `evaluate_link`.
        stream, splits, split: the data, and which part of it.
        negatives: as `link_negatives` returns them.
        protocol, batch_size: see `evaluate_link`.

    Raises:
        ConfigError: an unknown protocol.
        DataError: a NaN score.
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
        whole_ties=protocol == "pooled" or (isinstance(scorer, StreamingModel) and scorer.by_time),
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
    """Return the table of scores.

    Args:
        scores: by (split, strategy).
        negatives: that they are of.
        stream: the data.
        protocol, bootstrap, seed: see `evaluate_link`.
    """
    rows, reliability = [], {}
    for (name, strategy), own in scores.items():
        setting = "inductive" if name.startswith("new_") else "transductive"
        row = {"split": name, "setting": setting, "strategy": strategy, "events": len(own.rows)}
        rows.append(row | _metrics(own, strategy, protocol, bootstrap, seed, stream, negatives[name, strategy].dst))
        if own.own_event is not None and own.own_event.mean() >= _TOLD:
            rows[-1]["own_event_share"] = float(own.own_event.mean())
        values = [some for some in (own.positive, own.negative) if len(some)]
        if not STRATEGIES[strategy].ranking and min(v.min() for v in values) >= 0 and max(v.max() for v in values) <= 1:
            reliability[name, strategy] = found = calibration(*own.without_own_event().pooled())
            rows[-1] |= {"ece": found.ece, "brier": found.brier}
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
    whole_ties: bool = True,
) -> dict[tuple[str, str], LinkScores]:
    """Replay the events at rows to a model and return the scores of each set of negatives and its positives.

    Args:
        scorer: the model; reset first.
        rows: (P,) ascending positions of the split; the model sees all of them.
        negatives: sets whose rows are all among those that add; they are the positives, which alone are scored.
        history: positions shown before; by default every event before the split.
        whole_ties: never end a batch amid events of one time.
    """
    own = stream.additions(rows)
    wanted = np.unique(np.concatenate([np.empty(0, np.int64), *(drawn.rows for drawn in negatives.values())]))
    asked = [Asked.events(stream, wanted)]
    for key, drawn in negatives.items():
        place = np.minimum(np.searchsorted(own, drawn.rows), max(len(own) - 1, 0))
        if len(drawn.rows) and not (len(own) and np.array_equal(own[place], drawn.rows)):
            raise DataError(f"negatives {key} belong to events outside the split that is scored")
        asked.append(Asked(drawn.src, drawn.dst, drawn.rows, drawn.offsets))
    boundaries = batch_boundaries(stream.t[as_slice(rows)], batch_size, whole_ties=whole_ties)
    positive, *others = scored(scorer, stream, asked, rows, boundaries, _shown(stream, rows, history, batch_size))
    return {
        key: LinkScores(
            rows=drawn.rows,
            positive=positive[np.searchsorted(wanted, drawn.rows)],
            negative=scores,
            offsets=drawn.offsets,
            own_event=None if STRATEGIES[drawn.strategy].ranking else drawn.own_event(stream),  # these are other nodes
        )
        for (key, drawn), scores in zip(negatives.items(), others, strict=True)
    }


def _shown(stream: EventStream, rows: np.ndarray, history: np.ndarray | None, batch_size: int) -> Iterator[EventBatch]:
    """Yield what is shown before a split; for a model that holds nothing, nothing of it is made."""
    yield from event_batches(stream, np.arange(rows[0]) if history is None else history, batch_size=batch_size)


def _metrics(
    scored: LinkScores,
    strategy: str,
    protocol: str,
    bootstrap: int,
    seed: int,
    stream: EventStream,
    candidates: np.ndarray,
) -> dict[str, float]:
    """Return AP and ROC AUC, or those of ranks, with intervals where asked for."""
    if STRATEGIES[strategy].ranking:
        ranked = np.diff(scored.offsets) > 0  # alone, a positive would be first of one
        if not ranked.all():
            left = int((~ranked).sum())
            message = f"{left} of {len(ranked)} events have no negative to be ranked against; MRR leaves them out"
            warnings.warn(message, HopstateWarning, stacklevel=2)
        if not ranked.any():
            return {"mrr": float("nan")} | {f"hits@{k}": float("nan") for k in HITS}
        bounds = np.concatenate([[0], np.cumsum(np.diff(scored.offsets)[ranked])])
        own = (scored.rows[ranked], scored.positive[ranked], scored.negative, bounds, candidates)
        return ranking_metrics(stream, *own, bootstrap=bootstrap, seed=seed)
    if protocol == "dyglib":
        return _batch_means(scored)
    found = _areas(scored.positive, scored.negative)
    if bootstrap:
        areas = bootstrap_areas(scored.positive, scored.negative, scored.offsets, repeats=bootstrap, seed=seed)
        found |= limits_of(areas)
    return found


def _batch_means(scored: LinkScores) -> dict[str, float]:
    """Return AP and ROC AUC of each batch of 200 positives, averaged."""
    values = []
    for a in range(0, len(scored.positive), _DYGLIB_BATCH):
        b = min(a + _DYGLIB_BATCH, len(scored.positive))
        own = scored.positive[a:b], scored.negative[scored.offsets[a] : scored.offsets[b]]
        values.append(_areas(*own))
    return {name: float(np.mean([value[name] for value in values])) for name in ("average_precision", "roc_auc")}


def _areas(positive: np.ndarray, negative: np.ndarray) -> dict[str, float]:
    return {
        "average_precision": average_precision_of(positive, negative),
        "roc_auc": roc_auc_of(positive, negative),
    }
