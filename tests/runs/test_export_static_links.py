"""Programs of static links give the logits of the runs, for other numbers of nodes, edges and pairs than traced."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from hopstate.data.graph import Graph
from hopstate.datasets.generators import stochastic_block_model
from hopstate.runs.export import export_run
from hopstate.runs.load import load_run
from hopstate.runs.run import fit
from hopstate.testing.conformance import PROGRAM
from hopstate.training.tasks.node import RowBatches
from hopstate.training.tasks.static_link import StaticLinkTask

ONNX = all(importlib.util.find_spec(name) for name in ("onnx", "onnxscript", "onnxruntime"))
SMALL = {"task": "link", "model.dim": 8, "loop.epochs": 1, "loop.progress": False, "loop.device": "cpu"}
HOPS = {"model.num_heads": 2, "tokens.num_hops": 2}
KINDS = [
    ("gcn", {}),
    ("nagphormer", {**HOPS, "link.decoder": "bilinear", "link.structural_features": False}),
    *((method, {}) for method in ("mlp", "sage", "gin", "pna", "gcnii")),
    ("gat", {"model.heads": 2}),
    ("gcn", {"link.decoder": "dot", "link.structural_features": False}),
    ("nagphormer", {**HOPS, "link.structural_features": True}),
    ("sage", {"batching.kind": "neighbor"}),
]
PAIRS = np.array([[0, 1], [5, 9], [7, 7], [59, 3], [2, 40], [1, 0], [33, 34]])


def graph() -> Graph:
    return stochastic_block_model(num_nodes=60, num_classes=3, num_features=5, seed=1)


def queries_and_outputs(run: Path) -> tuple[dict[str, Tensor], np.ndarray]:
    """Return every possible input of a program, and the logits of PAIRS."""
    with load_run(run, graph(), device="cpu") as (_, task), torch.no_grad():
        assert isinstance(task, StaticLinkTask)
        task.model.eval()
        source, messages = task.vectors("test")
        like, near = next(task.model.parameters()), task.near(messages).features(*PAIRS.T)
        given = {"pairs": torch.from_numpy(PAIRS), "near": torch.from_numpy(near).to(like)}
        if isinstance(source, RowBatches):
            given["tokens"] = source.inputs(np.arange(60))
        lists = messages.incoming
        receivers = torch.from_numpy(np.repeat(np.arange(60), np.diff(lists.indptr)))
        given["edge_index"] = torch.stack([torch.from_numpy(np.array(lists.indices, np.int64)), receivers])
        given["edge_weight"] = torch.ones(len(receivers)).to(like)
        given["x"] = torch.tensor(messages.x).to(like)
        return given, task.scorer("test")(*PAIRS.T)


def same_logits(method: str, folder: Path, to: str, settings: dict[str, object]) -> None:
    run = fit(method, graph(), out=folder / "run", config={**SMALL, **settings}).path
    given, expected = queries_and_outputs(run)
    path = export_run(run, to, folder / "program")  # type: ignore[arg-type]
    names = [port["name"] for port in json.loads((path.parent / "export.json").read_text())["inputs"]]
    inputs = {name: given[name] for name in names}
    assert "pairs" in names
    if to == "torch":
        logit, score = (x.detach().numpy() for x in torch.export.load(path).module()(*inputs.values()))
    else:
        import onnxruntime

        session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
        logit, score = session.run(None, {name: x.numpy() for name, x in inputs.items()})
    np.testing.assert_allclose(logit, expected, rtol=PROGRAM, atol=PROGRAM)
    np.testing.assert_allclose(score, 1 / (1 + np.exp(-expected)), rtol=PROGRAM, atol=PROGRAM)


@pytest.mark.slow
@pytest.mark.parametrize(("method", "settings"), KINDS, ids=str)
def test_a_program_of_links_gives_the_logits_of_the_run(
    method: str, settings: dict[str, object], tmp_path: Path
) -> None:
    same_logits(method, tmp_path, "torch", settings)


@pytest.mark.skipif(not ONNX, reason="needs onnx, onnxscript and onnxruntime, which are not installed")
@pytest.mark.slow
@pytest.mark.parametrize(("method", "settings"), KINDS, ids=str)
def test_onnx_of_links_gives_the_logits_of_the_run(method: str, settings: dict[str, object], tmp_path: Path) -> None:
    same_logits(method, tmp_path, "onnx", settings)
