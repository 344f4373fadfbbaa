"""Epochs over a sample of training events: which events and negatives, exact resume, and what a run reports."""

import json
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import hopstate
from cut_runs import SMALL, resumes_to_the_same_bits
from hopstate.data.events import EventStream
from hopstate.errors import ConfigError, HopstateError
from hopstate.methods import get_method
from hopstate.methods.config import config_from
from hopstate.methods.method import Context
from hopstate.methods.shared.link import auto_config_history
from hopstate.random import named_rng
from hopstate.sampling.event_batches import epoch_batches
from hopstate.testing.conformance import F32
from hopstate.training.tasks.events import with_negatives
from hopstate.training.trainer import seed_everything

METHODS = ("graphmixer", "dyg-mamba")
GIVEN = {
    "batch_size": 20, "evaluation.batch_size": 40, "evaluation.strategies": ["random"], "loop.epochs": 2,
    "loop.progress": False, "loop.logger": "none", "loop.device": "cpu", "loop.patience": None,
}  # fmt: skip


def events(count: int = 500) -> EventStream:
    rng = np.random.default_rng(0)
    src, dst = rng.integers(0, 10, count), 10 + rng.integers(0, 10, count)
    return EventStream(src=src, dst=dst, t=np.sort(rng.integers(0, 200, count)), num_nodes=20)


def task_of(method: str, folder: Path, **settings: Any) -> Any:
    chosen = get_method(method)
    config = config_from(chosen, {"data": "x"} | GIVEN | SMALL[method] | settings)
    seed_everything(0)
    return chosen.build(events(), config, Context(run=folder, cache=folder)), config


def equal(a: Any, b: Any) -> bool:
    """Return whether two batches are bit-identical."""
    return len(a) == len(b) and all(
        torch.equal(x[1], y[1]) and x[2] == y[2] and all(map(torch.equal, _tensors(x[0]), _tensors(y[0])))
        for x, y in zip(a, b, strict=True)
    )


def _tensors(inputs: Any) -> list[torch.Tensor]:
    return [value for value in inputs if isinstance(value, torch.Tensor)]


def naive(count: int, most: int | None, batch_size: int, rng: np.random.Generator) -> list[int]:
    """Return an epoch's batches in order: one batch from each of equal ranges."""
    batches = (count + batch_size - 1) // batch_size
    if most is None or count <= most:
        return list(range(batches))
    kept = max(1, most // batch_size)
    edges = [int(batches * k / kept) for k in range(kept + 1)]
    return [int(number) for number in rng.integers(edges[:-1], edges[1:])]


def test_an_epoch_equals_the_naive_one() -> None:
    chosen = random.Random(0)
    sizes = [(0, 5, 3), (1, 1, 1), (20, 20, 7), (21, 20, 7), (5, 1, 9), (10, None, 3), (10**8, 10**6, 200)]
    sizes += [(chosen.randrange(1, 3000), chosen.randrange(1, 3000), chosen.randrange(1, 300)) for _ in range(60)]
    for count, most, batch_size in sizes:
        for epoch in (0, 3):
            found = epoch_batches(count, most, batch_size, 7, epoch)
            assert found.tolist() == naive(count, most, batch_size, named_rng(7, "epoch-events", epoch))
            assert (np.diff(found) > 0).all()


def test_epochs_draw_different_events_over_the_training_span() -> None:
    drawn = [epoch_batches(100_000, 10_000, 100, 0, epoch) for epoch in range(40)]
    assert {len(own) for own in drawn} == {100}
    assert len({tuple(own) for own in drawn}) == 40
    assert len(np.unique(np.concatenate(drawn))) > 950  # of 1,000 batches
    for own in drawn:
        np.testing.assert_array_equal(own // 10, np.arange(100))
    assert (epoch_batches(100_000, 10_000, 100, 1, 0) != drawn[0]).any()


@pytest.mark.parametrize("method", METHODS)
def test_batches_of_a_sampled_epoch_are_batches_of_a_full_one(method: str, tmp_path: Path) -> None:
    some, _ = task_of(method, tmp_path / "some", max_events=100)
    whole, _ = task_of(method, tmp_path / "whole", max_events="all")
    for epoch in (0, 1):
        own, every = list(some.batches(epoch)), list(whole.batches(epoch))
        numbers = epoch_batches(len(some.split.train), 100, 20, 0, epoch)
        assert len(own) == len(numbers) == some.num_batches(epoch) == 5 < len(every)
        assert all(equal(a, every[number]) for a, number in zip(own, numbers, strict=True))
        assert not equal(own[1], own[2])
        rest = list(some.batches(epoch, 3))  # resumed in the middle
        assert len(rest) == 2
        assert all(map(equal, own[3:], rest))
    inputs = some.source.train_inputs
    store = getattr(inputs, "inner", inputs).store
    assert store.num_events == len(some.split.train)  # histories include events that are not drawn


@pytest.mark.parametrize("method", METHODS)
def test_short_streams_use_all_events_bit_identically(method: str, tmp_path: Path) -> None:
    usual, config = task_of(method, tmp_path / "usual")
    count = len(usual.split.train)
    assert config.event_limit == 10**6
    for most in (count, "all"):
        other, _ = task_of(method, tmp_path / f"{most}", max_events=most)
        assert usual.num_batches(1) == other.num_batches(1) == -(-count // 20)
        assert all(map(equal, usual.batches(1), other.batches(1)))
    rows = usual.split.train
    labels = torch.cat([part[1] for batch in usual.batches(0) for part in batch])
    assert int(labels.sum()) == len(rows)
    for number, own in enumerate(usual.batches(1)):  # as without a limit: every event, in order
        at = slice(20 * number, 20 * number + 20)
        others = [drawn[at] for drawn in usual.source.drawn.of(1)]
        pairs, labels = with_negatives(usual.stream.pairs(rows[at]), *others, 1)
        expected = [(usual.source.train_inputs.pairs(*pairs), labels, len(labels))]
        assert equal(own, expected)


def test_an_incomplete_last_batch_is_used(tmp_path: Path) -> None:
    task, _ = task_of("graphmixer", tmp_path, max_events=100, batch_size=19)
    count = len(task.split.train)
    short = [e for e in range(60) if epoch_batches(count, 100, 19, 0, e)[-1] == count // 19]
    assert count % 19
    assert short
    *_, last = task.batches(short[0])
    assert sum(len(part[1]) for part in last) == 2 * (count % 19)
    assert last[0][2] == 2 * (count % 19)  # the rows of the mean


@pytest.mark.slow
def test_an_interrupted_run_resumes_bit_identically(tmp_path: Path) -> None:
    result = resumes_to_the_same_bits(lambda: task_of("graphmixer", tmp_path, max_events=100), "graphmixer", tmp_path)
    assert result.progress.total_steps == 10


@pytest.mark.parametrize("size", [2, 3])
def test_ranks_alternate_between_batches_of_an_epoch(size: int, tmp_path: Path) -> None:
    task, _ = task_of("graphmixer", tmp_path, max_events=100)
    every = list(task.batches(1))
    for rank in range(size):
        for own, other in zip(task.batches(1, rank, size), every[rank::size], strict=True):
            assert equal(own, other)


def test_a_run_reports_the_events_per_epoch(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = GIVEN | SMALL["graphmixer"] | {"loop.epochs": 1, "max_events": 110, "loop.progress": True}
    run = hopstate.fit("graphmixer", events(), out=tmp_path / "run", config=config)
    own = capsys.readouterr().err
    assert "100 of 352" in own, own
    assert json.loads((run.path / "data.json").read_text())["training_events"] == [100, 352]
    assert json.loads((run.path / "config.json").read_text())["max_events"] == 110
    assert run.evaluate() == pytest.approx(run.metrics["test"], rel=F32)
    capsys.readouterr()
    task_of("graphmixer", tmp_path / "whole", **{"loop.progress": True})
    assert "of 352" not in capsys.readouterr().err


def test_automatic_epochs_follow_the_events_per_epoch() -> None:
    method = get_method("graphmixer")
    found = {}
    for most in (50, 350, "all"):
        config = config_from(method, {"data": "x", "max_events": most})
        found[most] = auto_config_history(events(), config, (), budget=4000)["loop.epochs"]
    assert found == {50: 40, 350: 11, "all": 11}


@pytest.mark.parametrize("bad", [0, -3, "some", 1.5])
def test_an_invalid_number_of_events_is_rejected(bad: Any) -> None:
    with pytest.raises(ConfigError, match="max_events"):
        config_from(get_method("dygformer"), {"data": "x", "max_events": bad})


@pytest.mark.parametrize("method", ["ctdg-ssm", "dyg-mamba-nodes"])
def test_methods_that_need_every_event_lack_the_setting(method: str) -> None:
    with pytest.raises(HopstateError, match="max_events"):
        config_from(get_method(method), {"data": "x", "max_events": 100})
