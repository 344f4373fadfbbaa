"""A run that was trained: its method, its settings, the facts of its data, and how other data are read for it.

Run folders are untrusted input. They must not run code, open network addresses, or allocate more memory than the size
of their files justifies.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Container, Mapping
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hopstate.data.events import EventStream
from hopstate.data.graph import Graph
from hopstate.data.labels import has_column
from hopstate.data.preprocessing import FeatureScaler
from hopstate.data.readers.encode import column_specs_of_run, parse_column_specs
from hopstate.data.readers.tables import is_frame
from hopstate.datasets.registry import on_disk
from hopstate.errors import CheckpointError, ConfigError, DataError
from hopstate.io.opening import (
    MIN_UNPACKED_BYTES,
    expand_home,
    is_file,
    is_inside,
    names_host,
    parse_bytes,
    reading,
    shorten,
)
from hopstate.methods import method_of_run
from hopstate.methods.config import config_from
from hopstate.methods.method import Method
from hopstate.runs.data import is_table, load_data, named_dataset, preprocess_as
from hopstate.runs.in_memory import with_saved_data
from hopstate.training.run_folder import PATHS, RunFolder, flatten, is_number

if TYPE_CHECKING:
    from hopstate.methods.method import Record

_FILES = (*PATHS, "link.file", "order.file")
SOURCES = (*_FILES, "read.num_nodes", "read.max_bytes")
_COLUMNS = ("source", "target", "relation", "node_type", "id", "label", "split")
_TABLE_OPTIONS = (
    *(f"{role}_column" for role in _COLUMNS),
    *("edge_columns", "missing", "columns", "unlabeled_value", "task", "multilabel", "text_ids", "bipartite"),
)


class SavedRun(RunFolder):
    """The folder of a run with its method, its settings and the facts of its data."""

    @cached_property
    def method(self) -> Method:
        """The run's method."""
        return method_of_run(self.settings().get("method"), str(self.path / "config.json"))

    def method_settings(self) -> dict[str, Any]:
        """Return the settings of the run's method.

        Data that were given in memory are where the run keeps them; see `hopstate.runs.in_memory`.
        """
        place, settings = self.path / "config.json", self.settings()
        settings.pop("method", None)
        for name, kind in (("data", str), ("read", dict), ("loop", dict)):
            if not isinstance(settings.get(name), kind):
                raise CheckpointError(f"{place} lacks the settings {name}; it is of no hopstate run")
        with reading(place, "settings", CheckpointError):
            return with_saved_data(self, settings)

    def config(self, settings: Mapping[str, Any] | None = None) -> Any:
        """Return the configuration of the run's method with given settings; None takes the run's own."""
        method, settings = self.method, self.method_settings() if settings is None else settings
        with reading(self.path / "config.json", "settings", CheckpointError):
            return config_from(method, settings)

    @cached_property
    def facts(self) -> dict[str, Any]:
        """The content of data.json, see `hopstate.runs.data.describe`."""
        facts, place = self.read_json("data.json"), self.path / "data.json"
        for key in ("content_hash", "num_nodes"):
            if key not in facts:
                raise CheckpointError(f"{place} has no {key}; train again")
        for key, value in facts.items():
            if key in _KINDS and not _KINDS[key](value):
                raise CheckpointError(f"{place} gives {key} as {shorten(value)}; train again")
        if facts["num_nodes"] > 1 << 20 and facts["num_nodes"] > (limit := self._node_limit(flatten(self.settings()))):
            raise CheckpointError(
                f"{place} gives num_nodes as {facts['num_nodes']:,}; its files justify at most {limit:,}. Train again"
            )
        return facts

    @property
    def dates(self) -> str:
        """The zone of the dates in the run's own file, "" if its times are numbers."""
        return str(self.facts.get("dates") or "")

    @property
    def follows_events(self) -> bool:
        """Whether the run's method is for event streams."""
        return self.method.data == "events"

    @property
    def predicts_static_links(self) -> bool:
        """Whether the run predicts links of a graph without times."""
        return bool(self.method_settings().get("task") == "link")

    def require_events(self) -> None:
        """Raise ConfigError unless the run's method is for event streams."""
        if not self.follows_events:
            raise ConfigError(
                f"{self.path} is a run of {self.method.name}, which works on {self.method.data} and has no event "
                "history. For links choose a method for events, or fit a graph with --task link"
            )

    @property
    def drops_edge_data(self) -> bool:
        """Whether the run reads no edge features and weights: by its settings, or as an MLP."""
        settings = flatten(self.settings())
        return settings.get("method") == "mlp" or "drop" in (settings.get("edges"), settings.get("edges.use"))

    # ---- the run's own data ------------------------------------------------------------------------------------------
    def load_data(self) -> Any:
        """Return the data that the run's own settings name."""
        self.check_sources()
        config = self.config()
        return load_data(config.data, config.read, self.method.data)

    def was_trained_on(self, record: Record) -> bool:
        """Return whether data have the same content as the run's."""
        return bool(self.facts["content_hash"] == record.content_hash)

    def require_same_data(self, record: Record) -> None:
        """Raise CheckpointError if the run was trained on other data."""
        if not self.was_trained_on(record):
            raise CheckpointError(
                f"{record.name} is not the data that {self.path} was trained on; choose another --out"
            )

    def check_sources(self, names: Container[str] = SOURCES) -> None:
        """Check that the run's settings name only plain files or a known dataset."""
        place = self.path / "config.json"
        settings = flatten(self.settings())
        named = {name: value for name, value in settings.items() if name in names}
        for name in _FILES:
            value = named.get(name)
            if isinstance(value, str) and not _is_plain(value, of_data=name == "data"):
                raise ConfigError(
                    f"{place} names {name}={shorten(value)}, which is not a plain "
                    f"file, a folder or a known dataset. If you trust it, give it yourself: --{name} {shorten(value)}"
                )
        for name, limit in (("read.num_nodes", self._node_limit(settings)), ("read.max_bytes", MIN_UNPACKED_BYTES)):
            value = named.get(name)
            if value is not None and parse_bytes(value) > limit:
                raise ConfigError(
                    f"{place} gives {name}={shorten(value)}, more than its files justify (at most {limit:,}). If you "
                    f"trust it, give it yourself: --data {shorten(settings.get('data'))} --{name} {shorten(value)}"
                )

    def _node_limit(self, settings: Mapping[str, Any]) -> int:
        """Return a limit on the number of nodes, from the size of the run's files and of its data files."""
        files = (path for path in self.path.rglob("*") if path.is_file())
        named = (Path(value) for name in _FILES if isinstance(value := settings.get(name), str) and is_file(value))
        return max(1 << 20, 32 * sum(path.stat().st_size for path in {*files, *named}))

    # ---- other data, read as the run's own ---------------------------------------------------------------------------
    def check_edge_data(self, graph: Graph) -> None:
        """Raise DataError if other data have no edge features or weights, and the run's had."""
        had = self.facts.get("edge_names", []) != []
        if had and graph.edge_attr is None and graph.edge_weight is None and not self.drops_edge_data:
            raise DataError(
                f"{graph.name} has no edge features or weights, and {self.path} was trained with them. Add them"
            )

    def preprocess(self, record: EventStream) -> Any:
        """Return events with features scaled and classes aligned as in training."""
        return preprocess_as(record, self.facts)

    def inherited_read_options(self, data: Any, read: Mapping[str, Any]) -> dict[str, Any]:
        """Return the reading options of the run that also apply to other data.

        Args:
            data: other events, or another graph.
            read: options that are given for them.
        """
        own = self.method_settings()["read"]
        if self.method.data == "graph":
            return self._options_of_graph(own, data, read)
        return self._options_of_events(own, data) if self.follows_events else {}

    def _options_of_events(self, own: Mapping[str, Any], data: Any) -> dict[str, Any]:
        # features and number of nodes belong to the run's own data; records have no columns to name
        if not isinstance(data, (str, os.PathLike)) and not is_frame(data):
            return {}
        options = {key: own[key] for key in own if key not in ("features", "num_nodes", "scale", "max_bytes")}
        return options | {"columns": None} | self._column_kinds(own, nodes=False)

    def _options_of_graph(self, own: Mapping[str, Any], data: Any, read: Mapping[str, Any]) -> dict[str, Any]:
        is_frame_data = is_frame(data)
        if not is_frame_data and not isinstance(data, (str, os.PathLike)):
            return {}
        if not is_frame_data and named_dataset(str(data)) is not None:
            return {}
        keys = ("undirected", "duplicates", "self_loops")
        if not is_frame_data and not is_table(expand_home(str(data)), read.get("format", "auto")):
            return {key: own[key] for key in keys if key in own}
        options = {key: own[key] for key in (*keys, *_TABLE_OPTIONS) if key in own}
        goal = (self.facts.get("target") or {}).get("goal")
        if options.get("split_column") and not has_column(read.get("labels"), options["split_column"]):
            options["split_column"] = None  # other labels need no splits
        options |= self._column_kinds(own)
        if options.get("edge_columns") is None:
            options["edge_columns"] = [] if self.drops_edge_data else self.facts.get("edge_names")
        if goal is not None:
            options["task"] = "classification" if goal == "classes" else "regression"
        return options

    def _column_kinds(self, own: Mapping[str, Any], *, nodes: bool = True) -> dict[str, Any]:
        """Return the kinds of the columns of the run's tables as an option of reading; nothing if they had no names.

        Without nodes, those of tables of nodes are left out.
        """
        scalers = self.facts.get("features") or {}
        columns = {name: tuple(scaler.get("columns") or ()) for name, scaler in scalers.items()}
        given = own.get("columns") or ()
        if not nodes:
            of_nodes = parse_column_specs(column_specs_of_run(columns.pop("x", ())))
            given = [spec for spec in given if of_nodes.keys().isdisjoint(parse_column_specs([spec]))]
        kinds = column_specs_of_run(tuple(dict.fromkeys(chain(*columns.values()))), given)
        return {"columns": list(kinds)} if kinds else {}


def _is_plain(text: str, *, of_data: bool) -> bool:
    """Return whether a run folder may name this: files and folders, data in memory, and known datasets."""
    if text.startswith("memory:"):
        return True
    if of_data and (named := named_dataset(text)) is not None:
        remote = named.file is not None and named.file.sha256 is not None
        return named.generated or remote or on_disk(named) == "yes"
    return not names_host(text) and not any(is_inside(text, place) for place in ("/dev", "/proc", "/sys"))


# ---- checks of data.json ---------------------------------------------------------------------------------------------
def _is_text(value: Any) -> bool:
    return type(value) is str


def _is_count(value: Any) -> bool:
    return type(value) is int and value >= 0


def _are_texts(value: Any) -> bool:
    return type(value) is list and all(map(_is_text, value))


def _are_counts(value: Any) -> bool:
    return type(value) is dict and all(map(_is_count, value.values()))


def _are_two_types(value: Any) -> bool:
    return type(value) is list and len(value) == 2 and all(type(one) is int and -1 <= one < 1 << 15 for one in value)


def _is_target(value: Any) -> bool:
    """Return whether a value is what `hopstate.training.tasks.target.remembered` gives, or nothing."""
    if value is None:
        return True
    scales = [value.get(key, []) for key in ("center", "scale", "class_weights")] if type(value) is dict else [None]
    numbers = all(type(part) is list and all(map(is_number, part)) for part in scales)
    return numbers and _is_text(value.get("goal")) and _are_texts(value.get("names"))


def _are_scales(value: Any) -> bool:
    """Return whether a value holds scalers as `preprocess` returns them."""
    try:
        for scaler in value.values():
            FeatureScaler.from_json(scaler)
    except (AttributeError, DataError):
        return False
    named = (scaler.get(key) for scaler in value.values() for key in ("columns", "left"))
    return all(names is None or _are_texts(names) for names in named)


# by key; methods check their own keys
_KINDS: dict[str, Callable[[Any], bool]] = {
    **dict.fromkeys(("name", "content_hash", "source", "time_unit", "dates"), _is_text),
    **dict.fromkeys(("num_nodes", "num_features"), _is_count),
    **dict.fromkeys(("notes", "class_names", "metrics", "automatic"), _are_texts),
    **dict.fromkeys(("relation_names", "node_type_names"), _are_texts),
    **dict.fromkeys(("used_features", "feature_dims"), _are_counts),
    **dict.fromkeys(("has_deletes", "text_ids", "node_codes"), lambda value: type(value) is bool),
    "two_sets": lambda value: value in (None, True, False),
    "relation_types": lambda value: type(value) is list and all(map(_are_two_types, value)),
    "edge_columns": lambda value: value is None or _is_count(value),
    "edge_names": lambda value: value is None or _are_texts(value),
    "target": _is_target,
    "features": _are_scales,
}
