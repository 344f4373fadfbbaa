"""What all link-prediction methods do first: split the stream, draw and keep the negatives, build the stores."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Literal, Protocol, TypeVar, get_args

import numpy as np

from hopstate.data.dates import Clock, GapUnit
from hopstate.data.events import EventStream, begins, stretch
from hopstate.data.neighbor_store import NeighborStore, folder_of
from hopstate.data.splits import EventSplit
from hopstate.errors import ConfigError, check_range
from hopstate.layers.pair_history import PairHistory
from hopstate.methods.method import Context, Floors, Method, RunConfig
from hopstate.methods.shared.event_run import EventReadOptions, EventRun, LinkSplitConfig
from hopstate.methods.shared.pair_history import PairHistoryTokenizer, fit_scale, pair_features
from hopstate.methods.shared.suit_events import PAIRS, SCHEDULE, suit_history
from hopstate.methods.shared.taken import tell_epoch, tell_judged
from hopstate.methods.space import Space
from hopstate.sampling.judged import number_or_all
from hopstate.sampling.mixture import TrainingNegatives
from hopstate.sampling.negative_sets import Negatives
from hopstate.sampling.negatives import NoOtherPairError, load_or_draw, one_against_many
from hopstate.streaming.history_scorer import PairTokenizer
from hopstate.streaming.protocols import HistoryModel
from hopstate.tokens.history import Deletions
from hopstate.training.exported import ExportSpec
from hopstate.training.progress import note
from hopstate.training.tasks.history import HistoryPairs
from hopstate.training.tasks.link import LinkEvaluation, LinkTask


class JudgedRun(RunConfig, Protocol):
    """What the configurations of all methods for links have."""

    @property
    def read(self) -> EventReadOptions:
        """How a file is read."""
        ...

    @property
    def split(self) -> LinkSplitConfig:
        """Which events are for training, validation and test."""
        ...

    @property
    def evaluation(self) -> LinkEvaluation:
        """Protocol and negatives."""
        ...


@dataclass(frozen=True, kw_only=True)
class HistoryLinkRun(EventRun):
    """What the configurations of models fed from histories share.

    Args:
        evaluation: protocol and negatives.
        negatives: pairs that stand beside the events in training.
        batch_size: events a step.
        max_events: training events that an epoch takes at most; of more, whole batches spread over all of them, drawn
            anew for each epoch. "all" takes every event. Histories hold all of them either way.
        deletions: what histories make of them: "marked", tokens with a feature that says so; "left-out"; or "unmarked",
            tokens like any other.
    """

    evaluation: LinkEvaluation = field(default_factory=LinkEvaluation)
    negatives: TrainingNegatives = field(default_factory=TrainingNegatives)
    batch_size: int = 200
    max_events: int | Literal["all"] = 1_000_000
    deletions: Deletions = "marked"

    def __post_init__(self) -> None:
        check_deletions(self.deletions)
        check_range(least=1, batch_size=self.batch_size)
        number_or_all("max_events", self.max_events)

    @property
    def most(self) -> int | None:
        """Training events of an epoch at most, None for all."""
        return number_or_all("max_events", self.max_events)


def feature_dims(stream: EventStream, context: Context) -> dict[str, int]:
    """Return how many features a node and an event had in training, 0 for none; else those that the stream has.

    Runs of version 0.1.0 noted features that are not zero throughout, and nothing of others.
    """
    facts = context.trained or {}
    if "feature_dims" in facts:
        return dict(facts["feature_dims"])
    used = facts.get("used_features", {})
    return {name: used.get(name) or width for name, width in stream.feature_dims.items()}


class KeepsDeletions(Protocol):
    """A configuration of a method fed from histories, of links or of nodes."""

    @property
    def deletions(self) -> Deletions:
        """What becomes of deletions in histories."""
        ...


def used_features(stream: EventStream, context: Context) -> dict[str, int]:
    """Return the widths that a model is built for: those it was trained with, else `stream.used_features`."""
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

    known = Known(stream, deletions=marks != "left-out")

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
    negatives = kept_negatives(stream, split, config, context)
    return LinkTask(source, evaluation=config.evaluation, negatives=negatives, clock=clock)


class Known:
    """Histories of a stream, or of some of its events.

    Look-ups see earlier events alone, so that events at a mapped stream's beginning need no index of their own: there
    the whole stream's serves, and is built once. In memory training's holds nothing else than it may see.
    """

    def __init__(self, stream: EventStream, deletions: bool) -> None:
        self._stream, self._deletions = stream, deletions
        self._whole: NeighborStore | None = None

    def histories(self, events: EventStream, rows: np.ndarray | None) -> NeighborStore:
        """Return what a model's tokens are of.

        Args:
            events: the stream, or another of its kind.
            rows: (P,) of the events that may be seen, None for all.
        """
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
        """Return the same without deletions.

        Args:
            events, rows: as in `histories`.
        """
        return NeighborStore.from_stream(events, _needed(events, rows))


def _needed(events: EventStream, rows: np.ndarray | None) -> np.ndarray | None:
    return None if rows is not None and begins(rows) and folder_of(events) is not None else rows


def clock_of(stream: EventStream, split: EventSplit, gap_unit: GapUnit, context: Context) -> Clock:
    """Return the clock that a model was trained with, else that of the training events.

    Args:
        gap_unit: see `hopstate.data.dates.Clock.fit`.
    """
    kept = (context.trained or {}).get("clock")
    return Clock(**kept) if kept else Clock.fit(stream.t[stretch(split.train)], stream.time_unit, gap_unit)


def training_store(stream: EventStream, split: EventSplit, *, deletions: bool = False) -> NeighborStore:
    """Return a store of the training events alone, under their ids in the stream; deletions only if asked for."""
    return NeighborStore.from_stream(stream, split.train, deletions=deletions)


def check_deletions(deletions: str) -> None:
    """Raise ConfigError for a word that says nothing of deletions."""
    if deletions not in get_args(Deletions):
        raise ConfigError(f"deletions is one of {', '.join(get_args(Deletions))}; got {deletions!r}")


def deletions_of(stream: EventStream, deletions: Deletions, context: Context) -> Deletions:
    """Return what histories make of deletions: a model that was trained without any has no feature to mark them."""
    if deletions != "marked":
        return deletions
    had = (context.trained or {}).get("has_deletes", False) if context.trained is not None else stream.has_deletes
    return "marked" if had else "left-out"


def history_features(
    widths: dict[str, int], stream: EventStream, config: KeepsDeletions, context: Context
) -> dict[str, int]:
    """Return the widths of a model fed from histories: those of the features, and one for the mark of a deletion."""
    marked = deletions_of(stream, config.deletions, context) == "marked"
    return widths | {"edge_dim": widths["edge_dim"] + marked}


def kept_negatives(
    stream: EventStream, splits: EventSplit, config: JudgedRun, context: Context
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
        count = evaluation.num_negatives if strategy == "many" else ""
        path = folder / f"{split}_{strategy}{count}.npz"
        if strategy == "many":
            if not path.is_file():
                size = evaluation.num_negatives
                one_against_many(stream, splits, split, num_negatives=size, most=evaluation.most).save(path)
            found[split, strategy] = Negatives.load(path, stream)
        else:
            try:
                drawn = load_or_draw(path, stream, splits, split, strategy, most=evaluation.most)  # type: ignore[arg-type]
            except NoOtherPairError:
                if not split.startswith("new_"):
                    raise
                if context.trained is None:
                    which = {"new_val": "validation", "new_test": "test"}[split]
                    note(config.loop, f"no {strategy} pair stands beside the {which} events with new nodes: left out")
                continue
            found[split, strategy] = drawn
    return found


HistoryRunT = TypeVar("HistoryRunT", bound=HistoryLinkRun)


def history_method(
    name: str,
    config: type[HistoryRunT],
    build: Callable[[EventStream, HistoryRunT, Context], LinkTask],
    *,
    summary: str,
    source: str,
    floors: Callable[[EventStream, HistoryRunT, Context, LinkTask], Floors],
    space: Space,
    budget: int,
    explains: bool = False,
    export: Callable[[LinkTask], ExportSpec] | str = "",
) -> Method[EventStream, HistoryRunT, LinkTask]:
    """Return a method of links from histories: suited and judged as all of them are.

    Args:
        name, config, build, summary, source, floors, space, explains, export: see `Method`.
        budget: training events, times epochs, that one core does in some minutes.
    """
    return Method(
        name, config, build, "events", summary, source, floors=floors, suit=partial(suit_history, budget=budget),
        automatic=("batch_size", *SCHEDULE, *PAIRS), space=space,
        explains=explains, export=export,
    )  # fmt: skip
