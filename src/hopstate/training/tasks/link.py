"""Dynamic link prediction as a `Task`.

Training follows an `EventSource`: training events in time order, each with negative samples, and neighbor queries that
see only training events. `evaluation.link` evaluates.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal, get_args

import numpy as np

from hopstate.data.dates import Clock
from hopstate.data.events import EventStream
from hopstate.data.splits import EVENT_SPLITS
from hopstate.errors import ConfigError, check_range
from hopstate.evaluation import summaries
from hopstate.evaluation.calibration import IsotonicCurve
from hopstate.evaluation.link import (
    LinkProtocol,
    LinkReport,
    LinkScores,
    link_negatives,
    link_report,
    score_links,
    score_split,
)
from hopstate.evaluation.metrics import average_precision, mean_over_kinds, roc_auc
from hopstate.sampling.event_batches import parse_count
from hopstate.sampling.negatives import (
    DEFAULT_STRATEGIES,
    STRATEGIES,
    Negatives,
    draw_negatives,
    metric_name,
    strategy_of,
)
from hopstate.streaming.protocols import LinkScorer, Scores
from hopstate.streaming.replay import replay_split
from hopstate.training.tasks.events import EventSource, EventTask, Untrained, events_to_score, to_user_ids


@dataclass(frozen=True, kw_only=True)
class LinkEvaluation:
    """Evaluation settings for link prediction.

    Args:
        protocol: "pooled" computes metrics over all scores of a split, "dyglib" averages them over batches of 200.
        strategies: negative-sampling strategies for testing: random, historical, inductive and ranking. "ranking" ranks
            each event among candidates (MRR, Hits@k, NDCG@10, Recall@10), also separately for repeat and new pairs.
        num_negatives: candidates for "ranking"; "all" ranks among every destination, as TGB does for tgbl-wiki.
        bootstrap: resamples for confidence intervals of the test split; 0 computes none.
        batch_size: events scored before the model sees them. Node classification uses the run's batch_size instead.
        select_by: validation metric for model selection: AP with the "first" strategy, or the "mean" AP over all
            strategies except ranking, for all events and events with new nodes. The mean gives less weight to
            strategies with fewer than 500 events and counts equal sets of negatives once.
        max_events: maximum evaluated events per split. Larger splits are sampled in batches of 200 with a fixed seed.
            "all" evaluates every event.
    """

    protocol: LinkProtocol = "pooled"
    strategies: tuple[str, ...] = DEFAULT_STRATEGIES
    num_negatives: int | Literal["all"] = 100
    bootstrap: int = 0
    batch_size: int = 200
    select_by: Literal["first", "mean"] = "first"
    max_events: int | Literal["all"] = 1_000_000

    def __post_init__(self) -> None:
        if self.select_by not in ("first", "mean"):
            raise ConfigError(f"evaluation.select_by is 'first' or 'mean'; got {self.select_by!r}")
        if not self.strategies:
            raise ConfigError("evaluation.strategies must name at least one kind of negatives, e.g. random")
        ranking = [strategy_of(name).ranking for name in self.strategies]
        if self.select_by == "mean" and all(ranking):
            raise ConfigError(
                "evaluation.select_by=mean needs random, historical or inductive in evaluation.strategies"
            )
        if self.protocol not in get_args(LinkProtocol):
            raise ConfigError(f"evaluation.protocol is 'pooled' or 'dyglib'; got {self.protocol!r}")
        parse_count("evaluation.num_negatives", self.num_negatives)
        parse_count("evaluation.max_events", self.max_events)
        check_range("evaluation.", minimum=1, batch_size=self.batch_size)
        check_range("evaluation.", minimum=0, bootstrap=self.bootstrap)

    @property
    def event_limit(self) -> int | None:
        """Maximum number of evaluated events per split, or None."""
        return parse_count("evaluation.max_events", self.max_events)

    @property
    def selection_strategies(self) -> tuple[str, ...]:
        """Negative-sampling strategies used for model selection on validation."""
        return (
            self.strategies[:1]
            if self.select_by == "first"
            else tuple(s for s in self.strategies if not STRATEGIES[s].ranking)
        )


AllScores = Mapping[tuple[str, str], LinkScores]


class LinkTask(EventTask[LinkScorer]):
    """Dynamic link prediction: the probability that two nodes interact, given the event history.

    Args:
        source: source of the batches and scorers.
        evaluation: protocol, negatives and confidence intervals.
        negatives: precomputed negatives by (split, strategy). Missing ones are drawn with the protocol's seeds.
        clock: time normalization of the model's inputs, stored with the run.
    """

    def __init__(
        self,
        source: EventSource[LinkScorer],
        *,
        evaluation: LinkEvaluation,
        negatives: Mapping[tuple[str, str], Negatives] | None = None,
        clock: Clock | None = None,
    ) -> None:
        super().__init__(source, clock=clock)
        self.evaluation, self.negatives = evaluation, dict(negatives or {})
        split, first = source.split, evaluation.strategies[0]
        self.metric = metric_name("mrr" if STRATEGIES[first].ranking else "average_precision", first, new_nodes=False)
        if evaluation.select_by == "mean":
            self.metric = "mean_average_precision"
        self.curve: IsotonicCurve | None = None  # fitted to the latest validation scores
        # scoring all training events would be slow: evaluate only the latest ones
        count = len(split.val) if evaluation.event_limit is None else min(len(split.val), evaluation.event_limit)
        self._recent = replace(split, train=split.train[-count:])

    @property
    def train_share(self) -> float:
        """Fraction of the training events that is evaluated; the latest ones are used."""
        return len(self._recent.train) / max(1, len(self.split.train))

    def report(self, split: Literal["val", "test"]) -> LinkReport:
        """Return the metric table of a split: all strategies on test, those for model selection on validation."""
        e = self.evaluation
        strategies = e.strategies if split == "test" else e.selection_strategies
        chosen = self._drawn(split, strategies)
        calibration = self._random if split == "val" and summaries.KEY not in chosen else {}
        scores = self._scored(self.scorer(split), split, calibration | chosen)
        bootstrap = e.bootstrap if split == "test" else 0
        measured = {key: scores[key] for key in chosen}
        report = link_report(measured, chosen, self.stream, protocol=e.protocol, bootstrap=bootstrap)
        if split == "val":
            self.curve = summaries.validation_curve(scores[summaries.KEY]) if summaries.KEY in scores else None
        else:
            self.curves = summaries.link_curves(report, split, self.curve)
        return report

    def _drawn(self, split: str, strategies: tuple[str, ...]) -> dict[tuple[str, str], Negatives]:
        e = self.evaluation
        known = {k: v for k, v in self.negatives.items() if k[0].endswith(split) and k[1] in strategies}
        return link_negatives(self.stream, self.split, split, strategies, e.num_negatives, 0, known, e.event_limit)

    @cached_property
    def _random(self) -> dict[tuple[str, str], Negatives]:
        """Random negatives for the validation events that the calibration curve uses; empty without validation."""
        split, strategy = summaries.KEY
        drawn = self._drawn(split, (strategy,))
        return {summaries.KEY: summaries.calibration_negatives(drawn[summaries.KEY])} if summaries.KEY in drawn else {}

    def calibration_curve(self) -> IsotonicCurve | None:
        """Score only the calibration events of validation and return their curve, or None without any."""
        if not self._random:
            return None
        own = self._scored(self.scorer("val"), "val", self._random, protocol="pooled")
        return summaries.validation_curve(own[summaries.KEY])

    def _scored(
        self,
        scorer: LinkScorer,
        split: str,
        drawn: Mapping[tuple[str, str], Negatives],
        protocol: LinkProtocol | None = None,
    ) -> AllScores:
        e = self.evaluation
        data = (self.stream, self.split, split, drawn)
        return score_links(scorer, *data, protocol=protocol or e.protocol, batch_size=e.batch_size)

    def evaluate(self, split: str) -> dict[str, float]:
        """Return the metrics of a split: "average_precision", "historical_average_precision" and so on.

        The prefix "new_" marks metrics of events with new nodes. "num_events" and "new_num_events" are
        numbers of evaluated events.

        Validation also has "loss", the mean of `LinkScores.loss` over its sets of negatives. It breaks ties between
        epochs with equal metrics.

        "train" uses the latest training events, as many as validation has (at most `max_events`), with random
        negatives.
        """
        if split == "train":
            negatives = draw_negatives(self.stream, self._recent, "train", batch_size=self.evaluation.batch_size)
            rows = self._recent.train
            before = self.split.train[: -len(rows)]
            drawn = {("train", "random"): negatives}
            size = self.evaluation.batch_size
            scored = score_split(self.scorer(split), self.stream, rows, drawn, history=before, batch_size=size)
            labels, scores = scored["train", "random"].pooled()
            areas = {"average_precision": average_precision(labels, scores), "roc_auc": roc_auc(labels, scores)}
            return areas | {"num_events": len(rows)}
        if split not in ("val", "test"):
            raise ConfigError(f"links are evaluated on train, val or test, not {split!r}")
        table = self.report("val" if split == "val" else "test")
        metrics = self._metrics(table)
        if split == "val" and not isinstance(
            self.source, Untrained
        ):  # scores of untrained models are not probabilities
            metrics["loss"] = float(np.mean([scored.loss() for scored in table.scores.values()]))
        return metrics

    def _metrics(self, report: LinkReport) -> dict[str, float]:
        """Return a table's metrics by name, and their mean if it selects the model."""
        metrics: dict[str, float] = {}
        for row in report.rows:
            names = [name for name in row if name not in ("split", "setting", "strategy", "num_events")]
            new = row["setting"] == "inductive"
            for name in names:
                value = row[name] if isinstance(row[name], int) else float(row[name])
                metrics[metric_name(name, row["strategy"], new_nodes=new)] = value
            metrics["new_num_events" if new else "num_events"] = row["num_events"]
        if self.evaluation.select_by == "mean":
            binary_rows = [row for row in report.rows if "average_precision" in row]
            binary_rows = [row for row in binary_rows if (row["split"], row["strategy"]) in report.distinct]
            kinds = [row["average_precision"] for row in binary_rows], [row["num_events"] for row in binary_rows]
            metrics["mean_average_precision"] = mean_over_kinds(*kinds)
        return metrics

    def predict(self, split: str) -> dict[str, np.ndarray]:
        """Return columns row, src, dst, t and score of the events of a split or of "all".

        Deletions are omitted. Scores of a split are those of its pooled evaluation. Events with new nodes are scored
        while replaying their whole split.
        """
        if split != "all" and split not in EVENT_SPLITS:
            raise ConfigError(f"unknown split {split!r}; known: {', '.join([*EVENT_SPLITS, 'all'])}")
        stream, scorer = self.stream, self.scorer(split)
        events, rows = events_to_score(stream, self.split, split)
        events = stream.additions(events)
        scores = replay_split(
            scorer,
            lambda at: scorer.score(*stream.pairs(at)),
            stream,
            events,
            rows=rows,
            batch_size=self.evaluation.batch_size,
        )
        return self.score_columns(stream, events, scores)

    # ---- streaming --------------------------------------------------------------------------------------
    @property
    def live_batch(self) -> int:
        return self.evaluation.batch_size

    def score_events(self, follower: LinkScorer, *queries: np.ndarray) -> Scores:
        return follower.score(*queries)

    def rows_to_score(self, new: EventStream) -> np.ndarray:
        return new.additions()

    def score_columns(self, new: EventStream, rows: np.ndarray, scores: np.ndarray) -> dict[str, np.ndarray]:
        return {"row": new.in_file(rows)} | to_user_ids(new, rows) | {"score": scores}
