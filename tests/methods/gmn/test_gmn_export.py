"""Programs of Graph Mamba Networks give the runs' own answers, from inputs that hopstate makes of the runs' data."""

from __future__ import annotations

import importlib.util
import json
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
from hopstate.methods.gmn.export import gmn_form
from hopstate.runs.export import Format, export_run
from hopstate.runs.load import load_run
from hopstate.testing.asserts import F32
from hopstate.training.tasks.graph import GraphTask
from hopstate.training.tasks.static_link import StaticLinkTask
from made_graphs import rings

ONNX = all(importlib.util.find_spec(name) for name in ("onnx", "onnxscript", "onnxruntime"))
FORMATS = ["torch", pytest.param("onnx", marks=pytest.mark.skipif(not ONNX, reason="needs onnx and onnxruntime"))]
SMALL: dict[str, Any] = {
    "model.dim": 8, "model.state_dim": 4, "encoding.size": 3, "walks.max_length": 2, "walks.repeats": 1,
    "walks.walks": 2, "loop.epochs": 2, "loop.progress": False, "loop.device": "cpu",
}  # fmt: skip
GPS = {"model.variant": "gps-mamba", "walks.max_length": 0}
WALKED = {"model.local": "rwf", "model.mpnn": "pna", "encoding.relative": True}
SETTINGS: list[dict[str, Any]] = [
    {"model.local": "gatedgcn", "model.mpnn": "gatedgcn", "encoding.relative": True, "model.pooling": "max"},
    {"model.local": "gcn", "model.mpnn": "gcn", "model.local_layers": 2},
    {"model.local": "gine", "model.mpnn": "gine", "encoding.relative": True},
    {"model.local": "sage", "model.mpnn": "sage", "model.conv_width": 0, "loop.precision": "64"},
    WALKED,
    {"model.variant": "gmn-"},
    GPS,
    {**GPS, "model.mpnn": "gatedgcn", "encoding.relative": True},
    {"walks.max_length": 0, "model.mpnn": "none"},
    {"model.own_token": False, "model.readout": "mean", "walks.repeats": 2, "walks.lengths": "doubling"},
    {"model.token_heads": 2, "model.pooling": "max"},
    {"model.token_heads": 1, "model.local": "rwf", "walks.repeats": 2},
    {"model.mark": False, "model.local_layers": 0, "model.node_layers": 0, "model.bidirectional": False},
]
IDS = np.array([3, 0, 7, 11, 2])
PAIRS = np.array([[0, 1], [5, 9], [7, 7], [59, 3], [2, 40]])


def graph() -> Graph:
    return stochastic_block_model(num_nodes=60, num_classes=3, num_features=5, seed=1)


def trained(method: str, folder: Path, **settings: Any) -> Path:
    return hopstate.fit(method, data_of(method), out=folder / "run", config={**SMALL, **settings}).path


def data_of(method: str) -> Graph | GraphSet:
    return graph() if method == "gmn" else rings()


def own_answers(method: str, run: Path) -> tuple[dict[str, Tensor], Tensor]:
    """Return a program's inputs of all nodes, of PAIRS of them or of graphs IDS, and the run's own answers."""
    with load_run(run, data_of(method), device="cpu") as (_, task), torch.no_grad():
        task.model.eval()
        if isinstance(task, GraphTask):
            asked, found = IDS, task._outputs(IDS)
        elif isinstance(task, StaticLinkTask):
            asked, found = PAIRS, torch.from_numpy(task.scorer("test")(*PAIRS.T))
        else:
            asked, found = None, task.logits(np.arange(60))
    inputs = hopstate.export_inputs(run, asked, own=data_of(method))
    return {name: torch.from_numpy(x) for name, x in inputs.items()}, found


def same_program(method: str, folder: Path, to: Format, **settings: Any) -> None:
    run = trained(method, folder, **settings)
    inputs, wanted = own_answers(method, run)
    path = export_run(run, to, folder / "program", data=data_of(method))
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
    torch.testing.assert_close(found.detach().to(wanted), wanted, rtol=F32, atol=F32)


@pytest.mark.parametrize("method", ["gmn", "gmn-graphs"])
@pytest.mark.parametrize("settings", SETTINGS, ids=str)
def test_the_module_of_a_program_gives_the_runs_own_answers(
    method: str, settings: dict[str, Any], tmp_path: Path
) -> None:
    run = trained(method, tmp_path, **settings)
    inputs, wanted = own_answers(method, run)
    with load_run(run, data_of(method), device="cpu") as (_, task), torch.no_grad():
        form = get_method(method).export(task)  # type: ignore[operator]
        form.module.eval()
        torch.testing.assert_close(form.module(*inputs.values()).to(wanted), wanted, rtol=F32, atol=F32)


@pytest.mark.parametrize("to", FORMATS)
@pytest.mark.parametrize(
    ("method", "settings"),
    [
        ("gmn", {"batch_size": 16}),
        pytest.param("gmn", WALKED, marks=pytest.mark.slow),
        pytest.param("gmn", GPS, marks=pytest.mark.slow),
        pytest.param("gmn", {"task": "link"}, marks=pytest.mark.slow),
        ("gmn-graphs", {"model.graph_pooling": "all", "model.features_out": True}),
        pytest.param("gmn-graphs", WALKED, marks=pytest.mark.slow),
        pytest.param("gmn-graphs", {"level": "node", "model.variant": "gmn-"}, marks=pytest.mark.slow),
        pytest.param("gmn-graphs", {"level": "edge", "model.pooling": "max"}, marks=pytest.mark.slow),
    ],
    ids=str,
)
def test_a_program_gives_the_runs_own_answers(
    method: str, settings: dict[str, Any], to: Format, tmp_path: Path
) -> None:
    same_program(method, tmp_path, to, **settings)


def test_a_run_that_draws_walks_more_than_once_says_so(tmp_path: Path) -> None:
    run = trained("gmn", tmp_path, **{"walks.draws": 3})
    with load_run(run, graph(), device="cpu") as (_, task):
        assert "mean of the outputs for 3 draws" in get_method("gmn").export(task).preprocessing  # type: ignore[operator]


def test_inputs_of_what_is_not_there_are_refused(tmp_path: Path) -> None:
    run = trained("gmn-graphs", tmp_path)
    with pytest.raises(DataError, match=r"numbers 0\.\.29.*30"):
        hopstate.export_inputs(run, [30], own=rings())
    links = trained("gmn", tmp_path / "links", task="link")
    with pytest.raises(ShapeError, match=r"pairs are \(P, 2\)"):
        hopstate.export_inputs(links, [1, 2], own=graph())


def test_another_network_has_no_such_program() -> None:
    with pytest.raises(ConfigError, match="Linear is no Graph Mamba Network"):
        gmn_form(torch.nn.Linear(2, 2))
