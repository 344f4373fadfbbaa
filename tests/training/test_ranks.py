"""Several processes train one model: averaged gradients, one that dies ends all, and the run can resume."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import ranks_worker
import torch
from safetensors.torch import load_file

import hopstate
from hopstate.cli.main import main
from hopstate.errors import CheckpointError, ConfigError, RanksError
from hopstate.testing.conformance import F32_TIGHT
from hopstate.training import trainer
from hopstate.training.checkpoint import load_checkpoint
from hopstate.training.devices import Ranks, average_gradients, check_ranks, step_seed
from hopstate.training.trainer import interrupts

WORKER = str(Path(ranks_worker.__file__))
OTHERS = ["kept-tokens", "top", "neighbor", "gmn", "graphmixer", "event-nodes", "graph-links"]
LIMIT = 400


def torchrun(*words: str, ranks: int = 2) -> subprocess.CompletedProcess[str]:
    """Run a command under torchrun on this machine, on any free port."""
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={ranks}", *words]
    source = Path(hopstate.__file__).parents[1]
    environment = {**os.environ, "PYTHONPATH": str(source), "OMP_NUM_THREADS": "1"}
    return subprocess.run(command, capture_output=True, text=True, timeout=LIMIT, check=False, env=environment)


class Room:
    """Threads that simulate ranks and exchange tensors as torch.distributed does."""

    def __init__(self, size: int) -> None:
        self.values: list[Any] = [None] * size
        self.barrier = threading.Barrier(size)
        self.own = threading.local()

    def exchange(self, value: torch.Tensor) -> list[torch.Tensor]:
        self.values[self.own.rank] = value.detach().clone()
        self.barrier.wait(30)
        found = list(self.values)
        self.barrier.wait(30)
        return found

    def all_reduce(self, total: torch.Tensor) -> None:
        total.copy_(torch.stack(self.exchange(total)).sum(0))

    def run(self, find: Callable[[Ranks], Any]) -> list[Any]:
        size = len(self.values)

        def of(rank: int) -> Any:
            self.own.rank = rank
            return find(Ranks(rank, size))

        with ThreadPoolExecutor(size) as pool:
            return list(pool.map(of, range(size)))


@pytest.fixture
def room(monkeypatch: pytest.MonkeyPatch) -> Room:
    made = Room(2)
    monkeypatch.setattr(torch.distributed, "all_reduce", made.all_reduce)
    return made


def test_gradients_and_losses_are_averaged_over_the_ranks_that_have_a_batch(room: Room) -> None:
    def step(ranks: Ranks) -> tuple[list[torch.Tensor | None], torch.Tensor, bool, torch.Tensor]:
        model = torch.nn.Module()
        names = ("shared", "only_second", "unused")
        for name in names:
            setattr(model, name, torch.nn.Parameter(torch.ones(3, dtype=torch.float64)))
        model.norm = torch.nn.BatchNorm1d(1, affine=False)
        model.norm.running_mean.fill_(ranks.rank)
        (model.shared * (1 + 2 * ranks.rank)).sum().backward()
        if ranks.rank == 1:
            (model.only_second * 5).sum().backward()
        loss, stop = average_gradients(model, torch.tensor(1.5 + ranks.rank), ranks.rank == 0)
        return [getattr(model, name).grad for name in names], loss, stop, model.norm.running_mean

    for gradients, loss, stop, mean in room.run(step):
        assert [None if g is None else g.tolist() for g in gradients] == [[2.0] * 3, [2.5] * 3, None]
        assert (loss.item(), stop, mean.item()) == (2.0, True, 0.5)


def test_a_rank_without_a_batch_does_not_count(room: Room) -> None:
    def step(ranks: Ranks) -> tuple[torch.Tensor | None, float | None]:
        model = torch.nn.Linear(1, 1, bias=False)
        if ranks.rank == 0:
            (model.weight * 3).sum().backward()
        loss, _ = average_gradients(model, torch.tensor(2.0) if ranks.rank == 0 else None, False)
        return model.weight.grad, None if loss is None else loss.item()

    for gradient, loss in room.run(step):
        assert gradient is not None
        assert (gradient.item(), loss) == (3.0, 2.0)
    nothing = room.run(lambda ranks: average_gradients(torch.nn.Linear(1, 1), None, False))
    assert nothing == [(None, False)] * 2


def test_each_rank_and_step_has_its_own_seed() -> None:
    seeds = {step_seed(0, Ranks(rank, 2), step) for rank in range(2) for step in range(50)}
    assert len(seeds) == 100


def test_another_number_of_ranks_is_rejected_by_name() -> None:
    check_ranks({}, Ranks(), "here")
    with pytest.raises(CheckpointError, match="4"):
        check_ranks({"ranks": 4}, Ranks(1, 2), "here")
    with pytest.raises(CheckpointError):
        check_ranks({}, Ranks(1, 2), "here")


@pytest.mark.parametrize(
    ("method", "data", "settings"),
    [
        ("gcn", "graph", {}),
        ("sage", "graph", {"batching": {"kind": "gas", "num_clusters": 8, "clusters_per_batch": 3}}),
        ("recency", "events", {}),
        ("ctdg-ssm", "events", {}),
        ("pair-trees", "events", {}),
        ("gcn", "graph", {"task": "link"}),
    ],
)
def test_single_process_methods_are_rejected(
    method: str, data: str, settings: dict, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trainer, "current_ranks", lambda: Ranks(0, 2))
    with pytest.raises(ConfigError, match=method):
        hopstate.fit(method, ranks_worker.data_of(data), out=tmp_path / "run", keep_data=False, config=settings)
    assert not (tmp_path / "run").exists()  # nothing is left


@pytest.mark.slow
@pytest.mark.parametrize("ranks", [2, 3])
def test_ranks_train_as_one_process_with_the_batches_of_a_step_joined(ranks: int, tmp_path: Path) -> None:
    """For losses that are a mean over rows, without other dependence on the batch, as in these two cases."""
    names = ["nagphormer", "sequences"]
    for folder in ("one", "many"):
        (tmp_path / folder).mkdir()
    done = torchrun(WORKER, str(tmp_path / "many"), *names, ranks=ranks)
    assert done.returncode == 0, done.stderr[-3000:]
    for name in names:
        ranks_worker.run(name, tmp_path / "one", batches=ranks)
        one, many = (json.loads((tmp_path / folder / f"{name}.json").read_text()) for folder in ("one", "many"))
        np.testing.assert_allclose(many, one, rtol=0, atol=F32_TIGHT, err_msg=name)
        one, many = (load_file(tmp_path / folder / name / "model.safetensors") for folder in ("one", "many"))
        for key, weight in one.items():
            np.testing.assert_allclose(many[key], weight, rtol=0, atol=F32_TIGHT, err_msg=f"{name} {key}")
        one, many = (json.loads((tmp_path / folder / name / "result.json").read_text()) for folder in ("one", "many"))
        assert many["best_epoch"] == one["best_epoch"]
        for split, metrics in one["metrics"].items():
            assert many["metrics"][split] == pytest.approx(metrics, abs=F32_TIGHT), (name, split)


@pytest.mark.slow
def test_methods_of_every_kind_are_trained_by_two_processes(tmp_path: Path) -> None:
    done = torchrun(WORKER, str(tmp_path), *OTHERS)
    assert done.returncode == 0, done.stderr[-3000:]
    for name in OTHERS:
        assert (tmp_path / name / "result.json").is_file()
        losses = json.loads((tmp_path / f"{name}.json").read_text())
        assert np.isfinite(losses).all()


def fitting(tmp_path: Path) -> list[str]:
    """Return the arguments of a command that trains for 14 steps of two ranks, with dropout."""
    rng = np.random.default_rng(0)
    rows = [f"u{a},v{b},{t}" for t, (a, b) in enumerate(rng.integers(0, 9, (200, 2)))]
    (tmp_path / "events.csv").write_text("\n".join(["src,dst,t", *rows]))
    words = ["fit", "graphmixer", "--data", str(tmp_path / "events.csv"), "--no-auto", "--batch_size=10"]
    words += ["--model.num_links=4", "--model.dropout=0.3", "--evaluation.strategies=[random]"]
    return [*words, "--loop.epochs=2", "--loop.progress=false", "--loop.device=cpu", "--loop.logger=none"]


def whole_run(tmp_path: Path) -> Path:
    """Train without end."""
    done = torchrun("-m", "hopstate", *fitting(tmp_path), "--out", str(tmp_path / "whole"), "--json")
    assert done.returncode == 0, done.stderr[-3000:]
    assert json.loads(done.stdout)["method"] == "graphmixer"  # one object: only rank 0 prints
    return tmp_path / "whole"


def dies_and_resumes(tmp_path: Path, rank: int, step: int, whole: Path, saved: int) -> None:
    """Kill a rank at a step, check messages and files, resume, and compare with an uninterrupted run."""
    words, out = fitting(tmp_path), tmp_path / f"cut{rank}"
    died = torchrun(WORKER, "killed", str(rank), str(step), *words, "--out", str(out))
    assert died.returncode != 0
    errors = [line for line in died.stderr.splitlines() if line.startswith("error:")]
    assert len(errors) == 1, died.stderr[-3000:]
    assert f"--resume --out {out}" in errors[0]
    record = load_checkpoint(out / "checkpoint.safetensors").record
    assert (record["ranks"], record["progress"]["total_steps"]) == (2, saved)
    done = torchrun("-m", "hopstate", *words, "--out", str(out), "--resume")
    assert done.returncode == 0, done.stderr[-3000:]
    found, sought = (load_file(folder / "model.safetensors") for folder in (out, whole))
    assert all(torch.equal(found[key], sought[key]) for key in sought)
    losses = [[json.loads(line)["train_loss"] for line in (f / "metrics.jsonl").open()] for f in (out, whole)]
    assert losses[0] == losses[1]


@pytest.mark.slow
def test_a_killed_rank_ends_all_and_the_run_resumes_exactly(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    whole = whole_run(tmp_path)
    dies_and_resumes(tmp_path, 1, 11, whole, saved=11)
    more = [*fitting(tmp_path)[1:], "--loop.epochs=3"]
    assert main(["fit", *more, "--out", str(whole), "--resume"]) == 1
    assert "torchrun" in capsys.readouterr().err


@pytest.mark.slow
def test_a_killed_rank_0_ends_all_too(tmp_path: Path) -> None:
    dies_and_resumes(tmp_path, 0, 5, whole_run(tmp_path), saved=0)


@pytest.mark.slow
def test_a_rank_with_other_data_is_named(tmp_path: Path) -> None:
    done = torchrun(WORKER, str(tmp_path), "other-data")
    assert done.returncode != 0
    assert "rank 1" in done.stderr
    assert not list(tmp_path.iterdir())


def test_a_rank_that_lost_the_others_ignores_sigterm() -> None:
    before = signal.getsignal(signal.SIGTERM)
    try:
        with contextlib.suppress(RanksError), interrupts():
            raise RanksError("gone")
        assert signal.getsignal(signal.SIGTERM) is signal.SIG_IGN
        signal.signal(signal.SIGTERM, before)
        with contextlib.suppress(ValueError), interrupts():
            raise ValueError
        assert signal.getsignal(signal.SIGTERM) is before
    finally:
        signal.signal(signal.SIGTERM, before)
