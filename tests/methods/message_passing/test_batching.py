"""Every kind of batching: it trains, is reproducible, and equals full batch if its batch has all nodes."""

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from hopstate.compensation.top.top import Top, TopConfig
from hopstate.data.graph import Graph
from hopstate.errors import ConfigError
from hopstate.io.scratch import Scratch
from hopstate.methods.message_passing.backbones import BACKBONES
from hopstate.methods.message_passing.batching import Batching, embedder, exact_inference, row_store
from hopstate.methods.message_passing.method import METHODS, FullBatchRun
from hopstate.methods.message_passing.model import Backbone
from hopstate.methods.method import Context
from hopstate.random import seed_everything
from hopstate.runs.run import evaluate, fit
from hopstate.testing.conformance import F32_SUM, relative_rmse
from hopstate.training.checkpoint import load_checkpoint
from hopstate.training.config import LoopConfig, OptimConfig
from hopstate.training.run_folder import RunFolder
from hopstate.training.trainer import Trainer

sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "benchmarks"))

from top_error import relative_errors
from torch_threads import torch_threads

KINDS = ["full", "top", "cluster", "gas", "saint", "shadow", "neighbor", "labor"]
SMALL: dict[str, Any] = {
    "num_clusters": 6,
    "clusters_per_batch": 2,
    "batch_size": 30,
    "shadow_size": 8,
    "fanouts": (3,),
    "partitioner": "bisection",
}
KNOWN = {"num_features": 4, "class_names": ["0", "1"]}  # data facts of a finished run


def two_groups(n: int = 120) -> Graph:
    rng = np.random.default_rng(0)
    y = np.arange(n) % 2
    ends = rng.integers(0, n, (6 * n, 2))
    ends = ends[(y[ends[:, 0]] == y[ends[:, 1]]) | (rng.random(len(ends)) < 0.1)]
    x = (rng.normal(size=(n, 4)) + y[:, None]).astype(np.float32)
    where = rng.permutation(n) % 4
    masks = {"train": where < 2, "val": where == 2, "test": where == 3}
    return Graph.from_edges(ends, n, x=x, y=y.astype(np.int64), masks=masks, name="groups")


def made(
    folder: Path,
    kind: str,
    *,
    method: str = "gcn",
    dropout: float = 0.0,
    graph: Graph | None = None,
    trained: dict[str, Any] | None = None,
    **batching: Any,
) -> Any:
    """Return the task of a small backbone; `trained` has the data facts of a finished run."""
    top = TopConfig(**{"refresh": 4, **batching.pop("top", {})})
    config = FullBatchRun(
        data="memory:groups",
        model=Backbone.Config(dim=8, num_layers=2, heads=2, dropout=dropout),
        batching=Batching(kind=kind, top=top, **{**SMALL, **batching}),  # type: ignore[arg-type]
        loop=LoopConfig(progress=False),
    )
    folder.mkdir(exist_ok=True)
    seed_everything(0)
    return METHODS[method].build(graph or two_groups(), config, Context(run=folder, cache=folder, trained=trained))


def learn(task: Any, epochs: int = 3) -> list[float]:
    """Return the losses of all steps of some epochs, with the task in evaluation mode afterwards."""
    optimizer, losses = torch.optim.Adam(task.model.parameters(), 0.02), []
    for epoch in range(epochs):
        task.model.train()
        for batch in task.batches(epoch):
            loss = task.loss(batch)
            if loss is not None:
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                losses.append(loss.item())
    task.model.eval()
    return losses


@torch.no_grad()
def evaluate_test(task: Any) -> dict[str, float]:
    return task.evaluate("test")


def loop(task: Any, folder: Path, epochs: int, *, lr: float = 0.02, resume: bool = False) -> dict[str, Any]:
    """Return the metrics of training with checkpoints."""
    quiet = {"progress": False, "logger": "none", "device": "cpu", "patience": None}
    config = LoopConfig(epochs=epochs, optim=OptimConfig(lr=lr, schedule="constant"), **quiet)  # type: ignore[arg-type]
    return Trainer(task, config, RunFolder(folder), method="gcn").fit(resume=resume).metrics


@pytest.mark.parametrize("kind", KINDS)
def test_every_batching_trains_and_is_fixed_by_its_seed(kind: str, tmp_path: Path) -> None:
    task = made(tmp_path / "one", kind, dropout=0.2)
    losses = learn(task, 12)
    assert evaluate_test(task)["accuracy"] > 0.75
    again = learn(made(tmp_path / "other", kind, dropout=0.2), 2)
    assert again == losses[: len(again)]


ALL_NODES: dict[str, Any] = {"num_clusters": 6, "clusters_per_batch": 6, "batch_size": 120, "fanouts": (1000,)}


@pytest.mark.parametrize(
    ("method", "kind", "more"),
    [
        *((method, "top", {}) for method in ("gcn", "sage", "gin", "gat", "pna", "gcnii")),
        ("gcn", "cluster", {}),
        ("gcn", "cluster", {"nodes": "random"}),
        ("sage", "gas", {}),
        ("sage", "neighbor", {}),
        ("gat", "neighbor", {}),
        ("sage", "labor", {}),
    ],
    ids=str,
)
def test_a_batch_of_all_nodes_gives_the_loss_and_gradients_of_the_full_graph(
    method: str, kind: str, more: dict[str, Any], tmp_path: Path
) -> None:
    found = []
    for name in ("full", kind):
        task = made(tmp_path / name, name, method=method, **ALL_NODES, **more)
        task.model.eval()
        (batch,) = task.batches(0)
        loss = task.loss(batch)
        weights = [p for p in task.model.parameters() if p.requires_grad]
        found.append((loss, torch.autograd.grad(loss, weights, allow_unused=True)))
    torch.testing.assert_close(found[1][0], found[0][0], rtol=1e-4, atol=1e-5)
    for mine, whole in zip(found[1][1], found[0][1], strict=True):
        assert (mine is None) == (whole is None)
        if mine is not None:
            torch.testing.assert_close(mine, whole, rtol=1e-3, atol=1e-4)


def test_shadow_subgraphs_that_reach_every_node_train_as_the_full_batch(tmp_path: Path) -> None:
    near = {"nodes": "shadow", "shadow": "hops", "fanouts": (1000,), "batch_size": 60}
    losses = []
    for kind in ("full", "top", "cluster"):
        task = made(tmp_path / kind, kind, **near)
        losses.append([*learn(task, 3), evaluate_test(task)["loss"]])
    np.testing.assert_allclose(losses[1:], [losses[0]] * 2, rtol=1e-3)  # no neighbor is missing


@pytest.mark.parametrize(
    "settings",
    [
        {"kind": "gas"},
        {"kind": "top", "top": {"refresh": 2}},
        {"kind": "top", "top": {"basis": "batch", "rank": 8}},
        {"kind": "top", "clusters_per_batch": 1, "num_clusters": 20, "top": {"refresh": 1}},  # ridges need history
    ],
    ids=str,
)
def test_a_resumed_run_equals_an_uninterrupted_one(settings: dict[str, Any], tmp_path: Path) -> None:
    whole = loop(made(tmp_path / "whole", dropout=0.2, **settings), tmp_path / "whole", 5)
    loop(made(tmp_path / "parts", dropout=0.2, **settings), tmp_path / "parts", 3)
    again = loop(made(tmp_path / "parts", dropout=0.2, **settings), tmp_path / "parts", 5, resume=True)
    assert again == whole


@pytest.mark.parametrize(
    "settings",
    [
        {"nodes": "random"},
        {"nodes": "saint-node"},
        {"nodes": "shadow"},
        {"nodes": "clusters", "train_only": True, "shuffle": False},
        {"inference": "one-pass", "top": {"refresh": 0}},
        {"inference": "one-pass", "train_only": True, "top": {"refresh": 0}},
        {"block_size": 50},
        {"top": {"rank": 8, "form": "general", "samples": 20}},
        {"top": {"layers": "shared", "refresh": 0}},
    ],
    ids=str,
)
def test_options_of_top_train_and_saved_weights_give_the_same_outputs(settings: dict[str, Any], tmp_path: Path) -> None:
    task = made(tmp_path / "run", "top", **settings)
    losses = learn(task, 5)
    assert np.mean(losses[-2:]) < losses[0]
    applied = made(tmp_path / "run", "top", trained=KNOWN, **settings)
    applied.model.load_state_dict(task.model.state_dict())
    applied.model.eval()
    assert evaluate_test(applied) == pytest.approx(evaluate_test(task), rel=1e-4)


def test_one_pass_inference_is_close_to_exact_inference(tmp_path: Path) -> None:
    settings = {"shuffle": False, "top": {"refresh": 0, "rank": 3}}
    losses = []
    for how in ("one-pass", "exact"):
        task = made(tmp_path / how, "top", inference=how, **settings)
        learn(task)
        losses.append(evaluate_test(task)["loss"])
    assert losses[0] == pytest.approx(losses[1], rel=0.5)
    assert losses[0] != pytest.approx(losses[1], rel=F32_SUM)  # three directions are not enough


@pytest.mark.parametrize("top", [{"rank": 4}, {"basis": "batch", "rank": 6, "samples": 12}], ids=str)
def test_top_prepares_the_same_on_any_number_of_threads(top: dict[str, Any], tmp_path: Path) -> None:
    found = []
    for count in (1, 3):
        with torch_threads(count):
            task = made(tmp_path / f"run-{count}", "top", shuffle=False, top={"refresh": 0, **top})
        found.append(learn(task))
    np.testing.assert_allclose(found[1], found[0], rtol=1e-4)


def test_a_finished_run_partitions_no_graph(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    quiet = {"progress": False, "logger": "none", "device": "cpu", "epochs": 2}
    config = {"model": {"dim": 8, "num_layers": 2}, "loop": quiet, "batching": {"kind": "cluster", "num_clusters": 6,
              "clusters_per_batch": 2}}  # fmt: skip
    run = fit("gcn", two_groups(), out=tmp_path / "run", config=config)
    assert json.loads((run.path / "data.json").read_text())["partitioner"] in ("kaminpar", "metis", "bisection")
    monkeypatch.setattr("hopstate.methods.message_passing.batching.partition", None)
    assert evaluate(run.path, data=two_groups()) == pytest.approx(run.metrics["test"])


def test_batches_without_training_nodes_are_skipped(tmp_path: Path) -> None:
    graph = two_groups()
    rows = graph.split()
    graph = graph.with_(masks={s: np.isin(np.arange(120), r[:3] if s == "train" else r) for s, r in rows.items()})
    losses = []
    for kind in ("full", "top"):
        task = made(tmp_path / kind, kind, graph=graph, num_clusters=30, clusters_per_batch=1)
        if kind == "top":
            assert sum(task.loss(batch) is None for batch in task.batches(0)) >= 27
        loop(task, tmp_path / kind, 1, lr=1e-12)
        losses.append(json.loads((tmp_path / kind / "metrics.jsonl").read_text().splitlines()[-1])["train_loss"])
    assert losses[1] == pytest.approx(losses[0], rel=0.05)


def test_weights_of_a_run_exclude_historical_embeddings(tmp_path: Path) -> None:
    loop(made(tmp_path, "gas"), tmp_path, 2)
    assert set(load_checkpoint(tmp_path / "model.safetensors").tensors) == {"model"}
    kept = load_checkpoint(tmp_path / "checkpoint.safetensors").tensors["task"]
    assert sum(t.numel() for t in kept.values()) > 120 * 8


@pytest.mark.parametrize("block", ["ffn", "conv"])
def test_exact_inference_in_blocks_equals_the_whole_graph(block: Any) -> None:
    graph = two_groups()
    model = Backbone(Backbone.Config(dim=8, num_layers=3, block=block), kind="gcn", in_dim=4, num_classes=2).eval()
    with torch.no_grad():
        assert relative_rmse(exact_inference(graph, 13)(model), exact_inference(graph, 120)(model)) < 1e-6


@pytest.mark.parametrize("rows", [None, np.arange(1, 120, 3)], ids=["all", "some"])
@pytest.mark.parametrize("kind", ["gcn", "sage", "gcnii", "gat"])
def test_embedding_in_blocks_equals_the_whole_graph(kind: str, rows: np.ndarray | None) -> None:
    graph = two_groups()
    model = Backbone(Backbone.Config(dim=8, num_layers=3, heads=2), kind=kind, in_dim=4, num_classes=2).eval()
    top = Top(graph, TopConfig(), BACKBONES[kind].normalization, seed=0, rows=rows)
    whole, cut = (list(embedder(graph, top, size)(model)) for size in (120, 13))
    assert len(cut) == len(whole) == 3
    for (a,), (b,) in zip(cut, whole, strict=True):
        assert relative_rmse(a.values, b.values) < 1e-5
        assert len(a.values) == (120 if rows is None or kind == "gat" else len(rows))
        assert a.sums.shape == b.sums.shape == (len(a.values), 0 if kind == "gat" else 8)
        assert relative_rmse(a.sums, b.sums) < 1e-5 or kind == "gat"


@pytest.mark.parametrize("pre_linear", [False, True])
def test_relative_errors_order_the_methods(pre_linear: bool) -> None:
    graph = two_groups(400)
    config = Backbone.Config(dim=8, num_layers=3, block="conv", pre_linear=pre_linear)
    model = Backbone(config, kind="gcn", in_dim=4, num_classes=2)
    batching = Batching(num_clusters=20, clusters_per_batch=10)
    errors = relative_errors(graph, model, batching, kinds=("top", "cluster", "cut", "gas"))
    assert errors["top"] < 0.3 * min(errors["cluster"], errors["cut"])
    whole = relative_errors(graph, model, Batching(num_clusters=20, clusters_per_batch=20))
    assert max(whole.values()) < 1e-5


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("one-pass", {"kind": "gas", "inference": "one-pass"}),
        ("refresh", {"kind": "top", "inference": "one-pass"}),
        ("num_clusters", {"num_clusters": 3, "clusters_per_batch": 4}),
        ("train_only", {"kind": "gas", "train_only": True}),
        ("nodes", {"kind": "top", "nodes": "saint-walk", "inference": "one-pass", "top": TopConfig(refresh=0)}),
        ("train_only", {"kind": "top", "nodes": "shadow", "train_only": True}),
        ("batch_size", {"batch_size": 0}),
        ("fanouts", {"fanouts": ()}),
        ("fanouts", {"fanouts": (0,)}),
        ("block_size", {"block_size": 0}),
    ],
)
def test_invalid_batching_settings_are_named(name: str, settings: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=name):
        Batching(**settings)


def test_batching_settings_that_a_method_does_not_support_are_named(tmp_path: Path) -> None:
    mixed = FullBatchRun(data="x", loop=LoopConfig(precision="bf16-mixed"))
    with pytest.raises(ConfigError, match=r"precision"):
        METHODS["gcn"].build(two_groups(), mixed, Context(run=tmp_path, cache=tmp_path))
    with pytest.raises(ConfigError, match="mlp"):
        made(tmp_path, "top", method="mlp")
    with pytest.raises(ConfigError, match=r"form"):
        made(tmp_path, "top", method="gat", top={"form": "linear"})
    with pytest.raises(ConfigError, match="fanouts"):
        made(tmp_path, "neighbor", fanouts=(2, 2, 2))


@pytest.mark.parametrize("kind", ["gcn", "gcnii", "gat"])
@pytest.mark.parametrize("jumping_knowledge", ["none", "cat"])
def test_node_rows_in_files_equal_those_in_memory(kind: str, jumping_knowledge: Any, tmp_path: Path) -> None:
    graph = two_groups()
    config = Backbone.Config(dim=8, num_layers=3, heads=2, jumping_knowledge=jumping_knowledge)
    model = Backbone(config, kind=kind, in_dim=4, num_classes=2).eval()
    mapped = row_store(graph, model, 3, 1000, tmp_path)
    assert mapped.folder == tmp_path
    with torch.no_grad():
        torch.testing.assert_close(exact_inference(graph, 13, mapped)(model), exact_inference(graph, 13)(model))
    assert row_store(graph, model, 3, 1 << 30, tmp_path).folder is None


def test_top_with_files_trains_like_in_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[bool] = []
    call = Scratch.__call__

    def counted(self: Scratch, *shape: Any) -> torch.Tensor:
        seen.append(self.folder is not None)
        return call(self, *shape)

    monkeypatch.setattr(Scratch, "__call__", counted)
    found = []
    for budget in ("1000", "1GiB"):
        task = made(tmp_path / budget, "top", nodes="random", batch_size=40, block_size=30, max_memory=budget)
        found.append([*learn(task), evaluate_test(task)["loss"]])
    assert set(seen) == {True, False}
    np.testing.assert_allclose(found[0], found[1], rtol=1e-4)
