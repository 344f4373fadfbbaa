"""Exported Graph Mamba Networks and GINs equal their runs, on inputs from `export_inputs`."""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import hopstate
from hopstate.data.graph import Graph
from hopstate.data.graph_set import GraphSet
from hopstate.datasets.generators import stochastic_block_model
from hopstate.errors import ConfigError, DataError, ShapeError
from hopstate.methods import get_method
from hopstate.methods.gmn.export import gmn_spec
from hopstate.methods.gmn.graph_method import GINRun, GMNGraphsRun
from hopstate.methods.gmn.model import GMN
from hopstate.methods.gmn.node_method import EncodingConfig, GMNRun, WalksConfig
from hopstate.methods.method import Context
from hopstate.runs.export import Format, export_run, trace
from hopstate.runs.load import load_run
from hopstate.runs.run import Run
from hopstate.testing.conformance import F32
from hopstate.training.config import LoopConfig
from hopstate.training.tasks.graph import GraphTask
from hopstate.training.tasks.static_link import StaticLinkTask
from made_graphs import rings

ONNX = all(importlib.util.find_spec(name) for name in ("onnx", "onnxscript", "onnxruntime"))
FORMATS = ["torch", pytest.param("onnx", marks=pytest.mark.skipif(not ONNX, reason="needs onnx and onnxruntime"))]
RELATIVE = EncodingConfig(kind="rwse", size=3, relative=True)
SMALL: dict[str, Any] = {"dim": 8, "expand": 1.0, "state_dim": 4, "mpnn_layers": 2}
FEW: dict[str, Any] = {"max_length": 2, "repeats": 1, "walks": 2}
NO_WALKS = {"walks": {"max_length": 0}}
GPS: dict[str, Any] = {"model": {"variant": "gps-mamba"}, **NO_WALKS}
WALKED = {"model": {"local": "rwf", "mpnn": "pna"}, "encoding": RELATIVE}
SETTINGS: list[dict[str, Any]] = [
    {"model": {"local": "gatedgcn", "mpnn": "gatedgcn", "pooling": "max"}, "encoding": RELATIVE},
    {"model": {"local": "gcn", "mpnn": "gcn", "local_layers": 2}},
    {"model": {"local": "gine", "mpnn": "gine"}, "encoding": RELATIVE},
    {"model": {"local": "sage", "mpnn": "sage", "conv_width": 0}, "loop": LoopConfig(precision="64")},
    WALKED,
    {"model": {"variant": "gmn-"}},
    {"model": {"variant": "gps-mamba", "mpnn": "gatedgcn"}, **NO_WALKS, "encoding": RELATIVE},
    {"model": {"mpnn": "none"}, **NO_WALKS},
    {"model": {"node_token": False, "readout": "mean"}, "walks": {"repeats": 2, "lengths": "doubling"}},
    {"model": {"local": "rwf"}, "walks": {"repeats": 2}},
    {"model": {"mark_center": False, "local_layers": 0, "node_layers": 0, "bidirectional": False}},
]
OF_SETS: list[dict[str, Any]] = [
    WALKED,
    GPS,
    {"model": {"pooling": "max", "graph_pooling": "all", "input_readout": True}},
    {"level": "node", "model": {"variant": "gmn-"}},
    {"level": "edge", "model": {"pooling": "max"}},
]
IDS = np.array([3, 0, 7, 11, 2])
PAIRS = np.array([[0, 1], [5, 9], [7, 7], [59, 3], [2, 40]])


def graph() -> Graph:
    return stochastic_block_model(num_nodes=60, num_classes=3, num_features=5, seed=1)


def data_of(method: str) -> Graph | GraphSet:
    return graph() if method == "gmn" else rings()


def task_of(method: str, folder: Path, **settings: Any) -> Any:
    """Return a task after two steps of training."""
    given = {"encoding": EncodingConfig(kind="rwse", size=3)} | settings
    given["model"] = GMN.Config(**{**SMALL, **settings.get("model", {})})
    given["walks"] = WalksConfig(**{**FEW, **settings.get("walks", {})})
    config = (GMNRun if method == "gmn" else GMNGraphsRun)(data="x", **given)
    return stepped(get_method(method).build(data_of(method), config, Context(run=folder, cache=folder)), config.loop)


def stepped(task: Any, loop: LoopConfig) -> Any:
    if loop.precision == "64":
        task.model.double()
        return task
    optimizer = torch.optim.Adam(task.model.parameters(), 1e-2)
    for epoch in range(2):
        optimizer.zero_grad()
        task.loss(next(iter(task.batches(epoch)))).backward()
        optimizer.step()
    return task


def own_outputs(task: Any) -> tuple[Any, Tensor]:
    """Return the queries of a task (nodes, PAIRS of them or graphs IDS) and its own outputs."""
    task.model.eval()
    if isinstance(task, GraphTask):
        return IDS, task._outputs(IDS)
    if isinstance(task, StaticLinkTask):
        return PAIRS, torch.from_numpy(task.scorer("test")(*PAIRS.T))
    return None, task.logits(np.arange(task.source.labels.y.shape[0]))


@torch.no_grad()
def assert_same_outputs(method: str, task: Any, *, traced: bool = False) -> None:
    """Check the module of a program against the task, or the program that torch traces of it."""
    queries, expected = own_outputs(task)
    spec = get_method(method).export(task)  # type: ignore[operator]
    spec.module.eval()
    inputs = spec.filled(queries)
    assert len(inputs) == len(spec.inputs)
    found = (trace(spec).module() if traced else spec.module)(*inputs)
    found = found[0] if isinstance(found, tuple) else found
    torch.testing.assert_close(found.to(expected), expected, rtol=F32, atol=F32)


@pytest.mark.parametrize("settings", SETTINGS)
def test_an_exported_module_equals_the_model_on_a_graph(settings: dict[str, Any], tmp_path: Path) -> None:
    assert_same_outputs("gmn", task_of("gmn", tmp_path, **settings))


@pytest.mark.parametrize(
    ("method", "settings"),
    [
        ("gmn-graphs", {"model": {"local": "rwf", "mpnn": "pna"}, "encoding": RELATIVE}),
        *(pytest.param("gmn", settings, marks=pytest.mark.slow) for settings in SETTINGS),
        *(pytest.param("gmn-graphs", settings, marks=pytest.mark.slow) for settings in OF_SETS),
    ],
    ids=str,
)
def test_traced_programs_equal_the_model_at_other_sizes(method: str, settings: dict[str, Any], tmp_path: Path) -> None:
    assert_same_outputs(method, task_of(method, tmp_path, **settings), traced=True)


def test_an_exported_module_equals_the_model_on_links(tmp_path: Path) -> None:
    task = task_of("gmn", tmp_path, task="link")
    assert_same_outputs("gmn", task)
    with pytest.raises(ShapeError, match="pairs"):
        get_method("gmn").export(task).filled([1, 2])  # type: ignore[operator]


@pytest.mark.parametrize("settings", OF_SETS)
def test_an_exported_module_equals_the_model_on_graph_sets(settings: dict[str, Any], tmp_path: Path) -> None:
    task = task_of("gmn-graphs", tmp_path, **settings)
    assert_same_outputs("gmn-graphs", task)
    with pytest.raises(DataError, match="30"):
        get_method("gmn-graphs").export(task).filled([30])  # type: ignore[operator]


def test_an_exported_module_equals_a_gin(tmp_path: Path) -> None:
    made = get_method("gin-graphs").build(rings(), GINRun(data="x"), Context(run=tmp_path, cache=tmp_path))
    assert_same_outputs("gin-graphs", stepped(made, LoopConfig()))


def test_inputs_of_a_run_are_named_and_give_its_outputs(trained: Callable[[str], Run]) -> None:
    run = trained("gmn")
    inputs = hopstate.export_inputs(run.path)
    with load_run(run.path, device="cpu") as (_, task), torch.no_grad():
        expected = own_outputs(task)[1]
        form = get_method("gmn").export(task)  # type: ignore[operator]
        assert [port.name for port in form.inputs] == list(inputs)
        form.module.eval()
        found = form.module(*(torch.from_numpy(x) for x in inputs.values()))
    torch.testing.assert_close(found, expected, rtol=F32, atol=F32)


@pytest.mark.slow
@pytest.mark.parametrize("to", FORMATS)
@pytest.mark.parametrize(
    ("method", "settings"),
    [
        ("gmn", {"batch_size": 16}),
        ("gmn", {"model.local": "rwf", "model.mpnn": "pna", "encoding.relative": True}),
        ("gmn", {"model.variant": "gps-mamba", "walks.max_length": 0}),
        ("gmn", {"task": "link"}),
        ("gmn-graphs", {"model.graph_pooling": "all", "model.input_readout": True}),
        ("gmn-graphs", {"model.local": "rwf", "model.mpnn": "pna", "encoding.relative": True}),
        ("gmn-graphs", {"level": "node", "model.variant": "gmn-"}),
        ("gmn-graphs", {"level": "edge", "model.pooling": "max"}),
    ],
    ids=str,
)
def test_a_program_gives_the_outputs_of_the_run(
    method: str, settings: dict[str, Any], to: Format, tmp_path: Path
) -> None:
    small: dict[str, Any] = {
        "model.dim": 8, "model.state_dim": 4, "encoding.size": 3, "walks.max_length": 2, "walks.repeats": 1,
        "walks.walks": 2, "loop.epochs": 2, "loop.progress": False, "loop.device": "cpu",
    }  # fmt: skip
    data = data_of(method)
    run = hopstate.fit(method, data, out=tmp_path / "run", config={**small, **settings}).path
    with load_run(run, data, device="cpu") as (_, task), torch.no_grad():
        queries, expected = own_outputs(task)
    inputs = {name: torch.from_numpy(x) for name, x in hopstate.export_inputs(run, queries).items()}
    path = export_run(run, to, tmp_path / "program")
    ports = json.loads((path.parent / "export.json").read_text())["inputs"]
    assert [port["name"] for port in ports] == list(inputs)
    assert [f"torch.{port['dtype']}" for port in ports] == [str(x.dtype) for x in inputs.values()]
    if to == "torch":
        found = torch.export.load(path).module()(*inputs.values())
        found = found[0] if isinstance(found, tuple) else found
    else:
        import onnxruntime

        session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
        found = torch.from_numpy(session.run(None, {name: x.numpy() for name, x in inputs.items()})[0])
    torch.testing.assert_close(found.detach().to(expected), expected, rtol=F32, atol=F32)


def test_a_run_with_several_draws_of_walks_is_rejected_with_their_number(tmp_path: Path) -> None:
    one, three = (get_method("gmn").export(task_of("gmn", tmp_path, walks={"eval_samples": n})) for n in (1, 3))  # type: ignore[operator]
    assert "3" in three.preprocessing.replace(one.preprocessing, "")


def test_other_networks_have_no_graph_program() -> None:
    with pytest.raises(ConfigError, match="Linear"):
        gmn_spec(torch.nn.Linear(2, 2))
