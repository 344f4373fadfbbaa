"""Shared code of temporal link prediction: configurations, negatives, history indexes and the training task."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from copy import copy
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Literal, TypeVar

import numpy as np
import torch

from hopstate.data.dates import Clock, TimeScale
from hopstate.data.events import EventStream, TieOrder, as_slice, is_prefix
from hopstate.data.neighbor_store import Histories, NeighborStore, folder_of
from hopstate.data.splits import EventSplit, chronological_split, dyglib_split, split_at, split_windows
from hopstate.data.stream_state import StreamState
from hopstate.errors import ConfigError, check_range, refuse_idle
from hopstate.io.scratch import release_pages
from hopstate.layers.decoders import PairHistory
from hopstate.methods.method import Baselines, Context, FileOptions, Method, RunConfig, Space
from hopstate.methods.shared.programs import ExportSpec
from hopstate.random import named_rng
from hopstate.sampling.event_batches import epoch_batches, parse_count, sample_rows
from hopstate.sampling.negatives import (
    STRATEGIES,
    DrawOptions,
    Negatives,
    NoOtherPairError,
    TrainingNegatives,
    load_or_draw,
)
from hopstate.streaming.history_scorer import Input, PairTokenizer
from hopstate.streaming.protocols import HistoryModel
from hopstate.tokens.history import Deletions
from hopstate.tokens.pair_features import PairFeatures
from hopstate.training.config import LoopConfig, OptimConfig
from hopstate.training.progress import note
from hopstate.training.tasks.events import HistoryPairs
from hopstate.training.tasks.link import LinkEvaluation, LinkTask

_NONE = np.empty(0, np.int64)


@dataclass(frozen=True, kw_only=True)
class EventReadOptions(FileOptions):
    """How event files are read; see `hopstate.data.readers.read_events.read_events`.

    Args:
        time_format: strptime format of dates that are not ISO, such as "%d.%m.%Y %H:%M".
        time_column: column of times; null looks for a usual name.
        kind_column: column with "add" or "delete" for each event, or "delete-node" with an empty target; null uses the
            usual names.
        label_column: class or number for the source at each event, or several columns as "a,b"; null uses the usual
            names.
        task: meaning of labels: "classification" (also "auto") or "regression".
        multilabel: cells with several labels ("a;b"): the "whole" cell as a class, or "all" as multi-label.
        edge_columns: columns of event features; null uses the usual names.
        bipartite: sources and targets are two sets of nodes. "true" renames ids to u7 and i7, "false" merges equal ids.
            "auto" decides by column names (user and item are two sets, source and target one).
        time_unit: s, ms, us or ns since 1970, for splits by date; null uses the unit of the file.
        missing: missing event features: "error"; or impute the "mean" or "median" of the training events, or "zero",
            and add an indicator column. "auto": mean; error for infinities.
        drop_missing_time: ignore events without a valid time. Otherwise they are an error.
        tie_order: order of events with equal timestamps: "file" order, or "sorted" by source, destination, features and
            label, which makes results independent of row order. Streams with deletions keep the file order.
    """

    time_format: str | None = None
    time_column: str | None = None
    kind_column: str | None = None
    label_column: str | None = None
    task: Literal["auto", "classification", "regression"] = "classification"
    multilabel: Literal["whole", "all"] = "whole"
    edge_columns: tuple[str, ...] | None = None
    bipartite: bool | Literal["auto"] = "auto"
    time_unit: str | None = None
    missing: Literal["auto", "error", "mean", "median", "zero"] = "auto"
    drop_missing_time: bool = False
    tie_order: TieOrder = "file"


@dataclass(frozen=True, kw_only=True)
class LinkSplitConfig:
    """Split of an event stream into training, validation and test events.

    Args:
        kind: "chronological" by shares of the events, "dyglib" the same with new nodes removed from training, "time" at
            two times, or "window" with the last window for test and the one before it for validation.
        val_ratio: share of validation events.
        test_ratio: share of test events.
        val_time: for "time": end of training, as a number in the stream's unit or a date such as 2024-03-01.
        test_time: for "time": end of validation.
        window: for "window": a duration such as 1d, 7d or 12h, or a number in the stream's unit.
        new_node_ratio: for "dyglib": share of all nodes that are removed from training.
        seed: for "dyglib": seed of their selection.
    """

    kind: Literal["chronological", "dyglib", "time", "window"] = "chronological"
    val_ratio: float = 0.15
    test_ratio: float = 0.15
    val_time: float | str | None = None
    test_time: float | str | None = None
    window: float | str | None = None
    new_node_ratio: float = 0.1
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
        check_range("split.", minimum=0, below=1, new_node_ratio=self.new_node_ratio)

    def of(self, stream: EventStream) -> EventSplit:
        """Return the split of a stream. A stream without events has empty splits.

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
            return dyglib_split(stream, **shares, new_node_ratio=self.new_node_ratio, seed=self.seed)
        return chronological_split(stream, **shares)


def event_loop() -> LoopConfig:
    """Return the training settings of the papers: Adam, learning rate 1e-4, 100 epochs, patience 20."""
    return LoopConfig(epochs=100, patience=20, optim=OptimConfig(name="adam", lr=1e-4, weight_decay=0.0))


@dataclass(frozen=True, kw_only=True)
class EventRun(RunConfig):
    """Base configuration of methods for event streams.

    Args:
        read: how files are read.
        split: training, validation and test events.
        time_scale: unit of time differences: the "median" gap between training events, "seconds", or "raw" for the unit
            of the file.
    """

    read: EventReadOptions = field(default_factory=EventReadOptions)
    split: LinkSplitConfig = field(default_factory=LinkSplitConfig)
    time_scale: TimeScale = "median"
    loop: LoopConfig = field(default_factory=event_loop)


@dataclass(frozen=True, kw_only=True)
class LinkRun(EventRun):
    """Base configuration of temporal link prediction.

    Args:
        evaluation: protocol and negatives.
    """

    evaluation: LinkEvaluation = field(default_factory=LinkEvaluation)


@dataclass(frozen=True, kw_only=True)
class LearnedLinkRun(LinkRun):
    """Base configuration of trained link predictors.

    Args:
        negatives: negative pairs in training.
        batch_size: events per step.
    """

    negatives: TrainingNegatives = field(default_factory=TrainingNegatives)
    batch_size: int = 200


@dataclass(frozen=True, kw_only=True)
class HistoryLinkRun(LearnedLinkRun):
    """Base configuration of models that read event histories.

    Args:
        max_events: maximum number of training events per epoch. Longer streams are subsampled: each epoch draws whole
            batches spread over the stream. "all" uses every event. Histories always hold all of them.
        deletions: how histories contain deletions: "feature" as tokens with an indicator feature, "drop" not at all, or
            "keep" as ordinary tokens.
    """

    max_events: int | Literal["all"] = 1_000_000
    deletions: Deletions = "feature"

    def __post_init__(self) -> None:
        check_range(minimum=1, batch_size=self.batch_size)
        parse_count("max_events", self.max_events)

    @property
    def event_limit(self) -> int | None:
        """Maximum number of training events per epoch, None for all."""
        return parse_count("max_events", self.max_events)


def feature_dims(stream: EventStream, context: Context) -> dict[str, int]:
    """Return the numbers of node and event features, those of the training data if a model is applied."""
    return dict((context.trained or {}).get("feature_dims") or stream.feature_dims)


def used_features(stream: EventStream, context: Context) -> dict[str, int]:
    """Return `feature_dims` without features that are always zero."""
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
    """Return the task of training a model on event histories. Training sees training events only.

    Args:
        stream, config, context: as in `Method.build`.
        model: the model.
        tokenizer: (store, stream, clock, deletions, dtype of time differences) → the model's tokenizer.
        microbatch_size, microbatch_tokens: pairs and tokens computed together in a training step, None for all.
    """
    split = config.split.of(stream)
    clock = clock_of(stream, split, config.time_scale, context)
    deletion_handling = deletions_of(stream, config.deletions, context)
    pair_head = next((layer for layer in model.modules() if isinstance(layer, PairHistory)), None)

    keeps_deletions = deletion_handling != "drop"
    index = HistoryIndex(stream, deletions=keeps_deletions)

    def inputs(events: EventStream, rows: np.ndarray | None = None) -> PairTokenizer:
        store = index.histories(events, rows)
        inner = tokenizer(store, events, clock, deletion_handling, config.loop.float_type)
        if pair_head is None:
            return inner
        additions = index.additions_only(events, rows) if keeps_deletions and events.has_deletes else store
        return PairHistoryTokenizer(inner, pair_features(additions, events, clock))

    train_inputs = inputs(stream, split.train)
    if pair_head is not None and context.trained is None:
        assert isinstance(train_inputs, PairHistoryTokenizer)
        fit_feature_scale(pair_head, train_inputs.features, stream, split, config.loop.seed)
    source = HistoryPairs(
        model,
        stream,
        split,
        train_inputs=train_inputs,
        inputs=inputs,
        index=index.index,
        batch_size=config.batch_size,
        max_events=config.event_limit,
        microbatch_size=microbatch_size,
        microbatch_tokens=microbatch_tokens,
        seed=config.loop.seed,
        mixture=config.negatives,
    )
    note_epoch_subsample(len(stream.additions(split.train)), config, context)
    negatives = evaluation_negatives(stream, split, config, context)
    return LinkTask(source, evaluation=config.evaluation, negatives=negatives, clock=clock)


class HistoryIndex:
    """Neighbor indexes over the histories of a stream.

    Queries see earlier events only, so one index of a memory-mapped stream serves every prefix of it. In-memory
    training uses an index of training events only.
    """

    def __init__(self, stream: EventStream, deletions: bool) -> None:
        self._stream, self._deletions = stream, deletions
        self._full_index: NeighborStore | None = None

    def histories(self, events: EventStream, rows: np.ndarray | None) -> NeighborStore:
        """Return the index over the events at rows, None for all."""
        rows = _rows_to_index(events, rows)
        if rows is not None or events is not self._stream or folder_of(events) is None:
            return NeighborStore.from_stream(events, rows, deletions=self._deletions)
        if self._full_index is None:
            self._full_index = NeighborStore.from_stream(events, deletions=self._deletions)
        return self._full_index

    def index(self) -> NeighborStore | None:
        """Return the index of the full stream if it is built and holds no deletions, otherwise None."""
        return None if self._deletions and self._stream.has_deletes else self._full_index

    def additions_only(self, events: EventStream, rows: np.ndarray | None) -> NeighborStore:
        """Return the index over the events at rows without deletions."""
        return NeighborStore.from_stream(events, _rows_to_index(events, rows))


def _rows_to_index(events: EventStream, rows: np.ndarray | None) -> np.ndarray | None:
    return None if rows is not None and is_prefix(rows) and folder_of(events) is not None else rows


def clock_of(stream: EventStream, split: EventSplit, time_scale: TimeScale, context: Context) -> Clock:
    """Return the time normalization of the trained model, or fit it to the training events."""
    saved = (context.trained or {}).get("clock")
    return Clock(**saved) if saved else Clock.fit(stream.t[as_slice(split.train)], stream.time_unit, time_scale)


def deletions_of(stream: EventStream, deletions: Deletions, context: Context) -> Deletions:
    """Return how histories treat deletions. A model trained without deletions has no indicator for them."""
    if deletions != "feature":
        return deletions
    has_deletes = (
        (context.trained or {}).get("has_deletes", False) if context.trained is not None else stream.has_deletes
    )
    return "feature" if has_deletes else "drop"


def history_features(
    widths: dict[str, int], stream: EventStream, deletions: Deletions, context: Context
) -> dict[str, int]:
    """Return the feature dimensions of a history model, with a column for the deletion indicator."""
    marked = deletions_of(stream, deletions, context) == "feature"
    return widths | {"edge_dim": widths["edge_dim"] + marked}


def evaluation_negatives(
    stream: EventStream, splits: EventSplit, config: LinkRun, context: Context
) -> dict[tuple[str, str], Negatives]:
    """Return the evaluation negatives by (split, strategy). They are sampled once and saved with the run.

    If a split is subsampled, a note reports the numbers of events, and data.json records them.
    """
    if not len(stream):  # of a model that continues from a state
        return {}
    evaluation, folder = config.evaluation, context.run / "negatives"
    wanted = [*(("val", s) for s in evaluation.selection_strategies), *(("test", s) for s in evaluation.strategies)]
    wanted += [(f"new_{split}", strategy) for split, strategy in wanted]
    note_eval_subsample(stream, splits, config, context)
    negatives = {}
    for split, strategy in wanted:
        if not len(stream.additions(splits.rows(split))):
            continue
        count = evaluation.num_negatives if STRATEGIES[strategy].ranking else ""
        path = folder / f"{split}_{strategy}{count}.npz"
        options: DrawOptions = {"num_negatives": evaluation.num_negatives, "max_events": evaluation.event_limit}
        try:
            negatives[split, strategy] = load_or_draw(path, stream, splits, split, strategy, **options)
        except NoOtherPairError:
            if not split.startswith("new_"):
                raise
            if context.trained is None:
                which = {"new_val": "validation", "new_test": "test"}[split]
                note(config.loop, f"no {strategy} negatives of the {which} events with new nodes; skipping")
    return negatives


SCALE_SAMPLE = 20_000  # evenly spaced training events that fit the feature scale


def pair_features(store: Histories, stream: EventStream, clock: Clock) -> PairFeatures:
    """Return the pair features that a head reads, without event features."""
    return PairFeatures(store, stream, clock, np.empty(0, np.int64))


class PairHistoryTokenizer:
    """A tokenizer that adds features of each pair's history to the model's input.

    Args:
        inner: the model's tokenizer. Its input has a field `pair`.
        features: pair features from the same events without deletions.
    """

    def __init__(self, inner: PairTokenizer, features: PairFeatures) -> None:
        self.inner, self.features, self.marked = inner, features, inner.marked

    def over(self, past: StreamState) -> PairHistoryTokenizer:
        tokenizer = copy(self)
        tokenizer.inner, tokenizer.features = self.inner.over(past), self.features.over(past)
        return tokenizer

    def pairs(self, u: np.ndarray, v: np.ndarray, t: np.ndarray, relation: np.ndarray | None = None) -> Input:
        """Return the input for pairs u (P,), v (P,) at times t (P,), of a relation (P,); errors as the inner one's."""
        inputs = self.inner.pairs(u, v, t, relation)
        return inputs._replace(pair=torch.from_numpy(self.features.pairs(u, v, t)))  # type: ignore[attr-defined]


def fit_feature_scale(
    head: PairHistory, features: PairFeatures, stream: EventStream, split: EventSplit, seed: int
) -> None:
    """Fit the feature scale of a head to training events, each with a random and a past pair at its time."""
    rows = stream.additions(split.train)
    if not len(rows):
        return
    sample = np.unique(np.linspace(0, len(rows) - 1, min(len(rows), SCALE_SAMPLE)).astype(np.int64))
    src, dst, t = (column[as_slice(rows)] for column in (stream.src, stream.dst, stream.t))
    rng = named_rng(seed, "pair-history")
    before = np.searchsorted(t, t[sample])
    past = (rng.random(len(sample)) * before).astype(np.int64)
    with_past = sample[before > 0], past[before > 0]
    u = np.concatenate([src[sample], src[sample], src[with_past[1]]])
    v = np.concatenate([dst[sample], dst[rng.integers(0, len(dst), len(sample))], dst[with_past[1]]])
    head.fit(torch.from_numpy(features.pairs(u, v, np.concatenate([t[sample], t[sample], t[with_past[0]]]))))
    release_pages(src, dst, t)
    if isinstance(features.store, NeighborStore):
        features.store.release_pages()  # the queries touched most pages of a mapped index


def note_epoch_subsample(count: int, config: HistoryLinkRun, context: Context) -> None:
    """Note how many training events an epoch uses if not all."""
    batches = len(epoch_batches(count, config.event_limit, config.batch_size, config.loop.seed, 0))
    if batches * config.batch_size < count:
        used = batches * config.batch_size
        context.noted["training_events"] = [used, count]
        _note_subsample(
            config.loop,
            context,
            f"an epoch uses {used:,} of {count:,} training events, sampled again for each epoch",
            "",
        )


def note_eval_subsample(stream: EventStream, splits: EventSplit, config: LinkRun, context: Context) -> None:
    """Note how many events of each split are evaluated if not all."""
    sizes = {name: len(stream.additions(splits.rows(name))) for name in ("val", "new_val", "test", "new_test")}
    subsampled = {
        name: len(sample_rows(np.arange(size), config.evaluation.event_limit)) for name, size in sizes.items()
    }
    subsampled = {name: count for name, count in subsampled.items() if count < sizes[name]}
    if subsampled:
        context.noted["evaluated_events"] = {name: [count, sizes[name]] for name, count in subsampled.items()}
        sizes_text = ", ".join(f"{count:,} of {sizes[name]:,} of {name}" for name, count in subsampled.items())
        _note_subsample(config.loop, context, f"evaluation uses {sizes_text}, spread over each split", "evaluation.")


def _note_subsample(loop: LoopConfig, context: Context, sizes: str, group: str) -> None:
    """Print a note once per run, with the setting that uses all events."""
    if not (context.run / "negatives").is_dir():
        note(loop, f"note: {sizes} ({group}max_events=all uses every event)")


# ---- automatic settings: computed from training events; they add no input and no layer that the paper lacks.
# Source: benchmarks/results/2026-11-21-ctdg-ssm.md (chosen on the validation splits of UCI and Enron),
# 2026-11-21-dyg-mamba.md and 2026-11-22-pair-history.md; the recipes keep the papers' settings.
MAX_EPOCHS = 40  # for small streams
HISTORICAL_SHARE = 0.25  # share of historical negatives in training
SCHEDULE_SETTINGS = ("loop.epochs", "loop.patience", "loop.optim.lr", "loop.optim.schedule", "loop.optim.warmup")
PAIR_SETTINGS = ("negatives.mixture.historical", "evaluation.select_by")
MIN_REPEATED_SHARE = 0.05  # share of repeat pairs in training below which historical negatives are off


def auto_epochs(events: int, budget: int) -> dict[str, Any]:
    """Return a schedule without early stopping whose learning rate decays to 0.

    budget is the number of training events, times epochs, that one core processes in some minutes.
    """
    return {
        "loop.epochs": int(np.clip(budget // max(events, 1), 2, MAX_EPOCHS)),
        "loop.patience": None,
        "loop.optim.schedule": "cosine",
        "loop.optim.warmup": 0.05,
    }


def auto_selection(stream: EventStream, config: LinkRun, metrics: tuple[str, ...]) -> Mapping[str, Any]:
    """Return the model-selection metric: the mean over negative strategies if there are several."""
    kinds = [name for name in config.evaluation.strategies if not STRATEGIES[name].ranking]
    return {"evaluation.select_by": "mean"} if len(kinds) > 1 else {}


def auto_negatives(stream: EventStream, config: LearnedLinkRun, metrics: tuple[str, ...]) -> Mapping[str, Any]:
    """Return the mixture of training negatives, unless the user set one, and the model-selection metric."""
    user_set = config.negatives != TrainingNegatives()
    use_historical = not user_set and repeated_share(stream, config.split.of(stream).train) >= MIN_REPEATED_SHARE
    mixture = {"negatives.mixture.historical": HISTORICAL_SHARE} if use_historical else {}
    return {**mixture, **auto_selection(stream, config, metrics)}


def repeated_share(stream: EventStream, rows: np.ndarray) -> float:
    """Return the share of the events at rows that add an edge between two nodes that one of them joined before."""
    part = as_slice(stream.additions(rows))
    pairs = stream.src[part] * stream.num_nodes
    pairs += stream.dst[part]
    pairs.sort()  # in place to save memory
    return float(np.count_nonzero(pairs[1:] == pairs[:-1])) / max(len(pairs), 1)


def auto_config_history(
    stream: EventStream, config: HistoryLinkRun, metrics: tuple[str, ...], *, budget: int
) -> Mapping[str, Any]:
    """Return automatic settings of a history model; budget is as in `auto_epochs`."""
    events = len(stream.additions(config.split.of(stream).train))
    batch = int(np.clip(events // 50, 20, 200))
    pair_settings = auto_negatives(stream, config, metrics)
    epoch_events = events if config.event_limit is None else min(events, config.event_limit)
    return {"batch_size": batch, "loop.optim.lr": 3e-4, **pair_settings, **auto_epochs(epoch_events, budget)}


HistoryRunT = TypeVar("HistoryRunT", bound=HistoryLinkRun)


def history_method(
    name: str,
    config: type[HistoryRunT],
    build: Callable[[EventStream, HistoryRunT, Context], LinkTask],
    *,
    summary: str,
    source: str,
    budget: int,
    baselines: Callable[[EventStream, HistoryRunT, Context, LinkTask], Baselines] | None = None,
    space: Space | None = None,
    export: Callable[[LinkTask], ExportSpec] | str = "",
) -> Method[EventStream, HistoryRunT, LinkTask]:
    """Return a link-prediction method on event histories; see `Method`, and `auto_epochs` for budget."""
    return Method(
        name, config, build, "events", summary, source, baselines=baselines,
        auto_config=partial(auto_config_history, budget=budget),
        automatic=("batch_size", *SCHEDULE_SETTINGS, *PAIR_SETTINGS), space=space or {},
        export=export, relations=True,
    )  # fmt: skip
