"""CTDG-SSM's memory in DyG-Mamba's tokens: what a token has, and that nothing leaks."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from shutil import copytree, rmtree
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from hopstate.data.events import EventStream
from hopstate.errors import CheckpointError, ConfigError
from hopstate.evaluation.leak import check_leak
from hopstate.methods import get_method
from hopstate.methods.dyg_mamba.token_memory import Versions
from hopstate.methods.method import Context
from hopstate.methods.settings import config_from
from hopstate.runs.api import Run, evaluate, fit, score_stream
from hopstate.runs.load import load_run
from hopstate.streaming.memory_scorer import MemoryScorer
from hopstate.testing.asserts import F32, F32_SUM, F32_TIGHT
from hopstate.testing.conformance import Inputs, ModelCase, check_model
from hopstate.training.tasks.history import HistoryPairs
from made_events import cut, repeating

QUIET: dict[str, Any] = {"loop.progress": False, "loop.tensorboard": "no", "loop.device": "cpu", "loop.epochs": 1}
QUIET |= {"evaluation.strategies": ["random", "historical"], "evaluation.batch_size": 16, "batch_size": 100}
MEMORY = {"model.dim": 5, "model.num_layers": 1, "num_neighbors": 3, "model.time_dim": 6, "batch_size": 16}
TOKENS = {"model.channel_dim": 4, "model.time_dim": 6, "model.out_dim": 5, "history.max_length": 6}
TOKENS |= {"model.pair_history": False}
TWICE = {"loop.epochs": 2, "loop.checkpoint_seconds": 0.0}
DIM = 5


def remembering(folder: Path, data: EventStream | None = None, **more: Any) -> str:
    fit("ctdg-ssm", repeating() if data is None else data, out=folder, config={**QUIET, **MEMORY, **more})
    return str(folder)


def united(folder: Path, memory: str | None, data: EventStream | None = None, **more: Any) -> Run:
    given = {**QUIET, **TOKENS, "memory": memory, **more}
    return fit("dyg-mamba", repeating() if data is None else data, out=folder, config=given)


@pytest.fixture(scope="module")
def memory(tmp_path_factory: pytest.TempPathFactory) -> str:
    return remembering(tmp_path_factory.mktemp("runs") / "memory")


@pytest.fixture(scope="module")
def run(memory: str, tmp_path_factory: pytest.TempPathFactory) -> Run:
    return united(tmp_path_factory.mktemp("runs") / "united", memory)


def one_by_one(scorer: MemoryScorer, stream: EventStream, node: int, t: float, batch_size: int) -> np.ndarray:
    """Return a node's memory as the last batch left it that is full and over before t: replayed for it alone."""
    scorer.reset()
    start = 0
    while True:
        stop = start + batch_size
        while 0 < stop < len(stream) and stream.t[stop] == stream.t[stop - 1]:
            stop += 1
        if stop > len(stream) or not stream.t[stop - 1] < t:
            break
        scorer.observe(stream.take(np.arange(start, stop)))
        start = stop
    row = scorer.model.represent(scorer.memory, torch.tensor([node]), back=True)
    return row[0, :DIM].detach().numpy()


def test_a_token_has_the_memory_that_its_node_had_before_the_query(memory: str, run: Run) -> None:
    own = repeating()
    rows = np.array([130, 250, 399])
    with load_run(memory, own) as (_, alone), load_run(run.path, own) as (_, task):
        found = task.scorer("test").tokenizer.pairs(own.src[rows], own.dst[rows], own.t[rows])
        scorer = alone.scorer("test")
        sequences = found.rows().numpy()
        for token in np.random.default_rng(0).choice(len(found.nodes), 12, replace=False):
            t = own.t[np.tile(rows, 2)[sequences[token]]]
            expected = one_by_one(scorer, own, int(found.nodes[token]), t, 16)
            np.testing.assert_allclose(found.x[token], expected, atol=F32_SUM)
        assert found.x.shape[1] == DIM
        assert found.x.abs().sum() > 0
        for name, tensor in task.model.memory.model.state_dict().items():
            assert torch.equal(tensor, alone.model.state_dict()[name])  # it was not trained further


def test_memories_are_found_strictly_before_a_time() -> None:
    rows = np.array([[1.0], [2.0], [3.0]], np.float32)
    keys = (np.array([1, 1, 4]) << 32) + np.array([0, 2, 1])
    kept = Versions(rows, keys, ends=np.array([10, 20, 30]))
    nodes, t = np.array([1, 1, 1, 1, 4, 4, 3, 0, 5]), np.array([10, 11, 30, 31, 20, 21, 99, 99, 99])
    assert kept.at(nodes, t)[:, 0].tolist() == [0, 1, 1, 2, 0, 3, 0, 0, 0]


@pytest.mark.slow
def test_training_knows_the_memory_of_training_events_alone(run: Run) -> None:
    own = repeating()
    with load_run(run.path, own) as (_, task):
        inputs = task.source.train_inputs
        count = len(task.split.train)
        late = np.full(8, own.t[-1] + 1)
        known = inputs.pairs(own.src[:8], own.dst[:8], late).x
        assert not torch.equal(known, task.source.inputs.pairs(own.src[:8], own.dst[:8], late).x[: len(known)])
    changed = own.with_(dst=np.where(np.arange(len(own)) < count, own.dst, 10))
    with load_run(run.path, changed) as (_, task):
        again = task.source.train_inputs.pairs(own.src[:8], own.dst[:8], late).x
    torch.testing.assert_close(known, again, rtol=F32, atol=F32_TIGHT)


@pytest.mark.slow
@pytest.mark.parametrize("more", [{}, {"model.pair_history": True}, {"model.encoders": "independent"}])
def test_no_event_at_or_after_a_time_changes_a_score(memory: str, more: dict[str, Any], tmp_path: Path) -> None:
    made = united(tmp_path / "run", memory, **more)
    with load_run(made.path, repeating()) as (_, task):
        assert check_leak(task.scorer_over, repeating(), moments=3, queries=24).scores > 0


@pytest.mark.slow
def test_the_leak_check_sees_a_memory_that_looks_ahead(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    from hopstate.errors import LeakError

    at = Versions.at
    monkeypatch.setattr(Versions, "at", lambda self, nodes, t: at(self, nodes, t + 60))
    with load_run(run.path, repeating()) as (_, task), pytest.raises(LeakError):
        check_leak(task.scorer_over, repeating(), moments=3, queries=24)


@pytest.mark.slow
def test_gradients_reach_all_but_the_memory_and_equal_differences(run: Run) -> None:
    own, rows = repeating(), np.arange(300, 308)
    with load_run(run.path, own) as (_, task):
        tokens = task.scorer("test").tokenizer.pairs(own.src[rows], own.dst[rows], own.t[rows])
        model = task.model.double().eval()
        logits = model(tokens)
        logits.sum().backward()
        assert all(p.grad is None for p in model.memory.parameters())
        weight = model.encoders[0].project["node"].weight
        assert weight.shape[1] == DIM
        with torch.no_grad():
            for place in ((0, 0), (1, 3)):
                step = torch.zeros_like(weight)
                step[place] = 1e-6
                ends = []
                for sign in (1, -1):
                    weight.add_(sign * step)
                    ends.append(model(tokens).sum())
                    weight.sub_(sign * step)
                assert float((ends[0] - ends[1]) / 2e-6) == pytest.approx(float(weight.grad[place]), rel=F32)


class Asked(nn.Module):
    """Logits (Q, 1) of pairs (Q,), (Q,) at times (Q,) after the whole stream."""

    def __init__(self, task: Any) -> None:
        super().__init__()
        self.model, self.inputs = task.model, task.source.inputs

    def forward(self, u: torch.Tensor, v: torch.Tensor, t: torch.Tensor) -> torch.Tensor:
        return self.model(self.inputs.pairs(u.numpy(), v.numpy(), t.numpy()))[:, None]


def take(inputs: Inputs, rows: torch.Tensor) -> Inputs:
    return tuple(column[rows] for column in inputs)


@pytest.mark.slow
def test_conformance(memory: str, tmp_path: Path) -> None:
    chosen, own = get_method("dyg-mamba"), repeating()
    config = config_from(chosen, {**QUIET, **TOKENS, "data": "x", "memory": memory, "model.block.dropout": 0.0})
    rng = np.random.default_rng(1)
    asked = rng.permutation(10), 10 + rng.integers(0, 10, 10), np.full(10, 500)
    check_model(
        ModelCase(
            make=lambda: Asked(chosen.build(own, config, Context(run=tmp_path, cache=tmp_path))),
            inputs=tuple(map(torch.from_numpy, asked)),
            permute=take,
            take=take,
        )
    )


@pytest.mark.slow
def test_the_run_does_without_the_folder_of_the_memory(tmp_path: Path) -> None:
    """Evaluated, asked, and followed live in calls of any size, to the same bits."""
    own, later = cut(repeating(), 0, 320), cut(repeating(), 320, 400)
    named = remembering(tmp_path / "memory", own)
    made = united(tmp_path / "run", named, own)
    rmtree(named)
    assert evaluate(made.path, data=own) == made.metrics["test"]
    with load_run(made.path, own) as (_, task):
        expected = task.scorer_over(repeating()).score(later.src, later.dst, later.t).numpy()
    whole = score_stream(made.path, later, own=own).score.to_numpy()
    in_pieces = [
        score_stream(made.path, cut(repeating(), a, b), own=own, fresh=a == 320).score.to_numpy()
        for a, b in ((320, 321), (321, 357), (357, 400))
    ]
    np.testing.assert_allclose(whole, expected, atol=F32_SUM)
    assert np.array_equal(np.concatenate(in_pieces), whole)
    assert len(made.predict(data=own)) == 320


def stopped(folder: Path, memory: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave a run of two epochs that was stopped amid the second."""
    loss, calls = HistoryPairs.loss, iter(range(4))

    def few(self: HistoryPairs, model: Any, batch: Any) -> Any:
        if next(calls, None) is None:
            raise KeyboardInterrupt
        return loss(self, model, batch)

    with monkeypatch.context() as patch:
        patch.setattr(HistoryPairs, "loss", few)
        with pytest.raises(KeyboardInterrupt):
            united(folder, memory, **TWICE)


@pytest.mark.slow
def test_a_run_that_was_stopped_goes_on_to_the_same_bits(
    memory: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = united(tmp_path / "whole", memory, **TWICE)
    named = str(copytree(memory, tmp_path / "memory"))
    stopped(tmp_path / "run", named, monkeypatch)
    rmtree(named)  # the weights are in the checkpoint
    again = fit("dyg-mamba", repeating(), out=tmp_path / "run", resume=True)
    assert again.metrics == whole.metrics


@pytest.mark.slow
def test_a_memory_that_was_trained_again_is_refused(
    memory: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    named = str(copytree(memory, tmp_path / "memory"))
    stopped(tmp_path / "run", named, monkeypatch)
    rmtree(named)
    remembering(Path(named), **{"loop.seed": 1})
    with pytest.raises(ConfigError, match="memory"):
        fit("dyg-mamba", repeating(), out=tmp_path / "run", resume=True)


@pytest.mark.slow
def test_only_a_finished_run_of_the_same_split_and_data_is_taken(memory: str, run: Run, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="split"):
        united(tmp_path / "a", memory, **{"split.test_ratio": 0.3})
    with pytest.raises(ConfigError, match="num_nodes"):
        united(tmp_path / "b", memory, replace(repeating(), num_nodes=21))
    with pytest.raises(ConfigError, match="ctdg-ssm"):
        united(tmp_path / "c", str(run.path))
    begun = Path(copytree(memory, tmp_path / "begun"))
    (begun / "model.safetensors").unlink()
    with pytest.raises(CheckpointError):
        united(tmp_path / "d", str(begun))


@pytest.mark.slow
def test_a_classifier_does_not_begin_from_it(run: Run, tmp_path: Path) -> None:
    labelled = replace(repeating(), labels=np.arange(400) % 2)
    given = {**QUIET, "init": str(run.path), "freeze": True}
    given = {name: value for name, value in given.items() if not name.startswith("evaluation.")}
    with pytest.raises(CheckpointError, match="memory"):
        fit("dyg-mamba-nodes", labelled, out=tmp_path / "run", config=given)


@pytest.mark.slow
def test_trees_read_what_it_makes_of_a_pair(run: Run, tmp_path: Path) -> None:
    chosen = {"model.max_trees": 10, "model.min_leaf": 10, "encodings": str(run.path), **QUIET}
    made = fit(
        "pair-trees", repeating(), out=tmp_path / "run", config={k: v for k, v in chosen.items() if k != "batch_size"}
    )
    assert evaluate(made.path, data=repeating()) == made.metrics["test"]


@pytest.mark.slow
def test_damage_is_named(run: Run, tmp_path: Path) -> None:
    made = Path(copytree(run.path, tmp_path / "run"))
    facts = json.loads((made / "data.json").read_text())
    assert facts["memory"]["settings"]["method"] == "ctdg-ssm"
    del facts["memory"]["settings"]
    (made / "data.json").write_text(json.dumps(facts))
    with pytest.raises(CheckpointError, match="memory"):
        evaluate(made, data=repeating())
