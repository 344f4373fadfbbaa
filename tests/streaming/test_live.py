"""Streaming inference: a bit-identical memory, and equal scores for every cut of events into calls."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from hopstate.data.events import EventStream
from hopstate.data.stream_checkpoint import load_stream_state, save_stream_state
from hopstate.data.stream_state import StreamState
from hopstate.errors import CheckpointError, DataError, ShapeError
from hopstate.methods import get_method
from hopstate.methods.config import config_from
from hopstate.methods.method import Context
from hopstate.sampling.event_batches import batch_boundaries
from hopstate.streaming.live import continue_stream, state_after_stream
from hopstate.streaming.replay import replay
from hopstate.testing.conformance import F32, F32_TIGHT
from hopstate.training.trainer import seed_everything
from torch_threads import with_threads

SMALL: dict[str, dict[str, Any]] = {
    "ctdg-ssm": {
        "model.dim": 6,
        "model.time_dim": 4,
        "model.order": 2,
        "model.hidden": 8,
        "model.node_time_deltas": True,
    },
    "ctdg-ssm-nodes": {"model.dim": 6, "model.time_dim": 4, "batch_size": 16},
    "dyg-mamba": {"model.channel_dim": 4, "model.time_dim": 8, "model.out_dim": 12, "history.max_length": 6},
    "dyg-mamba-nodes": {"model.channel_dim": 4, "model.time_dim": 8, "model.out_dim": 12, "history.max_length": 6},
    "dygformer": {"model.channel_dim": 4, "model.time_dim": 8, "model.num_layers": 1, "model.max_length": 6},
    "graphmixer": {"model.num_links": 4},
    "recency": {},
    "pair-trees": {"model.num_trees": 5, "model.min_leaf": 5},
    "edgebank": {"model.memory": "window"},
    "event-trees": {"model.num_trees": 5, "model.min_leaf": 5, "label_history": False},
}
OF_LABELS = ("ctdg-ssm-nodes", "dyg-mamba-nodes", "event-trees")
TREES_AND_RULES = ("recency", "edgebank", "pair-trees", "event-trees")
METHODS = tuple(SMALL)
PATHS = (
    "ctdg-ssm",
    "ctdg-ssm-nodes",
    "dyg-mamba",
    "pair-trees",
    "edgebank",
    "event-trees",
)  # the others share them
MORE = [pytest.param(name, marks=pytest.mark.slow) for name in METHODS if name not in PATHS]


def events(count: int, first: int = 0, kind: str = "ties", nodes: int = 20) -> EventStream:
    rng = np.random.default_rng(first)
    steps = {"ties": rng.integers(0, 2, count), "one": np.ones(count, np.int64), "coarse": np.arange(count) % 45 == 0}
    return EventStream(
        src=rng.integers(0, nodes // 2, count),
        dst=rng.integers(nodes // 2, nodes, count),
        t=first * 3 + np.cumsum(steps[kind]).astype(np.int64),
        edge_attr=rng.normal(size=(count, 2)).astype(np.float32),
        labels=rng.integers(0, 2, count),
        num_nodes=nodes,
    )


def task_of(name: str, tmp_path: Path, own: EventStream | None = None, **settings: Any) -> Any:
    seed_everything(0)
    method, own = get_method(name), events(160) if own is None else own
    size = {} if name in OF_LABELS else {"evaluation.batch_size": 16, "evaluation.strategies": ["random"]}
    config = config_from(method, {"data": "x", **SMALL[name], **size, **settings})
    task = method.build(own, config, Context(run=tmp_path, cache=tmp_path))
    task.fit_without_gradients()  # of trees; ignored by tasks that train in steps
    return task


def cut(stream: EventStream, size: int) -> list[EventStream]:
    return [replace(stream, **part(stream, a, a + size)) for a in range(0, len(stream), size)]


def part(stream: EventStream, a: int, b: int) -> dict[str, Any]:
    names = ("src", "dst", "t", "edge_attr", "labels", "kind")
    return {name: getattr(stream, name)[a:b].copy() for name in names if getattr(stream, name) is not None}


def scores_and_memory(task: Any, past: StreamState, calls: list[EventStream]) -> tuple[np.ndarray, Any]:
    found = []
    with torch.no_grad():
        for call in calls:
            columns, past = continue_stream(task, past, call, allow_duplicates=True)
            found.append(columns["score"])
    return np.concatenate(found), past


def near(a: np.ndarray, b: np.ndarray, rtol: float = F32) -> bool:
    """Whether scores agree to float accuracy: products depend on the number of rows."""
    return a.shape == b.shape and np.allclose(a, b, rtol=rtol, atol=0)


def same(a: StreamState, b: StreamState) -> bool:
    mine, theirs = a.memories(np.arange(a.num_nodes)), b.memories(np.arange(b.num_nodes))
    if mine is None or theirs is None:
        return mine is theirs
    parts = ("nodes", "memory", "output", "last_time")
    return a.clock == b.clock and all(np.array_equal(getattr(mine, k), getattr(theirs, k)) for k in parts)


@pytest.mark.parametrize("kind", ["coarse", *(pytest.param(kind, marks=pytest.mark.slow) for kind in ("ties", "one"))])
@pytest.mark.parametrize("name", [*PATHS, *MORE])
def test_scores_do_not_depend_on_how_calls_are_cut(name: str, kind: str, tmp_path: Path) -> None:
    task, later = task_of(name, tmp_path), events(50, 160, kind, nodes=23)
    with torch.no_grad():
        past = state_after_stream(task, task.stream)
    one, after = scores_and_memory(task, past, [later])
    for size in (1, 16):
        scores, end = scores_and_memory(task, past, cut(later, size))
        assert near(scores, one), size
        assert end.settled == after.settled
        assert same(end, after)
    own = events(160)  # and a memory does not depend on where the training data end
    with torch.no_grad():
        early = state_after_stream(task, replace(own, **part(own, 0, 93)))
        late = continue_stream(task, early, replace(own, **part(own, 93, 160)))[1]
    assert same(late, past)
    assert late.settled == past.settled


def test_one_thread_or_two_give_the_same(tmp_path: Path) -> None:
    """At a size at which LAPACK uses several threads for a batch."""
    settings = {"model.dim": 64, "evaluation.batch_size": 200}
    task, later = task_of("ctdg-ssm", tmp_path, events(500, nodes=300), **settings), events(300, 500, nodes=300)
    with torch.no_grad():
        found = with_threads(
            lambda: scores_and_memory(task, state_after_stream(task, task.stream), [later]), counts=(1, 2)
        )
    assert near(found[0][0], found[1][0])
    assert same(found[0][1], found[1][1])


@pytest.mark.parametrize("name", [*PATHS, *MORE])
def test_deletions_and_new_nodes_in_any_cut(name: str, tmp_path: Path) -> None:
    own, later = events(160), events(60, 160, nodes=26)
    gone = np.zeros(60, np.int8)
    for row in (20, 21, 40):
        later.src.flags.writeable = later.dst.flags.writeable = True
        later.src[row], later.dst[row], gone[row] = own.src[row], own.dst[row], 1
    later = replace(later, kind=gone, from_start=False)
    again = np.append(np.arange(159), 3)
    own = own.with_(src=own.src[again], dst=own.dst[again], kind=(np.arange(160) == 159).astype(np.int8))
    task = task_of(name, tmp_path, own)
    with torch.no_grad():
        past = state_after_stream(task, own)
    one, after = scores_and_memory(task, past, [later])
    assert len(one) == (60 if name in OF_LABELS else 57)
    for size in (1, 9):
        scores, end = scores_and_memory(task, past, cut(later, size))
        assert near(scores, one)
        assert same(end, after)
    assert after.has_deletes


@pytest.mark.parametrize("kind", [torch.float32, torch.float64])
@pytest.mark.parametrize("name", [name for name in METHODS if name not in TREES_AND_RULES])
def test_scores_do_not_depend_on_other_queries_of_a_batch(name: str, kind: torch.dtype, tmp_path: Path) -> None:
    task, later, nodes = task_of(name, tmp_path), events(70, 160), name.endswith("nodes")
    task.model.to(kind)
    with torch.no_grad():
        follower = task.follow(state_after_stream(task, task.stream).joined(later)[1])
    columns = (later.src, later.t) if nodes else (later.src, later.dst, later.t)
    score = follower.score_nodes if nodes else follower.score
    every = score(*columns).numpy()
    assert len(np.unique(every)) > 10
    for size in (1, 2, 7, 64):
        parts = [score(*(column[a : a + size] for column in columns)).numpy() for a in range(0, 70, size)]
        assert near(np.concatenate(parts), every, 1e-5 if kind is torch.float32 else 1e-10), size


@pytest.mark.parametrize("name", [*PATHS, *MORE])
def test_scores_equal_those_of_a_replay_over_all_events(name: str, tmp_path: Path) -> None:
    """Compared with the replay of evaluation, over one stream of the run's own events and the new ones."""
    task, later = task_of(name, tmp_path), events(70, 160)
    own = task.stream
    columns = {key: np.concatenate([getattr(own, key), value]) for key, value in part(later, 0, 70).items()}
    both = replace(own, **columns)
    scorer = task.scorer_over(both)
    edges = batch_boundaries(both.t, 16 if "ctdg" in name or name not in OF_LABELS else 200)
    place = np.searchsorted(edges, np.searchsorted(both.t, both.t), side="right") - 1

    def score(mine: np.ndarray) -> Any:
        return task.score_events(scorer, *task.query_columns(both, mine))

    expected = replay(scorer, score, both, edges[place], rows=np.arange(len(both)), boundaries=edges)[160:]
    found = scores_and_memory(task, state_after_stream(task, own), [later])[0]
    assert np.allclose(found, expected, rtol=0, atol=F32_TIGHT)
    assert len(np.unique(found)) > 1


def test_a_state_does_not_change_after_later_events(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After a success, and after a failure past the first batch."""
    task, later = task_of("ctdg-ssm", tmp_path), events(60, 160)
    past = state_after_stream(task, task.stream)
    kept = past.memories(np.arange(past.num_nodes))
    assert kept is not None
    update, calls = task.model.update, []

    def failing(*args: Any, **rest: Any) -> Any:
        calls.append(1)
        if len(calls) == 2:
            raise RuntimeError("out of memory")
        return update(*args, **rest)

    with torch.no_grad():
        after = continue_stream(task, past, later)[1]
        assert not same(after, past)
        monkeypatch.setattr(task.model, "update", failing)
        with pytest.raises(RuntimeError, match="out of memory"):
            continue_stream(task, past, later)
    now = past.memories(np.arange(past.num_nodes))
    assert now is not None
    assert np.array_equal(now.memory, kept.memory)
    assert len(past) == 160


def test_saving_and_loading_changes_no_score(tmp_path: Path) -> None:
    """Saved and loaded after every call, with merged parts and dropped features."""
    task, calls = task_of("ctdg-ssm-nodes", tmp_path), cut(events(60, 160, nodes=30), 4)
    past = state_after_stream(task, task.stream)
    one, after = scores_and_memory(task, past, calls)
    found = []
    save_stream_state(past, tmp_path / "live")
    for call in calls:
        with torch.no_grad():
            columns, past = continue_stream(task, load_stream_state(tmp_path / "live"), call)
        save_stream_state(past, tmp_path / "live")
        found.append(columns["score"])
    assert np.array_equal(np.concatenate(found), one)  # the same calls
    assert same(load_stream_state(tmp_path / "live"), after)


def test_a_state_that_a_model_cannot_continue_is_rejected(tmp_path: Path) -> None:
    task, later = task_of("ctdg-ssm", tmp_path), events(20, 160)
    past = state_after_stream(task, task.stream)
    with pytest.raises(CheckpointError):
        continue_stream(task, replace(past, model="other"), later)
    with pytest.raises(ShapeError, match=r"edge_columns"):
        continue_stream(task, past, later.with_(edge_attr=None))
    fixed = task_of("ctdg-ssm", tmp_path, **{"model.static": "learnable"})
    with torch.no_grad(), pytest.raises(DataError, match="20"):
        continue_stream(fixed, state_after_stream(fixed, fixed.stream), events(20, 160, nodes=40))
