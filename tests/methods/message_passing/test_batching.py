"""Every kind of batching from its settings to a trained run; what it keeps in a checkpoint; bad settings."""

import json
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from hopstate.cli.main import main
from hopstate.compensation.top.config import TopConfig
from hopstate.compensation.top.top import Top
from hopstate.data.graph import Graph
from hopstate.errors import ConfigError, HopstateWarning
from hopstate.io.scratch import Scratch
from hopstate.methods.message_passing.all_nodes import embedder, exact_inference, row_store
from hopstate.methods.message_passing.batching import Batching
from hopstate.methods.message_passing.model import NORMALIZATION, Backbone
from hopstate.methods.message_passing.top_error import relative_errors
from hopstate.runs import api
from hopstate.testing.asserts import F32_SUM, relative_rmse
from hopstate.training.checkpoint import load_checkpoint

KINDS = ["full", "top", "cluster", "gas", "saint", "shadow", "neighbor", "labor"]
QUICK = {"progress": False, "tensorboard": "no", "device": "cpu", "checkpoint_seconds": 0.0, "patience": None}
SMALL = {
    "num_clusters": 6,
    "clusters_per_batch": 2,
    "batch_size": 30,
    "shadow_size": 8,
    "fanouts": [3],
    "top": {"refresh": 4},
}


def two_groups(n: int = 120) -> Graph:
    rng = np.random.default_rng(0)
    y = np.arange(n) % 2
    ends = rng.integers(0, n, (6 * n, 2))
    ends = ends[(y[ends[:, 0]] == y[ends[:, 1]]) | (rng.random(len(ends)) < 0.1)]
    x = (rng.normal(size=(n, 4)) + y[:, None]).astype(np.float32)
    where = rng.permutation(n) % 4
    masks = {"train": where < 2, "val": where == 2, "test": where == 3}
    return Graph.from_edges(ends, n, x=x, y=y.astype(np.int64), masks=masks, name="groups")


def fit(
    out: Path,
    kind: str,
    epochs: int = 3,
    *,
    method: str = "gcn",
    resume: bool = False,
    dropout: float = 0.2,
    **batching,
) -> api.Run:
    return api.fit(
        method,
        two_groups(),
        out=out,
        resume=resume,
        config={
            "model": {"dim": 8, "num_layers": 2, "heads": 2, "dropout": dropout},
            "loop": {"epochs": epochs, "optim": {"lr": 0.02}, **QUICK},
            "batching": {"kind": kind, **SMALL, **batching},
        },
    )


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_learns_and_is_determined_by_its_seed(kind: str, tmp_path: Path) -> None:
    runs = [fit(tmp_path / str(i), kind, 12) for i in range(2)]
    assert runs[0].metrics == runs[1].metrics
    assert runs[0].metrics["test"]["accuracy"] > 0.75


@pytest.mark.parametrize(
    "settings",
    [
        {"kind": "gas"},
        {"kind": "gas", "gas_cache": "disk"},
        {"kind": "top", "top": {"refresh": 2}},
        {"kind": "top"},
        {"kind": "top", "top": {"basis": "batch", "rank": 8}},
        {
            "kind": "top",
            "clusters_per_batch": 1,
            "num_clusters": 40,
            "top": {"refresh": 1},
        },  # ridges chosen by the past
    ],
)
def test_resumed_run_equals_an_uninterrupted_one(settings: dict, tmp_path: Path) -> None:
    whole = fit(tmp_path / "whole", epochs=5, **settings)
    fit(tmp_path / "parts", epochs=3, **settings)
    config = json.loads((tmp_path / "parts/config.json").read_text())
    config["loop"]["epochs"] = 5
    (tmp_path / "parts/config.json").write_text(json.dumps(config))
    again = fit(tmp_path / "parts", epochs=5, resume=True, **settings)
    assert again.metrics == whole.metrics


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
        {"top": {"rank": 8, "basis": "batch"}},
        {"top": {"rank": 8, "form": "general", "samples": 20}},
        {"top": {"layers": "shared", "refresh": 0}},
    ],
)
def test_options_of_top_run(settings: dict, tmp_path: Path) -> None:
    run = fit(tmp_path / "run", "top", **settings)
    again = api.evaluate(run.path, data=two_groups(), split="test")
    assert again["accuracy"] == run.metrics["test"]["accuracy"]


def test_one_pass_inference_gives_what_the_batches_give(tmp_path: Path) -> None:
    settings = {"shuffle": False, "top": {"refresh": 0, "rank": 3}}
    runs = [fit(tmp_path / how, "top", inference=how, **settings) for how in ("one-pass", "exact")]
    losses = [run.metrics["test"]["loss"] for run in runs]
    assert losses[0] == pytest.approx(losses[1], rel=0.5)
    assert losses[0] != pytest.approx(losses[1], rel=F32_SUM)  # rank 3 is not exact, and exact inference is


@contextmanager
def threads(count: int) -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def test_fixed_batches_are_prepared_on_several_threads_before_training_and_kept(tmp_path: Path) -> None:
    settings = {"shuffle": False, "top": {"refresh": 0, "rank": 4}}
    plain = fit(tmp_path / "plain", "top", **settings)
    settings["top"]["folder"] = str(tmp_path / "kept")
    with threads(3):
        run = fit(tmp_path / "run", "top", 0, **settings)
    assert run.metrics["test"]
    kept = {path: path.stat().st_mtime_ns for path in (tmp_path / "kept").iterdir()}
    assert len(kept) == 1 + 3  # the basis, and three batches of two parts
    assert fit(tmp_path / "again", "top", **settings).metrics == plain.metrics
    assert {path: path.stat().st_mtime_ns for path in (tmp_path / "kept").iterdir()} == kept


@pytest.mark.parametrize(
    "top",
    [
        {"rank": 4},
        {"rank": 40, "initialisations": 2},
        {"basis": "batch", "rank": 6, "samples": 12},
        {"form": "general"},
        {"layers": "shared"},
    ],
)
def test_top_keeps_the_same_bits_for_any_number_of_threads(top: dict, tmp_path: Path) -> None:
    kept = []
    for count in (1, 2, 3):
        folder = tmp_path / f"kept-{count}"
        with threads(count):
            config = {"refresh": 0, "folder": str(folder), **top}
            fit(tmp_path / f"run-{count}", "top", 0, shuffle=False, top=config)
        files = {path.name: load_file(path) for path in folder.iterdir()}
        kept.append({name: {key: t.numpy().tobytes() for key, t in file.items()} for name, file in files.items()})
    assert kept[0] == kept[1] == kept[2]


def test_a_finished_run_cuts_no_graph(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = fit(tmp_path / "run", "cluster")
    monkeypatch.setattr("hopstate.methods.message_passing.batching.partition", None)
    assert api.evaluate(run.path, data=two_groups()) == run.metrics["test"]


def test_batches_without_training_nodes_neither_count_nor_move_weights(tmp_path: Path) -> None:
    graph = two_groups()
    masks = {
        name: np.isin(np.arange(120), rows[:3] if name == "train" else rows) for name, rows in graph.split().items()
    }
    settings = {
        "model": {"dim": 8, "num_layers": 1, "dropout": 0.0},
        "loop": {"epochs": 1, "optim": {"lr": 1e-12}, **QUICK},
    }
    losses = []
    for kind in ("full", "top"):
        batching = {"kind": kind, **SMALL, "num_clusters": 30, "clusters_per_batch": 1}
        given = graph.with_(masks=masks)
        api.fit("gcn", given, out=tmp_path / kind, config={**settings, "batching": batching})
        losses.append(json.loads((tmp_path / kind / "metrics.jsonl").read_text().splitlines()[-1])["train_loss"])
    assert losses[1] == pytest.approx(losses[0], rel=0.05)


def test_weights_of_a_run_with_histories_hold_no_tables(tmp_path: Path) -> None:
    fit(tmp_path / "run", "gas")
    assert set(load_checkpoint(tmp_path / "run/model.safetensors").tensors) == {"model"}


@pytest.mark.parametrize("method", ["sage", "gin", "gat", "pna", "gcnii"])
def test_every_backbone_runs_under_top(method: str, tmp_path: Path) -> None:
    assert np.isfinite(fit(tmp_path / "run", "top", method=method).metrics["test"]["loss"])


def test_all_nodes_in_one_compensated_batch_train_as_the_full_batch(tmp_path: Path) -> None:
    runs = [fit(tmp_path / k, k, 4, clusters_per_batch=6, num_clusters=6, dropout=0.0) for k in ("full", "top")]
    assert abs(runs[0].metrics["test"]["loss"] - runs[1].metrics["test"]["loss"]) < 1e-4


def test_shadow_subgraphs_that_reach_every_node_train_as_the_full_batch(tmp_path: Path) -> None:
    near = {"nodes": "shadow", "shadow": "hops", "fanouts": [1000], "batch_size": 60}
    runs = [fit(tmp_path / k, k, 4, dropout=0.0, **near) for k in ("full", "top", "cluster")]
    losses = [run.metrics["test"]["loss"] for run in runs]
    assert abs(losses[0] - losses[1]) < 1e-4
    assert abs(losses[0] - losses[2]) < 1e-4  # nothing is left out


def test_histories_on_disk(tmp_path: Path) -> None:
    on_disk = fit(tmp_path / "run", "gas", gas_cache="disk")
    assert (tmp_path / "run/histories/history-1.npy").is_file()
    assert on_disk.metrics == fit(tmp_path / "other", "gas").metrics
    saved = load_checkpoint(tmp_path / "run/checkpoint.safetensors").tensors["task"]
    assert sum(t.numel() for t in saved.values()) < 10  # a mark, no tables


def test_exact_inference_in_blocks_equals_the_whole_graph() -> None:
    graph = two_groups()
    for block in ("ffn", "bare"):
        config = Backbone.Config(dim=8, num_layers=3, block=block)
        model = Backbone(config, kind="gcn", in_dim=4, num_classes=2).eval()
        with torch.no_grad():
            assert relative_rmse(exact_inference(graph, 13)(model), exact_inference(graph, 120)(model)) < 1e-6


@pytest.mark.parametrize("rows", [None, np.arange(1, 120, 3)])
@pytest.mark.parametrize("kind", ["gcn", "sage", "gcnii", "gat"])
def test_embedding_in_blocks_equals_the_whole_graph(kind: str, rows: np.ndarray | None) -> None:
    graph = two_groups()
    model = Backbone(Backbone.Config(dim=8, num_layers=3, heads=2), kind=kind, in_dim=4, num_classes=2).eval()
    top = Top(graph, TopConfig(), NORMALIZATION[kind], seed=0, rows=rows)
    whole, cut = (list(embedder(graph, top, size)(model)) for size in (120, 13))
    assert len(cut) == len(whole) == 3
    for (a,), (b,) in zip(cut, whole):
        assert relative_rmse(a.values, b.values) < 1e-5
        assert len(a.values) == (120 if rows is None or kind == "gat" else len(rows))
        assert a.sums.shape == b.sums.shape == (len(a.values), 0 if kind == "gat" else 8)
        assert relative_rmse(a.sums, b.sums) < 1e-5 or kind == "gat"


def test_relative_errors_order_the_methods() -> None:
    graph = two_groups(400)
    for block in ("plain", "bare"):
        model = Backbone(Backbone.Config(dim=8, num_layers=3, block=block), kind="gcn", in_dim=4, num_classes=2)
        batching = Batching(num_clusters=20, clusters_per_batch=10)
        errors = relative_errors(graph, model, batching, kinds=("top", "cluster", "cut", "gas"))
        assert errors["top"] < 0.3 * min(errors["cluster"], errors["cut"])
        whole = relative_errors(graph, model, Batching(num_clusters=20, clusters_per_batch=20))
        assert max(whole.values()) < 1e-5


def test_top_error_command(tmp_path: Path, capsys, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    graph = two_groups()
    np.savez(
        tmp_path / "g.npz",
        node_features=graph.x,
        node_labels=graph.y,
        edges=np.stack(graph.edge_index(), 1),
        **{f"{k}_masks": m[None] for k, m in graph.masks.items()},
    )
    quick = ["--loop.epochs=1", "--loop.progress=false", "--loop.tensorboard=no", "--model.dim=8"]
    assert main(["fit", "gcn", f"--data={tmp_path / 'g.npz'}", *quick, "--out=run"]) == 0
    capsys.readouterr()
    assert main(["top-error", "run", "--clusters=10", "--share=0.5"]) == 0
    plain = capsys.readouterr()
    shown = json.loads(plain.out)
    assert 0 <= shown["top"] < shown["cluster"]
    with warnings.catch_warnings():
        warnings.simplefilter("always", HopstateWarning)
        assert main(["top-error", "run", "--parts", "10", "--share=0.5", "--nodes", "parts"]) == 0
    former = capsys.readouterr()
    assert former.out == plain.out
    assert "parts is called clusters now, nodes parts is called clusters now; the former name" in former.err
    for wrong in ("--share=2", "--batches=0", "--clusters=0", "--seed=-1"):
        assert main(["top-error", "run", wrong]) == 2


def test_settings_that_cannot_work(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="one-pass is TOP's"):
        Batching(kind="gas", inference="one-pass")
    with pytest.raises(ConfigError, match=r"top\.refresh=0"):
        Batching(kind="top", inference="one-pass")
    with pytest.raises(ConfigError, match=r"is more than batching\.num_clusters"):
        Batching(num_clusters=3, clusters_per_batch=4)
    with pytest.raises(ConfigError, match=r"batching\.shuffle=false"):
        Batching(kind="top", top=TopConfig(refresh=0, folder="kept"))
    Batching(kind="top", clusters_per_batch=1, top=TopConfig(refresh=0, folder="kept"))  # the same batches every epoch
    with pytest.raises(ConfigError, match="gas then never knows"):
        Batching(kind="gas", train_only=True)
    with pytest.raises(ConfigError, match="leaves some out"):
        Batching(kind="top", nodes="saint-walk", inference="one-pass", top=TopConfig(refresh=0))
    with pytest.raises(ConfigError, match="validation and test nodes among them"):
        Batching(kind="top", nodes="shadow", train_only=True)
    with pytest.raises(ConfigError, match=r"gcn sums neighbours in 32 or 64 bits; got loop\.precision=bf16-mixed"):
        api.fit("gcn", two_groups(), out=tmp_path / "d", config={"loop": {"precision": "bf16-mixed"}})
    for wrong in ({"batch_size": 0}, {"fanouts": ()}, {"fanouts": (0,)}, {"block_size": 0}):
        with pytest.raises(ConfigError):
            Batching(**wrong)
    with pytest.raises(ConfigError, match="nothing to compensate"):
        fit(tmp_path / "a", "top", method="mlp")
    with pytest.raises(ConfigError, match=r"general form \(top.form=general\)"):
        fit(tmp_path / "b", "top", method="gat", top={"form": "linear"})
    with pytest.raises(ConfigError, match="names 3 layers, the model has 2"):
        fit(tmp_path / "c", "neighbor", fanouts=[2, 2, 2])


@pytest.mark.parametrize("kind", ["gcn", "gcnii", "gat"])
@pytest.mark.parametrize("jump", ["none", "cat"])
def test_rows_of_all_nodes_in_files_are_those_in_memory(kind: str, jump: str, tmp_path: Path) -> None:
    graph = two_groups()
    config = Backbone.Config(dim=8, num_layers=3, heads=2, jump=jump)
    model = Backbone(config, kind=kind, in_dim=4, num_classes=2).eval()
    mapped = row_store(graph, model, 3, 1000, tmp_path)
    assert mapped.folder == tmp_path
    with torch.no_grad():
        assert torch.equal(exact_inference(graph, 13, mapped)(model), exact_inference(graph, 13)(model))
    assert row_store(graph, model, 3, 1 << 30, tmp_path).folder is None


def test_top_with_files_trains_as_in_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[bool] = []
    call = Scratch.__call__

    def counted(self: Scratch, *shape: Any) -> torch.Tensor:
        made.append(self.folder is not None)
        return call(self, *shape)

    monkeypatch.setattr(Scratch, "__call__", counted)
    runs = [
        fit(tmp_path / budget, "top", nodes="random", batch_size=40, block_size=30, memory_budget=budget)
        for budget in ("1000", "1GiB")
    ]
    assert set(made) == {True, False}
    assert runs[0].metrics == runs[1].metrics
