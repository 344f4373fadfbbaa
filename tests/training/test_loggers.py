"""TensorBoard, MLflow and Weights & Biases: logged content, without a network."""

import json
import struct
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import ClassVar

import numpy as np
import pytest

import hopstate
from hopstate.cli.main import main
from hopstate.errors import ConfigError, HopstateError, HopstateWarning, MissingExtraError
from hopstate.testing.conformance import F32_TIGHT
from hopstate.training import loggers
from hopstate.training.loggers import Loggers, MLflow, TensorBoard, WandB, loggable_metrics, logger_names
from hopstate.training.run_folder import RunFolder

LOOP = {"loop.epochs": 3, "loop.progress": False, "loop.device": "cpu", "loop.checkpoint_seconds": 0.0, "model.dim": 4}


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    """An MLflow store, created once because its tables take seconds."""
    pytest.importorskip("mlflow")
    return f"sqlite:///{tmp_path_factory.mktemp('mlflow') / 'mlflow.db'}"


@pytest.fixture(autouse=True)
def _isolated(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("WANDB_MODE", "WANDB_DIR", "WANDB_PROJECT", "MLFLOW_EXPERIMENT_NAME"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def graph():
    rng = np.random.default_rng(0)
    y = np.arange(60) % 2
    return hopstate.Graph.from_edges(
        rng.integers(0, 60, (200, 2)), 60, x=(rng.normal(size=(60, 4)) + y[:, None]).astype(np.float32), y=y
    )


def fitted(graph, logger, *, resume=False, **more):
    return hopstate.fit("mlp", graph, out="run", config=LOOP | {"loop.logger": logger} | more, resume=resume)


def stopped_after(monkeypatch, epochs):
    """Stop the next run after some epochs, as Ctrl-C does."""
    rows = RunFolder.append_metrics

    def append(self, row):
        rows(self, row)
        if row["epoch"] == epochs:
            import os
            import signal

            os.kill(os.getpid(), signal.SIGINT)

    monkeypatch.setattr(RunFolder, "append_metrics", append)


def rows_of(run="run"):
    return [loggable_metrics(row) | {"epoch": row["epoch"]} for row in RunFolder(run).history()]


# ---- TensorBoard -------------------------------------------------------------------------------------------
def in_tensorboard(folder):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(folder), purge_orphaned_data=True)
    events.Reload()
    tags = events.Tags()
    texts = {tag: events.Tensors(tag)[-1].tensor_proto.string_val[0].decode() for tag in tags["tensors"]}
    return {tag: [(e.step, e.value) for e in events.Scalars(tag)] for tag in tags["scalars"]}, texts


def test_tensorboard_has_rows_final_metrics_and_settings(graph):
    pytest.importorskip("tensorboard")
    run = fitted(graph, "tensorboard")
    scalars, texts = in_tensorboard("run/tensorboard")
    for name in ("train_loss", "val_accuracy", "lr"):
        np.testing.assert_allclose([v for _, v in scalars[name]], [row[name] for row in rows_of()], rtol=F32_TIGHT)
        assert [step for step, _ in scalars[name]] == [1, 2, 3]
    assert scalars["chosen/test_accuracy"] == [(3, pytest.approx(run.metrics["test"]["accuracy"], rel=F32_TIGHT))]
    assert texts["status/text_summary"] == "finished"
    assert '"model.dim": 4' in texts["settings/text_summary"]


def test_a_resumed_run_has_each_epoch_once_in_tensorboard(graph, monkeypatch):
    pytest.importorskip("tensorboard")
    with monkeypatch.context() as here:
        stopped_after(here, 2)
        assert fitted(graph, "tensorboard").interrupted
    assert in_tensorboard("run/tensorboard")[1]["status/text_summary"] == "interrupted"
    fitted(graph, "tensorboard", resume=True)
    scalars, texts = in_tensorboard("run/tensorboard")
    assert [step for step, _ in scalars["train_loss"]] == [1, 2, 3]
    assert texts["status/text_summary"] == "finished"


# ---- MLflow ------------------------------------------------------------------------------------------------
def in_mlflow(store, run="run"):
    from mlflow import MlflowClient

    client = MlflowClient(tracking_uri=store)
    logged = client.get_run(json.loads(Path(run, "logger-mlflow.json").read_text())["run"])
    return logged, {name: client.get_metric_history(logged.info.run_id, name) for name in logged.data.metrics}


@pytest.mark.slow
def test_mlflow_has_rows_final_metrics_and_settings_and_a_resumed_run_continues(graph, store, monkeypatch):
    monkeypatch.setenv("MLFLOW_TRACKING_URI", store)
    with monkeypatch.context() as here:
        stopped_after(here, 2)
        assert fitted(graph, "mlflow").interrupted
    logged, history = in_mlflow(store)
    first = logged.info.run_id
    assert (logged.info.status, logged.data.tags["hopstate.status"], logged.info.run_name) == (
        "KILLED",
        "interrupted",
        "run",
    )
    assert [m.step for m in history["train_loss"]] == [1, 2]
    assert "chosen/test_accuracy" not in history
    done = fitted(graph, "mlflow", resume=True)
    logged, history = in_mlflow(store)
    assert (logged.info.run_id, logged.info.status) == (first, "FINISHED")
    for name, values in history.items():
        if not name.startswith("chosen/"):
            assert [(m.step, m.value) for m in values] == [(row["epoch"], row[name]) for row in rows_of()]
    assert logged.data.metrics["chosen/test_accuracy"] == done.metrics["test"]["accuracy"]
    assert logged.data.metrics["chosen/epoch"] == done.best_epoch
    assert (logged.data.params["model.dim"], logged.data.params["method"]) == ("4", "mlp")


@pytest.mark.slow
def test_a_deleted_mlflow_run_is_created_again(graph, store, monkeypatch):
    monkeypatch.setenv("MLFLOW_TRACKING_URI", store)
    with monkeypatch.context() as here:
        stopped_after(here, 2)
        fitted(graph, "none")
    Path("run/logger-mlflow.json").write_text('{"run": "0123456789abcdef0123456789abcdef"}')
    fitted(graph, "mlflow", resume=True)
    assert [m.step for m in in_mlflow(store)[1]["train_loss"]] == [3]


def test_a_run_that_fails_ends_as_failed(graph, monkeypatch):
    rate = {"loop.optim.lr": 1e30, "loop.epochs": 50}
    seen = []
    monkeypatch.setattr(Loggers, "finish", lambda self, status: seen.append(status))
    with pytest.raises(HopstateError):
        fitted(graph, "none", **rate)
    assert seen == ["failed"]


class Client:
    """A store of MLflow as `MlflowClient` shows it: one experiment, metrics of its runs."""

    runs: ClassVar[dict[str, dict]] = {}

    def get_experiment_by_name(self, name):
        return SimpleNamespace(experiment_id=name)

    def create_run(self, experiment, run_name):
        self.runs[f"id{len(self.runs)}"] = {"metrics": [], "params": {}, "tags": {}, "name": run_name}
        return SimpleNamespace(info=SimpleNamespace(run_id=f"id{len(self.runs) - 1}"))

    def update_run(self, run, status):
        if run not in self.runs:
            raise KeyError(run)
        self.runs[run]["status"] = status

    def log_batch(self, run, metrics=(), params=(), tags=()):
        assert len(metrics) <= 100
        assert len(params) <= 100
        self.runs[run]["metrics"] += [(name, value, step) for name, value, _, step in metrics]
        self.runs[run]["params"].update(params)
        self.runs[run]["tags"].update(tags)

    def set_terminated(self, run, status):
        self.runs[run]["status"] = status


def test_calls_to_mlflow(tmp_path, monkeypatch):
    """A resumed run continues in its MLflow run; a deleted one is created again."""
    monkeypatch.setattr(Client, "runs", {})

    def row(*values):
        return values

    entities = SimpleNamespace(Metric=row, Param=row, RunTag=row)
    client = SimpleNamespace(MlflowClient=Client)
    for name, module in (
        ("mlflow", client),
        ("mlflow.entities", entities),
        ("mlflow.exceptions", SimpleNamespace(MlflowException=KeyError)),
    ):
        monkeypatch.setitem(sys.modules, name, module)
    rows = [{"epoch": epoch, "step": 4 * epoch, "val_hits@10": epoch / 8} for epoch in (1, 2)]
    logger = MLflow(tmp_path)
    logger.start({f"setting{i}": i for i in range(150)}, "own", 0)
    logger.log(loggable_metrics(rows[0]), 1)
    logger.finish("interrupted")
    (made,) = Client.runs.values()
    assert (made["status"], made["tags"], made["name"]) == ("KILLED", {"hopstate.status": "interrupted"}, "own")
    assert made["params"] == {f"setting{i}": str(i) for i in range(150)}
    logger = MLflow(tmp_path)
    logger.start({}, "own", 1)
    logger.log(loggable_metrics(rows[1]), 2)
    logger.finish("finished")
    (made,) = Client.runs.values()
    assert made["metrics"] == [("val_hits_at_10", 0.125, 1), ("val_hits_at_10", 0.25, 2)]
    assert made["status"] == "FINISHED"
    Client.runs.clear()
    logger = MLflow(tmp_path)
    logger.start({"lr": 1}, "own", 2)
    (made,) = Client.runs.values()
    assert made["params"] == {"lr": "1"}


# ---- Weights & Biases ----------------------------------------------------------------------------------------
def records(path):
    """Return the records of an offline wandb file: a LevelDB log after a header of seven bytes."""
    from wandb.proto import wandb_internal_pb2 as pb

    data, at, part, found = path.read_bytes(), 7, b"", []
    while at + 7 <= len(data):
        left = 32768 - at % 32768
        if left < 7:
            at += left
            continue
        _, size, kind = struct.unpack("<IHB", data[at : at + 7])
        part, at = part + data[at + 7 : at + 7 + size], at + 7 + size
        if kind in (1, 4):  # a complete record, or its last part
            record = pb.Record()
            record.ParseFromString(part)
            found.append(record)
            part = b""
    return found


def in_wandb():
    """Return for each file: id, rows of its history, summary, exit code."""
    found = []
    for path in sorted(Path("wandb").glob("offline-run-*/*.wandb")):
        record_of_run = {"rows": [], "summary": {}}
        for record in records(path):
            kind = record.WhichOneof("record_type")
            if kind == "run":
                record_of_run["id"] = record.run.run_id
                record_of_run["config"] = {
                    (i.key or i.nested_key[0]): json.loads(i.value_json) for i in record.run.config.update
                }
            elif kind == "history":
                items = record.history.item
                record_of_run["rows"].append({(i.key or i.nested_key[0]): json.loads(i.value_json) for i in items})
            elif kind == "summary":
                update = record.summary.update
                record_of_run["summary"] |= {(i.key or i.nested_key[0]): json.loads(i.value_json) for i in update}
            elif kind == "exit":
                record_of_run["exit"] = record.exit.exit_code
        found.append(record_of_run)
    return found


@pytest.mark.slow
def test_wandb_writes_an_offline_run_and_a_resumed_one_has_its_id(graph, monkeypatch):
    pytest.importorskip("wandb")
    with monkeypatch.context() as here:
        stopped_after(here, 2)
        assert fitted(graph, "wandb").interrupted
    time.sleep(1.1)  # its folders are named by second
    done = fitted(graph, "wandb", resume=True)
    first, second = in_wandb()
    assert first["id"] == second["id"] == json.loads(Path("run/logger-wandb.json").read_text())["run"]
    assert (first["exit"], second["exit"]) == (130, 0)
    assert (first["summary"]["status"], second["summary"]["status"]) == ("interrupted", "finished")
    logged = [*first["rows"], *second["rows"]]
    for row, logged_row in zip(rows_of(), logged, strict=True):
        assert logged_row["_step"] == row["epoch"]
        assert all(logged_row[name] == row[name] for name in row if name != "epoch")
    assert logged[-1]["chosen/test_accuracy"] == done.metrics["test"]["accuracy"]
    assert first["config"]["model.dim"] == 4


def test_calls_to_wandb(tmp_path, monkeypatch):
    """A resumed run has the id of the first; steps are epochs and the exit code says how it ended."""
    calls = []

    class Run:
        def __init__(self, **given):
            self.summary = {}
            calls.append(given["id"])

        def log(self, metrics, step):
            calls.append((metrics, step))

        def finish(self, exit_code):
            calls.append((self.summary["status"], exit_code))

    monkeypatch.setitem(sys.modules, "wandb", SimpleNamespace(init=Run, Settings=dict))
    for epoch, status in ((1, "interrupted"), (2, "finished")):
        logger = WandB(tmp_path)
        logger.start({"model.dim": 4}, "run", epoch - 1)
        logger.log({"val_accuracy": 0.5}, epoch)
        logger.finish(status)
    name = json.loads((tmp_path / "logger-wandb.json").read_text())["run"]
    steps = [name, ({"val_accuracy": 0.5}, 1), ("interrupted", 130), name, ({"val_accuracy": 0.5}, 2), ("finished", 0)]
    assert calls == steps


# ---- what stops nothing ----------------------------------------------------------------------------------------
@pytest.mark.parametrize("method", ["start", "log", "finish"])
def test_a_failing_logger_does_not_stop_training(method, graph, monkeypatch):
    def fail(*arguments):
        raise OSError("no route to host")

    for name in ("start", "log", "finish"):
        monkeypatch.setattr(TensorBoard, name, fail if name == method else lambda *arguments: None)
    monkeypatch.setitem(loggers.REQUIRED_MODULES, "tensorboard", ())
    plain = fitted(graph, "none")
    Path("run").rename("plain")
    with pytest.warns(HopstateWarning, match="tensorboard"):
        run = fitted(graph, "tensorboard")
    assert run.metrics == plain.metrics


@pytest.mark.slow
def test_an_unreachable_mlflow_server_does_not_stop_training(graph, monkeypatch):
    pytest.importorskip("mlflow")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://127.0.0.1:9")
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    with pytest.warns(HopstateWarning, match="mlflow"):
        assert not fitted(graph, "mlflow").interrupted


# ---- settings --------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("name", ["tensorboard", "mlflow", "wandb"])
def test_a_missing_logger_package_is_named_before_data_are_read(name, monkeypatch, capsys):
    monkeypatch.setitem(loggers.REQUIRED_MODULES, name, ("no_such_module",))
    with pytest.raises(MissingExtraError, match=name):
        hopstate.fit("mlp", "nowhere.csv", out="run", config={"loop.logger": name})
    assert main(["fit", "mlp", "--data", "nowhere.csv", "--out", "run", "--loop.logger", name]) != 0
    assert f"hopstate[{name}]" in capsys.readouterr().err
    assert not Path("run").exists()


def test_repeated_and_unknown_loggers_are_rejected():
    assert logger_names("mlflow, wandb,mlflow") == ("mlflow", "wandb")
    for logger in ("none,wandb", ""):
        with pytest.raises(ConfigError):
            logger_names(logger)
    with pytest.raises(ConfigError, match="wanb"):
        logger_names("wanb")
    assert logger_names("none") == ()
