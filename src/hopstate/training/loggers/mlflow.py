"""MLflow: a run of an experiment, in the store that MLFLOW_TRACKING_URI names, else in `mlflow.db` where one stands.

The experiment is MLFLOW_EXPERIMENT_NAME, else "hopstate".
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")  # looked at when it is imported

from mlflow import MlflowClient, get_tracking_uri
from mlflow.entities import Metric, Param, RunStatus, RunTag
from mlflow.exceptions import MlflowException

from hopstate.training.loggers.protocol import Kept, Row, Status, figures

STATUS = {"finished": RunStatus.FINISHED, "interrupted": RunStatus.KILLED, "failed": RunStatus.FAILED}
_LONGEST = 6000  # characters of a parameter
_MOST = 100  # parameters, or figures, of one call


class MLflow:
    """Writes one run; a resumed run goes on in it, and figures that a killed one did not bring there are added."""

    def __init__(self, folder: Path) -> None:
        self._kept = Kept(folder, "mlflow")
        before = self._kept.read()
        self._uri = before.get("store") or _absolute(get_tracking_uri())
        self._run = before.get("run", "")
        self.seconds = 60.0 if _local(self._uri) else 5.0

    def start(self, settings: Mapping[str, Any], name: str, rows: Sequence[Row]) -> None:
        """Make the run, or take it up; see `protocol.Logger`."""
        logging.getLogger("mlflow.store.db.utils").setLevel(logging.WARNING)  # tells of every table it makes
        self._client = MlflowClient(tracking_uri=self._uri)
        if not self._taken_up():
            self._run = self._client.create_run(self._experiment(), run_name=name).info.run_id
            self._kept.write(run=self._run, **({"store": self._uri} if _local(self._uri) else {}))
            params = [Param(key, str(value)[:_LONGEST]) for key, value in settings.items()]
            for i in range(0, len(params), _MOST):
                self._client.log_batch(self._run, params=params[i : i + _MOST])
        known = self._known(figures(rows[-1])) if rows else 0
        for row in rows:
            if row["epoch"] > known:
                self.log(figures(row), int(row["epoch"]))

    def log(self, metrics: Mapping[str, float], epoch: int) -> None:
        """Write figures; "@" stands in no name there and becomes "_at_"."""
        now = int(time.time() * 1000)
        found = [Metric(name.replace("@", "_at_"), value, now, epoch) for name, value in metrics.items()]
        for i in range(0, len(found), _MOST):
            self._client.log_batch(self._run, metrics=found[i : i + _MOST])

    def finish(self, status: Status) -> None:
        """Set the status; one that was interrupted is KILLED."""
        self._client.log_batch(self._run, tags=[RunTag("hopstate.status", status)])
        self._client.set_terminated(self._run, RunStatus.to_string(STATUS[status]))

    def _taken_up(self) -> bool:
        """Return whether the run that was kept is there still; it then is running again."""
        if not self._run:
            return False
        try:
            self._client.update_run(self._run, status=RunStatus.to_string(RunStatus.RUNNING))
        except MlflowException:  # deleted, or another store
            return False
        return True

    def _known(self, names: Iterable[str]) -> int:
        found = (self._client.get_metric_history(self._run, name.replace("@", "_at_")) for name in names)
        return max((metric.step for history in found for metric in history), default=0)

    def _experiment(self) -> str:
        name = os.environ.get("MLFLOW_EXPERIMENT_NAME") or "hopstate"
        found = self._client.get_experiment_by_name(name)
        if found is not None:
            return found.experiment_id
        try:
            return self._client.create_experiment(name)
        except MlflowException:  # another run was faster
            found = self._client.get_experiment_by_name(name)
            if found is None:
                raise
            return found.experiment_id


def _local(uri: str) -> bool:
    return uri.startswith(("sqlite:", "file:", "/"))


def _absolute(uri: str) -> str:
    """Return a store's address that means the same from any folder."""
    head = "sqlite:///"
    return head + str(Path(uri.removeprefix(head)).resolve()) if uri.startswith(head) else uri
