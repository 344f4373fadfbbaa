"""A finished run taken up again: its method with the chosen weights, over its own data or other ones."""

from __future__ import annotations

import tempfile
import warnings
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from hopstate.data.events import EventStream
from hopstate.data.graph import Graph
from hopstate.data.readers.tables import as_frame, is_array, is_frame
from hopstate.datasets.registry import find_dataset
from hopstate.errors import CheckpointError, ConfigError, HopstateWarning, idle_reset
from hopstate.io.files import cache_folder
from hopstate.io.opening import expanded
from hopstate.io.opening import reading as naming
from hopstate.methods.method import Context, Method
from hopstate.random import random_state_kept
from hopstate.runs.arrivals import tell_links, tell_new
from hopstate.runs.data import (
    config_of_run,
    data_metrics,
    known_data,
    load_data,
    reading,
    same_data,
    settings_of_run,
)
from hopstate.runs.going_on import is_table, own_graph_reading, own_reading
from hopstate.runs.in_memory import record_of
from hopstate.runs.prepare import prepared
from hopstate.training.checkpoint import load_checkpoint, load_weights
from hopstate.training.memory_limit import within_weights
from hopstate.training.run_folder import RunFolder
from hopstate.training.tasks.task import Task
from hopstate.training.trainer import Trainer, seed_everything

if TYPE_CHECKING:
    from hopstate.methods.method import Record


class load_run:  # noqa: N801 - a context manager
    """The trainer and task of a finished run with its chosen weights, over its own data or other ones.

    Args:
        run: the run folder.
        data, read: other data, and how they are read; features and labels may be tables or arrays in memory.
        device: where to compute; None takes the run's own setting.
        evaluation: other settings of evaluation.
        bare: without any events: for a model of event streams that follows a past.
        own: refuse events that are not the run's own: they would be taken for all that ever happened.
        method: the run's method where the library does not hold it; see `hopstate.methods.method_of_run`.
    """

    def __init__(
        self,
        run: str | Path,
        data: Any = None,
        read: Mapping[str, Any] | None = None,
        device: str | None = None,
        *,
        evaluation: Mapping[str, Any] | None = None,
        bare: bool = False,
        own: bool = False,
        method: str | None = None,
    ) -> None:
        self.folder, self.data, self.device = RunFolder.open(run), data, device
        given = {key: as_frame(value) for key, value in (read or {}).items()}
        self.tables = {key: value for key, value in given.items() if is_frame(value) or is_array(value)}
        self.read = {key: f"memory:{key}" if key in self.tables else value for key, value in given.items()}
        self.evaluation, self.bare, self.own, self.method = dict(evaluation or {}), bare, own, method

    def __enter__(self) -> tuple[Trainer, Task]:
        self._open = ExitStack()
        try:
            return self._load()
        except BaseException:
            self._open.close()
            raise

    def __exit__(self, *error: object) -> None:
        self._open.close()

    @cached_property
    def _scratch(self) -> Path:
        """A folder that goes with this; made where it is needed: a process that is killed leaves it behind."""
        return Path(self._open.enter_context(tempfile.TemporaryDirectory(prefix="hopstate-")))

    @random_state_kept()
    def _load(self) -> tuple[Trainer, Task]:
        method, settings = settings_of_run(self.folder, self.method)
        saved, cells = load_checkpoint(self.folder.weights), settings.get("read", {}).get("label_cells")
        config = self._config(method, settings)
        in_memory = self.data is not None and not isinstance(self.data, (str, Path))
        load = partial(load_data, config.data, config.read, method.data)
        if in_memory or self.tables:
            load = partial(record_of, method.data, self.data, self.tables, reading(config.read))
        facts = known_data(self.folder) | {"label_cells": cells}
        record = self._without_events(facts, load) if self.bare else self._checked(load(), config.data)
        if self.data is not None and settings.get("task") == "link" and isinstance(record, Graph):
            tell_links(self.folder, record, facts["num_nodes"], self._scratch, tabled=self._tabled)
        context = Context(
            run=self.folder.path if self.data is None else self._scratch,
            cache=cache_folder(),
            metrics=data_metrics(config.data),
            trained=facts,
        )
        seed_everything(config.loop.seed)
        weights, where = saved.tensors.get("model", {}), str(self.folder.weights)
        if self.data is not None and self._tabled and isinstance(record, Graph):
            tell_new(self.folder, method, config, record, facts["num_nodes"])
        with naming(self.folder.path, "a trained run", CheckpointError), within_weights(weights, where, record):
            record, _ = prepared(record, config, context, edges=method.reads_edges(config))
            with idle_reset():
                task = method.build(record, config, context)
        if config.loop.precision == "64":
            task.model.double()  # or loading rounds the weights
        load_weights(task.model, weights, where)
        trainer = Trainer(task, config.loop, self.folder, method=method.name)
        task.model = trainer.fabric.setup_module(task.model).eval()  # it answers; what trains it says so
        return trainer, task

    def _config(self, method: Method, settings: dict[str, Any]) -> Any:
        if self.device is not None:
            settings["loop"]["device"] = self.device
        if self.evaluation and "evaluation" not in settings:
            raise ConfigError(f"{method.name} has no settings of evaluation to change")
        if self.evaluation:
            settings["evaluation"] |= self.evaluation
        filled = settings["read"].get("missing", "error")
        if "scale" in self.read:
            raise ConfigError("a trained run scales features as it was trained to; leave read.scale out")
        if self.data is not None:
            own = self._own_reading(method.data, settings["read"])
            settings["read"] = own | ({"missing": filled} if filled != "error" else {}) | dict(self.read)
        if isinstance(self.data, (str, Path)):
            settings["data"] = str(self.data)
        return config_of_run(self.folder, method, settings)

    def _own_reading(self, kind: str, own: Mapping[str, Any]) -> dict[str, Any]:
        if kind == "graph":
            return own_graph_reading(self.folder, own, self.data, self.read | self.tables)
        return own_reading(self.folder, own, self.data) if kind == "events" and not self.bare else {}

    @property
    def _tabled(self) -> bool:
        """Whether other data are a table, whose nodes are called by the user's own ids."""
        if not isinstance(self.data, (str, Path)):
            return is_frame(self.data)
        return find_dataset(str(self.data)) is None and is_table(expanded(str(self.data)))

    def _checked(self, record: Record, name: str) -> Any:
        if self.data is None and not same_data(self.folder, record):
            warnings.warn(
                f"{name} has changed since this run was trained on it; if its splits changed too, training "
                f"nodes may now count as test",
                HopstateWarning,
                stacklevel=6,
            )
        if self.own and isinstance(record, EventStream) and not same_data(self.folder, record):
            raise ConfigError(
                f"{record.name} holds other events than the run was trained on; evaluating them begins from an empty "
                "past, without what the run has seen; give --fresh (fresh=True) for that, or score later events from "
                "the run's past with `hopstate predict`"
            )
        return record

    def _without_events(self, facts: dict[str, Any], record_of: Callable[[], Any]) -> EventStream:
        """Return a stream without events that stands for what a run's data were like."""
        if "feature_dims" not in facts:  # version 0.1.0 did not note them
            record = record_of()
            facts |= {"feature_dims": record.feature_dims, "time_unit": record.time_unit}
        none = np.empty(0, np.int64)
        kept = {"num_nodes": facts["num_nodes"], "time_unit": facts["time_unit"], "name": facts["name"]}
        return EventStream(src=none, dst=none, t=none, labels=none, **kept)
