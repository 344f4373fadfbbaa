"""What the methods for links in time share: configurations, the negatives of a run, histories, the task of a model."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from copy import copy
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Generic, Literal, TypeVar

import numpy as np
import torch

from hopstate.data.dates import Clock, GapUnit
from hopstate.data.events import EventStream, Ties, as_slice, is_prefix
from hopstate.data.neighbor_store import Histories, NeighborStore, NeighborView, folder_of
from hopstate.data.splits import EventSplit, chronological_split, dyglib_split, split_at, split_windows
from hopstate.data.stream_state import StreamState
from hopstate.errors import ConfigError, check_range, refuse_idle
from hopstate.io.scratch import release_pages
from hopstate.layers.decoders import PairHistory
from hopstate.methods.method import Context, Floors, Method, RunConfig, Space
from hopstate.methods.shared.programs import ExportSpec
from hopstate.random import named_rng
from hopstate.sampling.event_batches import epoch_batches, judged, number_or_all
from hopstate.sampling.negatives import (
    STRATEGIES,
    HowDrawn,
    Negatives,
    NoOtherPairError,
    TrainingNegatives,
    load_or_draw,
)
from hopstate.streaming.history_scorer import Input, PairTokenizer, TokenizerT
from hopstate.streaming.protocols import HistoryModel
from hopstate.tokens.history import Deletions
from hopstate.tokens.pair_features import PairFeatures
from hopstate.training.config import LoopConfig, OptimConfig
from hopstate.training.progress import note
from hopstate.training.tasks.events import HistoryPairs
from hopstate.training.tasks.link import LinkEvaluation, LinkTask

_NONE = np.empty(0, np.int64)


@dataclass(frozen=True, kw_only=True)
class EventReadOptions:
    """How a user's file of events is read; see `hopstate.data.readers.read_events.read_events`.

    Args:
        format: "auto" goes by content and name; else one of the formats that `hopstate datasets` names.
        header: whether the first line of a text holds names of columns; null goes by what stands in it.
        separator: of the cells of a text: a sign such as ";", or tab, or space; null finds it.
        time_format: of dates that are not ISO, as strptime has it, such as "%d.%m.%Y %H:%M".
        source_column, target_column, time_column: columns of a table; null takes the usual names.
        kind_column: "add" or "delete" for each event, "delete-node" with an empty target where the source is deleted;
            null takes the usual names.
        label_column: class or amount of the source at each event, or several of them as "a,b"; null takes the usual
            names.
        task: what labels are: classes ("classification", as which "auto" stands too) or amounts ("regression").
        unlabelled: the value of a label that stands for "no label", "none" where there is none; null asks about -1.
        label_cells: of texts such as "a;b": "whole" is a class of that name, "all" takes each label as a target.
        positive_class: the positive one of two classes, which roc_auc and average_precision are of; null takes 1, true
            or yes, otherwise the rarer class of the training events.
        edge_columns: columns of event features; null takes the usual names.
        columns: what columns of event features hold, where it is not as it looks: '[venue=category, when=date]';
            number, category, date (ISO, or date:FORMAT as strptime has it) or drop. What is named is a feature.
        x: .npy file of node features.
        num_nodes: ids are then rows 0..num_nodes-1; null finds them.
        bipartite: sources and targets are two sets of nodes, of which 7 and 7 are two: "true" writes u7 and i7, "false"
            makes them one; "auto" goes by names of columns (user and item are two sets, source and target one).
        text_ids: take ids as they are written: 5746.10 and 5746.1 are two then, and so are 7 and 7.0.
        time_unit: s, ms, us or ns since 1970, for splits by date; null takes what the file says.
        scale: "standard" (mean and deviation), "robust" (median and quartiles) or "none", for features, fitted to the
            training events; "auto" takes none for published data sets, standard for all else.
        missing: numbers missing among event features: "error" names them; "mean" or "median" of the training events,
            or "zero", with a further column that marks them; "auto" takes the mean, and names infinities.
        missing_time: "error" names events without a time and dates beyond nanoseconds; "drop" leaves them out.
        ties: order of events of one time: "file" as they stand there, or "sorted" by source, then destination, features
            and label, so that the order of rows of one time changes nothing; with deletions the order stays.
        max_bytes: most bytes to read of a file, unpacked where it is packed, e.g. 8GiB; null takes for packed files a
            hundred times their size, at least 256 MiB.
    """

    format: str = "auto"
    header: bool | None = None
    separator: str | None = None
    time_format: str | None = None
    source_column: str | None = None
    target_column: str | None = None
    time_column: str | None = None
    kind_column: str | None = None
    label_column: str | None = None
    task: Literal["auto", "classification", "regression"] = "classification"
    unlabelled: str | None = None
    label_cells: Literal["whole", "all"] = "whole"
    positive_class: str | None = None
    edge_columns: tuple[str, ...] | None = None
    columns: tuple[str, ...] | None = None
    x: str | None = None
    num_nodes: int | None = None
    bipartite: bool | Literal["auto"] = "auto"
    text_ids: bool = False
    time_unit: str | None = None
    scale: Literal["auto", "standard", "robust", "none"] = "auto"
    missing: Literal["auto", "error", "mean", "median", "zero"] = "auto"
    missing_time: Literal["error", "drop"] = "error"
    ties: Ties = "file"
    max_bytes: str | int | None = None


@dataclass(frozen=True, kw_only=True)
class LinkSplitConfig:
    """Which events are for training, validation and test.

    Args:
        kind: "chronological" by shares of the events, "dyglib" the same with new nodes taken out of training, "time" at
            two times, or "window": the last window before the stream's end for test, the one before it for validation.
        val_ratio, test_ratio: shares of validation and test.
        val_time, test_time: of "time": training ends at the first, validation at the second; numbers in the stream's
            unit, or dates such as 2024-03-01.
        window: of "window": a duration such as 1d, 7d or 12h, or a number in the stream's unit.
        new_ratio: of "dyglib": share of all nodes that training must not see.
        seed: of "dyglib": who they are.
    """

    kind: Literal["chronological", "dyglib", "time", "window"] = "chronological"
    val_ratio: float = 0.15
    test_ratio: float = 0.15
    val_time: float | str | None = None
    test_time: float | str | None = None
    window: float | str | None = None
    new_ratio: float = 0.1
    seed: int = 2020

    def __post_init__(self) -> None:
        if self.kind not in ("chronological", "dyglib", "time", "window"):
            raise ConfigError(f"split.kind is 'chronological', 'dyglib', 'time' or 'window'; got {self.kind!r}")
        if not (self.val_ratio > 0 and self.test_ratio > 0 and self.val_ratio + self.test_ratio < 1):
            raise ConfigError("split.val_ratio and split.test_ratio are positive shares that leave some for training")
        if self.kind == "time" and None in (self.val_time, self.test_time):
            raise ConfigError("split.kind=time needs split.val_time and split.test_time")
        if self.kind == "window" and self.window is None:
            raise ConfigError("split.kind=window needs split.window, a duration such as 7d")
        refuse_idle(self, window=self.kind != "window" and f"split.kind={self.kind} has none; give split.kind=window")
        undated = self.kind != "time" and f"split.kind={self.kind} goes by shares; give split.kind=time"
        refuse_idle(self, val_time=undated, test_time=undated)
        check_range("split.", least=0, below=1, new_ratio=self.new_ratio)

    def of(self, stream: EventStream) -> EventSplit:
        """Return the split of a stream; empty splits of one without events, which only stands for its facts.

        Raises:
            DataError: a split has no events.
        """
        if not len(stream):
            return EventSplit(train=_NONE, val=_NONE, test=_NONE)
        shares = {"val_ratio": self.val_ratio, "test_ratio": self.test_ratio}
        if self.kind == "time":
            return split_at(stream, self.val_time, self.test_time)
        if self.kind == "window":
            return split_windows(stream, self.window)
        if self.kind == "dyglib":
            return dyglib_split(stream, **shares, new_ratio=self.new_ratio, seed=self.seed)
        return chronological_split(stream, **shares)


def event_loop() -> LoopConfig:
    """Return how models of event streams are trained in the papers: Adam, 1e-4, 100 epochs, patience 20."""
    return LoopConfig(epochs=100, patience=20, optim=OptimConfig(name="adam", lr=1e-4, weight_decay=0.0))


@dataclass(frozen=True, kw_only=True)
class EventRun(RunConfig):
    """What the configurations of methods for event streams share.

    Args:
        read: how a file is read.
        split: which events are for training, validation and test.
        gap_unit: what a gap in time of 1 is: the "median" gap between training events, "seconds", or "raw", the file's
            own numbers.
    """

    read: EventReadOptions = field(default_factory=EventReadOptions)
    split: LinkSplitConfig = field(default_factory=LinkSplitConfig)
    gap_unit: GapUnit = "median"
    loop: LoopConfig = field(default_factory=event_loop)


@dataclass(frozen=True, kw_only=True)
class LinkRun(EventRun):
    """What the configurations of methods for links in time share.

    Args:
        evaluation: protocol and negatives.
    """

    evaluation: LinkEvaluation = field(default_factory=LinkEvaluation)


@dataclass(frozen=True, kw_only=True)
class LearnedLinkRun(LinkRun):
    """What the configurations of methods that learn from links share.

    Args:
        negatives: negative pairs of training.
        batch_size: events a step.
    """

    negatives: TrainingNegatives = field(default_factory=TrainingNegatives)
    batch_size: int = 200


@dataclass(frozen=True, kw_only=True)
class HistoryLinkRun(LearnedLinkRun):
    """What the configurations of models fed from histories share.

    Args:
        max_events: training events that an epoch takes at most; of more, whole batches spread over all of them, drawn
            anew for each epoch. "all" takes every event. Histories hold all of them either way.
        deletions: what histories make of them: "marked", tokens with a feature that says so; "left-out"; or "unmarked",
            tokens like any other.
    """

    max_events: int | Literal["all"] = 1_000_000
    deletions: Deletions = "marked"

    def __post_init__(self) -> None:
        check_range(least=1, batch_size=self.batch_size)
        number_or_all("max_events", self.max_events)

    @property
    def most(self) -> int | None:
        """Training events of an epoch at most, None for all."""
        return number_or_all("max_events", self.max_events)


def feature_dims(stream: EventStream, context: Context) -> dict[str, int]:
    """Return how many features a node and an event have: those of the data that a model was trained on."""
    return dict((context.trained or {}).get("feature_dims") or stream.feature_dims)


def used_features(stream: EventStream, context: Context) -> dict[str, int]:
    """Return the same without features that are zero throughout."""
    return dict((context.trained or {}).get("used_features") or stream.used_features)


def history_task(
    stream: EventStream,
    config: HistoryLinkRun,
    context: Context,
    *,
    model: HistoryModel,
    tokenizer: Callable[[NeighborStore, EventStream, Clock, Deletions, type[np.floating]], PairTokenizer],
    microbatch_size: int | None = None,
    microbatch_tokens: int | None = None,
) -> LinkTask:
    """Return the task of training a model fed from histories; training looks training events up, evaluation all.

    Args:
        tokenizer: (store, stream, clock, deletions, type of gaps) → the model's tokenizer.
        microbatch_size, microbatch_tokens: pairs and tokens computed together in a training step; None for all.
    """
    split = config.split.of(stream)
    clock = clock_of(stream, split, config.gap_unit, context)
    marks = deletions_of(stream, config.deletions, context)
    head = next((layer for layer in model.modules() if isinstance(layer, PairHistory)), None)

    known = HistoryIndex(stream, deletions=marks != "left-out")

    def inputs(events: EventStream, rows: np.ndarray | None = None) -> PairTokenizer:
        store = known.histories(events, rows)
        own = tokenizer(store, events, clock, marks, config.loop.float_type)
        if head is None:
            return own
        met = known.meetings(events, rows) if own.deletions and events.has_deletes else store
        return PairHistoryTokenizer(own, pair_features(met, events, clock))

    train_inputs = inputs(stream, split.train)
    if head is not None and context.trained is None:
        assert isinstance(train_inputs, PairHistoryTokenizer)
        fit_scale(head, train_inputs.features, stream, split, config.loop.seed)
    source = HistoryPairs(
        model,
        stream,
        split,
        train_inputs=train_inputs,
        inputs=inputs,
        index=known.index,
        batch_size=config.batch_size,
        max_events=config.most,
        microbatch_size=microbatch_size,
        microbatch_tokens=microbatch_tokens,
        seed=config.loop.seed,
        mixture=config.negatives,
    )
    tell_epoch(len(stream.additions(split.train)), config, context)
    negatives = evaluation_negatives(stream, split, config, context)
    return LinkTask(source, evaluation=config.evaluation, negatives=negatives, clock=clock)


class HistoryIndex:
    """Histories of a stream, or of some of its events.

    Look-ups see earlier events alone, so that events at a mapped stream's beginning need no index of their own: there
    the whole stream's serves, and is built once. In memory training's holds nothing else than it may see.
    """

    def __init__(self, stream: EventStream, deletions: bool) -> None:
        self._stream, self._deletions = stream, deletions
        self._whole: NeighborStore | None = None

    def histories(self, events: EventStream, rows: np.ndarray | None) -> NeighborStore:
        """Return what tokens are of: of events, the stream's or another's, those at rows, None for all."""
        rows = _needed(events, rows)
        if rows is not None or events is not self._stream or folder_of(events) is None:
            return NeighborStore.from_stream(events, rows, deletions=self._deletions)
        if self._whole is None:
            self._whole = NeighborStore.from_stream(events, deletions=self._deletions)
        return self._whole

    def index(self) -> NeighborStore | None:
        """Return that of the whole stream where it is built and holds no deletions, as `NeighborStore.from_stream`."""
        return None if self._deletions and self._stream.has_deletes else self._whole

    def meetings(self, events: EventStream, rows: np.ndarray | None) -> NeighborStore:
        """Return the same without deletions."""
        return NeighborStore.from_stream(events, _needed(events, rows))


def _needed(events: EventStream, rows: np.ndarray | None) -> np.ndarray | None:
    return None if rows is not None and is_prefix(rows) and folder_of(events) is not None else rows


def clock_of(stream: EventStream, split: EventSplit, gap_unit: GapUnit, context: Context) -> Clock:
    """Return the clock that a model was trained with, else that of the training events."""
    kept = (context.trained or {}).get("clock")
    return Clock(**kept) if kept else Clock.fit(stream.t[as_slice(split.train)], stream.time_unit, gap_unit)


def deletions_of(stream: EventStream, deletions: Deletions, context: Context) -> Deletions:
    """Return what histories make of deletions: a model that was trained without any has no feature to mark them."""
    if deletions != "marked":
        return deletions
    had = (context.trained or {}).get("has_deletes", False) if context.trained is not None else stream.has_deletes
    return "marked" if had else "left-out"


def history_features(
    widths: dict[str, int], stream: EventStream, deletions: Deletions, context: Context
) -> dict[str, int]:
    """Return the widths of a model fed from histories: those of the features, and one for the mark of a deletion."""
    marked = deletions_of(stream, deletions, context) == "marked"
    return widths | {"edge_dim": widths["edge_dim"] + marked}


def evaluation_negatives(
    stream: EventStream, splits: EventSplit, config: LinkRun, context: Context
) -> dict[tuple[str, str], Negatives]:
    """Return the negatives that evaluation asks for, by (split, strategy), drawn once and kept with the run.

    How many events of a split are judged is noted for data.json where it is not all, and told when they are chosen.
    """
    evaluation, folder = config.evaluation, context.run / "negatives"
    wanted = [*(("val", s) for s in evaluation.choosing), *(("test", s) for s in evaluation.strategies)]
    wanted += [(f"new_{split}", strategy) for split, strategy in wanted]
    tell_judged(stream, splits, config, context)
    found = {}
    for split, strategy in wanted:
        if not len(stream.additions(splits.rows(split))):
            continue
        count = evaluation.num_negatives if STRATEGIES[strategy].ranking else ""
        path = folder / f"{split}_{strategy}{count}.npz"
        how: HowDrawn = {"num_negatives": evaluation.num_negatives, "most": evaluation.most}
        try:
            found[split, strategy] = load_or_draw(path, stream, splits, split, strategy, **how)
        except NoOtherPairError:
            if not split.startswith("new_"):
                raise
            if context.trained is None:
                which = {"new_val": "validation", "new_test": "test"}[split]
                note(config.loop, f"no {strategy} negatives of the {which} events with new nodes: left out")
    return found


LOOKED_AT = 20_000  # training events, evenly spread, that features are scaled by


class AroundTokenizer(Generic[TokenizerT]):
    """A tokenizer with another inside, whose events it has."""

    def __init__(self, inner: TokenizerT) -> None:
        self.inner = inner

    @property
    def deletions(self) -> bool:
        return self.inner.deletions

    @property
    def marked(self) -> bool:
        return self.inner.marked

    @property
    def store(self) -> Histories:
        """The histories that the inner tokens are looked up in."""
        return self.inner.store

    @store.setter
    def store(self, store: Histories) -> None:
        self.inner.store = store
        self.moved(store)

    def moved(self, store: Histories) -> None:
        """Follow the inner tokenizer to another store; there is nothing to do by default."""


def pair_features(store: Histories, stream: EventStream, clock: Clock) -> PairFeatures:
    """Return what a head reads of pairs: the features without those of events, which the model sees."""
    return PairFeatures(store, stream, clock, np.empty(0, np.int64))


class PairHistoryTokenizer(AroundTokenizer[PairTokenizer]):
    """A model's input, and what the pairs' own histories tell beside it.

    Args:
        inner: the model's tokenizer; its input has a field `pair`.
        features: of pairs, from the same events without deletions.
    """

    def __init__(self, inner: PairTokenizer, features: PairFeatures) -> None:
        super().__init__(inner)
        self.features = features

    def moved(self, store: Histories) -> None:
        # made-up look-ups have no histories to read, and of those with deletions the meetings alone count
        if isinstance(store, NeighborStore | NeighborView) and not self.inner.deletions:
            self.features.store = store

    def over(self, past: StreamState) -> PairHistoryTokenizer:
        made = copy(self)
        made.inner, made.features = self.inner.over(past), self.features.over(past)
        return made

    def pairs(self, u: np.ndarray, v: np.ndarray, t: np.ndarray) -> Input:
        """Return the input for scoring pairs u (P,), v (P,) at t (P,); errors as the model's own tokenizer."""
        found = self.inner.pairs(u, v, t)
        return found._replace(pair=torch.from_numpy(self.features.pairs(u, v, t)))  # type: ignore[attr-defined]


def fit_scale(head: PairHistory, features: PairFeatures, stream: EventStream, split: EventSplit, seed: int) -> None:
    """Give a head the scale of training pairs: events, and for each a random and a past pair at its time."""
    rows = stream.additions(split.train)
    if not len(rows):
        return
    at = np.unique(np.linspace(0, len(rows) - 1, min(len(rows), LOOKED_AT)).astype(np.int64))
    src, dst, t = (column[as_slice(rows)] for column in (stream.src, stream.dst, stream.t))
    rng = named_rng(seed, "pair-history")
    before = np.searchsorted(t, t[at])
    past = (rng.random(len(at)) * before).astype(np.int64)
    had = at[before > 0], past[before > 0]
    u = np.concatenate([src[at], src[at], src[had[1]]])
    v = np.concatenate([dst[at], dst[rng.integers(0, len(dst), len(at))], dst[had[1]]])
    head.fit(torch.from_numpy(features.pairs(u, v, np.concatenate([t[at], t[at], t[had[0]]]))))
    release_pages(src, dst, t)
    if isinstance(features.store, NeighborStore):
        features.store.release_pages()  # of a mapped index: queries from all over the stream have touched most of it


def tell_epoch(count: int, config: HistoryLinkRun, context: Context) -> None:
    """Tell how many of count training events an epoch takes where it is not all."""
    batches = len(epoch_batches(count, config.most, config.batch_size, config.loop.seed, 0))
    if batches * config.batch_size < count:
        taken = batches * config.batch_size
        context.noted["epoch_events"] = [taken, count]
        _tell(config.loop, context, f"an epoch takes {taken:,} of {count:,} training events, drawn anew for each", "")


def tell_judged(stream: EventStream, splits: EventSplit, config: LinkRun, context: Context) -> None:
    """Tell how many events of each split are judged where it is not all."""
    sizes = {name: len(stream.additions(splits.rows(name))) for name in ("val", "new_val", "test", "new_test")}
    some = {name: len(judged(np.arange(size), config.evaluation.most)) for name, size in sizes.items()}
    some = {name: count for name, count in some.items() if count < sizes[name]}
    if some:
        context.noted["judged_events"] = {name: [count, sizes[name]] for name, count in some.items()}
        told = ", ".join(f"{count:,} of {sizes[name]:,} of {name}" for name, count in some.items())
        _tell(config.loop, context, f"judged are {told}, spread over each", "evaluation.")


def _tell(loop: LoopConfig, context: Context, told: str, group: str) -> None:
    """Say once a run what it takes, and which setting takes all."""
    verb = "judges" if group else "takes"
    if not (context.run / "negatives").is_dir():
        note(loop, f"note: {told} ({group}max_events=all {verb} every event)")


# ---- automatic settings: they follow from the training events, and add no input and no layer that the paper lacks.
# Source: benchmarks/results/2026-11-21-ctdg-ssm.md (chosen on the validation splits of UCI and Enron),
# 2026-11-21-dyg-mamba.md and 2026-11-22-pair-history.md; the recipes keep the papers' settings.
ENOUGH = 40  # epochs of a small stream
HISTORICAL = 0.25  # share of training pairs that met before
SCHEDULE = ("loop.epochs", "loop.patience", "loop.optim.lr", "loop.optim.schedule", "loop.optim.warmup")
PAIRS = ("negatives.mixture.historical", "evaluation.choose")
SELDOM = 0.05  # share of repeated pairs among training events below which pairs do not meet again


def suit_epochs(events: int, budget: int) -> dict[str, Any]:
    """Return a schedule that ends when it ends: no patience, the rate falls to 0.

    budget is the number of training events, times epochs, that one core does in some minutes.
    """
    return {
        "loop.epochs": int(np.clip(budget // max(events, 1), 2, ENOUGH)),
        "loop.patience": None,
        "loop.optim.schedule": "cosine",
        "loop.optim.warmup": 0.05,
    }


def suit_judged(stream: EventStream, config: LinkRun, metrics: tuple[str, ...]) -> Mapping[str, Any]:
    """Return by what validation chooses: the mean over kinds of pairs, where there are several."""
    kinds = [name for name in config.evaluation.strategies if not STRATEGIES[name].ranking]
    return {"evaluation.choose": "mean"} if len(kinds) > 1 else {}


def suit_pairs(stream: EventStream, config: LearnedLinkRun, metrics: tuple[str, ...]) -> Mapping[str, Any]:
    """Return what a model learns pairs from and is chosen by; a user's own kinds of pairs stay as they are."""
    own = config.negatives != TrainingNegatives()
    again = not own and repeated(stream, config.split.of(stream).train) >= SELDOM
    mixed = {"negatives.mixture.historical": HISTORICAL} if again else {}
    return {**mixed, **suit_judged(stream, config, metrics)}


def repeated(stream: EventStream, rows: np.ndarray) -> float:
    """Return the share of the events at rows that add an edge between two nodes that one of them joined before."""
    part = as_slice(stream.additions(rows))
    pairs = stream.src[part] * stream.num_nodes
    pairs += stream.dst[part]
    pairs.sort()  # in place: of very many events there is room for no second copy
    return float(np.count_nonzero(pairs[1:] == pairs[:-1])) / max(len(pairs), 1)


def suit_history(
    stream: EventStream, config: HistoryLinkRun, metrics: tuple[str, ...], *, budget: int
) -> Mapping[str, Any]:
    """Return settings of a model fed from histories that suit a stream; budget as of `suit_epochs`."""
    events = len(stream.additions(config.split.of(stream).train))
    batch = int(np.clip(events // 50, 20, 200))
    own = suit_pairs(stream, config, metrics)
    an_epoch = events if config.most is None else min(events, config.most)
    return {"batch_size": batch, "loop.optim.lr": 3e-4, **own, **suit_epochs(an_epoch, budget)}


HistoryRunT = TypeVar("HistoryRunT", bound=HistoryLinkRun)


def history_method(
    name: str,
    config: type[HistoryRunT],
    build: Callable[[EventStream, HistoryRunT, Context], LinkTask],
    *,
    summary: str,
    source: str,
    budget: int,
    floors: Callable[[EventStream, HistoryRunT, Context, LinkTask], Floors] | None = None,
    space: Space | None = None,
    export: Callable[[LinkTask], ExportSpec] | str = "",
) -> Method[EventStream, HistoryRunT, LinkTask]:
    """Return a method of links from histories; see `Method`, and `suit_epochs` for budget."""
    return Method(
        name, config, build, "events", summary, source, floors=floors, suit=partial(suit_history, budget=budget),
        automatic=("batch_size", *SCHEDULE, *PAIRS), space=space or {},
        export=export,
    )  # fmt: skip
