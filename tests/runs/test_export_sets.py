"""Programs of runs on sets of graphs give the runs' own rows, for any number of nodes, edges and graphs."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import numpy as np
import pytest
import torch

from hopstate.data.graph import Graph
from hopstate.data.graph_set import GraphSet, folds
from hopstate.runs.api import fit
from hopstate.runs.export import export_run
from hopstate.runs.load import load_run
from hopstate.testing.asserts import F32
from hopstate.training.tasks.graph import GraphTask

ONNX = all(importlib.util.find_spec(name) for name in ("onnx", "onnxscript", "onnxruntime"))
SMALL = {"model.dim": 8, "model.num_layers": 2, "loop.epochs": 2, "loop.progress": False, "loop.device": "cpu"}


def rings(count: int = 30) -> GraphSet:
    rng, parts = np.random.default_rng(0), []
    y, sizes = np.arange(count) % 2, rng.integers(4, 9, count)
    for label, size, first in zip(y, sizes, np.cumsum(sizes) - sizes):
        ring = np.stack([np.arange(size), (np.arange(size) + 1) % size], 1)
        parts.append(first + (ring if label else ring[:-1]))
    total = int(sizes.sum())
    union = Graph.from_edges(np.concatenate(parts), total, x=rng.normal(size=(total, 3)).astype(np.float32))
    offsets = np.concatenate([[0], np.cumsum(sizes)])
    return GraphSet(union=union, offsets=offsets, y=y, masks=folds([np.arange(20)], [np.arange(20, count)], count))


@pytest.mark.parametrize("pooling", ["sum", "mean", "max"])
@pytest.mark.parametrize("to", ["torch", pytest.param("onnx", marks=pytest.mark.skipif(not ONNX, reason="needs onnx"))])
def test_a_program_of_graphs_gives_the_runs_own_rows(pooling: str, to: str, tmp_path: Path) -> None:
    run = fit("gin-graphs", rings(), out=tmp_path / "run", config={**SMALL, "model.pooling": pooling}).path
    path = export_run(run, to, tmp_path / "program", data=rings())  # type: ignore[arg-type]
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
            torch.testing.assert_close(found, task.model(batch), rtol=F32, atol=F32)
