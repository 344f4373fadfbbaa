"""Exported programs equal their runs for any number of rows, or a method gives a reason why it has none."""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from hopstate.cli.main import main
from hopstate.data.graph import Graph
from hopstate.datasets.generators import stochastic_block_model
from hopstate.errors import ConfigError, HopstateError, MissingExtraError
from hopstate.layers.mpnn import pool
from hopstate.methods import MODULES, get_method
from hopstate.methods.message_passing.backbones import BACKBONES
from hopstate.ops.rows import segment_sum
from hopstate.runs import export
from hopstate.runs.export import export_inputs, export_run, reject_racing_sums, reject_without_export, sequential_sums
from hopstate.runs.load import load_run
from hopstate.runs.run import Run, fit
from hopstate.sampling.subgraph import full_adjacency
from hopstate.testing.conformance import F32_TIGHT, F64, PROGRAM
from hopstate.training.tasks.node import RowBatches

ONNX = all(importlib.util.find_spec(name) for name in ("onnx", "onnxscript", "onnxruntime"))
APART = ["gmn"]  # its programs need walks: tests/methods/gmn/test_gmn_export.py
APART += [name for name, one in BACKBONES.items() if one.edges == "relations"]  # have no program
GRAPHS = [name for name in MODULES if get_method(name).data == "graph" and name not in APART]
EXPORTED = [name for name in GRAPHS if callable(get_method(name).export)]
SMALL = {"model.dim": 8, "model.num_layers": 2, "loop.epochs": 2, "loop.progress": False, "loop.device": "cpu"}
SMALL |= {"read.scale": "none"}
OWN = {"nagphormer": {"model.num_heads": 2, "tokens.num_hops": 2, "tokens.eigenvectors": 3}, "gat": {"model.heads": 2}}
KINDS = [
    *((name, {}) for name in EXPORTED),
    *(("gcn", {"model.block": "conv", "model.pre_linear": first}) for first in (True, False)),
    *(("sage", {"model.jumping_knowledge": jumping_knowledge}) for jumping_knowledge in ("cat", "max", "mean")),
    ("pna", {"model.block": "conv", "model.norm": "batch", "model.pre_linear": False}),
    ("gcn", {"batching.kind": "cluster", "batching.num_clusters": 3, "batching.clusters_per_batch": 1}),
    ("sage", {"loop.precision": "64"}),
]


def graph() -> Graph:
    return stochastic_block_model(num_nodes=60, num_classes=3, num_features=5, seed=1)


def fitted(method: str, folder: Path, **settings: object) -> Path:
    return fit(method, graph(), out=folder, config={**SMALL, **OWN.get(method, {}), **settings}).path


NAMES = {"gcn": ["x", "edge_index", "edge_weight"], "nagphormer": ["tokens"]}


@pytest.mark.parametrize("method", ["nagphormer", pytest.param("gcn", marks=pytest.mark.slow)])
def test_export_inputs_reproduce_the_outputs_of_the_run(method: str, tmp_path: Path) -> None:
    run = fitted(method, tmp_path / "run")
    inputs, _ = queries_and_outputs(run)
    found = export_inputs(run)
    assert list(found) == NAMES[method]
    for own, expected in zip(found.values(), inputs):
        np.testing.assert_allclose(own, expected.numpy(), rtol=F32_TIGHT, atol=F32_TIGHT)


def test_a_method_without_a_program_has_no_inputs_and_writes_nothing(
    trained: Callable[[str], Run], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = trained("recency").path
    with pytest.raises(ConfigError, match="recency"):
        export_inputs(run)
    assert main(["export", str(run), "--to", "torch", "--out", str(tmp_path / "out")]) == 2
    assert "recency" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def queries_and_outputs(run: Path) -> tuple[list[Tensor], Tensor]:
    """Return inputs of all nodes of a run's data, and the outputs of the run."""
    with load_run(run, graph(), device="cpu") as (_, task), torch.no_grad():
        task.model.eval()
        own, nodes = task.source, np.arange(60)
        if isinstance(own, RowBatches):
            inputs = [own.inputs(nodes)]
        else:
            like, edges = next(task.model.parameters()), full_adjacency(graph()).edge_index()
            inputs = [torch.tensor(graph().x).to(like), edges, torch.ones(edges.shape[1]).to(like)]
        return inputs, task.logits(nodes)


def answers(path: Path, inputs: list[Tensor]) -> Tensor:
    if path.suffix == ".pt2":
        return torch.export.load(path).module()(*inputs)
    import onnxruntime

    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    names = [own.name for own in session.get_inputs()]
    return torch.from_numpy(session.run(None, {n: x.numpy() for n, x in zip(names, inputs, strict=True)})[0])


def same_answers(method: str, folder: Path, to: export.Format, **settings: object) -> None:
    run = fitted(method, folder / "run", **settings)
    inputs, expected = queries_and_outputs(run)
    path = export_run(run, to, folder / "program")
    kept = json.loads((path.parent / "export.json").read_text())
    used = inputs[: len(kept["inputs"])]
    assert [str(x.dtype) for x in used] == [f"torch.{port['dtype']}" for port in kept["inputs"]]
    torch.testing.assert_close(answers(path, used).float(), expected, rtol=PROGRAM, atol=PROGRAM)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("method", "settings"),
    KINDS,
    ids=str,
)
def test_a_program_gives_the_outputs_of_the_run(method: str, settings: dict[str, object], tmp_path: Path) -> None:
    same_answers(method, tmp_path, "torch", **settings)


@pytest.mark.slow
@pytest.mark.skipif(not ONNX, reason="needs onnx, onnxscript and onnxruntime, which are not installed")
@pytest.mark.parametrize("method", EXPORTED)
def test_onnx_gives_the_outputs_of_the_run(method: str, tmp_path: Path) -> None:
    same_answers(method, tmp_path, "onnx")


@pytest.mark.slow
@pytest.mark.skipif(not ONNX, reason="needs onnx, onnxscript and onnxruntime, which are not installed")
def test_the_opset_version_is_named_and_selectable(tmp_path: Path) -> None:
    import onnx

    run = fitted("sage", tmp_path / "run")
    inputs, expected = queries_and_outputs(run)
    for opset, versions in ((None, (20, 9, "1.17")), (18, (18, 8, "1.14"))):
        path = export_run(run, "onnx", tmp_path / str(opset), opset=opset)
        kept = json.loads((path.parent / "export.json").read_text())
        assert tuple(kept["versions"].values()) == versions
        model = onnx.load(path)
        assert (model.opset_import[0].version, model.ir_version) == versions[:2]
        onnx.checker.check_model(model)
        found = answers(path, inputs[: len(kept["inputs"])])
        torch.testing.assert_close(found.float(), expected, rtol=PROGRAM, atol=PROGRAM)
    path = export_run(run, "torch", tmp_path / "torch")
    assert json.loads((path.parent / "export.json").read_text())["versions"] == {"torch": torch.__version__}
    for to, opset in (("onnx", 17), ("torch", 20)):
        with pytest.raises(ConfigError, match="opset"):
            export_run(run, to, tmp_path / "none", opset=opset)


class Summing(nn.Module):
    """Sums over rows with every torch operator for them."""

    def forward(self, x: Tensor, index: Tensor) -> tuple[Tensor, ...]:
        out = x.new_zeros(7, x.shape[1])
        twice = out.index_add(0, index, x, alpha=2.0)
        own = x.new_zeros(7).index_add_(0, index, x[:, 0])
        across = x.new_ones(x.shape[1], 7).index_add(1, index, x.T)
        counts = torch.zeros(7, dtype=torch.int64).index_add(0, index, torch.ones_like(index))
        return out.index_add(0, index, x), twice, own, across, counts


@pytest.mark.slow
@pytest.mark.skipif(not ONNX, reason="needs onnx, onnxscript and onnxruntime, which are not installed")
def test_onnx_programs_are_deterministic() -> None:
    """For any number of threads: concurrent writes of onnxruntime to one row would overwrite each other."""
    import onnxruntime

    rng = np.random.default_rng(0)
    x = torch.from_numpy(rng.normal(size=(3000, 16)).astype(np.float32))
    index = torch.from_numpy(rng.integers(0, 7, 3000))
    with torch.no_grad():
        program, expected = torch.export.export(Summing(), (x, index)), Summing()(x, index)
        made = torch.onnx.export(sequential_sums(program), dynamo=True, verbose=False)
    assert made is not None
    reject_racing_sums(made)
    how = onnxruntime.SessionOptions()
    how.intra_op_num_threads = 4
    session = onnxruntime.InferenceSession(made.model_proto.SerializeToString(), how, ["CPUExecutionProvider"])
    given = dict(zip([port.name for port in session.get_inputs()], (x.numpy(), index.numpy()), strict=True))
    first = session.run(None, given)
    for found, own in zip(first, expected, strict=True):
        np.testing.assert_allclose(found, own.numpy(), rtol=PROGRAM, atol=PROGRAM)
    for _ in range(50):
        for found, before in zip(session.run(None, given), first, strict=True):
            np.testing.assert_array_equal(found, before)


def test_unrolled_sums_equal_scatter_sums() -> None:
    rng = np.random.default_rng(0)
    x, index = torch.from_numpy(rng.normal(size=(30, 3))), torch.from_numpy(rng.integers(0, 7, 30))
    program = sequential_sums(torch.export.export(Summing(), (x, index)))
    assert "index_add" not in str(program.graph)
    torch.testing.assert_close(program.module()(x, index), Summing()(x, index), rtol=F64, atol=F64)


class Pooling(nn.Module):
    """Packed sequences reduced to one row each, and the sequence of each row."""

    def __init__(self, how: Any) -> None:
        super().__init__()
        self.how = how

    def forward(self, lengths: Tensor, x: Tensor) -> tuple[Tensor, ...]:
        bounds = torch.nn.functional.pad(lengths.cumsum(0), (1, 0))
        rows = torch.arange(lengths.shape[0]).repeat_interleave(lengths, output_size=x.shape[0])
        largest = torch.segment_reduce(x[:, 0].abs(), "max", offsets=bounds, initial=0.0)
        return pool(x, bounds, self.how), segment_sum(x, bounds), rows.clone(), largest


@pytest.mark.parametrize("how", ["sum", "mean", "max"])
def test_sequence_reductions_use_onnx_operators(how: str) -> None:
    make = torch.Generator().manual_seed(0)
    lengths = [[2, 0, 3, 1], [0, 3, 0, 0, 2, 1, 0], [4, 4, 4], [1], [0, 0], []]
    given = [(torch.tensor(n, dtype=torch.int64), torch.rand(sum(n), 3, generator=make).double() - 2) for n in lengths]
    free = {0: torch.export.Dim("sequence")}, {0: torch.export.Dim("token")}
    with torch.no_grad():
        program = sequential_sums(torch.export.export(Pooling(how), given[0], dynamic_shapes=free, strict=False))
        assert not any(name in str(program.graph) for name in ("repeat_interleave", "segment_reduce", "index_add"))
        for inputs in given:
            for found, expected in zip(program.module()(*inputs), Pooling(how)(*inputs), strict=True):
                torch.testing.assert_close(found, expected, rtol=F64, atol=F64)


def test_a_program_with_racing_sums_is_rejected() -> None:
    """Also if the sums are in a branch."""
    helper = pytest.importorskip("onnx.helper")
    racing = helper.make_graph([helper.make_node("ScatterND", ["x", "i", "u"], ["y"], reduction="add")], "g", [], [])
    plain = helper.make_graph([helper.make_node("ScatterND", ["x", "i", "u"], ["y"])], "g", [], [])
    branch = helper.make_node("If", ["x"], ["y"], then_branch=racing, else_branch=plain)
    for graph_ in (racing, helper.make_graph([branch], "g", [], [])):
        program: Any = SimpleNamespace(model_proto=helper.make_model(graph_))
        with pytest.raises(HopstateError, match="ScatterND"):
            reject_racing_sums(program)
    allowed: Any = SimpleNamespace(model_proto=helper.make_model(plain))
    reject_racing_sums(allowed)


def test_every_method_has_a_program_or_a_reason_why_not() -> None:
    for method in MODULES:
        known = get_method(method)
        if not callable(known.export):
            with pytest.raises(ConfigError, match=method):
                reject_without_export(known)


def test_onnx_without_its_packages_names_the_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(MissingExtraError, match="onnxscript"):
        export_run(tmp_path, "onnx", tmp_path / "out")
