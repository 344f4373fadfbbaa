"""Finished runs combined: an ensemble predicts the weighted sum of its members' log-odds in every command."""

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scipy.special import expit, logit

import hopstate
from hopstate.cli.main import main
from hopstate.data.events import EventStream
from hopstate.data.graph import Graph
from hopstate.errors import ConfigError, HopstateError
from hopstate.runs.load import load_run
from hopstate.runs.run import Run
from hopstate.streaming.live import continue_stream, initial_state
from hopstate.testing.conformance import F32_SUM
from hopstate.training.checkpoint import load_checkpoint

QUIET = {"loop.progress": False, "loop.logger": "none", "loop.device": "cpu", "loop.epochs": 1}
MEMORY = {"batch_size": 20, "model.time_dim": 4, "model.num_layers": 1}
MEMBERS: dict[str, tuple[str, dict[str, Any]]] = {
    "recency": ("recency", {}),
    "bank": ("edgebank", {}),
    "trees": ("pair-trees", {"model.num_trees": 5, "model.min_leaf": 5}),
    "mixer": ("graphmixer", {"model.dim": 8, "model.time_dim": 8, "model.num_layers": 1}),
    "memory": ("ctdg-ssm", {**MEMORY, "model.dim": 6}),
    "other": ("ctdg-ssm", {**MEMORY, "model.dim": 4, "model.num_layers": 2, "num_neighbors": 2}),
}
GROUPS = {
    "look-ups": ("recency", "trees", "mixer"),
    "one memory": ("trees", "mixer", "memory"),
    "memories": ("memory", "other"),
}


def events(count: int = 300, seed: int = 0) -> EventStream:
    """Return events with repeat pairs, ties, and two features."""
    rng = np.random.default_rng(seed)
    src, dst = rng.integers(0, 12, count), 12 + rng.integers(0, 12, count)
    for i in range(20, count):
        if rng.random() < 0.6:
            src[i], dst[i] = src[i - 7], dst[i - 7]
    attr = rng.normal(size=(count, 2)).astype(np.float32)
    t = 60 * np.sort(rng.integers(0, count, count)) + 1_650_000_000
    return EventStream(src=src, dst=dst, t=t, edge_attr=attr, num_nodes=24, time_unit="s")


def later(own: EventStream, count: int = 60) -> EventStream:
    """Return further events."""
    more = events(count, 1)
    return replace(more, t=more.t - more.t[0] + own.t[-1] + 60)


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Run]:
    folder = tmp_path_factory.mktemp("members")
    settings = {**QUIET, "evaluation.strategies": ["random", "historical"]}
    return {
        name: hopstate.fit(method, events(), out=folder / name, config={**settings, **own})
        for name, (method, own) in MEMBERS.items()
    }


@pytest.fixture(scope="module", params=["look-ups", "memories", pytest.param("one memory", marks=pytest.mark.slow)])
def made(request: Any, runs: dict[str, Run], tmp_path_factory: pytest.TempPathFactory) -> tuple[Run, list[Run]]:
    members = [runs[name] for name in GROUPS[request.param]]
    out = tmp_path_factory.mktemp("ensembles") / "run"
    return hopstate.ensemble([run.path for run in members], out=out), members


def combined(run: Run, scores: list[np.ndarray]) -> np.ndarray:
    """Return the ensemble's expected probabilities for the members' scores (Q,)."""
    with load_run(run.path) as (_, task):
        stack = task.source.stack
        weight, bias = stack.weight.numpy(), float(stack.bias)
    x = np.stack([own if own.min() < 0 else logit(own) for own in scores], 1)  # recency's scores are not probabilities
    return expit(x @ weight + bias)


def test_predictions_are_the_weighted_sum_of_the_members(made: tuple[Run, list[Run]]) -> None:
    """Stored weights of the members are bit-identical, for every dtype."""
    run, members = made
    for number, member in enumerate(members):
        own = load_checkpoint(member.path / "model.safetensors").tensors.get("model", {})
        kept = load_checkpoint(run.path / "model.safetensors").tensors["model"]
        for name, value in own.items():
            assert torch.equal(kept[f"networks.{number}.{name}"], value)
            assert kept[f"networks.{number}.{name}"].dtype == value.dtype
    expected = combined(run, [member.predict(split="test")["score"].to_numpy() for member in members])
    np.testing.assert_allclose(run.predict(split="test")["score"], expected, atol=F32_SUM)


def test_queries_and_later_events_use_the_weighted_sum_too(made: tuple[Run, list[Run]]) -> None:
    run, members = made
    pairs = [(0, 12), (3, 14), (5, 20)]
    expected = combined(run, [member.score(pairs)["score"].to_numpy() for member in members])
    np.testing.assert_allclose(run.score(pairs)["score"], expected, atol=F32_SUM)
    found = []
    for one in (*members, run):
        with load_run(one.path) as (_, task):
            own = task.stream
            _, past = continue_stream(task, initial_state(task, own), own, score=False)
            first, past = continue_stream(task, past, later(own).slice(0, 33))  # cached between two calls
            second, _ = continue_stream(task, past, later(own).slice(33, 60))
            found.append(np.concatenate([first["score"], second["score"]]))
    np.testing.assert_allclose(found[-1], combined(run, found[:-1]), atol=F32_SUM)


def test_a_saved_state_can_be_continued(made: tuple[Run, list[Run]], tmp_path: Path) -> None:
    once, twice = (shutil.copytree(made[0].path, tmp_path / name) for name in ("once", "twice"))
    new = later(events())
    whole = hopstate.stream(once, new)
    hopstate.stream(twice, new.slice(0, 25))
    rest = hopstate.stream(twice, new.slice(25, 60))
    np.testing.assert_allclose(rest["score"], whole["score"][25:], atol=F32_SUM)


def test_edgebank_and_a_memory_observe_events_in_one_ensemble(runs: dict[str, Run], tmp_path: Path) -> None:
    run = hopstate.ensemble([runs["bank"].path, runs["memory"].path], out=tmp_path / "run")
    own, found = events(), list[np.ndarray]()
    u, v = next((u, v) for u in range(12) for v in range(12, 24) if not ((own.src == u) & (own.dst == v)).any())
    new = replace(later(own), src=np.full(60, u), dst=np.full(60, v))
    with load_run(run.path) as (_, task):
        start = continue_stream(task, initial_state(task, task.stream), task.stream, score=False)[1]
        for size in (60, 10):
            past, scores = start, []
            for first in range(0, 60, size):
                columns, past = continue_stream(task, past, new.slice(first, first + size))
                scores.append(columns["score"])
            found.append(np.concatenate(scores))
    np.testing.assert_allclose(found[0], found[1], atol=F32_SUM)


def test_members_are_reported_and_do_not_leak(made: tuple[Run, list[Run]]) -> None:
    run, members = made
    for member in members:
        own = run.baselines[f"{member.method} ({member.path.name})"]
        assert own["average_precision"] == pytest.approx(member.metrics["test"]["average_precision"], abs=F32_SUM)
    assert main(["check-leak", str(run.path), "--times", "2"]) == 0
    assert hopstate.evaluate(run.path) == pytest.approx(run.metrics["test"], abs=F32_SUM)


def test_weights_are_fitted_on_validation(made: tuple[Run, list[Run]]) -> None:
    """The gradient of the loss of validation's pairs and of half the squared standardized weights is zero."""
    with load_run(made[0].path) as (_, task):
        drawn = {key: task.negatives[key] for key in (("val", "random"), ("val", "historical"))}
        found = [task._scored(one, "val", drawn, "pooled") for one in task._each()]
        pooled = [[own[key].without_collisions().pooled() for key in drawn] for own in found]
        x = np.stack([np.concatenate([values for _, values in own]) for own in pooled], 1)
        residual = expit(task.source.stack.logits(x)) - np.concatenate([labels for labels, _ in pooled[0]])
        weight = task.source.stack.weight.numpy() * x.std(0)
    gradient = ((x - x.mean(0)) / x.std(0)).T @ residual + weight
    np.testing.assert_allclose([residual.mean(), *gradient / len(x)], 0, atol=1e-4)


def test_explain_adds_up(made: tuple[Run, list[Run]]) -> None:
    run, members = made
    found, other = hopstate.explain(run.path, 0, 12), hopstate.explain(run.path, 1, 13)
    assert set(found.features["feature"]) == {f"{one.method} ({one.path.name})" for one in members}
    rest = [one.logit - one.features["contribution"].sum() for one in (found, other)]  # the bias of the sum
    assert rest[0] == pytest.approx(rest[1], abs=F32_SUM)
    assert found.score == pytest.approx(run.score([(0, 12)], found.t)["score"].item(), abs=F32_SUM)
    why = run.rank(0, top=2, explain=True)["why"][0]
    assert any(member.method in why for member in members)


def test_the_folder_is_self_contained(runs: dict[str, Run], tmp_path: Path) -> None:
    copies = [shutil.copytree(runs[name].path, tmp_path / name) for name in ("trees", "memory")]
    run = hopstate.ensemble(copies, out=tmp_path / "run")
    expected = run.predict(split="test")["score"]
    for copy in copies:
        shutil.rmtree(copy)
    assert run.predict(split="test")["score"].tolist() == expected.tolist()
    assert len(run.rank(0, top=3)) == 3


def test_incompatible_runs_are_named(runs: dict[str, Run], tmp_path: Path) -> None:
    paths = {name: run.path for name, run in runs.items()}
    with pytest.raises(ConfigError, match="runs"):
        hopstate.ensemble([paths["trees"]], out=tmp_path / "one")
    other = hopstate.fit("recency", events(), out=tmp_path / "split", config={**QUIET, "split.val_ratio": 0.2})
    with pytest.raises(ConfigError, match="split"):
        hopstate.ensemble([paths["trees"], other.path], out=tmp_path / "a")
    other = hopstate.fit("recency", events(seed=3), out=tmp_path / "data", config=QUIET)
    with pytest.raises(ConfigError, match="data"):
        hopstate.ensemble([paths["trees"], other.path], out=tmp_path / "b")
    settings = {**QUIET, **MEMBERS["memory"][1], "batch_size": 30}
    other = hopstate.fit("ctdg-ssm", events(), out=tmp_path / "size", config=settings)
    with pytest.raises(ConfigError, match=r"evaluation\.batch_size"):
        hopstate.ensemble([paths["memory"], other.path], out=tmp_path / "c")
    graph = Graph.from_edges([(i, i + 1) for i in range(40)], 42, x=np.eye(42, dtype=np.float32), y=np.arange(42) % 2)
    for name in ("gcn", "mlp"):
        hopstate.fit(name, graph, out=tmp_path / name, config={**QUIET, "model.dim": 4})
    with pytest.raises(ConfigError, match=r"links; .*gcn"):
        hopstate.ensemble([tmp_path / "gcn", tmp_path / "mlp"], out=tmp_path / "nodes")
    (shutil.copytree(paths["trees"], tmp_path / "part") / "model.safetensors").unlink()
    with pytest.raises(HopstateError, match="part"):
        hopstate.ensemble([paths["memory"], tmp_path / "part"], out=tmp_path / "d")


def test_an_ensemble_for_static_links(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rng = np.random.default_rng(0)
    edges = rng.integers(0, 40, (400, 2))
    edges = edges[(edges[:, 0] % 2 == edges[:, 1] % 2) & (edges[:, 0] != edges[:, 1])]
    graph = Graph.from_edges(edges, 40, undirected=True, x=rng.normal(size=(40, 5)).astype(np.float32))
    small = {**QUIET, "task": "link", "model.dim": 8, "link.dim": 8, "link.num_negatives": 3, "link.num_candidates": 0}
    members = [hopstate.fit(name, graph, out=tmp_path / name, config=small) for name in ("gcn", "sage")]
    assert main(["ensemble", *(str(one.path) for one in members), "--out", str(tmp_path / "run")]) == 0
    assert "sage (sage)" in capsys.readouterr().out
    run = hopstate.load(tmp_path / "run")
    with load_run(run.path) as (_, task):
        weight, bias = task.stack.weight.numpy(), float(task.stack.bias)
    pairs = [(0, 2), (1, 6)]
    x = np.stack([one.score(pairs)["score"] for one in members], 1)
    np.testing.assert_allclose(run.score(pairs)["score"], x @ weight + bias, atol=F32_SUM)
    assert hopstate.evaluate(run.path) == pytest.approx(run.metrics["test"])
    assert len(run.rank(0, top=3)) == 3
    other = hopstate.fit("mlp", graph, out=tmp_path / "other", config={**small, "split.seed": 1})
    with pytest.raises(ConfigError, match="split"):
        hopstate.ensemble([members[0].path, other.path], out=tmp_path / "bad")
