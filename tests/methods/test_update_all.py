"""CTDG-SSM's appendix E.4: every batch updates all nodes seen so far; in any cut, resumed, saved."""

import os
import signal
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from hopstate.data.events import ADD, DELETE, GONE, EventStream
from hopstate.data.neighbor_store import NeighborStore
from hopstate.data.stream_checkpoint import load_stream_state, save_stream_state
from hopstate.evaluation.leak import check_leak
from hopstate.methods import get_method
from hopstate.methods.config import config_from
from hopstate.methods.ctdg_ssm.model import CTDGSSM
from hopstate.methods.method import Context
from hopstate.runs.run import fit
from hopstate.streaming.live import continue_stream, state_after_stream
from hopstate.streaming.memory_scorer import ActiveEvents
from hopstate.testing.conformance import F32, F64
from hopstate.training.trainer import Trainer, seed_everything

SMALL = {"model.dim": 4, "model.time_dim": 4, "model.update_all": True, "batch_size": 9, "evaluation.batch_size": 9}
SMALL |= {"evaluation.strategies": ["random"]}


def events(count: int = 120, nodes: int = 14) -> EventStream:
    """Return edges and nodes that are added and deleted, with ties."""
    rng, active = np.random.default_rng(0), []
    rows: list[tuple[int, int, int]] = []
    for _ in range(count):
        chance = rng.random()
        if active and chance < 0.05:
            node = active[rng.integers(len(active))][0]
            active = [pair for pair in active if node not in pair]
            rows.append((node, node, GONE))
        elif active and chance < 0.25:
            rows.append((*active.pop(rng.integers(len(active))), DELETE))
        else:
            active.append((int(rng.integers(nodes // 2)), int(rng.integers(nodes // 2, nodes))))
            rows.append((*active[-1], ADD))
    src, dst, kind = np.array(rows).T
    return EventStream.from_arrays(src, dst, np.sort(rng.integers(0, 90, count)), kind=kind, num_nodes=nodes)


def task_of(data: EventStream, folder: Path, **more: Any) -> Any:
    seed_everything(0)
    method = get_method("ctdg-ssm")
    return method.build(data, config_from(method, {"data": "x", **SMALL, **more}), Context(run=folder, cache=folder))


def test_all_nodes_seen_before_are_active() -> None:
    data = events()
    model = CTDGSSM(CTDGSSM.Config(static="random", dim=4, time_dim=4, update_all=True))
    inputs = ActiveEvents(model, data, NeighborStore.from_stream(data), num_neighbors=3)
    some = 0
    for first in range(0, len(data), 7):
        part = data.take(np.arange(first, min(first + 7, len(data))))
        seen = set()
        for i in range(first):
            if data.kind[i] == ADD and data.t[i] < part.t[0]:
                seen |= {int(data.src[i]), int(data.dst[i])}
        own = set(np.concatenate([part.src, part.dst]).tolist())
        batch = inputs.batch(part)
        assert set(batch.nodes.tolist()) == own | seen
        some += len(seen - own)
    assert some > 50


def test_every_memory_decays_between_events() -> None:
    """Without a graph, a node without an event decays towards the output of zeros; otherwise it keeps its state."""
    data = EventStream(src=np.array([0, 2]), dst=np.array([1, 3]), t=np.array([1, 5]))
    states_of = {}
    for whole in (False, True):
        torch.manual_seed(0)
        model = CTDGSSM(CTDGSSM.Config(static="random", dim=4, order=0, time_dim=4, update_all=whole))
        inputs, states = ActiveEvents(model, data, NeighborStore.from_stream(data), num_neighbors=3), []
        with torch.no_grad():
            state = model.initial_state(4)
            for i in range(2):
                state = model.update(state, inputs.batch(data.take(np.array([i]))))
                states.append(state.memory[:, 0].clone())
        states_of[whole] = states
    assert torch.equal(states_of[False][0], states_of[True][0])
    assert torch.equal(states_of[False][0], states_of[False][1])
    assert not torch.equal(states_of[True][0], states_of[True][1])


def test_states_do_not_depend_on_cuts_or_saving(tmp_path: Path) -> None:
    data = events(200)
    columns = ("src", "dst", "t", "kind")

    def part(a: int, b: int | None) -> EventStream:
        return EventStream(**{k: getattr(data, k)[a:b].copy() for k in columns}, num_nodes=14, from_start=not a)

    task = task_of(part(0, 120), tmp_path)
    with torch.no_grad():
        start = state_after_stream(task, task.stream)
        whole, after = continue_stream(task, start, part(120, None))
        for size in (1, 11):
            past, found = start, []
            for a in range(120, len(data), size):
                scores, past = continue_stream(task, past, part(a, a + size), allow_duplicates=True)
                save_stream_state(past, tmp_path / f"live-{size}")
                past = load_stream_state(tmp_path / f"live-{size}")
                found += scores["score"].tolist()
            assert found == pytest.approx(whole["score"].tolist(), rel=F32)
            mine, theirs = past.memories(np.arange(14)), after.memories(np.arange(14))
            assert np.array_equal(mine.memory, theirs.memory)
            assert np.array_equal(mine.output, theirs.output, equal_nan=True)
    assert check_leak(task.scorer_over, task.stream, times=2, queries=8, batch_size=9).scores > 0


def test_a_stopped_run_resumes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data, step, done = events(), Trainer._step, []

    def counted(self: Trainer, batch: Any, count: int) -> None:
        step(self, batch, count)
        done.append(count)
        if len(done) == 2:
            os.kill(os.getpid(), signal.SIGINT)

    loop = {"loop.progress": False, "loop.logger": "none", "loop.device": "cpu", "loop.patience": None}
    given = {**SMALL, **loop, "batch_size": 8}
    given |= {"loop.epochs": 2}
    whole = fit("ctdg-ssm", data, out=tmp_path / "whole", config=given)
    monkeypatch.setattr(Trainer, "_step", counted)
    assert fit("ctdg-ssm", data, out=tmp_path / "cut", config=given).interrupted
    cut = fit("ctdg-ssm", data, out=tmp_path / "cut", resume=True, config=given)
    assert cut.metrics == whole.metrics


@pytest.mark.parametrize("sparse", [False, True])
def test_dense_and_sparse_agree(sparse: bool, tmp_path: Path) -> None:
    data, limit = events(), 0 if sparse else 256
    task = task_of(data, tmp_path, **{"model.dense_limit": limit, "model.order": 2})
    task.model.double()
    with torch.no_grad():
        found = task.predict("test")["score"]
    model = task_of(data, tmp_path, **{"model.order": 2}).model
    assert replace(model.config, dense_limit=limit) == task.model.config
    other = task_of(data, tmp_path, **{"model.order": 2})
    other.model.double()
    with torch.no_grad():
        expected = other.predict("test")["score"]
    np.testing.assert_allclose(found, expected, atol=F64)
