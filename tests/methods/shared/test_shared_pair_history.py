"""Pair features in the heads of all four models: in training, evaluation, live runs, queries, resumed runs."""

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from configured import configured

from hopstate.data.events import ADD, DELETE, EventStream, check_deletes
from hopstate.data.neighbor_store import NeighborStore
from hopstate.errors import ConfigError
from hopstate.evaluation.leak import check_leak
from hopstate.layers.decoders import PairHistory
from hopstate.methods import get_method
from hopstate.methods.method import Context
from hopstate.streaming.live import continue_stream, state_after_stream
from hopstate.testing.conformance import F32, F32_TIGHT
from hopstate.tokens.pair_features import PairFeatures
from hopstate.training.checkpoint import load_checkpoint
from hopstate.training.run_folder import RunFolder
from hopstate.training.trainer import Trainer, seed_everything

LOOP = {"loop.epochs": 1, "loop.progress": False, "loop.logger": "none", "loop.device": "cpu"}
WIDTHS = {"model.channel_dim": 4, "model.time_dim": 6, "model.out_dim": 6, "batch_size": 40}
SMALL: dict[str, dict[str, Any]] = {
    "ctdg-ssm": {"model.dim": 6, "model.time_dim": 6, "model.node_time_deltas": True, "batch_size": 40},
    "dyg-mamba": {**WIDTHS, "history.max_length": 6},
    "dygformer": {**WIDTHS, "model.max_length": 6},
    "graphmixer": {"model.num_links": 4, "model.dim": 6, "model.time_dim": 6, "model.out_dim": 4, "batch_size": 40},
}
ALL = pytest.mark.parametrize("method", SMALL)
TWO = pytest.mark.parametrize("method", ["ctdg-ssm", "dyg-mamba"])  # the other methods read histories like dyg-mamba


def events(count: int = 240, first: int = 0, *, factor: int = 1, unit: str = "s", deletes: bool = False) -> EventStream:
    """Return events among twenty nodes, with ties; with deletions, the last event of each pair is deleted."""
    rng = np.random.default_rng(first)
    src, dst = rng.integers(0, 8, count), rng.integers(12, 20, count)
    t, kind = (1_700_000_000 + 900 * first + np.sort(rng.integers(0, 300, count))) * factor, None
    if deletes:
        kind = np.full(2 * count, ADD, np.int8)
        kind[1::2] = DELETE  # each edge is deleted immediately after it was added
        src, dst, t = np.repeat(src, 2), np.repeat(dst, 2), np.repeat(t, 2)
    stream = EventStream(src=src, dst=dst, t=t, num_nodes=20, time_unit=unit, kind=kind)
    check_deletes(stream)
    return stream


def task_of(method: str, folder: Path, stream: EventStream, **settings: Any) -> Any:
    chosen = get_method(method)
    given = {"evaluation.batch_size": 40, "evaluation.strategies": ("random",), "model.pair_features": True}
    config = configured(chosen.config(data="x"), given | LOOP | SMALL[method] | settings)
    seed_everything(0)
    return chosen.build(stream, config, Context(run=folder, cache=folder))


def queries(stream: EventStream, count: int = 60) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(5)
    rows = rng.integers(0, len(stream), count)
    return stream.src[rows], rng.integers(12, 20, count), stream.t[rng.integers(len(stream) // 2, len(stream), count)]


def read_in_training(task: Any) -> list[tuple[np.ndarray, torch.Tensor]]:
    """Return for each batch of an epoch (labels, features of its pairs' histories)."""
    found = []
    for batch in task.batches(0):
        if isinstance(batch, dict):
            gaps = task.source.memory_model.gaps
            found += [(step["labels"].numpy(), step["queries"]["gap"][:, gaps:]) for step in batch["steps"]]
        else:
            found += [(labels.numpy(), inputs.pair) for inputs, labels, _ in batch]
    return found


@ALL
def test_training_reads_training_events_strictly_before_each(method: str, tmp_path: Path) -> None:
    stream, split = events(), {"split.kind": "dyglib"}  # excludes events of new nodes from training
    task = task_of(method, tmp_path, stream, **split)
    train = stream.additions(task.split.train)
    assert len(train) < train[-1]
    store = NeighborStore.from_stream(stream, task.split.train)
    features = PairFeatures(store, stream, task.clock, np.empty(0, np.int64))
    expected = features.pairs(stream.src[train], stream.dst[train], stream.t[train])
    found = np.concatenate([rows[labels == 1].numpy() for labels, rows in read_in_training(task)])
    np.testing.assert_array_equal(found, expected)


@TWO
def test_no_later_event_reaches_training(method: str, tmp_path: Path) -> None:
    stream = events()
    task = task_of(method, tmp_path, stream)
    later = stream.t > stream.t[task.split.train[-1]]
    other = replace(stream, src=np.where(later, 0, stream.src), dst=np.where(later, 19, stream.dst))
    again = task_of(method, tmp_path / "other", other)
    for (_, mine), (_, theirs) in zip(read_in_training(task), read_in_training(again), strict=True):
        np.testing.assert_array_equal(mine.numpy(), theirs.numpy())
    assert all(torch.equal(a, b) for a, b in zip(task.model.state_dict().values(), again.model.state_dict().values()))


@TWO
def test_scores_follow_the_history_and_nothing_at_or_after_the_time(method: str, tmp_path: Path) -> None:
    stream = events()
    task = task_of(method, tmp_path, stream)
    report = check_leak(task.scorer_over, stream, times=2, queries=16, batch_size=40)
    assert report.scores > 0
    query = queries(stream)
    before = np.asarray(task.scorer("test").score(*query))
    head = next(part for part in task.model.modules() if isinstance(part, PairHistory))
    with torch.no_grad():
        head.output.bias += 1
    assert (np.asarray(task.scorer("test").score(*query)) != before).all()


@TWO
def test_scores_do_not_depend_on_the_batch_or_its_order(method: str, tmp_path: Path) -> None:
    stream = events()
    scorer = task_of(method, tmp_path, stream).scorer("test")
    u, v, t = queries(stream)
    whole, order = np.asarray(scorer.score(u, v, t)), np.random.default_rng(1).permutation(len(u))
    np.testing.assert_allclose(np.asarray(scorer.score(u[order], v[order], t[order])), whole[order], rtol=F32)
    for i in (0, 17):
        one = slice(i, i + 1)
        np.testing.assert_allclose(np.asarray(scorer.score(u[one], v[one], t[one])), whole[one], rtol=F32)


@TWO
def test_scores_do_not_depend_on_the_time_unit(method: str, tmp_path: Path) -> None:
    found = []
    for unit, factor in (("s", 1), ("ms", 10**3), ("ns", 10**9)):
        stream = events(factor=factor, unit=unit)
        task = task_of(method, tmp_path / unit, stream)
        found.append(np.asarray(task.scorer("test").score(*queries(stream))))
    np.testing.assert_allclose(found[1:], [found[0]] * 2, rtol=F32, atol=F32_TIGHT)


@pytest.mark.parametrize(("method", "deletes"), [("ctdg-ssm", True), ("dyg-mamba", False), ("dygformer", True)])
def test_a_live_run_does_not_depend_on_how_events_are_cut(method: str, deletes: bool, tmp_path: Path) -> None:
    task, later = task_of(method, tmp_path, events(deletes=deletes)), events(20, 1, deletes=deletes)
    with torch.no_grad():
        past = state_after_stream(task, task.stream)
        one = continue_stream(task, past, later, allow_duplicates=True)[0]["score"]
        for size in (2, 6):
            found, now = [], past
            for a in range(0, len(later), size):
                names = ("src", "dst", "t", "kind")
                part = {k: getattr(later, k)[a : a + size] for k in names if getattr(later, k) is not None}
                columns, now = continue_stream(task, now, replace(later, **part), allow_duplicates=True)
                found.append(columns["score"])
            np.testing.assert_allclose(np.concatenate(found), one, rtol=F32, err_msg=str(size))
            follower = task.follow(now)
    live_features = follower.inputs.pair_features if method == "ctdg-ssm" else follower.tokenizer.features
    joined = {k: np.concatenate([getattr(task.stream, k), getattr(later, k)]) for k in names if k in part}
    whole = EventStream(**joined, num_nodes=20, time_unit="s")
    features = PairFeatures(NeighborStore.from_stream(whole), whole, task.clock, np.empty(0, np.int64))
    query = later.src[:10], later.dst[10:20], np.full(10, later.t[-1] + 1)
    np.testing.assert_array_equal(live_features.pairs(*query), features.pairs(*query))
    assert len(np.unique(one)) > len(one) // 2


@TWO
def test_deletions_do_not_change_pair_features(method: str, tmp_path: Path) -> None:
    """Pair features of a stream with deletions equal those of its additions."""
    plain, cut = (task_of(method, tmp_path / str(d), events(deletes=d)).source for d in (False, True))
    for mine, theirs in ((plain.inputs, cut.inputs), (plain.train_inputs, cut.train_inputs)):
        one, other = (inputs.pair_features if method == "ctdg-ssm" else inputs.features for inputs in (mine, theirs))
        np.testing.assert_array_equal(one.pairs(*queries(plain.stream)), other.pairs(*queries(plain.stream)))


@pytest.mark.parametrize("method", ["dyg-mamba", pytest.param("ctdg-ssm", marks=pytest.mark.slow)])
def test_resumed_runs_are_bit_identical(method: str, tmp_path: Path) -> None:
    ends = []
    for stop in (False, True):
        folder = RunFolder.create(tmp_path / f"{stop}", {"method": method, "data": "x", "loop": {}})
        tasks = [task_of(method, tmp_path, events(), **{"loop.epochs": 2}) for _ in range(2)]
        loop = configured(get_method(method).config(data="x"), {**LOOP, "loop.epochs": 2}).loop
        if stop:
            trainer = Trainer(tasks[0], loop, folder, method=method)
            trainer._step = partial(_stopped, trainer, trainer._step)  # type: ignore[method-assign]
            with pytest.raises(KeyboardInterrupt):
                trainer.fit()
        Trainer(tasks[1], loop, folder, method=method).fit(resume=stop)
        ends.append(load_checkpoint(folder.weights).tensors["model"])
    assert any(name.endswith("pair_features.mean") or name == "head.pair.mean" for name in ends[0])
    assert all(torch.equal(ends[0][name], ends[1][name]) for name in ends[0])


def _stopped(trainer: Trainer, step: Any, batch: Any, count: int) -> None:
    step(batch, count)
    if trainer.progress.epoch == 1 and trainer.progress.step == 1:
        trainer.save()
        raise KeyboardInterrupt


@pytest.mark.parametrize("method", ["dyg-mamba-nodes", "ctdg-ssm-nodes"])
def test_node_tasks_reject_pair_features(method: str, tmp_path: Path) -> None:
    stream = replace(events(), labels=np.arange(240) % 2)
    chosen = get_method(method)
    config = configured(chosen.config(data="x"), {"model.pair_features": True})
    with pytest.raises(ConfigError, match="pair_features"):
        chosen.build(stream, config, Context(run=tmp_path, cache=tmp_path))
