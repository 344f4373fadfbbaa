"""What the configurations of methods for event streams share: how files are read, how events are split, the loop."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from hopstate.data.dates import GapUnit
from hopstate.data.events import EventStream, Ties
from hopstate.data.splits import EventSplit, chronological_split, dyglib_split, split_at, split_windows
from hopstate.errors import ConfigError, check_range, refuse_idle
from hopstate.methods.method import RunConfig
from hopstate.training.config import LoopConfig, OptimConfig

_NONE = np.empty(0, np.int64)


@dataclass(frozen=True, kw_only=True)
class EventReadOptions:
    """How a user's file of events is read; see `hopstate.data.readers.read_events.read_events`.

    Args:
        format: "auto" goes by content and name; else one of the formats that `hopstate datasets` names.
        header: whether the first line of a text holds names of columns; null goes by what stands in it.
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
            hundred times their size, at least 2 GiB.
    """

    format: str = "auto"
    header: bool | None = None
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
