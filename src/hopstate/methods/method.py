"""The interface of a method: a configuration class and a function that builds a training task from data."""

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

if TYPE_CHECKING:  # importing torch takes a second, and --help does not need it
    from hopstate.data.events import EventStream
    from hopstate.data.graph import Graph
    from hopstate.data.graph_set import GraphSet
    from hopstate.datasets.temporal_generators import PathSequences
    from hopstate.methods.shared.programs import ExportSpec
    from hopstate.training.tasks.task import Task

    Record = Graph | GraphSet | EventStream | PathSequences  # data objects that methods take


NUMBER = r"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?"


@dataclass(frozen=True)
class Range:
    """A numeric search range. Both ends written as integers give integer values.

    Args:
        low, high: ends of the range, both included.
        log: sample uniformly on a logarithmic scale.

    Raises:
        ConfigError: high is below low, or log is set and low is not positive.
    """

    low: float
    high: float
    log: bool = False

    def __post_init__(self) -> None:
        if not self.low <= self.high or (self.log and self.low <= 0):
            raise ConfigError(f"a range is low:high, and above 0 with :log; got {self}")

    def __str__(self) -> str:
        return f"{self.low}:{self.high}{':log' if self.log else ''}"


# values by dotted setting name; "a,b" varies two settings together, with values such as "1,2"
Space = dict[str, Range | list[Any]]


def parse_values(key: str, value: Any) -> Range | list[Any]:
    """Parse the values of one key, from text or a YAML value.

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
    """Return a space as plain YAML or JSON values, which `parse_values` can parse."""
    return {key: str(values) if isinstance(values, Range) else values for key, values in space.items()}


def _number(text: str) -> float:
    return int(text) if re.fullmatch(r"[-+]?\d+", text) else float(text)


def scalar(text: str) -> Any:
    """Parse a number, a boolean or None. Other texts are returned as they are."""
    if re.fullmatch(NUMBER, text):  # YAML parses 1e-4 as text
        return _number(text)
    return {"true": True, "false": False, "null": None}.get(text, text)


@dataclass(frozen=True, kw_only=True)
class FileOptions:
    """How files are read: what graphs and event streams share.

    Args:
        format: "auto" detects it from content and name; otherwise one of the formats in `hopstate datasets`.
        features: table of node features with a node id column; or a folder with a table for each type of nodes, called
            as the type (user.csv, item.csv); or a .npy file.
        header: whether the first line has column names; null detects it.
        separator: cell separator of a text file, such as ";", tab or space; null detects it.
        source_column: column of source ids; null looks for a usual name.
        target_column: column of target ids; null looks for a usual name.
        relation_column: column with the relation of each edge or event, such as "call" or "transfer". "none" leaves out
            the relations of a store or object. null: a table has none.
        node_type_column: two columns "a,b" with the types of sources and targets. "none" as for relation_column.
        columns: types of feature columns, if detection is wrong: '[venue=category, when=date, note=drop]'. Types:
            number, category, date (ISO, or date:FORMAT as in strptime), drop. Listed columns of events become features.
        unlabeled_value: label value that means "no label", or "none" if there is no such value. null: error if -1 is
            ambiguous.
        positive_class: positive class of a binary target for roc_auc and average_precision. null: 1, true or yes,
            otherwise the rarer class in training.
        num_nodes: number of nodes, if ids are row numbers 0..num_nodes-1. null derives it.
        text_ids: keep ids as text, so that 5746.10 differs from 5746.1 and 7 from 7.0.
        scale: scaling of features, fitted to training nodes and their edges, or training events: "standard" (mean and
            standard deviation), "robust" (median and quartiles) or "none". "auto": none for published datasets,
            otherwise standard.
        max_bytes: maximum uncompressed file size, such as 8GiB. null: for compressed files 100 times their size, at
            least 256 MiB.
    """

    format: str = "auto"
    features: str | None = None
    header: bool | None = None
    separator: str | None = None
    source_column: str | None = None
    target_column: str | None = None
    relation_column: str | None = None
    node_type_column: str | None = None
    columns: tuple[str, ...] | None = None
    unlabeled_value: str | None = None
    positive_class: str | None = None
    num_nodes: int | None = None
    text_ids: bool = False
    scale: Literal["auto", "standard", "robust", "none"] = "auto"
    max_bytes: str | int | None = None


@dataclass(frozen=True, kw_only=True)
class ReadOptions(FileOptions):
    """How graph files are read.

    Args:
        labels: table of node labels with a node id column and an optional "split" column (train, val, test).
        missing: missing feature values: "error"; or impute the "mean" or "median" of the training nodes or their edges,
            or "zero", and add an indicator column. "auto": mean for empty cells of node tables; error for edge tables
            and infinities.
        undirected: store every edge in both directions.
        duplicates: "drop" keeps the first of equal edges, "keep" keeps all.
        self_loops: "keep" or "drop" edges from a node to itself.
        edge_columns: columns of edge features; null uses all other numeric columns.
        id_column: column of node ids in node tables; null looks for a usual name.
        label_column: column of labels in the table of labels; null looks for a usual name. "spam,bot" defines several
            numeric targets.
        split_column: column with train, val or test in the table of labels; null looks for a usual name.
        task: meaning of numeric labels: "classification" or "regression". "auto": error if ambiguous.
        multilabel: cells with several labels ("a;b"): "error" raises an error; "first" label only; the "whole" cell as
            a class; "all" as multi-label.
        bipartite: sources and targets are two sets of nodes, as users and items. "auto": if no node is in both columns,
            or if they are named user and item. Numeric ids in both columns become u7 and i7.
    """

    labels: str | None = None
    missing: Literal["auto", "error", "mean", "median", "zero"] = "auto"
    undirected: bool = True
    duplicates: Literal["keep", "drop"] = "drop"
    self_loops: Literal["keep", "drop"] = "keep"
    edge_columns: tuple[str, ...] | None = None
    id_column: str | None = None
    label_column: str | None = None
    split_column: str | None = None
    task: Literal["auto", "classification", "regression"] = "auto"
    multilabel: Literal["error", "first", "whole", "all"] = "error"
    bipartite: bool | Literal["auto"] = "auto"


@dataclass(frozen=True, kw_only=True)
class SplitConfig:
    """Split of the nodes into training, validation and test.

    Args:
        kind: "stored" masks of the dataset, "random" fractions, or "auto": stored if available.
        number: index of a stored split. A random split depends on (seed, number).
        fractions: shares of train, val and test in a random split, with a sum of at most 1.
        seed: seed of a random split, independent of the training seed.
        stratified: keep class shares equal in a random split.
        per_class: numbers of train and val nodes of each class instead of fractions. All others are test nodes.
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
    """Folders and facts that a method gets when it builds its task.

    Args:
        run: folder of this run, or a scratch folder if a trained model is applied to other data.
        cache: folder shared between runs for expensive results. Their file names contain a content hash.
        metrics: the dataset's own metrics. The first one selects the model.
        trained: facts about the training data ("num_features", "class_names", ...) if a trained model is applied, else
            None. Labels are optional then.
        noted: choices made while building. They are saved in data.json and returned in `trained` later.
    """

    run: Path
    cache: Path
    metrics: tuple[str, ...] = ()
    trained: Mapping[str, Any] | None = None
    noted: dict[str, Any] = field(default_factory=dict)

    def begun(self) -> Mapping[str, Any] | None:
        """Return what an applied or resumed run noted at its start, or None for a new run."""
        folder = RunFolder(self.run)
        if self.trained is not None or not (folder.path / "data.json").is_file():
            return self.trained
        return folder.read_json("data.json")


@dataclass(frozen=True, kw_only=True)
class RunConfig:
    """Base class of the configurations of all methods.

    Args:
        data: a file, a folder, or the name of a dataset (see `hopstate datasets`).
        read: how files are read.
        loop: training loop settings.
    """

    data: str
    read: Any
    loop: LoopConfig


@dataclass(frozen=True, kw_only=True)
class SetRun(RunConfig, ABC):
    """Base class of the configurations of methods for sets of graphs."""

    @abstractmethod
    def training_graphs(self, graphs: GraphSet) -> np.ndarray:
        """Return the indices of the training graphs, or an empty array if the split is invalid."""


Baselines = dict[str, dict[str, float]]  # name → test metrics
RecordT = TypeVar("RecordT", bound="Record")
RunT = TypeVar("RunT", bound=RunConfig)
TaskT = TypeVar("TaskT", bound="Task[Any]")  # its batch type is private to the task


@dataclass(frozen=True)
class Method(Generic[RecordT, RunT, TaskT]):
    """A method that `hopstate fit` can train.

    Args:
        name: name on the command line.
        config: the run configuration, a dataclass with the fields data, read, loop and the method's own fields.
        build: (data object, configuration, context) → task.
        data: kind of data object that the method takes.
        summary: one line for help texts.
        source: the paper.
        auto_config: (data object, configuration, dataset metrics) → settings derived from the data, by dotted name.
            They override the configuration's defaults. Settings that the user gives override them.
        automatic: settings that `auto_config` may choose, by dotted name. `--help` marks them.
        baselines: (data object, configuration, context, task) → test metrics of each baseline, by name.
        reads_edges: configuration → whether the model learns from edge features, which are then scaled and imputed.
        space: default search space of `hopstate tune`, by dotted name. Empty: there is none.
        export: task → its exported program, or a text that says why it cannot be exported.
        relations: whether it reads relations of events or edges, and types of nodes. Others refuse such data.
    """

    name: str
    config: type[RunT]
    build: Callable[[RecordT, RunT, Context], TaskT]
    data: Literal["graph", "graphs", "events", "sequences"]
    summary: str
    source: str
    reads_edges: Callable[[RunT], bool] = lambda config: False
    auto_config: Callable[[RecordT, RunT, tuple[str, ...]], Mapping[str, Any]] | None = None
    automatic: tuple[str, ...] = ()
    baselines: Callable[[RecordT, RunT, Context, TaskT], Baselines] | None = None
    space: Space = field(default_factory=dict)
    export: Callable[[TaskT], ExportSpec] | str = ""
    relations: bool = False

    def task(self, record: RecordT, config: RunT, context: Context) -> TaskT:
        """Build the task of a record.

        Raises:
            ConfigError: the record has relations or named node types, and the method does not read them.
        """
        for column in () if self.relations else ("relation", "node_type"):
            if names := getattr(record, f"{column}_names", ()):
                raise ConfigError(
                    f"{self.name} does not read the {column.replace('_', ' ')} of data: got {', '.join(names[:5])} in "
                    f"{config.data}. Leave it out with --read.{column}_column none, or choose another method"
                )
        return self.build(record, config, context)


AnyMethod = Method[Any, Any, Any]
