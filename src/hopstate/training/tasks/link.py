"""Dynamic link prediction as a `Task`: past events in, the probability that two nodes meet out.

Training goes through the training events in time order, pairs that did not meet beside each (`sampling.mixture`; by
default one random pair), redrawn every epoch from (seed, epoch); look-ups see training events alone. Evaluation is
`evaluation.link`'s.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from typing import Any, Literal, get_args

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from hopstate.data.clock import Clock
from hopstate.data.event_splits import PARTS, EventSplit
from hopstate.data.events import EventStream
from hopstate.data.past import Past
from hopstate.errors import ConfigError, nearest
from hopstate.evaluation.link import LinkProtocol, LinkReport, LinkScorer, evaluate_link, score_part
from hopstate.evaluation.metrics import average_precision, roc_auc
from hopstate.random import named_rng
from hopstate.sampling.mixture import MixedNegatives, TrainingNegatives
from hopstate.sampling.negative_sets import Negatives
from hopstate.sampling.negatives import STRATEGIES, draw_negatives, random_destinations
from hopstate.sampling.prefetch import Prefetcher
from hopstate.streaming.history_scorer import HistoryScorer, PairTokenizer
from hopstate.streaming.protocols import HistoryModel, LinkFollower, LooksUp, Scores
from hopstate.streaming.replay import replay_part
from hopstate.tokens.history import HistoryTokens
from hopstate.training.tasks.protocols import Parts


@dataclass(frozen=True, kw_only=True)
class LinkEvaluation:
    """How links are evaluated.

    Args:
        protocol: "pooled" over a part's scores, or "dyglib", averaged over batches of 200.
        strategies: negatives of the test part, of random, historical, inductive and many; validation uses the first.
        num_negatives: of "many"; "all" takes every destination, as TGB does for tgbl-wiki (it takes 20 for tgbl-coin).
        bootstrap: resamples for confidence intervals of the test part; 0 gives none.
        batch_size: events scored together.
    """

    protocol: LinkProtocol = "pooled"
    strategies: tuple[str, ...] = STRATEGIES
    num_negatives: int | Literal["all"] = 100
    bootstrap: int = 0
    batch_size: int = 200

    def __post_init__(self) -> None:
        if self.protocol not in get_args(LinkProtocol):
            raise ConfigError(f"evaluation.protocol is 'pooled' or 'dyglib'; got {self.protocol!r}")
        if not self.strategies:
            raise ConfigError("evaluation.strategies must name at least one kind of negatives, e.g. random")
        known = (*STRATEGIES, "many")
        for name in self.strategies:
            if name not in known:
                raise ConfigError(f"unknown negatives {name!r}{nearest(name, known)}; known: {', '.join(known)}")
        count = 1 if self.num_negatives == "all" else self.num_negatives
        if isinstance(count, str) or min(count, self.batch_size, self.bootstrap + 1) < 1:
            raise ConfigError(
                "evaluation.num_negatives (or 'all') and batch_size must be at least 1, bootstrap at least 0"
            )


class LinkTask:
    """Shared half of the link tasks: evaluation and prediction from a scorer.

    Args:
        model: what the loop trains.
        stream, split: the data.
        evaluation: protocol, negatives, intervals.
        negatives: drawn before, by (part, strategy); the others are drawn from their protocol's seeds.
    """

    mode: Literal["max", "min"] = "max"
    calibrated = False  # scores are probabilities as training has fitted them
    clock: Clock | None = None  # of the gaps that the model sees, kept with the run

    def __init__(
        self,
        model: nn.Module,
        stream: EventStream,
        split: EventSplit,
        *,
        evaluation: LinkEvaluation,
        negatives: Mapping[tuple[str, str], Negatives] | None = None,
    ) -> None:
        self.model, self.stream, self.split, self.evaluation = model, stream, split, evaluation
        self.negatives = dict(negatives or {})
        first = evaluation.strategies[0]
        self.metric = _column({"setting": "transductive", "strategy": first}, "mrr" if first == "many" else "ap")
        # scoring all of training would cost as much as a good part of an epoch: its latest events stand for it
        self._recent = replace(split, train=split.train[-len(split.val) :])

    def scorer(self, part: str) -> LinkScorer:
        """Return the scorer for a part's events."""
        raise NotImplementedError

    def scorer_over(self, stream: EventStream) -> LinkScorer:
        """Return the same model as a scorer over another stream of the same nodes and features."""
        raise NotImplementedError

    def report(self, part: Literal["val", "test"]) -> LinkReport:
        """Return the whole table of a part: every strategy on test, the first on validation."""
        e = self.evaluation
        strategies = e.strategies if part == "test" else e.strategies[:1]
        return evaluate_link(
            self.scorer(part),
            self.stream,
            self.split,
            part,
            strategies=strategies,
            protocol=e.protocol,
            batch_size=e.batch_size,
            num_negatives=e.num_negatives,
            bootstrap=e.bootstrap if part == "test" else 0,
            negatives={k: v for k, v in self.negatives.items() if k[0].endswith(part) and k[1] in strategies},
        )

    def evaluate(self, split: str) -> dict[str, float]:
        """Return metrics: "ap", "historical_ap", ..., and "new_ap", ... of the events with new nodes.

        "train" is measured pooled on its latest events, as many as validation has, with random negatives.
        """
        if split == "train":
            negatives = draw_negatives(self.stream, self._recent, "train", batch_size=self.evaluation.batch_size)
            rows = self._recent.train
            before = self.split.train[: -len(rows)]
            drawn = {("train", "random"): negatives}
            size = self.evaluation.batch_size
            held = score_part(self.scorer(split), self.stream, rows, drawn, history=before, batch_size=size)
            labels, scores = held["train", "random"].pooled()
            return {"ap": average_precision(labels, scores), "auc": roc_auc(labels, scores)}
        if split not in ("val", "test"):
            raise ConfigError(f"links are evaluated on train, val or test, not {split!r}")
        found: dict[str, float] = {}
        for row in self.report("val" if split == "val" else "test").rows:
            names = [name for name in row if name not in ("part", "setting", "strategy", "events")]
            found |= {_column(row, name): float(row[name]) for name in names}
        return found

    def predict(self, split: str) -> dict[str, Any]:
        """Return columns src, dst, t, score of the events of a part, or of "all", each scored from what came before.

        Deletions are not asked for: they have no row. Scores of a part are those behind its pooled evaluation, events
        with new nodes scored amid their part.
        """
        if split != "all" and split not in PARTS:
            raise ConfigError(f"unknown part {split!r}; known: {', '.join([*PARTS, 'all'])}")
        stream, scorer = self.stream, self.scorer(split)
        asked, rows = events_to_score(stream, self.split, split)
        asked = stream.additions(asked)
        scores = replay_part(
            scorer,
            lambda at: scorer.score(stream.src[at], stream.dst[at], stream.t[at]),
            stream,
            asked,
            rows=rows,
            batch_size=self.evaluation.batch_size,
        )
        return to_user_ids(stream, asked) | {"score": scores}

    @property
    def live_batch(self) -> int:
        """Events of a batch where the model goes on over new ones."""
        return self.evaluation.batch_size

    @property
    def feature_dims(self) -> tuple[int, int]:
        """Features of a node and of an event that the model takes."""
        return 0, 0

    def follow(self, past: Past) -> LinkFollower:
        """Return the model over a past."""
        raise NotImplementedError

    def ask(self, follower: LinkFollower, src: np.ndarray, dst: np.ndarray, t: np.ndarray) -> Scores:
        """Return (Q,) scores of pairs."""
        return follower.score(src, dst, t)

    def asked(self, new: EventStream) -> np.ndarray:
        """Return the positions of the events that are scored; a deletion is none."""
        return new.additions()

    def answer(self, new: EventStream, rows: np.ndarray, scores: np.ndarray) -> dict[str, Any]:
        """Return columns src, dst, t and score of events at rows."""
        return to_user_ids(new, rows) | {"score": scores}

    def state(self) -> dict[str, Tensor]:
        """Nothing beyond the model."""
        return {}

    def load_state(self, state: dict[str, Tensor]) -> None:
        """Nothing to take back."""


class ScorerLinkTask(LinkTask):
    """Evaluation of a scorer that has nothing to train.

    Args:
        scorer: stream → the model over it.
        rest: stream, split, evaluation, negatives.
    """

    def __init__(
        self, scorer: Callable[[EventStream], LooksUp], stream: EventStream, split: EventSplit, **rest: Any
    ) -> None:
        super().__init__(nn.Module(), stream, split, **rest)
        self._make, self._scorer = scorer, scorer(stream)

    def scorer(self, part: str) -> LinkScorer:
        """Return the scorer."""
        return self._scorer

    def scorer_over(self, stream: EventStream) -> LinkScorer:
        """Return the scorer over another stream."""
        return self._make(stream)

    def follow(self, past: Past) -> LinkFollower:
        """Return the scorer over a past."""
        return self._scorer.over(past)

    def num_batches(self, epoch: int) -> int:
        """Return 0."""
        return 0

    def batches(self, epoch: int, start: int = 0) -> Iterator[Any]:
        """Yield nothing."""
        return iter(())

    def loss(self, batch: Any) -> Tensor:
        """Return zero."""
        return torch.zeros(())


class HistoryLinkTask(LinkTask):
    """Training of a model that is fed past events.

    Args:
        model: input of P pairs → (P,) logits.
        stream, split: the data.
        train_inputs: tokenizer over the training events alone.
        inputs: stream → tokenizer over all of it, for evaluation.
        batch_size: training events a step.
        seed: fixes the negatives of training.
        mixture: what stands beside the events in training; None is one random pair each.
        prefetch: prepare the next batch in a background thread.
        pairs_at_once: pairs computed together, to bound memory; a step's gradient is the whole batch's all the same.
            None computes all at once.
        tokens_at_once: pairs that hold more tokens than this are cut once more, evenly; None does not look.
        rest: evaluation, negatives.

    Raises:
        ConfigError: batch_size, pairs_at_once or tokens_at_once under 1.
    """

    def __init__(
        self,
        model: HistoryModel,
        stream: EventStream,
        split: EventSplit,
        *,
        train_inputs: PairTokenizer,
        inputs: Callable[[EventStream], PairTokenizer],
        batch_size: int = 200,
        seed: int = 0,
        mixture: TrainingNegatives | None = None,
        prefetch: bool = True,
        pairs_at_once: int | None = None,
        tokens_at_once: int | None = None,
        **rest: Any,
    ) -> None:
        super().__init__(model, stream, split, **rest)
        sizes = (batch_size, pairs_at_once, tokens_at_once)
        if min(size for size in sizes if size is not None) < 1:
            raise ConfigError(
                "batch_size, pairs_at_once and tokens_at_once must be at least 1; got {}, {}, {}".format(*sizes)
            )
        self._dims, self.pairs_at_once, self.tokens_at_once = model.feature_dims, pairs_at_once, tokens_at_once
        self.train_inputs, self.inputs, self._make = train_inputs, inputs(stream), inputs
        self.batch_size, self.seed, self.prefetch = batch_size, seed, prefetch
        self._rows = stream.additions(split.train)
        self.mixture = mixture or TrainingNegatives()
        self._drawn = EpochNegatives(stream, self._rows, batch_size, seed, self.mixture)

    def num_batches(self, epoch: int) -> int:
        """Return how many batches hold the training events."""
        return -(-len(self._rows) // self.batch_size)

    def batches(self, epoch: int, start: int = 0) -> Iterator[Parts]:
        """Yield parts (input, labels, pairs of the batch): events in time order, negatives from (seed, epoch)."""
        made = self._batches(epoch, start)
        yield from Prefetcher(made) if self.prefetch else made

    def _batches(self, epoch: int, start: int) -> Iterator[Parts]:
        rows, stream = self._rows, self.stream
        drawn = self._drawn.of(epoch)
        for first in range(start * self.batch_size, len(rows), self.batch_size):
            part = slice(first, first + self.batch_size)
            src, dst, t = stream.src[rows[part]], stream.dst[rows[part]], stream.t[rows[part]]
            yield self._parts(*beside(src, dst, t, drawn[0][part], drawn[1][part], self.mixture.group))

    def _parts(self, u: np.ndarray, v: np.ndarray, t: np.ndarray, labels: Tensor) -> Parts:
        group, found = self.mixture.group, []
        size = max(group, (self.pairs_at_once or len(u)) // group * group)
        for first in range(0, len(u), size):
            p = slice(first, first + size)
            for tokens, q in even_parts(self.train_inputs, u[p], v[p], t[p], self.tokens_at_once, group):
                found.append((tokens, labels[p][q], len(labels)))
        return Parts(found)

    def loss(self, batch: tuple[Any, Tensor, int]) -> Tensor:
        """Return the part's share of the batch's mean cross-entropy."""
        inputs, labels, count = batch
        return link_loss(self.model(inputs), labels, self.mixture.group) / (count // self.mixture.group)

    @property
    def feature_dims(self) -> tuple[int, int]:
        """Features of a node and of an event that the model takes, without the mark of a deletion."""
        return self._dims[0], self._dims[1] - self.inputs.marked

    def scorer(self, part: str) -> HistoryScorer:
        """Return the model over the training events for "train", else over the whole stream."""
        return self._scorer(self.train_inputs if part == "train" else self.inputs)

    def scorer_over(self, stream: EventStream) -> HistoryScorer:
        """Return the model over another stream."""
        return self._scorer(self._make(stream))

    def follow(self, past: Past) -> HistoryScorer:
        """Return the model over a past."""
        return self._scorer(self.inputs.over(past))

    def scorer_with(self, store: Any) -> HistoryScorer:
        """Return the model over other histories of the same stream: what has a `NeighborStore`'s look-ups."""
        inputs = self._make(self.stream)
        inputs.store = store
        return self._scorer(inputs)

    def _scorer(self, inputs: PairTokenizer) -> HistoryScorer:
        return HistoryScorer(self.model, inputs, max_queries=min(512, self.pairs_at_once or 512))


def even_parts(
    inputs: PairTokenizer, u: np.ndarray, v: np.ndarray, t: np.ndarray, most: int | None, group: int = 1
) -> Iterator[tuple[Any, slice]]:
    """Yield the input of P pairs and which of them it holds, in parts of about equally many tokens, at most `most`.

    A part may hold up to one pair's tokens more (one group's, of pairs that are told apart together), and none is ever
    cut. None, or few tokens, gives one part.
    """
    tokens = inputs.pairs(u, v, t)
    if most is None or not isinstance(tokens, HistoryTokens) or len(tokens.nodes) <= most:
        yield tokens, slice(0, len(u))
        return
    until = tokens.lengths.view(2, -1).sum(0).cumsum(0).numpy()
    parts = -(-until[-1] // most)
    inner = np.searchsorted(until, until[-1] * np.arange(1, parts) / parts, side="right")
    for a, b in pairwise(np.unique([0, *(inner // group * group), len(u)]).tolist()):
        yield inputs.pairs(u[a:b], v[a:b], t[a:b]), slice(a, b)


def events_to_score(stream: EventStream, split: EventSplit, part: str) -> tuple[np.ndarray, np.ndarray]:
    """Return the positions of a part's events, or of "all", and those of the part that they are scored amid."""
    if part == "all":
        return np.arange(len(stream)), np.arange(len(stream))
    return split.rows(part), split.rows(part.removeprefix("new_"))


def to_user_ids(stream: EventStream, rows: np.ndarray) -> dict[str, np.ndarray]:
    """Return columns src, dst (the user's ids) and t of the events at rows."""
    src, dst, ids = stream.src[rows], stream.dst[rows], stream.node_ids
    names = (src, dst) if ids is None else (ids.names(src), ids.names(dst))
    return {"src": names[0], "dst": names[1], "t": stream.t[rows]}


def training_negatives(stream: EventStream, rows: np.ndarray, batch_size: int, seed: int, epoch: int) -> np.ndarray:
    """Return (P,) a random destination for each event at rows (P,), drawn from (seed, epoch)."""
    draw = int(named_rng(seed, "negatives", epoch).integers(2**32))
    return random_destinations(stream.src[rows], stream.dst[rows], len(rows), batch_size, draw)


class EpochNegatives:
    """The pairs beside the training events, drawn anew from (seed, epoch).

    Args:
        stream: the events.
        rows: (P,) positions of the training events.
        batch_size: events a step, which random destinations are drawn by.
        seed: of the run.
        mixture: kinds and loss.
    """

    def __init__(
        self, stream: EventStream, rows: np.ndarray, batch_size: int, seed: int, mixture: TrainingNegatives
    ) -> None:
        self._of, self._config = (stream, rows, batch_size, seed), mixture

    @cached_property
    def _mixed(self) -> MixedNegatives:
        return MixedNegatives(*self._of[:2], self._config)

    def of(self, epoch: int) -> tuple[np.ndarray, np.ndarray]:
        """Return sources and destinations (P, K) of an epoch's pairs."""
        stream, rows, batch_size, seed = self._of
        random = [training_negatives(stream, rows, batch_size, seed, epoch)]
        for k in range(1, self._config.candidates):
            draw = int(named_rng(seed, "negatives", epoch, k).integers(2**32))
            random.append(random_destinations(stream.src[rows], stream.dst[rows], len(rows), batch_size, draw))
        return self._mixed.draw(np.stack(random, 1), int(named_rng(seed, "mixture", epoch).integers(2**32)))


def beside(
    src: np.ndarray, dst: np.ndarray, t: np.ndarray, others_src: np.ndarray, others_dst: np.ndarray, group: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray, Tensor]:
    """Return ends, times and labels of events (B,) and of the pairs beside them (B, K).

    Args:
        src, dst, t: the events.
        others_src, others_dst: the pairs.
        group: 1 puts all events first, then all pairs; else each event stands before its own K = group - 1.
    """
    width = 1 + others_src.shape[1]
    columns = [np.concatenate([own[:, None], other], 1) for own, other in ((src, others_src), (dst, others_dst))]
    columns.append(np.repeat(t[:, None], width, 1))
    labels = np.zeros((len(src), width), np.float32)
    labels[:, 0] = 1
    order: Literal["F", "C"] = "F" if group == 1 else "C"
    u, v, when = (column.flatten(order) for column in columns)
    return u, v, when, torch.from_numpy(labels.flatten(order))


def link_loss(logits: Tensor, labels: Tensor, group: int) -> Tensor:
    """Return the summed cross-entropy of logits (Q,): binary where group is 1, else of each event among its group.

    Args:
        labels: (Q,) 1 of events, 0 of pairs that did not meet.
        group: rows that are told apart together, the event first.
    """
    if group == 1:
        return F.binary_cross_entropy_with_logits(logits, labels.to(logits.dtype), reduction="sum")
    return -logits.view(-1, group).log_softmax(1)[:, 0].sum()


def _column(row: Mapping[str, Any], metric: str) -> str:
    """Name a metric of a report's row: "ap" of random negatives, "historical_ap"; "new_..." for new nodes."""
    strategy = "" if row["strategy"] == "random" else f"{row['strategy']}_"
    return f"{'new_' if row['setting'] == 'inductive' else ''}{strategy}{metric}"
