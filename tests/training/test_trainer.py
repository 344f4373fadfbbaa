"""The training loop: exact resume, the best epoch is kept, damage and misuse are named."""

import json
import os
import signal
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from hopstate.errors import CheckpointError, ConfigError, HopstateError, HopstateWarning, StorageError
from hopstate.io.files import _HOST, locked
from hopstate.training import checkpoint as checkpoint_module
from hopstate.training.checkpoint import load_checkpoint
from hopstate.training.config import LoopConfig, OptimConfig
from hopstate.training.run_folder import RunFolder
from hopstate.training.tasks.node import NodeLabels, NodeTask, RowBatches
from hopstate.training.tasks.target import Target
from hopstate.training.trainer import STOPPING, Trainer, seed_everything
from torch_threads import torch_threads


def make_task(batch_size: int = 7, width: int = 16, on_batch=None) -> NodeTask:
    rng = np.random.default_rng(0)
    x = torch.from_numpy(rng.normal(size=(60, 5)).astype(np.float32))
    y = (x[:, 0] + 0.5 * torch.from_numpy(rng.normal(size=60)).float() > 0).long().numpy()
    split = {"train": np.arange(0, 31), "val": np.arange(31, 45), "test": np.arange(45, 60)}
    labels = NodeLabels(
        y=y, split=split, target=Target(goal="classes", names=("no", "yes"), metrics=("roc_auc", "accuracy"))
    )
    model = nn.Sequential(nn.Linear(5, width), nn.ReLU(), nn.Dropout(0.5), nn.Linear(width, 2))

    def inputs(rows: np.ndarray) -> torch.Tensor:
        if on_batch:
            on_batch()
        return x[torch.from_numpy(rows)]

    return NodeTask(model, RowBatches(inputs, labels, batch_size=batch_size, seed=3))


def config(**changes) -> LoopConfig:
    defaults = {"epochs": 6, "patience": None, "progress": False, "logger": "none", "device": "cpu", "seed": 3}
    optim = OptimConfig(lr=0.01, schedule="cosine", warmup=0.2)
    return LoopConfig(**{**defaults, "optim": optim, "grad_clip": 1.0, "checkpoint_seconds": 0.0, **changes})


def train(folder: Path, settings: LoopConfig, resume: bool = False, **task):
    seed_everything(settings.seed)
    run = RunFolder.create(folder, {"loop": {"seed": settings.seed}}, resume=resume)
    trainer = Trainer(make_task(**task), settings, run, method="toy", data_hash="d")
    return trainer.fit(resume=resume), trainer


def rows_without_times(folder: Path) -> list[dict]:
    return [{k: v for k, v in row.items() if k != "seconds"} for row in RunFolder(folder).history()]


def stop_after(batches: int):
    """Return a callback that sends Ctrl-C to this process at the given batch."""
    seen = 0

    def on_batch() -> None:
        nonlocal seen
        seen += 1
        if seen == batches:
            os.kill(os.getpid(), signal.SIGINT)

    return on_batch


@pytest.fixture(scope="module")
def whole_home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of an uninterrupted run, with its result next to it. Read only."""
    home = tmp_path_factory.mktemp("trainer")
    train(home / "whole", config())
    return home / "whole"


def metrics_of(folder: Path) -> dict[str, dict[str, float]]:
    return json.loads((folder / "result.json").read_text())["metrics"]


@pytest.mark.parametrize("batches", [3, 12])
def test_resumed_run_equals_uninterrupted(tmp_path: Path, whole_home: Path, batches: int) -> None:
    first, _ = train(tmp_path / "cut", config(), on_batch=stop_after(batches))
    assert first.interrupted
    assert not (tmp_path / "cut" / "result.json").exists()
    torch.rand(17)  # the resumed process has another random state
    second, _ = train(tmp_path / "cut", config(), resume=True)
    assert not second.interrupted
    assert second.metrics == metrics_of(whole_home)
    assert rows_without_times(tmp_path / "cut") == rows_without_times(whole_home)
    a, b = (load_checkpoint(d / "checkpoint.safetensors").tensors for d in (whole_home, tmp_path / "cut"))
    assert a.keys() == b.keys()
    for group in a:
        for name in a[group]:
            assert torch.equal(a[group][name], b[group][name]), (group, name)


def test_ctrl_c_during_validation_prints_a_message(tmp_path: Path, monkeypatch, capsys) -> None:
    evaluate, captured = Trainer.evaluate, list[str]()

    def stopped(trainer, split):
        os.kill(os.getpid(), signal.SIGINT)
        captured.append(capsys.readouterr().err)
        return evaluate(trainer, split)

    monkeypatch.setattr(Trainer, "evaluate", stopped)
    for progress in (True, False):
        first, _ = train(tmp_path / str(progress), config(progress=progress))
        assert first.interrupted
    assert [text.count(STOPPING) for text in captured] == [1, 0]


def test_resuming_after_a_kill_uses_the_last_checkpoint(tmp_path: Path, whole_home: Path) -> None:

    class KilledError(Exception):
        pass

    count = 0

    def die() -> None:
        nonlocal count
        count += 1
        if count == 20:
            raise KilledError

    with pytest.raises(KilledError):
        train(tmp_path / "cut", config(), on_batch=die)
    second, _ = train(tmp_path / "cut", config(), resume=True)
    assert second.metrics == metrics_of(whole_home)
    assert rows_without_times(tmp_path / "cut") == rows_without_times(whole_home)


def test_a_run_resumed_after_the_last_step_of_an_epoch_writes_the_same_rows(tmp_path: Path, whole_home: Path) -> None:

    class KilledError(Exception):
        pass

    def evaluate(split: str) -> dict[str, float]:
        raise KilledError

    seed_everything(3)
    task = make_task()
    task.evaluate = evaluate
    run = RunFolder.create(tmp_path / "cut", {"loop": {"seed": 3}})
    with pytest.raises(KilledError):
        Trainer(task, config(checkpoint_seconds=1e-9), run, method="toy", data_hash="d").fit()
    progress = load_checkpoint(tmp_path / "cut" / "checkpoint.safetensors").record["progress"]
    assert progress["epoch"] == 0
    assert progress["step"] == 5  # all steps of the epoch: 31 rows in batches of 7
    second, _ = train(tmp_path / "cut", config(), resume=True)
    assert second.metrics == metrics_of(whole_home)
    assert rows_without_times(tmp_path / "cut") == rows_without_times(whole_home)


def test_same_seed_same_result_other_seed_other_result(tmp_path: Path, whole_home: Path) -> None:
    b, _ = train(tmp_path / "b", config())
    c, _ = train(tmp_path / "c", config(seed=4))
    assert metrics_of(whole_home) == b.metrics
    assert metrics_of(whole_home) != c.metrics


def test_the_best_epoch_is_selected_on_validation_and_copied(tmp_path: Path) -> None:
    result, trainer = train(tmp_path / "run", config(epochs=8, optim=OptimConfig(lr=0.3)))
    values = [row["val_roc_auc"] for row in trainer.run.history()]
    assert result.progress.best == max(values)
    assert result.progress.best_epoch == 1 + int(np.argmax(values))
    assert result.metrics["val"]["roc_auc"] == max(values)  # fails if the best weights alias the live ones
    weights = load_checkpoint(tmp_path / "run" / "model.safetensors").tensors["model"]
    assert all(torch.equal(v, trainer.task.model.state_dict()[k]) for k, v in weights.items())


def test_patience_stops_early(tmp_path: Path) -> None:
    result, trainer = train(tmp_path / "run", config(epochs=200, patience=3, optim=OptimConfig(lr=0.3)))
    assert result.progress.epoch == result.progress.best_epoch + 3
    assert len(trainer.run.history()) == result.progress.epoch
    again, _ = train(tmp_path / "run", config(epochs=200, patience=3, optim=OptimConfig(lr=0.3)), resume=True)
    assert again.metrics == result.metrics


def test_patience_below_eval_every_waits_for_a_second_validation(tmp_path: Path) -> None:
    settings = config(epochs=30, eval_every=10, patience=3, optim=OptimConfig(lr=0.3))
    train(tmp_path / "run", settings)
    evaluated = [row["epoch"] for row in rows_without_times(tmp_path / "run") if "val_roc_auc" in row]
    assert evaluated[:2] == [10, 20]


def test_epochs_may_be_increased_when_resuming(tmp_path: Path) -> None:
    constant = OptimConfig(lr=0.01)
    train(tmp_path / "a", config(epochs=1, optim=constant))
    more, _ = train(tmp_path / "a", config(epochs=2, optim=constant), resume=True)
    whole, _ = train(tmp_path / "b", config(epochs=2, optim=constant))
    assert more.metrics == whole.metrics


@pytest.mark.usefixtures("draws_curves")
def test_files_of_a_run_folder(tmp_path: Path) -> None:
    train(tmp_path, config(epochs=6))
    names = {p.name for p in tmp_path.iterdir()}
    assert names >= {
        "config.json",
        "environment.json",
        "metrics.jsonl",
        "metrics.csv",
        "curves.png",
        "result.json",
        "checkpoint.safetensors",
        "model.safetensors",
    }
    assert not [n for n in names if n.startswith(".")]
    result = json.loads((tmp_path / "result.json").read_text())
    assert result["epochs"] == 6
    assert result["seconds_per_epoch"] >= 0
    assert (tmp_path / "curves.png").read_bytes()[:4] == b"\x89PNG"
    table = (tmp_path / "metrics.csv").read_text().splitlines()
    assert len(table) == 7
    assert table[0].startswith("epoch,step,lr,train_loss,val_roc_auc")


def test_an_occupied_folder_is_rejected_and_not_changed(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "thesis.txt").write_text("mine")
    with pytest.raises(ConfigError):
        train(tmp_path / "run", config())
    assert [p.name for p in (tmp_path / "run").iterdir()] == ["thesis.txt"]


def test_a_folder_of_a_failed_start_is_reused(tmp_path: Path) -> None:
    RunFolder.create(tmp_path / "run", {"loop": {"seed": 1}})
    done, _ = train(tmp_path / "run", config(epochs=1))
    assert done.progress.epoch == 1


@pytest.mark.parametrize("resume", [False, True])
def test_a_folder_of_a_rejected_start_is_reused_with_other_settings(tmp_path: Path, resume: bool) -> None:
    run = RunFolder.create(tmp_path / "run", {"loop": {"seed": 1}})
    stale = [run.path / name for name in ("data.json", "split.npz", "negatives/test_random.npz")]
    kept = run.path / "tokens" / "hops_0123.npy"
    for file in (*stale, kept):
        file.parent.mkdir(exist_ok=True)
        file.write_text("of the refused start")
    RunFolder.create(run.path, {"loop": {"seed": 2}}, resume=resume)
    assert run.settings() == {"loop": {"seed": 2}}
    assert not [file for file in stale if file.exists()]
    assert kept.is_file()  # named by its format


@pytest.mark.parametrize("left", [f".config.json.{_HOST}-999999999.0123456789ab.part", ".lock"])
@pytest.mark.parametrize("resume", [False, True])
def test_a_folder_of_a_start_killed_before_its_first_file_is_reused(tmp_path: Path, resume: bool, left: str) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / left).write_text("{")
    with locked(tmp_path / "run"):
        run = RunFolder.create(tmp_path / "run", {"loop": {"seed": 1}}, resume=resume)
    assert {file.name for file in run.path.iterdir()} == {"config.json", "environment.json"}


@pytest.mark.parametrize("resume", [False, True])
def test_a_folder_of_a_start_killed_between_its_first_files_is_reused(tmp_path: Path, resume: bool) -> None:
    settings = {"method": "toy", "data": "d", "loop": {"seed": 1}}
    run = RunFolder.create(tmp_path / "run", settings)
    (run.path / "environment.json").unlink()
    RunFolder.create(run.path, settings | {"data": "e"}, resume=resume)
    assert run.read_json("config.json")["data"] == "e"


@pytest.mark.parametrize(
    "more", ["thesis.txt", "negatives/thesis.txt", "checkpoint.safetensors", "metrics.jsonl", "result.json"]
)
def test_folders_with_other_files_or_checkpoints_are_not_cleared(tmp_path: Path, more: str) -> None:
    run = RunFolder.create(tmp_path / "run", {"loop": {"seed": 1}})
    for name in ("split.npz", more):
        (run.path / name).parent.mkdir(exist_ok=True)
        (run.path / name).write_text("kept")
    for resume in (False, True):
        with pytest.raises(ConfigError, match="--out"):
            RunFolder.create(run.path, {"loop": {"seed": 2}}, resume=resume)
    assert (run.path / "split.npz").read_text() == (run.path / more).read_text() == "kept"
    assert run.settings() == {"loop": {"seed": 1}}


@pytest.mark.parametrize("settings", [{"loop": {"seed": 1}}, {"format": 1}, {"format": 3}, {"format": "2"}])
def test_a_run_folder_of_another_format_is_rejected_and_not_changed(tmp_path: Path, settings: object) -> None:
    run = RunFolder.create(tmp_path / "run", {"loop": {"seed": 1}})
    run.checkpoint.write_text("kept")
    run.write_json("config.json", settings)
    with pytest.raises(CheckpointError, match=r"config\.json"):
        run.settings()
    with pytest.raises(CheckpointError, match=r"config\.json"):
        RunFolder.create(run.path, {"loop": {"seed": 1}}, resume=True)
    assert run.read_json("config.json") == settings


@pytest.mark.parametrize("name", ["config.json", "data.json", "thesis.txt"])
def test_files_not_written_by_a_run_are_never_deleted(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text("mine")
    for resume in (False, True):
        with pytest.raises(HopstateError):
            RunFolder.create(tmp_path, {"loop": {"seed": 1}}, resume=resume)
    assert {file.name: file.read_text() for file in tmp_path.iterdir()} == {name: "mine"}


def test_metrics_that_cannot_be_added_are_a_named_error(tmp_path: Path) -> None:
    run = RunFolder.create(tmp_path / "run", {"loop": {"seed": 1}})
    (run.path / "metrics.jsonl").mkdir()
    with pytest.raises(StorageError, match=r"metrics\.jsonl"):
        run.append_metrics({"epoch": 1})


def test_checkpoint_of_another_model_or_method_is_named(tmp_path: Path) -> None:
    train(tmp_path / "run", config(epochs=1))
    with pytest.raises(CheckpointError, match=r"0\.weight"):
        train(tmp_path / "run", config(epochs=2), resume=True, width=8)
    run = RunFolder(tmp_path / "run")
    with pytest.raises(CheckpointError, match="toy"):
        Trainer(make_task(), config(), run, method="other", data_hash="d").fit(resume=True)
    with pytest.raises(CheckpointError):
        Trainer(make_task(), config(), run, method="toy", data_hash="e").fit(resume=True)


@pytest.mark.parametrize("damage", [b"", b"garbage", None])
def test_damaged_checkpoint_is_named(tmp_path: Path, damage: bytes | None) -> None:
    train(tmp_path / "run", config(epochs=1))
    path = tmp_path / "run" / "checkpoint.safetensors"
    path.write_bytes(path.read_bytes()[:-50] if damage is None else damage)
    with pytest.raises(CheckpointError):
        train(tmp_path / "run", config(epochs=2), resume=True)


def test_newer_format_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkpoint_module, "FORMAT", 99)
    train(tmp_path / "run", config(epochs=1))
    monkeypatch.undo()
    with pytest.raises(CheckpointError, match="99"):
        train(tmp_path / "run", config(epochs=2), resume=True)


def test_full_disk_leaves_the_previous_checkpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    train(tmp_path / "run", config(epochs=2))
    path = tmp_path / "run" / "checkpoint.safetensors"
    before = path.read_bytes()

    def full(tensors: object, part: Path, metadata: object) -> None:
        part.write_bytes(b"half")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("safetensors.torch.save_file", full)
    with pytest.raises(StorageError, match="No space left"):
        train(tmp_path / "run", config(epochs=3), resume=True)
    assert path.read_bytes() == before
    assert not [p for p in (tmp_path / "run").iterdir() if p.name.startswith(".")]
    monkeypatch.undo()
    more, _ = train(tmp_path / "run", config(epochs=3), resume=True)
    assert more.progress.epoch == 3


def test_loss_that_becomes_nan_is_named(tmp_path: Path) -> None:
    seed_everything(0)
    task = make_task()
    with torch.no_grad():
        task.model[0].weight.fill_(float("inf"))
    run = RunFolder.create(tmp_path / "run", {})
    with pytest.raises(HopstateError, match="nan"):
        Trainer(task, config(), run, method="toy").fit()


@pytest.mark.parametrize("precision", ["64", "bf16-mixed"])
def test_every_precision_trains(tmp_path: Path, precision: str) -> None:
    result, trainer = train(tmp_path / "run", config(precision=precision, epochs=2))
    assert result.metrics["test"].keys() == {"roc_auc", "accuracy", "loss"}
    assert next(trainer.task.model.parameters()).dtype == (torch.float64 if precision == "64" else torch.float32)


def test_matmul_precision_is_set_only_during_the_run(tmp_path: Path) -> None:
    precisions = []
    task = make_task()
    for name in ("loss", "evaluate"):
        inner = getattr(task, name)
        setattr(
            task, name, lambda x, inner=inner: (precisions.append(torch.get_float32_matmul_precision()), inner(x))[1]
        )
    task.model.register_full_backward_hook(lambda *_: precisions.append(torch.get_float32_matmul_precision()))
    run = RunFolder.create(tmp_path / "run", {})
    Trainer(task, config(matmul_precision="medium", epochs=1), run, method="toy").fit()
    assert len(precisions) > 3
    assert set(precisions) == {"medium"}
    assert torch.get_float32_matmul_precision() == "highest"
    assert int(os.environ["ONEDNN_PRIMITIVE_CACHE_CAPACITY"]) < 1024  # otherwise memory grows with every new shape


@pytest.mark.parametrize(
    ("changes", "name"),
    [
        ({"epochs": -1}, r"loop\.epochs"),
        ({"patience": 0}, r"loop\.patience"),
        ({"grad_clip": 0.0}, r"loop\.grad_clip"),
    ],
)
def test_invalid_trainer_settings_are_named(changes: dict, name: str) -> None:
    with pytest.raises(ConfigError, match=name):
        config(**changes)


def test_unknown_device_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="quantum"):
        train(tmp_path / "run", config(device="quantum"))


def test_zero_epochs_give_the_untrained_model(tmp_path: Path) -> None:
    result, _ = train(tmp_path / "run", config(epochs=0))
    assert 0 <= result.metrics["test"]["accuracy"] <= 1


def test_equal_epoch_metrics_are_decided_by_validation_loss(tmp_path: Path) -> None:
    _, trainer = train(tmp_path / "run", config(epochs=1))
    trainer.progress.best, trainer.progress.best_loss, trainer.progress.best_epoch = 0.5, 0.9, 1
    trainer.progress.epoch = 2
    trainer._choose(0.5, 0.95)
    assert trainer.progress.best_epoch == 1
    trainer._choose(0.5, 0.7)
    assert trainer.progress.best_epoch == 2


def test_each_start_keeps_its_environment(tmp_path: Path) -> None:
    constant = OptimConfig(lr=0.01)
    train(tmp_path / "a", config(epochs=1, optim=constant))
    train(tmp_path / "a", config(epochs=2, optim=constant), resume=True)
    assert {p.name for p in (tmp_path / "a").glob("environment*.json")} == {"environment.json", "environment-1.json"}
    assert oct((tmp_path / "a" / "model.safetensors").stat().st_mode) == oct(
        (tmp_path / "a" / "config.json").stat().st_mode
    )


def test_resuming_with_another_number_of_threads_gives_a_warning(tmp_path: Path) -> None:
    with torch_threads(1):
        train(tmp_path / "run", config(), on_batch=stop_after(8))
    with torch_threads(2):
        with pytest.warns(HopstateWarning, match="thread"):
            train(tmp_path / "run", config(), resume=True, on_batch=stop_after(8))
        train(tmp_path / "run", config(), resume=True)  # equal to the last checkpoint: no warning
    with torch_threads(1):
        train(tmp_path / "run", config(), resume=True)  # finished: nothing is resumed
