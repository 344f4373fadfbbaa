"""`loop.precision=64`: float64 in weights, features and message sums, also in loaded runs."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from hopstate.compensation.gas import GasCache
from hopstate.data.events import EventStream
from hopstate.data.graph import Graph
from hopstate.data.graph_set import GraphSet, folds
from hopstate.datasets.generators import stochastic_block_model
from hopstate.layers.message import Adjacency
from hopstate.methods import get_method
from hopstate.methods.config import config_from
from hopstate.methods.message_passing.model import Backbone, BackboneConfig
from hopstate.methods.method import Context
from hopstate.runs.inference import evaluate
from hopstate.runs.run import fit
from hopstate.sampling.event_batches import event_batches
from hopstate.sampling.samplers import cutter_of
from hopstate.sampling.subgraph import full_adjacency
from hopstate.testing.conformance import F32_LAST, F64, F64_SOLVED
from hopstate.training.checkpoint import load_checkpoint

LOOP = {"loop.epochs": 2, "loop.logger": "none", "loop.device": "cpu", "loop.progress": False}
PARTS = {"batching.num_clusters": 6, "batching.clusters_per_batch": 2}
CASES: dict[str, tuple[str, dict[str, Any]]] = {
    **{name: (name, {}) for name in ("gcn", "sage", "gat", "gin", "pna", "gcnii", "nagphormer", "gmn")},
    "gcn-layerwise": ("gcn", {"batching.kind": "cluster", **PARTS, "batching.block_size": 20}),
    "gcn-top": ("gcn", {"batching.kind": "top", **PARTS}),
    "gcn-top-general": ("gcn", {"batching.kind": "top", **PARTS, "batching.top.form": "general"}),
    "gcn-top-blocks": ("gcn", {"batching.kind": "top", **PARTS, "batching.block_size": 20}),
    "gcn-top-kept": ("gcn", {"batching.kind": "top", **PARTS, "batching.top.refresh": 0, "batching.shuffle": False}),
    "sage-gas": ("sage", {"batching.kind": "gas", **PARTS}),
    **{f"sage-{kind}": ("sage", {"batching.kind": kind}) for kind in ("saint", "shadow", "neighbor", "labor")},
    "gat-edges": ("gat", {}),
    "gmn-batches": ("gmn", {"batch_size": 20, "model.mpnn": "gcn"}),
    "gps": ("gmn", {"model.variant": "gps-mamba", "model.mpnn": "gin"}),
}


def graph_of(name: str) -> Graph:
    graph = stochastic_block_model(90, 3, degree=6, num_features=5, seed=0)
    if "edges" not in name:
        return graph
    return graph.with_(edge_attr=np.random.default_rng(0).normal(size=(graph.num_edges, 2)).astype(np.float32))


QUICK = ("gat", "nagphormer", "gmn", "sage-gas")


@pytest.mark.parametrize("name", [n if n in QUICK else pytest.param(n, marks=pytest.mark.slow) for n in CASES])
def test_runs_are_trained_saved_and_loaded_in_float64(name: str, tmp_path: Path) -> None:
    (method, settings), graph = CASES[name], graph_of(name)
    run = fit(method, graph, out=tmp_path / "run", **LOOP, **{"loop.precision": "64"}, **settings)
    weights = load_checkpoint(run.path / "model.safetensors").tensors["model"]
    assert {tensor.dtype for tensor in weights.values() if tensor.is_floating_point()} == {torch.float64}
    assert evaluate(run.path, data=graph) == pytest.approx(run.metrics["test"], abs=F64_SOLVED)


@pytest.mark.parametrize("method", ["gin-graphs", pytest.param("gmn-graphs", marks=pytest.mark.slow)])
def test_graph_sets_are_trained_in_float64(method: str, tmp_path: Path) -> None:
    ring = np.arange(5)
    edges = np.concatenate([np.stack([ring, np.roll(ring, 1)], 1) + 5 * g for g in range(20)])
    x = np.random.default_rng(0).normal(size=(100, 3)).astype(np.float32)
    union = Graph.from_edges(edges, 100, x=x)
    masks = folds([np.arange(10)], [np.arange(10, 20)], 20)
    graphs = GraphSet(union=union, offsets=np.arange(0, 101, 5), y=np.arange(20) % 2, masks=masks)
    run = fit(method, graphs, out=tmp_path / "run", **LOOP, **{"loop.precision": "64", "model.dim": 8})
    weights = load_checkpoint(run.path / "model.safetensors").tensors["model"]
    assert {tensor.dtype for tensor in weights.values() if tensor.is_floating_point()} == {torch.float64}
    assert evaluate(run.path, data=graphs) == pytest.approx(run.metrics["test"], abs=F64_SOLVED)


@pytest.mark.parametrize("normalization", ["symmetric", "mean", "sum"])
def test_sums_have_the_precision_of_their_inputs(normalization: Any) -> None:
    graph = graph_of("plain")
    into, x = graph.incoming, torch.randn(90, 4, dtype=torch.float64)
    weight = torch.rand(len(into.indices)) if normalization == "symmetric" else None
    adjacency = Adjacency(torch.tensor(into.indptr), torch.tensor(into.indices), weight=weight)
    dense = torch.zeros(90, 90, dtype=torch.float64)
    rows = torch.repeat_interleave(torch.tensor(np.diff(into.indptr)))
    dense[rows, torch.tensor(into.indices)] = 1.0 if weight is None else weight.double()
    if normalization == "symmetric":
        dense += torch.eye(90)
        scale = dense.sum(1).rsqrt()
        dense = scale[:, None] * dense * scale
    elif normalization == "mean":
        dense = torch.nan_to_num(dense / dense.sum(1, keepdim=True))
    torch.testing.assert_close(
        adjacency.normalized_adjacency(normalization, torch.float64) @ x, dense @ x, rtol=F64, atol=F64
    )
    assert adjacency.normalized_adjacency(normalization).dtype == torch.float32


@pytest.mark.parametrize("method", ["ctdg-ssm", "dyg-mamba", "dygformer", "graphmixer"])
@pytest.mark.parametrize("precision", ["32", "64"])
def test_time_deltas_have_the_precision_of_the_model(method: str, precision: str, tmp_path: Path) -> None:
    """2^26 + 1 is exact in float64, but not in float32."""
    src, dst = np.arange(40) % 4, 4 + np.arange(40) % 3
    stream = EventStream(src=src, dst=dst, t=8 * np.arange(40))
    given = {"data": "x", "time_scale": "raw", "loop.precision": precision, "evaluation.strategies": ["random"]}
    task = get_method(method).build(
        stream, config_from(get_method(method), given), Context(run=tmp_path / "run", cache=tmp_path)
    )
    model = task.model.double() if precision == "64" else task.model
    scorer = task.scorer_over(stream)
    for batch in event_batches(stream, np.arange(40), batch_size=40):
        scorer.observe(batch)
    with torch.no_grad():
        for parameter in model.parameters():  # gates that start closed let a time delta pass
            parameter += 0.01 * torch.rand(parameter.shape, dtype=parameter.dtype)
    late = 2**26 + 1024 + np.arange(2)
    scores = scorer.score(np.zeros(2, np.int64), np.full(2, 4), late)
    apart = abs(float(scores[1] / scores[0]) - 1)
    assert apart < F32_LAST if precision == "32" else apart > 0


def test_histories_keep_every_digit() -> None:
    """After all nodes have sent messages with fixed weights, GAS batches equal the full graph."""
    graph = graph_of("plain")
    config = BackboneConfig(dim=6, num_layers=2, dropout=0.0)
    model = Backbone(config, kind="gcn", in_dim=5, num_classes=3).double().eval()
    x = torch.tensor(graph.x, dtype=torch.float64)
    history = GasCache(90, [6, 6], dtype=torch.float64)
    with torch.no_grad():
        whole = model(x, full_adjacency(graph))
        for _ in range(3):
            for rows in np.array_split(np.arange(90), 4):
                out = model(x[rows], history.propagator(graph, cutter_of(graph), rows))
    torch.testing.assert_close(out, whole[rows], rtol=F64, atol=F64)
