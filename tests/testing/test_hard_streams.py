"""No leak, exact resume, equal scores in any cut: with deletions, ties, 12 times, nanoseconds, batches of one event."""

import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from hopstate.data.events import ADD, DELETE, GONE, EventStream, check_deletes
from hopstate.evaluation.leak import check_leak
from hopstate.methods import get_method
from hopstate.methods.config import config_from
from hopstate.methods.method import Context
from hopstate.runs.run import evaluate, fit, predict, score_stream
from hopstate.streaming.replay import replay_anywhere
from hopstate.testing.conformance import F32, F32_TIGHT
from hopstate.training.config import LoopConfig, OptimConfig
from hopstate.training.run_folder import RunFolder
from hopstate.training.trainer import Trainer, seed_everything

WIDTHS = {"model.channel_dim": 2, "model.time_dim": 4, "model.out_dim": 6}
SMALL: dict[str, dict[str, Any]] = {
    "ctdg-ssm": {
        "model.dim": 4,
        "model.time_dim": 4,
        "model.order": 2,
        "model.node_time_deltas": True,
        "num_neighbors": 4,
    },
    "dyg-mamba": {**WIDTHS, "history.max_length": 5, "model.num_layers": 1},
    "dygformer": {**WIDTHS, "model.max_length": 5, "model.num_layers": 1},
    "graphmixer": {"model.num_links": 4, "model.dim": 6, "model.time_dim": 4, "model.out_dim": 6},
}
KINDS = ("deletions", "deleted nodes", "twelve times", "nanoseconds", "all at once")


def hard(kind: str, count: int = 120) -> EventStream:
    """Return a small stream with one difficulty; the last kind has all of them."""
    rng, active = np.random.default_rng(3), []
    rows = []
    for _ in range(count):
        if kind in ("deleted nodes", "all at once") and active and rng.random() < 0.08:
            node = int(active[rng.integers(len(active))][0])
            active = [pair for pair in active if node not in pair]
            rows.append((node, node, GONE))
        elif kind in ("deletions", "all at once") and active and rng.random() < 0.35:
            rows.append((*active.pop(rng.integers(len(active))), DELETE))
        else:
            active.append((int(rng.integers(0, 8)), int(rng.integers(8, 14))))
            rows.append((*active[-1], ADD))
    src, dst, kinds = np.array(rows).T
    t = np.sort(rng.integers(0, 60, count))  # ties
    if kind in ("twelve times", "all at once"):
        t = np.arange(count) * 12 // count
    if kind in ("nanoseconds", "all at once"):
        t = 1_700_000_000 * 10**9 + t  # a nanosecond apart: equal in float64
    attr = rng.normal(size=(count, 2)).astype(np.float32)
    made = EventStream.from_arrays(src, dst, t, kind=kinds, edge_attr=attr, num_nodes=14)
    check_deletes(made)
    return made


def task_of(method: str, data: EventStream, folder: Path, size: int) -> Any:
    seed_everything(0)
    chosen = get_method(method)
    given = {"data": "x", **SMALL[method], "evaluation.strategies": ["random"]}
    given |= {"batch_size": size, "evaluation.batch_size": size}
    return chosen.build(data, config_from(chosen, given), Context(run=folder, cache=folder))


@pytest.mark.parametrize("kind", ["all at once", *(pytest.param(kind, marks=pytest.mark.slow) for kind in KINDS[:-1])])
@pytest.mark.parametrize("method", SMALL)
def test_hard_streams_do_not_leak(method: str, kind: str, tmp_path: Path) -> None:
    size = 1 if kind == "deletions" else 8
    task = task_of(method, hard(kind, 60 if size == 1 else 120), tmp_path, size)
    report = check_leak(task.scorer_over, task.stream, times=2, queries=8, batch_size=size)
    assert report.scores > 0


@pytest.mark.parametrize("size", [pytest.param(1, marks=pytest.mark.slow), 8])
@pytest.mark.parametrize("method", ["ctdg-ssm", "dyg-mamba"])
def test_a_run_stopped_anywhere_resumes_exactly(method: str, size: int, tmp_path: Path) -> None:
    data, found = hard("all at once", 48 if size == 1 else 120), {}
    config = LoopConfig(
        epochs=1 if size == 1 else 2,
        patience=None,
        device="cpu",
        progress=False,
        logger="none",
        optim=OptimConfig(name="adam", lr=1e-2),
    )
    for name, stops in (("whole", ()), ("cut", (3, 5))):
        for stop in (*stops, None):
            task = task_of(method, data, tmp_path / "negatives", size)
            folder = RunFolder.create(tmp_path / name, {}, resume=(tmp_path / name).exists())
            trainer = Trainer(task, config, folder, method=method)
            if stop is not None:
                _stop_after(trainer, stop)
            result = trainer.fit(resume=(tmp_path / name / "checkpoint.safetensors").exists())
            assert result.interrupted == (stop is not None)
        found[name] = (result.metrics, {k: v.clone() for k, v in task.model.state_dict().items()})
    assert found["whole"][0] == found["cut"][0]
    for key, value in found["whole"][1].items():
        assert torch.equal(value, found["cut"][1][key]), key


def _stop_after(trainer: Trainer, steps: int) -> None:
    step, done = trainer._step, []

    def counted(batch: Any, count: int) -> None:
        step(batch, count)
        done.append(1)
        if len(done) == steps:
            import os
            import signal

            os.kill(os.getpid(), signal.SIGINT)

    assert threading.current_thread() is threading.main_thread()
    trainer._step = counted  # type: ignore[method-assign]


@pytest.mark.parametrize("method", SMALL)
def test_a_query_has_the_same_score_alone_and_in_a_batch(method: str, tmp_path: Path) -> None:
    """A single query, another order and other times in the batch give the same score."""
    data = hard("all at once")
    task = task_of(method, data, tmp_path, 8)
    rows = np.random.default_rng(0).permutation(data.additions())[:10]
    columns = data.src[rows], data.dst[rows], data.t[rows]

    def scores(src: np.ndarray, dst: np.ndarray, t: np.ndarray) -> np.ndarray:
        scorer = task.scorer_over(data)
        return replay_anywhere(scorer, lambda rows: scorer.score(src[rows], dst[rows], t[rows]), data, t, 8)

    batched = scores(*columns)
    for i in (0, 4, 9):
        single = scores(*(c[i : i + 1] for c in columns))
        assert single[0] == pytest.approx(batched[i], abs=F32_TIGHT)
    assert len(np.unique(batched.round(6))) > 1


@pytest.mark.parametrize("method", ["ctdg-ssm", pytest.param("dyg-mamba", marks=pytest.mark.slow)])
def test_a_live_run_accepts_a_coarse_clock_in_any_cut(method: str, tmp_path: Path) -> None:
    """One call, or calls that separate equal timestamps: the same scores."""
    data = hard("all at once", 180)
    first, later = data.slice(0, 120), data.slice(120, len(data))
    early = EventStream(**{k: getattr(first, k).copy() for k in ("src", "dst", "t", "kind", "edge_attr")}, num_nodes=14)
    loop = {"loop.epochs": 1, "loop.progress": False, "loop.logger": "none", "loop.device": "cpu"}
    sizes = {"batch_size": 8, "evaluation.batch_size": 8, "evaluation.strategies": ["random"]}
    run = fit(method, early, out=tmp_path / "run", config={**SMALL[method], **sizes, **loop})
    columns = ("src", "dst", "t", "kind", "edge_attr")

    def part(a: int, b: int) -> EventStream:
        return EventStream(**{k: getattr(later, k)[a:b].copy() for k in columns}, num_nodes=14, from_start=False)

    whole = score_stream(run.path, part(0, len(later)), ignore_state=True, save=tmp_path / "whole")["score"].tolist()
    found = []
    for a, b in ((0, 7), (7, 8), (8, 30), (30, len(later))):
        options: dict[str, Any] = {"ignore_state": True} if a == 0 else {"state": tmp_path / "parts"}
        found += score_stream(run.path, part(a, b), save=tmp_path / "parts", **options)["score"].tolist()
    assert found == pytest.approx(whole, rel=F32, nan_ok=True)  # deletions have no score
    assert len(predict(run.path, data=early)) == len(early)  # one row per event; deletions have no score


@pytest.mark.parametrize("method", ["ctdg-ssm", pytest.param("dyg-mamba", marks=pytest.mark.slow)])
def test_a_float64_run_is_evaluated_and_resumed_in_float64(method: str, tmp_path: Path) -> None:
    data = hard("deleted nodes", 60)
    loop = {"loop.epochs": 1, "loop.progress": False, "loop.logger": "none", "loop.device": "cpu"}
    given = {**SMALL[method], **loop, "loop.precision": "64", "evaluation.strategies": ["random"]}
    run = fit(method, data, out=tmp_path / "run", config=given)
    assert evaluate(run.path, data=data) == run.metrics["test"]
    columns = {"src": np.array([1, 2]), "dst": np.array([9, 10]), "t": np.array([99, 99])}
    later = EventStream(**columns, edge_attr=np.ones((2, 2), np.float32), num_nodes=14)
    assert np.isfinite(score_stream(run.path, later, ignore_state=True)["score"]).all()
