"""Evaluation of a GMN on one graph: outputs depend neither on the requested nodes nor on how the pass is cut."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

from hopstate.data.graph import Graph
from hopstate.errors import ConfigError, StorageError
from hopstate.io.scratch import Scratch
from hopstate.layers.ssm import SelectiveSSM
from hopstate.methods.gmn import layerwise as gmn_inference
from hopstate.methods.gmn.batches import FullGraphBatches
from hopstate.methods.gmn.layerwise import Cut, NodeOutputs, cut_of
from hopstate.methods.gmn.model import GMN
from hopstate.methods.gmn.node_method import EncodingConfig, GMNRun, OrderConfig, WalksConfig, build
from hopstate.methods.gmn.tokens import WalkSettings
from hopstate.methods.method import Context
from hopstate.testing.conformance import F32_SUM, F64_SUM
from hopstate.training.config import LoopConfig
from hopstate.training.tasks.node import NodeTask

SMALL = GMN.Config(dim=16, expand=1.0, state_dim=4, mpnn_layers=2, dropout=0.0)
FEW = WalksConfig(max_length=2, repeats=2, walks=2)


def blocks(n: int = 120, seed: int = 0) -> Graph:
    """A stochastic block model of three classes with weak features, some nodes without an edge."""
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 3, n)
    chance = np.where(y[:, None] == y, 0.1, 0.02)
    pairs = np.argwhere(np.triu(rng.random((n, n)) < chance, 1))
    pairs = pairs[(pairs > 2).all(1)]
    x = (np.eye(3)[y] + 2 * rng.normal(size=(n, 3))).astype(np.float32)
    part = rng.permutation(n) % 3
    masks = {name: part == i for i, name in enumerate(("train", "val", "test"))}
    return Graph.from_edges(pairs, n, x=x, y=y, masks=masks)


def made(tmp_path: Path, *, batch_size: int | None = 16, graph: Graph | None = None, **changes):
    config = GMNRun(**{"data": "toy", "model": SMALL, "walks": FEW, "loop": LoopConfig(seed=1), **changes})
    torch.manual_seed(0)
    config = GMNRun(**{**vars(config), "batch_size": batch_size})
    return build(graph or blocks(), config, Context(run=tmp_path, cache=tmp_path / "cache"))


def after(task, epochs: int = 3):
    optimizer = torch.optim.Adam(task.model.parameters(), 1e-2)
    for epoch in range(epochs):
        for batch in task.batches(epoch):
            loss = task.loss(batch)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    task.model.eval()
    return task


def test_outputs_do_not_depend_on_the_requested_rows(tmp_path):
    task = after(made(tmp_path))
    sequence = FullGraphBatches(task.model.config, task.source.prepared, task.labels, seed=task.source.seed)
    whole = NodeTask(task.model, sequence)
    with torch.no_grad():
        expected = whole.logits(np.arange(120))
        test = task.labels.split["test"]
        torch.testing.assert_close(task.logits(np.arange(120)), expected, rtol=F32_SUM, atol=F32_SUM)
        torch.testing.assert_close(task.logits(test), expected[test], rtol=F32_SUM, atol=F32_SUM)
        for row in (0, 7, 119):
            torch.testing.assert_close(task.logits(np.array([row])), expected[[row]], rtol=F32_SUM, atol=F32_SUM)
        assert task.evaluate("test") == pytest.approx(whole.evaluate("test"), rel=F32_SUM)


def exact(task) -> torch.Tensor:
    """Return the forward pass over the full graph, in the model's precision."""
    whole = FullGraphBatches(task.model.config, task.source.prepared, task.labels, seed=task.source.seed)._inputs(
        0, None
    )
    kind = next(task.model.parameters()).dtype
    edge_attr = None if whole.edge_attr is None else whole.edge_attr.to(kind)
    return task.model(replace(whole, x=whole.x.to(kind), edge_attr=edge_attr))


CASES = {
    "maxima of tokens": {"model": replace(SMALL, pooling="max")},
    "tokens": {},
    "no walks": {"walks": WalksConfig(max_length=0)},
    "no repeats": {"walks": WalksConfig(max_length=3, repeats=0)},
    "edges": {"encoding": EncodingConfig(kind="rwse", size=3, relative=True)},
    "walk features": {"model": replace(SMALL, local="rwf"), "encoding": EncodingConfig(kind="rwse", relative=True)},
    "gine": {
        "model": replace(SMALL, mpnn="gine", local="gine"),
        "encoding": EncodingConfig(kind="rwse", relative=True),
    },
    "pna": {"model": replace(SMALL, mpnn="pna")},
    "pna with edges": {"model": replace(SMALL, mpnn="pna"), "encoding": EncodingConfig(kind="rwse", relative=True)},
    "gmn-": {"model": replace(SMALL, variant="gmn-")},
    "deep": {"model": replace(SMALL, token_layers=2, node_layers=3, mpnn_layers=3)},
    "one direction": {"model": replace(SMALL, bidirectional=False)},
    "no convolution": {"model": replace(SMALL, conv_width=0)},
    "psi only": {"model": replace(SMALL, token_layers=0, node_layers=0), "walks": WalksConfig(max_length=0)},
    "gps": {"model": replace(SMALL, variant="gps-mamba"), "walks": WalksConfig()},
    "gps with edges": {
        "model": replace(SMALL, variant="gps-mamba", mpnn_layers=3, node_layers=2),
        "walks": WalksConfig(),
        "encoding": EncodingConfig(kind="rwse", size=3, relative=True),
    },
}


@pytest.mark.parametrize("case", CASES)
def test_layer_wise_inference_equals_the_full_graph_in_float64(tmp_path, case):
    task = made(tmp_path, **CASES[case])
    task.model.double().eval()
    with torch.no_grad():
        list(task.model.children())[-1][0].weight.mul_(5)
        expected = exact(task)
        assert expected.std(0).min() > 1e-3
        cuts = [(Cut(tokens=24, nodes=25, edges=97), tmp_path / "disk")]
        if case in ("tokens", "gps with edges"):
            cuts += [(cuts[0][0], None), (Cut(tokens=120, nodes=120, edges=10_000), None)]
        for cut, folder in cuts:
            task.source.predict_all = NodeOutputs(
                task.source.prepared, task.source.kind, seed=task.source.seed, cut=cut, folder=folder
            )
            torch.testing.assert_close(task.source.predict_all(task.model), expected, rtol=F64_SUM, atol=F64_SUM)
    assert not list((tmp_path / "disk").iterdir())


@pytest.mark.parametrize("kind", ["gcn", "sage", "gin"])
def test_layer_wise_inference_uses_edge_weights_as_the_full_graph_does(tmp_path, kind):
    task = made(tmp_path, model=replace(SMALL, mpnn=kind))
    task.model.eval()
    task.source.predict_all.cut = Cut(tokens=24, nodes=25, edges=97)
    with torch.no_grad():
        torch.testing.assert_close(task.logits(np.arange(120)), exact(task), rtol=F32_SUM, atol=F32_SUM)


def test_equal_keys_are_ordered_by_node_across_parts(tmp_path):
    task = made(tmp_path, order=OrderConfig(kind="random"), walks=WalksConfig(max_length=0))
    assert not np.diff(task.source.prepared.key).any()
    task.model.double().eval()
    task.source.predict_all.cut = Cut(tokens=24, nodes=7, edges=97)
    with torch.no_grad():
        torch.testing.assert_close(task.source.predict_all(task.model), exact(task), rtol=F64_SUM, atol=F64_SUM)


def test_outputs_are_cached_until_a_weight_changes(tmp_path, monkeypatch):
    task, calls = made(tmp_path), []
    task.model.eval()
    passes = gmn_inference._Pass
    monkeypatch.setattr(gmn_inference, "_Pass", lambda *given: calls.append(1) or passes(*given))
    with torch.no_grad():
        before = task.logits(np.arange(5))
        task.evaluate("val")
        task.evaluate("test")
        assert len(calls) == 1
        task.model.embed.weight.data.mul_(2)  # not seen by autograd's version counters
        assert not torch.equal(task.logits(np.arange(5)), before)
    assert len(calls) == 2


def test_a_batch_without_tokens_reads_only_neighbors_of_its_nodes(tmp_path, capsys):
    task = made(tmp_path, walks=WalksConfig(max_length=0))
    captured = capsys.readouterr().err
    assert "16" in captured  # nodes of a step,
    assert "120" in captured  # and of the graph
    inputs, _ = next(task.batches(0))
    assert len(inputs.x) > 3 * 16
    assert inputs.graph.indptr.diff()[inputs.targets].sum() > 0


def test_arrays_above_the_budget_are_on_disk_and_a_full_disk_is_named(tmp_path, monkeypatch):
    cut, on_disk = cut_of(10**7, 10**8, WalkSettings(max_length=3, repeats=2, walks=8), GMN.Config(), 100, 0, 1 << 30)
    assert on_disk
    assert cut.tokens < cut.nodes < 10**7
    assert not cut_of(1000, 8000, WalkSettings(max_length=3, repeats=2, walks=8), GMN.Config(), 100, 0, 1 << 30)[1]

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.posix_fallocate", full)
    with pytest.raises(StorageError):
        Scratch(tmp_path)(1000, 1000, torch.float32)


def test_a_part_may_be_shorter_than_the_convolution():
    torch.manual_seed(0)
    for reverse in (False, True):
        branch = SelectiveSSM(8, inner_dim=8, state_dim=4, conv_width=4, reverse=reverse).double()
        x = torch.randn(9, 8, dtype=torch.float64)
        expected, carried, out = branch(x, torch.tensor([0, 9])), None, []
        parts = list(x.split([1, 1, 2, 0, 5]))
        for part in reversed(parts) if reverse else parts:
            y, carried = branch.part(part, carried)
            out.append(y)
        torch.testing.assert_close(torch.cat(out[::-1] if reverse else out), expected)


def test_evaluate_and_predict_agree_in_every_split(trained):
    run = trained("gmn")
    every = run.predict(split="all").set_index("node")
    for split in ("train", "val", "test"):
        assert run.evaluate(split=split) == pytest.approx(run.metrics[split])
        part = run.predict(split=split).set_index("node")
        pd.testing.assert_frame_equal(part, every.loc[part.index, part.columns], rtol=F32_SUM)
    assert not [file for file in run.path.iterdir() if file.name.startswith("tmp")]


def test_a_trained_model_keeps_its_number_of_walks_on_other_data(tmp_path):
    sparse, rng = blocks(), np.random.default_rng(1)
    dense = Graph.from_edges(rng.integers(0, 120, (1500, 2)), 120, x=sparse.x, y=sparse.y)
    own = made(tmp_path, graph=dense, walks=WalksConfig())
    assert own.walks["walks"] == 8
    task = made(tmp_path, graph=sparse, walks=WalksConfig())
    assert task.walks["walks"] < 8
    known = {"num_features": 3, "class_names": ["0", "1", "2"], "walks": task.walks, "edge_columns": 0}
    config = GMNRun(data="toy", model=SMALL, walks=WalksConfig(), loop=LoopConfig(seed=1), batch_size=16)
    applied = build(dense, config, Context(run=tmp_path, cache=tmp_path / "cache", trained=known))
    assert applied.walks == task.walks


@pytest.mark.parametrize("batch_size", [None, 16])
def test_several_draws_of_walks_are_averaged(tmp_path, batch_size):
    def task_of(eval_samples):
        return made(tmp_path, batch_size=batch_size, walks=replace(FEW, eval_samples=eval_samples))

    rows, three = np.arange(120), after(task_of(3))
    sequence = FullGraphBatches(SMALL, three.source.prepared, three.labels, seed=1)
    with torch.no_grad():
        single_draws = [three.model(sequence._inputs(-number, None)) for number in range(3)]
        assert (single_draws[0] - single_draws[1]).abs().max() > F32_SUM
        torch.testing.assert_close(three.logits(rows), sum(single_draws) / 3, rtol=F32_SUM, atol=F32_SUM)
        torch.testing.assert_close(three.logits(rows[7:9]), sum(single_draws)[7:9] / 3, rtol=F32_SUM, atol=F32_SUM)
        one = task_of(1)
        one.model.load_state_dict(three.model.state_dict())
        torch.testing.assert_close(_in_eval(one).logits(rows), single_draws[0], rtol=F32_SUM, atol=F32_SUM)
    with pytest.raises(ConfigError, match="eval_samples"):
        WalksConfig(eval_samples=0)


def _in_eval(task):
    task.model.eval()
    return task
