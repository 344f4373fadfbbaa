"""Thousands of simultaneous events: batches of the given size, and no leak within a time."""

from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import example, given, settings
from hypothesis import strategies as st

from hopstate.data.events import EventStream
from hopstate.errors import ConfigError
from hopstate.evaluation.leak import check_leak
from hopstate.methods.config import config_from
from hopstate.methods.ctdg_ssm.method import METHODS
from hopstate.methods.method import Context
from hopstate.random import seed_everything
from hopstate.sampling.event_batches import batch_boundaries, event_batches, update_boundaries
from hopstate.testing.conformance import COARSE, F32, F32_TIGHT
from hopstate.training.tasks.events import training_negatives

SIZE = 16


def sessions(events: int = 480, times: int = 10) -> EventStream:
    """Return events at few times, mostly inside three groups of nodes."""
    rng = np.random.default_rng(1)
    src = rng.integers(24, size=events)
    near = (src + 3 * rng.integers(1, 8, events)) % 24  # of the same group
    return EventStream(
        src=src,
        dst=np.where(rng.random(events) < 0.85, near, (src + 1) % 24),
        t=np.arange(events) * times // events,
        x=np.eye(3, dtype=np.float32)[np.arange(24) % 3],
        edge_attr=rng.normal(size=(events, 2)).astype(np.float32),
        num_nodes=24,
    )


def task(folder: Path, data: EventStream | None = None, **settings: Any) -> Any:
    seed_everything(0)
    given = {"model.dim": 6, "model.time_dim": 4, "batch_size": SIZE, "evaluation.batch_size": SIZE, **settings}
    config = config_from(METHODS["ctdg-ssm"], {"data": "x", "evaluation.strategies": ["random"], **given})
    return METHODS["ctdg-ssm"].build(sessions() if data is None else data, config, Context(run=folder, cache=folder))


@given(st.lists(st.integers(0, 6), max_size=16).map(sorted), st.sampled_from([1, 2, 3, 4, 100]))
@example([], 1)
@example([3] * 10, 3)
@settings(max_examples=60, deadline=None, derandomize=True)
def test_a_batch_contains_complete_times_or_a_part_of_one(times: list[int], size: int) -> None:
    t = np.array(times, np.int64)
    edges = update_boundaries(t, size)
    assert edges[0] == 0
    assert edges[-1] == len(t)
    for a, b in pairwise(edges.tolist()):
        assert 0 < b - a < 2 * size
        whole = (a == 0 or t[a - 1] < t[a]) and (b == len(t) or t[b - 1] < t[b])
        assert whole or (len(np.unique(t[a:b])) == 1 and b - a <= size)
    if not len(t) or np.unique(t, return_counts=True)[1].max() <= size:
        assert edges.tolist() == batch_boundaries(t, size).tolist()
    with pytest.raises(ConfigError, match="batch_size"):
        update_boundaries(t, 0)


def test_an_epoch_has_as_many_batches_as_its_size_says(tmp_path: Path) -> None:
    t = task(tmp_path, tbptt_window=1)
    sizes = [len(step["labels"]) // 2 for batch in t.batches(0) for step in batch["steps"]]
    assert sum(sizes) == len(t.split.train)
    assert max(sizes) == SIZE
    assert len(sizes) >= len(t.split.train) / SIZE
    assert t.num_batches(0) == len(sizes)
    old = task(tmp_path / "old", tbptt_window=1, cut_ties=False)
    assert old.num_batches(0) == len(np.unique(old.stream.t[old.split.train]))


def epoch_loss(t: Any) -> torch.Tensor:
    """The loss of an epoch written out: all events of a time are scored, then update the memory in parts."""
    rows, data = t.split.train, t.stream
    negatives, at = training_negatives(data, rows, t.source.batch_size, t.source.objective.seed, 0), 0
    state, total = t.model.initial_state(data.num_nodes), torch.zeros(())
    for time in np.unique(data.t[rows]):
        mine = rows[data.t[rows] == time]
        batch, drawn = data.take(mine), negatives[at : at + len(mine)]
        at += len(mine)
        for dst, label in ((batch.dst, 1.0), (drawn, 0.0)):
            gap = t.source.train_inputs.query_time_deltas(batch.src, dst, batch.t)
            logits = t.model.link_logits(state, torch.from_numpy(batch.src), torch.from_numpy(dst), gap)
            total = total + F.binary_cross_entropy_with_logits(logits, torch.full_like(logits, label), reduction="sum")
        for first in range(0, len(mine), t.source.batch_size):
            state = t.model.update(
                state, t.source.train_inputs.batch(data.take(mine[first : first + t.source.batch_size]))
            )
    return total / (2 * len(rows))


@pytest.mark.parametrize("tbptt_window", [1, 3, 1000])
def test_every_window_scores_from_the_memory_of_earlier_times(tmp_path: Path, tbptt_window: int) -> None:
    t = task(tmp_path, tbptt_window=tbptt_window)
    total = 0.0
    for batch in t.batches(0):
        loss = t.loss(batch)
        loss.backward()
        total += float(loss.detach()) * sum(len(step["labels"]) for step in batch["steps"])
        windows = sum(bool(step["updates"]) for step in batch["steps"])
    assert windows  # the memory is trained in every window, also the last one
    expected = epoch_loss(t)
    assert total / (2 * len(t.split.train)) == pytest.approx(float(expected), rel=F32)
    if tbptt_window == 1000:
        found = {name: p.grad.clone() for name, p in t.model.named_parameters() if p.grad is not None}
        t.model.zero_grad()
        expected.backward()
        for name, p in t.model.named_parameters():
            if p.grad is not None:
                assert torch.allclose(found[name], p.grad, rtol=COARSE, atol=F32_TIGHT), name


def test_an_epoch_resumes_from_any_window(tmp_path: Path) -> None:
    t, other = task(tmp_path, tbptt_window=3), task(tmp_path / "other", tbptt_window=3)
    states, losses = [], []
    for batch in t.batches(0):
        states.append({k: v.clone() for k, v in t.state().items()})
        losses.append(float(t.loss(batch).detach()))
    for start in (1, len(losses) - 3):
        other.load_state({k: v.clone() for k, v in states[start].items()})
        rest = [float(other.loss(batch).detach()) for batch in other.batches(0, start)]
        assert rest == pytest.approx(losses[start:], rel=F32_TIGHT)


def test_training_evaluation_and_streaming_give_the_same_memory(tmp_path: Path) -> None:
    t = task(tmp_path, tbptt_window=2)
    with torch.no_grad():
        for batch in t.batches(0):
            t.loss(batch)
    scorer = t.scorer("train")
    seen = t.split.train[
        : t.source.batch_boundaries[t.source.known[-1]]
    ]  # up to the last time, which has no later scores
    for batch in event_batches(t.stream, seen, batch_size=SIZE):
        scorer.observe(batch)
    assert torch.allclose(scorer.memory.memory, t.source.memory.memory, atol=F32_TIGHT)
    for size in (1, 7, 1000):  # for any batches that do not separate ties
        again = t.scorer("train")
        for batch in event_batches(t.stream, seen, batch_size=size):
            again.observe(batch)
        if size < 50:
            assert torch.allclose(again.memory.memory, scorer.memory.memory, atol=F32_TIGHT)


def test_simultaneous_events_do_not_see_each_other(tmp_path: Path) -> None:
    """Other features of an event change no score at its time, in training and evaluation, for any protocol."""
    data = sessions()
    t = task(tmp_path, data, tbptt_window=1000)
    time = data.t[t.split.train][-1]
    first = int(np.searchsorted(data.t, time))
    attr = data.edge_attr.copy()
    attr[first:] += 5
    other = task(tmp_path / "other", data.with_(edge_attr=attr), tbptt_window=1000)
    found = [_scores(task, time) for task in (t, other)]
    torch.testing.assert_close(*found)
    assert not np.allclose(t.predict("test")["score"], other.predict("test")["score"])
    positives = []
    for changed in (data, data.with_(edge_attr=_moved(data, t.split.test[-1]))):
        made = task(tmp_path / f"d{len(positives)}", changed, **{"evaluation.protocol": "dyglib"})
        positives.append(made.report("test").scores["test", "random"].positive)
    last = data.t[t.split.test] == data.t[-1]
    assert last.sum() > SIZE
    np.testing.assert_allclose(positives[0][last], positives[1][last], rtol=1e-5, atol=F32_TIGHT)


def _scores(t: Any, time: float) -> torch.Tensor:
    (batch,) = t.batches(0)
    state, found = t.model.initial_state(t.stream.num_nodes), []
    from hopstate.streaming.active_batch import ActiveBatch

    for k, step in enumerate(batch["steps"]):
        for piece in step["updates"]:
            state = t.model.update(state, ActiveBatch(**piece))
        if t.stream.t[t.split.train[t.source.batch_boundaries[k]]] == time:
            found.append(t.source.objective.logits(t.model, state, step["queries"]))
    return torch.cat(found)


def _moved(data: EventStream, event: int) -> np.ndarray:
    """Return features that differ for all events at the last time except the last one."""
    attr = data.edge_attr.copy()
    attr[np.searchsorted(data.t, data.t[event]) : event] += 5
    return attr


def test_coarse_clocks_do_not_leak(tmp_path: Path) -> None:
    t = task(tmp_path, sessions(240, 10))
    assert check_leak(t.scorer_over, t.stream, times=1, queries=16, batch_size=SIZE).scores > 0
