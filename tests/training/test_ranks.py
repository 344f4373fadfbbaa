"""Several processes train as one does: losses, weights and metrics; one that dies ends all, and the run goes on."""

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
from hopstate.testing.conformance import F32_TIGHT, F64
from hopstate.training import trainer
from hopstate.training.checkpoint import load_checkpoint
from hopstate.training.divided import check_ranks
from hopstate.training.interrupts import interrupts
from hopstate.training.ranks import ALONE, Ranks, step_seed, summed_gradients
from hopstate.training.tasks.target import Target

WORKER = str(Path(ranks_worker.__file__))
QUICK = ["nagphormer", "kept-tokens", "top", "graphmixer", "sequences"]
LIMIT = 400


def torchrun(*words: str, ranks: int = 2) -> subprocess.CompletedProcess[str]:
    """Run words under torchrun on this machine, whatever port is free."""
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={ranks}", *words]
    source = Path(hopstate.__file__).parents[1]
    environment = {**os.environ, "PYTHONPATH": str(source), "OMP_NUM_THREADS": "1"}
    return subprocess.run(command, capture_output=True, text=True, timeout=LIMIT, check=False, env=environment)


def compare(names: list[str], home: Path, ranks: int = 2) -> None:
    """Train cases in one process and in several, and hold losses by step, weights and metrics to each other."""
    for folder in ("one", "many"):
        (home / folder).mkdir()
    done = torchrun(WORKER, str(home / "many"), *names, ranks=ranks)
    assert done.returncode == 0, done.stderr[-3000:]
    for name in names:
        ranks_worker.run(name, home / "one")
        one, many = (json.loads((home / folder / f"{name}.json").read_text()) for folder in ("one", "many"))
        np.testing.assert_allclose(many, one, rtol=0, atol=F32_TIGHT, err_msg=name)
        one, many = (load_file(home / folder / name / "model.safetensors") for folder in ("one", "many"))
        for key, weight in one.items():
            np.testing.assert_allclose(many[key], weight, rtol=0, atol=F32_TIGHT, err_msg=f"{name} {key}")
        one, many = (json.loads((home / folder / name / "result.json").read_text()) for folder in ("one", "many"))
        assert many["best_epoch"] == one["best_epoch"]
        for split, metrics in one["metrics"].items():
            assert many["metrics"][split] == pytest.approx(metrics, abs=F32_TIGHT), (name, split)


def test_shares_are_the_batch_in_order() -> None:
    for size in (1, 2, 3, 7):
        for count in (0, 1, 5, 6, 7, 100):
            rows = np.arange(count)
            shares = [rows[Ranks(rank, size).own(count)] for rank in range(size)]
            assert np.concatenate(shares).tolist() == rows.tolist()
            assert max(map(len, shares)) - min(map(len, shares)) <= 1


@pytest.mark.parametrize("weights", [None, (0.5, 2.0, 0.0)])
def test_parts_of_a_mean_loss_add_up_to_it(weights: tuple[float, ...] | None) -> None:
    rng = np.random.default_rng(0)
    target = Target(goal="classes", names=("a", "b", "c"), metrics=("accuracy",), class_weights=weights)
    y, out = rng.integers(-1, 3, 31), torch.from_numpy(rng.normal(size=(31, 3)))
    total = torch.zeros((), dtype=torch.float64)
    for rank in range(4):
        own = Ranks(rank, 4).own(31)
        total += target.part(y[own], y) * target.loss(out[own], torch.from_numpy(y[own]))
    assert total.item() == pytest.approx(target.loss(out, torch.from_numpy(y)).item(), abs=F64)
    assert target.part(y[:0], y) == 0.0
    assert target.part(y[:2] * 0 - 1, y[:2] * 0 - 1) == 0.0  # nothing is known


def test_parts_of_unknown_cells() -> None:
    rng = np.random.default_rng(1)
    target = Target(goal="values", names=("a", "b"), metrics=("rmse",), center=(0.0, 1.0), scale=(1.0, 2.0))
    y = np.where(rng.random((9, 2)) < 0.4, np.nan, rng.normal(size=(9, 2)))
    out = torch.from_numpy(rng.normal(size=(9, 2)))
    parts = [(target.part(y[own], y), own) for own in (Ranks(r, 2).own(9) for r in range(2))]
    found = sum(part * target.loss(out[own], torch.from_numpy(y[own])) for part, own in parts)
    assert float(found) == pytest.approx(target.loss(out, torch.from_numpy(y)).item(), abs=F64)


class Room:
    """Threads that stand for ranks and exchange tensors as torch.distributed does."""

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

    def all_gather(self, parts: list[torch.Tensor], own: torch.Tensor) -> None:
        for part, value in zip(parts, self.exchange(own), strict=True):
            part.copy_(value)

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
    monkeypatch.setattr(torch.distributed, "all_gather", made.all_gather)
    return made


def test_gradients_and_figures_are_summed_over_ranks(room: Room) -> None:
    def step(ranks: Ranks) -> tuple[list[torch.Tensor | None], list[float]]:
        shared, only_second, unused = (torch.nn.Parameter(torch.ones(3, dtype=torch.float64)) for _ in range(3))
        (shared * (1 + 2 * ranks.rank)).sum().backward()
        if ranks.rank == 1:
            (only_second * 5).sum().backward()
        figures = summed_gradients([shared, only_second, unused], [1.5 + ranks.rank, 2])
        return [p.grad for p in (shared, only_second, unused)], figures

    for gradients, figures in room.run(step):
        assert [None if g is None else g.tolist() for g in gradients] == [[4.0] * 3, [5.0] * 3, None]
        assert figures == pytest.approx([4.0, 4.0])


def test_rows_of_all_ranks_are_joined_in_order_and_gradients_return(room: Room) -> None:
    rows = torch.arange(14.0, dtype=torch.float64).reshape(7, 2)

    def step(ranks: Ranks) -> tuple[torch.Tensor, torch.Tensor]:
        own = rows[ranks.own(7)].clone().requires_grad_()
        joined = ranks.joined(own, 7)
        (joined * (torch.arange(7.0)[:, None] + 10 * ranks.rank)).sum().backward()
        return joined.detach(), own.grad

    found = room.run(step)
    for joined, _ in found:
        torch.testing.assert_close(joined, rows)
    gradients = torch.cat([gradient for _, gradient in found])[:, 0]
    torch.testing.assert_close(gradients, 2 * torch.arange(7.0, dtype=torch.float64) + 10)
    shared = room.run(lambda ranks: ranks.shared(lambda at: torch.from_numpy(at * 2), np.arange(5)))
    assert [one.tolist() for one in shared] == [[0, 2, 4, 6, 8]] * 2


def test_each_rank_and_step_draws_its_own() -> None:
    seeds = {step_seed(0, Ranks(rank, 2), step) for rank in range(2) for step in range(50)}
    assert len(seeds) == 100


def test_another_number_of_ranks_is_refused_by_name() -> None:
    check_ranks({}, ALONE, "here")
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
def test_methods_that_one_process_must_train_are_refused(
    method: str, data: str, settings: dict, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trainer, "present", lambda: Ranks(0, 2))
    with pytest.raises(ConfigError, match=method):
        hopstate.fit(method, ranks_worker.data_of(data), out=tmp_path / "run", keep_data=False, config=settings)
    assert not (tmp_path / "run").exists()  # nothing is left


@pytest.mark.slow
def test_two_processes_train_as_one(tmp_path: Path) -> None:
    compare(QUICK, tmp_path)
    one, many = (tokens_of(tmp_path / folder) for folder in ("one", "many"))
    assert len(one) == 2  # tokens and their checksum
    assert many == one  # rows of two ranks: the same bits, and nothing is left beside them


def tokens_of(home: Path) -> list[bytes]:
    return [path.read_bytes() for path in sorted((home / "kept-tokens" / "tokens").iterdir())]


@pytest.mark.slow
def test_every_method_trains_as_one(tmp_path: Path) -> None:
    compare([name for name in ranks_worker.CASES if name not in (*QUICK, "other-data")], tmp_path)


@pytest.mark.slow
def test_three_processes_train_as_one(tmp_path: Path) -> None:
    compare(["nagphormer", "cluster", "gmn", "dyg-mamba"], tmp_path, ranks=3)


def fitting(tmp_path: Path) -> list[str]:
    """Return the words of a command that trains for 28 steps, with dropout."""
    rng = np.random.default_rng(0)
    rows = [f"u{a},v{b},{t}" for t, (a, b) in enumerate(rng.integers(0, 9, (200, 2)))]
    (tmp_path / "events.csv").write_text("\n".join(["src,dst,t", *rows]))
    words = ["fit", "graphmixer", "--data", str(tmp_path / "events.csv"), "--no-auto", "--batch_size=10"]
    words += ["--model.num_links=4", "--model.dropout=0.3", "--evaluation.strategies=[random]"]
    return [*words, "--loop.epochs=2", "--loop.progress=false", "--loop.device=cpu", "--loop.tensorboard=no"]


def whole_run(tmp_path: Path) -> Path:
    """Train without an end."""
    done = torchrun("-m", "hopstate", *fitting(tmp_path), "--out", str(tmp_path / "whole"), "--json")
    assert done.returncode == 0, done.stderr[-3000:]
    assert json.loads(done.stdout)["method"] == "graphmixer"  # one object: rank 0 alone speaks
    return tmp_path / "whole"


def dies_and_goes_on(tmp_path: Path, rank: int, step: int, whole: Path, saved: int) -> None:
    """Kill a rank at a step, check what is said and left, go on, and compare with a run that never stopped."""
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
def test_a_killed_rank_ends_all_and_the_run_goes_on_exactly(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    whole = whole_run(tmp_path)
    dies_and_goes_on(tmp_path, 1, 17, whole, saved=17)
    more = [*fitting(tmp_path)[1:], "--loop.epochs=3"]
    assert main(["fit", *more, "--out", str(whole), "--resume"]) == 1
    assert "torchrun" in capsys.readouterr().err


@pytest.mark.slow
def test_rank_0_may_die_too(tmp_path: Path) -> None:
    dies_and_goes_on(tmp_path, 0, 5, whole_run(tmp_path), saved=0)


@pytest.mark.slow
def test_a_rank_with_other_data_is_named(tmp_path: Path) -> None:
    done = torchrun(WORKER, str(tmp_path), "other-data")
    assert done.returncode != 0
    assert "rank 1" in done.stderr
    assert not list(tmp_path.iterdir())


def test_a_rank_that_lost_the_others_is_not_ended_before_it_says_so() -> None:
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
