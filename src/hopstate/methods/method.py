"""What a method is: a configuration and a function that turns data and configuration into a task."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeVar

import numpy as np

from hopstate.errors import ConfigError
from hopstate.training.config import LoopConfig
from hopstate.training.run_folder import RunFolder, plain_setting

if TYPE_CHECKING:  # torch takes a second, and help names methods without it
    from hopstate.data.events import EventStream
    from hopstate.data.graph import Graph
    from hopstate.data.graph_set import GraphSet
    from hopstate.datasets.temporal_generators import PathSequences
    from hopstate.methods.shared.programs import ExportSpec
    from hopstate.training.tasks.task import Task

    Record = Graph | GraphSet | EventStream | PathSequences  # what methods work on


NUMBER = r"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?"


@dataclass(frozen=True)
class Range:
    """Numbers from low to high, whole ones where both ends are written without a point.

    Args:
        low, high: the ends, both included.
        log: draw the logarithm evenly.

    Raises:
        ConfigError: high under low, or log with an end that is not above 0.
    """

    low: float
    high: float
    log: bool = False

    def __post_init__(self) -> None:
        if not self.low <= self.high or (self.log and self.low <= 0):
            raise ConfigError(f"a range is low:high, and above 0 with :log; got {self}")

    def __str__(self) -> str:
        return f"{self.low}:{self.high}{':log' if self.log else ''}"


# settings by dotted name; a key may name several joined by commas, and its choices then hold as many values so joined
Space = dict[str, Range | list[Any]]


def parse_values(key: str, value: Any) -> Range | list[Any]:
    """Return the values of one key, from text or from what YAML holds.

    >>> parse_values("loop.optim.lr", "1e-4:1e-2:log")
    Range(low=0.0001, high=0.01, log=True)
    >>> parse_values("model.dim", "64, 128")
    [64, 128]
    """
    if isinstance(value, str):
        match = re.fullmatch(rf"\s*({NUMBER}):({NUMBER})(:log)?\s*", value)
        if match:
            return Range(_number(match[1]), _number(match[2]), bool(match[3]))
        value = [scalar(part.strip()) for part in value.split(",")]
    value = plain_setting(list(value) if isinstance(value, range) else value)
    values = list(value) if isinstance(value, (list, tuple)) else [value]
    if not values or not all(v is None or isinstance(v, (bool, int, float, str)) for v in values):
        raise ConfigError(f"the space of {key} must be LOW:HIGH, LOW:HIGH:log or a list of values; got {value!r}")
    return values


def printable(space: Space) -> dict[str, Any]:
    """Return a space as plain values that YAML and JSON hold, and that `parse_values` takes back."""
    return {key: str(values) if isinstance(values, Range) else values for key, values in space.items()}


def _number(text: str) -> float:
    return int(text) if re.fullmatch(r"[-+]?\d+", text) else float(text)


def scalar(text: str) -> Any:
    """Return a number, a boolean or None where a text writes one, else the text."""
    if re.fullmatch(NUMBER, text):  # YAML takes 1e-4 for a text
        return _number(text)
    return {"true": True, "false": False, "null": None}.get(text, text)


@dataclass(frozen=True, kw_only=True)
class ReadOptions:
    """How a user's files are read.

    Args:
        format: "auto" goes by content and extension; else one of the formats that `hopstate datasets` names.
        features: table of node features keyed by node id, for edge lists.
        labels: table of node labels keyed by node id, optionally with a "split" column (train, val, test).
        scale: "standard" (mean and deviation), "robust" (median and quartiles) or "none", for features of nodes and
            edges, fitted to the training nodes and the edges at them; "auto" takes none for published data sets,
            standard for all else.
        missing: numbers missing in a table of features: "error" names them; "mean" or "median" of the training nodes,
            or of the edges at them, or "zero", with a further column that marks them. "auto" takes the mean for empty
            cells of tables of nodes, and names those of edges, and infinities.
        nan: "error" names the rows that hold NaN or infinities; "zero" replaces them by 0.
        undirected: store every edge in both directions.
        duplicates: "drop" keeps the first of equal edges, "keep" keeps all.
        self_loops: "keep" or "drop" edges from a node to itself.
        header: whether the first line of a text of edges holds names of columns; null goes by what stands in it.
        separator: of the cells of a text of edges: a sign such as ";", or tab, or space; null finds it.
        source_column, target_column: columns of a table of edges; null takes the usual names.
        edge_columns: columns of edge features; null takes all further numeric ones.
        columns: what columns of features hold, where it is not as it looks: '[venue=category, when=date, note=drop]';
            number, category, date (ISO, or date:FORMAT as strptime has it) or drop.
        id_column, label_column, split_column: columns of the tables of nodes; null takes the usual names.
            A label_column "spam,bot" names several columns of numbers, each a target of its own.
        unlabelled: the value of a label that stands for "no label", "none" where there is none; null asks about -1.
        task: what numbers as labels are: classes ("classification") or amounts ("regression"); "auto" asks in doubt.
        label_cells: of text with several labels in a cell ("a;b"): "ask", the "first", the "whole" as a class, or
            "all": a 0/1 label each.
        positive_class: the positive one of two classes, which roc_auc and average_precision are of; null takes 1, true
            or yes, otherwise the rarer class of the training rows.
        num_nodes: ids are then rows 0..num_nodes-1; null finds them.
        bipartite: edges join two sets of nodes, as users and items; "auto" takes two where no node is in both columns,
            or where they are called user and item: numbers in both are then u7 and i7.
        text_ids: take ids as they are written: 5746.10 and 5746.1 are two then, and so are 7 and 7.0.
        max_bytes: most bytes to read of a file, unpacked where it is packed, e.g. 8GiB; null takes for packed files a
            hundred times their size, at least 256 MiB.
    """

    format: str = "auto"
    features: str | None = None
    labels: str | None = None
    scale: Literal["auto", "standard", "robust", "none"] = "auto"
    missing: Literal["auto", "error", "mean", "median", "zero"] = "auto"
    nan: Literal["error", "zero"] = "error"
    undirected: bool = True
    duplicates: Literal["keep", "drop"] = "drop"
    self_loops: Literal["keep", "drop"] = "keep"
    header: bool | None = None
    separator: str | None = None
    source_column: str | None = None
    target_column: str | None = None
    edge_columns: tuple[str, ...] | None = None
    columns: tuple[str, ...] | None = None
    id_column: str | None = None
    label_column: str | None = None
    split_column: str | None = None
    unlabelled: str | None = None
    task: Literal["auto", "classification", "regression"] = "auto"
    label_cells: Literal["ask", "first", "whole", "all"] = "ask"
    positive_class: str | None = None
    num_nodes: int | None = None
    bipartite: bool | Literal["auto"] = "auto"
    text_ids: bool = False
    max_bytes: str | int | None = None


@dataclass(frozen=True, kw_only=True)
class SplitConfig:
    """Which nodes are for training, validation and test.

    Args:
        kind: "stored" masks of the data, "random" fractions, or "auto": stored where there are any.
        number: which of several stored splits, from 0; a random split is drawn from (seed, number).
        fractions: shares of train, val and test of a random split; they sum to at most 1.
        seed: fixes a random split, apart from the seed of training.
        stratified: keep class shares equal in the three splits drawn at random.
        per_class: nodes of each class for train and val in place of fractions, the rest for test.
    """

    kind: Literal["auto", "stored", "random"] = "auto"
    number: int = 0
    fractions: tuple[float, float, float] = (0.6, 0.2, 0.2)
    seed: int = 0
    stratified: bool = False
    per_class: tuple[int, int] | None = None

    def __post_init__(self) -> None:
        if self.per_class is not None and (min(self.per_class) < 1 or self.kind == "stored"):
            raise ConfigError(f"split.per_class are two counts of at least 1, of a random split; got {self.per_class}")
        if min(self.fractions) <= 0 or sum(self.fractions) > 1 + 1e-9:
            raise ConfigError(
                f"split.fractions are three positive shares that sum to at most 1; got {list(self.fractions)}"
            )
        if self.number < 0 or self.seed < 0:
            raise ConfigError(f"split.number and split.seed must not be negative; got {self.number} and {self.seed}")


@dataclass(frozen=True, kw_only=True)
class Context:
    """What surrounds a build.

    Args:
        run: folder of this run (a scratch folder when a trained model is applied to other data).
        cache: folder shared between runs, for what is expensive to compute and named by content.
        metrics: the data set's own metrics; the first chooses the model.
        trained: when a trained model is applied, what it was trained on ("num_features", "class_names", ...); labels
            are then optional.
        noted: what a build chose for itself and a run keeps to; data.json holds it, and `trained` has it later.
    """

    run: Path
    cache: Path
    metrics: tuple[str, ...] = ()
    trained: Mapping[str, Any] | None = None
    noted: dict[str, Any] = field(default_factory=dict)

    def begun(self) -> Mapping[str, Any] | None:
        """Return what a run that is applied or resumed noted when it began; None of one that begins."""
        folder = RunFolder(self.run)
        if self.trained is not None or not (folder.path / "data.json").is_file():
            return self.trained
        return folder.read_json("data.json")


@dataclass(frozen=True, kw_only=True)
class RunConfig:
    """What the configurations of all methods have, each a subclass with fields of its own.

    Args:
        data: a file, a folder, or the name of a data set (see `hopstate datasets`).
        read: how files are read.
        loop: training.
    """

    data: str
    read: Any
    loop: LoopConfig


@dataclass(frozen=True, kw_only=True)
class SetRun(RunConfig, ABC):
    """What the configurations of methods for sets of graphs have besides."""

    @abstractmethod
    def training_graphs(self, graphs: GraphSet) -> np.ndarray:
        """Return the numbers of the training graphs; none where the build will say what is amiss."""


Floors = dict[str, dict[str, float]]  # name → test metrics
RecordT = TypeVar("RecordT", bound="Record")
RunT = TypeVar("RunT", bound=RunConfig)
TaskT = TypeVar("TaskT", bound="Task[Any]")  # its batches are known to the task alone


@dataclass(frozen=True)
class Method(Generic[RecordT, RunT, TaskT]):
    """A named method.

    Args:
        name: what the command line calls it.
        config: its run configuration, a dataclass with the fields data, read, loop and the method's own.
        build: (data record, configuration, context) → task.
        data: the kind of record it works on.
        summary: one line for help texts.
        source: the paper.
        suit: (data record, configuration, the data set's metrics) → settings that suit the data, by dotted name; they
            stand in for the configuration's own defaults, and what a user gives stands over them.
        automatic: settings that `suit` may choose, by dotted name; `--help` marks them.
        floors: (data record, configuration, context, task) → name → test metrics of what a run must stand above.
        reads_edges: configuration → whether it learns from features of edges, which are then scaled and filled; None:
            it never does.
        space: what `hopstate tune` searches where a user names nothing, by dotted name; empty where nothing is known.
        transductive: configuration → what of a graph's inputs depends on all of its nodes at once, in words, so that
            nodes that come later change the answers for all others; "" where neighbourhoods alone count.
        export: task → its program for `hopstate export`, or why there is none.
    """

    name: str
    config: type[RunT]
    build: Callable[[RecordT, RunT, Context], TaskT]
    data: Literal["graph", "graphs", "events", "sequences"]
    summary: str
    source: str
    reads_edges: Callable[[RunT], bool] | None = None
    suit: Callable[[RecordT, RunT, tuple[str, ...]], Mapping[str, Any]] | None = None
    automatic: tuple[str, ...] = ()
    floors: Callable[[RecordT, RunT, Context, TaskT], Floors] | None = None
    space: Space = field(default_factory=dict)
    transductive: Callable[[RunT], str] | None = None
    export: Callable[[TaskT], ExportSpec] | str = ""


AnyMethod = Method[Any, Any, Any]  # one of all: which record, configuration and task go together is its own affair
