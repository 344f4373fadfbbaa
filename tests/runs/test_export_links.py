"""Programs of links give the scores and probabilities of hopstate, on inputs from `export_inputs`."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import hopstate
from hopstate.errors import DataError
from hopstate.evaluation.calibration import IsotonicCurve
from hopstate.methods.shared.programs import ExportSpec, Port
from hopstate.runs.export import Calibrated, Format, add_probabilities, export_run
from hopstate.testing.conformance import F32, F64
from made_events import LOOP, RANDOM, SMALL, repeating

ONNX = all(importlib.util.find_spec(name) for name in ("onnx", "onnxscript", "onnxruntime"))
EXPORTED = ("graphmixer", "dygformer", "dyg-mamba")
PAIRS = [(i % 10, 10 + 3 * i % 10) for i in range(7)]
OWN: dict[str, dict[str, Any]] = {
    "graphmixer": {"model.dim": 6, "model.time_dim": 6, "model.out_dim": 4},
    "dygformer": {"model.max_length": 6, "model.channel_dim": 4, "model.time_dim": 8, "model.out_dim": 12},
    "dyg-mamba": {"model.block.state_dim": 4, "model.num_layers": 1, "history.max_length": 4},
}


def answers(path: Path, inputs: dict[str, np.ndarray]) -> list[np.ndarray]:
    if path.suffix == ".pt2":
        with torch.no_grad():
            found = torch.export.load(path).module()(*(torch.from_numpy(x) for x in inputs.values()))
        return [x.numpy() for x in found]
    import onnxruntime

    return onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"]).run(None, inputs)


def same_answers(method: str, folder: Path, to: Format) -> None:
    own = repeating(200)
    settings = {**LOOP, **RANDOM, **SMALL.get(method, {}), **OWN.get(method, {})}
    run = hopstate.fit(method, own, out=folder / "run", config=settings).path
    path = export_run(run, to, folder / "program")
    kept = json.loads((path.parent / "export.json").read_text())
    expected = hopstate.score(run, PAIRS)
    given = hopstate.export_inputs(run, PAIRS)
    assert [(name, str(x.dtype), x.ndim) for name, x in given.items()] == [
        (port["name"], port["dtype"], len(port["shape"])) for port in kept["inputs"]
    ]
    assert [port["name"] for port in kept["outputs"]] == ["logit", "score", "probability"]
    one = hopstate.export_inputs(run, PAIRS[-1:])
    for inputs, table in ((given, expected), (one, expected[-1:])):
        logit, score, probability = answers(path, inputs)
        assert logit.dtype == np.float32
        np.testing.assert_allclose(score, table.score, rtol=0, atol=F32)
        np.testing.assert_allclose(probability, table.probability, rtol=0, atol=F32)


@pytest.mark.slow
def test_a_program_gives_the_scores_of_the_run(tmp_path: Path) -> None:
    same_answers("graphmixer", tmp_path, "torch")


@pytest.mark.slow
@pytest.mark.skipif(not ONNX, reason="needs onnx, onnxscript and onnxruntime, which are not installed")
@pytest.mark.parametrize("method", EXPORTED)
def test_onnx_gives_the_scores_of_the_run(method: str, tmp_path: Path) -> None:
    same_answers(method, tmp_path, "onnx")


@pytest.mark.parametrize("knots", [[0.5], [0.1, 0.4, 0.4, 0.9], [0.2, 0.7]])
def test_a_program_contains_the_calibration(knots: list[float]) -> None:
    curve = IsotonicCurve(np.array(knots), np.linspace(0.1, 0.8, len(knots)), 3, 1.0, "random")
    score = np.array([1e-9, 0.1, 0.3, 0.4, 0.41, 0.9, 0.95, 0.5])
    logit = torch.logit(torch.from_numpy(score))
    _, given, found = Calibrated(torch.nn.Identity(), curve)(logit)
    np.testing.assert_allclose(found, curve(given.numpy()), rtol=0, atol=F64)


def test_a_run_without_a_calibration_has_no_probabilities() -> None:
    port = Port(name="logit", meaning="", axes=("pair",))
    form = ExportSpec(module=torch.nn.Identity(), inputs=(port,), outputs=(port,), preprocessing="as is")
    made = add_probabilities(form, DataError("validation has no events"))
    assert [own.name for own in made.outputs] == ["logit", "score"]
    assert len(made.module(torch.zeros(2))) == 2
