"""Metric loggers for TensorBoard, MLflow and Weights & Biases, imported only if a run uses them.

A logger that fails is disabled with a warning and does not stop training. `metrics.jsonl` in the run folder always has
every metric.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import re
import secrets
import time
import warnings
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal

from hopstate.errors import ConfigError, HopstateError, HopstateWarning, MissingExtraError, nearest
from hopstate.io.files import write_text
from hopstate.io.opening import read_json

Status = Literal["finished", "interrupted", "failed"]
Row = Mapping[str, Any]
REQUIRED_MODULES = {
    "tensorboard": ("tensorboard",),
    "mlflow": ("mlflow", "sqlalchemy", "alembic"),  # MLflow's own local store is a SQLite file
    "wandb": ("wandb",),
}
_NOT_A_METRIC = re.compile(r"^(epoch|step)$|_events$")


def loggable_metrics(row: Row) -> dict[str, float]:
    """Return the metrics of a row as floats, without epoch, step and event counts.

    >>> loggable_metrics({"epoch": 1, "train_loss": 0.5, "val_auc": None, "val_num_events": 900})
    {'train_loss': 0.5}
    """
    return {k: float(v) for k, v in row.items() if not _NOT_A_METRIC.search(k) and isinstance(v, (int, float))}


class Logger(ABC):
    """Write the metrics of one run to a backend."""

    name: str
    remote = True  # it may open a network address

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @abstractmethod
    def start(self, settings: Mapping[str, Any], name: str, epoch: int) -> None:
        """Start a run, or continue the run stored in the folder.

        Args:
            settings: the run's settings by dotted name.
            name: name of the run.
            epoch: epoch of the checkpoint if the run is resumed, otherwise 0.
        """

    @abstractmethod
    def log(self, metrics: Mapping[str, float], epoch: int) -> None:
        """Write the metrics of an epoch, counted from 1."""

    @abstractmethod
    def finish(self, status: Status) -> None:
        """End the run; an interrupted run can be resumed."""

    def stored(self) -> str:
        """Return the id written by `store`, or "" if the file is missing or damaged."""
        try:
            return str(read_json(self.folder / f"logger-{self.name}.json")["run"])
        except (HopstateError, OSError, LookupError, TypeError):
            return ""

    def store(self, run: str) -> None:
        write_text(self.folder / f"logger-{self.name}.json", json.dumps({"run": run}) + "\n")


class TensorBoard(Logger):
    """Write event files to the run folder; a resumed run hides entries after its checkpoint."""

    name = "tensorboard"
    remote = False

    def start(self, settings: Mapping[str, Any], name: str, epoch: int) -> None:
        from torch.utils.tensorboard import SummaryWriter

        self._last = epoch
        folder = str(self.folder / "tensorboard")
        self._writer: Any = SummaryWriter(folder, purge_step=epoch + 1 if epoch else None)
        self._writer.add_text("settings", f"```json\n{json.dumps(settings, indent=1, default=str)}\n```", self._last)

    def log(self, metrics: Mapping[str, float], epoch: int) -> None:
        self._last = epoch
        for name, value in metrics.items():
            self._writer.add_scalar(name, value, epoch)
        self._writer.flush()

    def finish(self, status: Status) -> None:
        self._writer.add_text("status", status, self._last)
        self._writer.close()


class MLflow(Logger):
    """Write to MLFLOW_TRACKING_URI, or to MLflow's local store.

    The experiment is MLFLOW_EXPERIMENT_NAME, or "hopstate".
    """

    name = "mlflow"
    _batch = 100  # parameters of one call
    _longest = 6000  # characters of a parameter

    def start(self, settings: Mapping[str, Any], name: str, epoch: int) -> None:
        os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")  # read when MLflow is imported
        os.environ.setdefault("MLFLOW_HTTP_REQUEST_TIMEOUT", "5")  # a server that is down must not hold training up
        os.environ.setdefault("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "1")
        from mlflow import MlflowClient
        from mlflow.entities import Param
        from mlflow.exceptions import MlflowException

        logging.getLogger("mlflow.store.db.utils").setLevel(logging.WARNING)  # it logs every table it makes
        self._client, self._run = MlflowClient(), self.stored()
        with contextlib.suppress(MlflowException):  # deleted, or of another store
            if self._run:
                self._client.update_run(self._run, status="RUNNING")
                return
        self._run = self._client.create_run(self._experiment(), run_name=name).info.run_id
        self.store(self._run)
        params = [Param(key, str(value)[: self._longest]) for key, value in settings.items()]
        for i in range(0, len(params), self._batch):
            self._client.log_batch(self._run, params=params[i : i + self._batch])

    def log(self, metrics: Mapping[str, float], epoch: int) -> None:
        from mlflow.entities import Metric

        now = int(time.time() * 1000)
        found = [Metric(_mlflow_name(name), value, now, epoch) for name, value in metrics.items()]
        self._client.log_batch(self._run, metrics=found)

    def finish(self, status: Status) -> None:
        from mlflow.entities import RunTag

        statuses = {"finished": "FINISHED", "interrupted": "KILLED", "failed": "FAILED"}
        self._client.log_batch(self._run, tags=[RunTag("hopstate.status", status)])
        self._client.set_terminated(self._run, statuses[status])

    def _experiment(self) -> str:
        name = os.environ.get("MLFLOW_EXPERIMENT_NAME") or "hopstate"
        found = self._client.get_experiment_by_name(name)
        return self._client.create_experiment(name) if found is None else found.experiment_id


def _mlflow_name(metric: str) -> str:
    return metric.replace("@", "_at_")  # MLflow refuses "@"


class WandB(Logger):
    """Write to the project WANDB_PROJECT, or "hopstate"; offline unless WANDB_MODE is set.

    `wandb sync` uploads offline runs. A resumed run keeps its id.
    """

    name = "wandb"

    def start(self, settings: Mapping[str, Any], name: str, epoch: int) -> None:
        os.environ.setdefault("WANDB_ERROR_REPORTING", "false")  # read when wandb is imported
        import wandb

        run = self.stored() or secrets.token_hex(4)
        self.store(run)
        mode: Any = os.environ.get("WANDB_MODE") or "offline"
        self._run = wandb.init(
            project=os.environ.get("WANDB_PROJECT") or "hopstate",
            name=name,
            id=run,
            mode=mode,
            resume="allow",
            reinit="create_new",
            config=dict(settings),
            settings=wandb.Settings(silent=True, console="off", x_disable_stats=True),
        )

    def log(self, metrics: Mapping[str, float], epoch: int) -> None:
        self._run.log(dict(metrics), step=epoch)

    def finish(self, status: Status) -> None:
        self._run.summary["status"] = status
        self._run.finish(exit_code={"finished": 0, "interrupted": 130, "failed": 1}[status])


LOGGERS: dict[str, type[Logger]] = {kind.name: kind for kind in (TensorBoard, MLflow, WandB)}


class Loggers:
    """Pass a run's metrics to its loggers."""

    def __init__(self, names: Sequence[str], folder: Path, settings: Mapping[str, Any], epoch: int = 0) -> None:
        self._active = [LOGGERS[name](folder) for name in names]
        self._call("start", dict(settings), folder.resolve().name, epoch)

    def log(self, row: Row) -> None:
        """Write a row of metrics that includes its epoch."""
        self._call("log", loggable_metrics(row), int(row["epoch"]))

    def finish(self, status: Status) -> None:
        self._call("finish", status)

    def _call(self, method: str, *arguments: Any) -> None:
        for logger in list(self._active):
            try:
                getattr(logger, method)(*arguments)
            except Exception as error:  # whatever the library raises
                self._active.remove(logger)
                warnings.warn(
                    f"logger {logger.name} was disabled: {type(error).__name__}: {error}; training "
                    "continues, and metrics.jsonl in the run folder has every metric",
                    HopstateWarning,
                    stacklevel=4,
                )


def logger_names(logger: str) -> tuple[str, ...]:
    """Return the loggers of the setting `loop.logger`; "auto" is TensorBoard if it is installed.

    Raises:
        ConfigError: an unknown name.

    >>> logger_names("mlflow,wandb"), logger_names("none")
    (('mlflow', 'wandb'), ())
    """
    if logger == "none":
        return ()
    if logger == "auto":
        return ("tensorboard",) if _installed("tensorboard") else ()
    names = tuple(dict.fromkeys(part.strip() for part in logger.split(",")))
    known = (*LOGGERS, "auto", "none")
    for name in names:
        if name not in LOGGERS:
            hint = f"; {name} cannot be combined" if name in known else nearest(name, known)
            raise ConfigError(
                f"loop.logger must be one or more of {', '.join(known)}, separated by commas; got {logger!r}{hint}"
            )
    return names


def remote_loggers(logger: str) -> set[str]:
    """Return the loggers of the setting `loop.logger` that may open a network address."""
    return {name for name in logger_names(logger) if LOGGERS[name].remote}


def check_loggers(logger: str) -> None:
    """Check `loop.logger` before the data are read.

    Raises:
        ConfigError: an unknown name.
        MissingExtraError: a logger's package is not installed; the message names the extra.
    """
    for name in logger_names(logger):
        missing = [module for module in REQUIRED_MODULES[name] if not _installed(module)]
        if missing:
            raise MissingExtraError(f"loop.logger={name} needs {', '.join(missing)}: pip install 'hopstate[{name}]'")


def _installed(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ValueError:  # in sys.modules without a spec, or as None
        return False
