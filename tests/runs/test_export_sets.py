"""Programs of graph-set runs give the outputs of the runs, for any number of nodes, edges and graphs."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import numpy as np
import pytest
import torch

from hopstate.runs.export import export_run
from hopstate.runs.load import load_run
from hopstate.runs.run import fit, load
from hopstate.testing.conformance import PROGRAM
from hopstate.training.tasks.graph import GraphTask
from made_graphs import rings

ONNX = all(importlib.util.find_spec(name) for name in ("onnx", "onnxscript", "onnxruntime"))
SMALL = {"model.dim": 8, "model.num_layers": 2, "loop.epochs": 2, "loop.progress": False, "loop.device": "cpu"}


@pytest.mark.slow
@pytest.mark.parametrize("pooling", ["sum", "mean", "max", "all"])
@pytest.mark.parametrize("to", ["torch", pytest.param("onnx", marks=pytest.mark.skipif(not ONNX, reason="needs onnx"))])
def test_a_program_of_graphs_gives_the_outputs_of_the_run(pooling: str, to: str, tmp_path: Path) -> None:
    run = fit("gin-graphs", rings(), out=tmp_path / "run", config={**SMALL, "model.pooling": pooling}).path
    own = rings()
    opened = load(run, data=own)  # graph sets are not saved with a run
    path = export_run(opened.path, to, tmp_path / "program")  # type: ignore[arg-type]
    with load_run(run, rings(), device="cpu") as (_, task), torch.no_grad():
        assert isinstance(task, GraphTask)
        task.model.eval()
        for ids in (np.array([5]), np.array([3, 0, 7, 11, 2])):
            batch = task.collate(ids, 0, None)
            receivers = torch.repeat_interleave(batch.graph.indptr.diff())
            inputs = {"x": batch.x, "edge_index": torch.stack([batch.graph.indices, receivers])}
            inputs["sizes"] = batch.sequences.diff()
            if to == "torch":
                found = torch.export.load(path).module()(*inputs.values())
            else:
                import onnxruntime

                session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
                found = torch.from_numpy(session.run(None, {n: v.numpy() for n, v in inputs.items()})[0])
            torch.testing.assert_close(found, task.model(batch), rtol=PROGRAM, atol=PROGRAM)
